//! Tests of the module of the same name: what it must do, and what it must refuse.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::{DirCheck, progress::Silent, prune::Pruned};

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    (dir, store)
}

fn tar_of(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, data.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn nothing_is_made_before_it_is_needed() {
    let (dir, store) = store();
    assert_eq!(store.list().unwrap(), []);
    assert_eq!(store.prune().unwrap(), Pruned::default());
    assert!(matches!(store.rootfs("base"), Err(Error::Unknown { .. })));
    assert!(matches!(store.remove("base"), Err(Error::Unknown { .. })));
    assert!(matches!(store.rootfs("../base"), Err(Error::Name(_))));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(Store::open(dir.path().join("file")).is_err());
}

#[test]
fn a_directory_becomes_an_image_with_its_links() {
    let (dir, store) = store();
    let from = dir.path().join("from");
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::write(from.join("a/b/f"), "hello").unwrap();
    fs::hard_link(from.join("a/b/f"), from.join("a/g")).unwrap();
    std::os::unix::fs::symlink("/nowhere", from.join("a/l")).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o711)).unwrap();
    let info = store.import_dir(&from, "mine", DirCheck::Any, &Silent).unwrap();
    assert_eq!((info.size, info.layers), (5, 1));
    let rootfs = store.rootfs("mine").unwrap();
    let [layer] = &rootfs.layers[..] else { panic!("{rootfs:?}") };
    assert!(!rootfs.on_host);
    assert_eq!(fs::read(layer.join("a/g")).unwrap(), b"hello");
    let inode = |path: &str| fs::metadata(layer.join(path)).unwrap().ino();
    assert_eq!(inode("a/g"), inode("a/b/f"));
    assert_eq!(fs::read_link(layer.join("a/l")).unwrap(), Path::new("/nowhere"));
    assert_eq!(fs::metadata(layer).unwrap().permissions().mode() & 0o7777, 0o711);
    assert_eq!(fs::metadata(store.dir("")).unwrap().permissions().mode() & 0o777, 0o700);
    // The same content again is the same layer.
    assert_eq!(store.import_dir(&from, "again", DirCheck::Any, &Silent).unwrap().id, info.id);
    assert_eq!(names(&store.layers_dir()).len(), 1);
    assert_eq!(names(&store.workspaces_dir()), [""; 0]);

    fs::write(from.join("a/.wh.x"), "").unwrap();
    let error = store.import_dir(&from, "bad", DirCheck::Any, &Silent).unwrap_err();
    let chain = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(chain.contains(".wh.x"), "{chain}");
    assert!(store.import_dir(&dir.path().join("none"), "bad", DirCheck::Any, &Silent).is_err());
    assert!(matches!(store.rootfs("bad"), Err(Error::Unknown { .. })));
}

#[test]
fn a_directory_that_is_not_a_system_is_refused() {
    let (dir, store) = store();
    let from = dir.path().join("from");
    fs::create_dir_all(from.join("usr/bin")).unwrap();
    let import = || store.import_dir(&from, "mine", DirCheck::RootFileSystem, &Silent);
    let error = import().unwrap_err();
    assert!(matches!(error, Error::NotARootFileSystem { .. }) && error.is_usage(), "{error}");
    // An absolute link counts inside the directory, not on this machine.
    std::os::unix::fs::symlink("/nowhere", from.join("bin")).unwrap();
    assert!(import().is_err());
    fs::remove_file(from.join("bin")).unwrap();
    std::os::unix::fs::symlink("/usr/bin", from.join("bin")).unwrap();
    std::os::unix::fs::symlink("/bin/dash", from.join("usr/bin/sh")).unwrap();
    import().unwrap();
}

#[test]
fn a_directory_that_contains_the_store_is_refused() {
    let (dir, store) = store();
    // Before the store exists and after, directly and through a link.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    for round in 0..2 {
        for from in [dir.path(), &link, &link.join("../.")] {
            let error = store.import_dir(from, "mine", DirCheck::Any, &Silent).unwrap_err();
            assert!(matches!(error, Error::ContainsStore { .. }), "{round}: {error}");
        }
        store.commit("other", None, &tar_of(&[("a", "1")])[..]).unwrap();
    }
    let beside = dir.path().join("storeroom");
    fs::create_dir(&beside).unwrap();
    store.import_dir(&beside, "mine", DirCheck::Any, &Silent).unwrap();
}

#[derive(Default)]
struct Warnings(std::sync::Mutex<Vec<String>>);

impl crate::Progress for Warnings {
    fn stage(&self, _: crate::Stage, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
    fn message(&self, _: &str) {}
    fn warning(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

#[test]
fn pipes_are_kept_and_sockets_are_reported() {
    use std::os::unix::fs::FileTypeExt;
    let (dir, store) = store();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, from.join("pipe"), rustix::fs::FileType::Fifo, mode, 0)
        .unwrap();
    let warnings = Warnings::default();
    store.import_dir(&from, "mine", DirCheck::Any, &warnings).unwrap();
    assert_eq!(warnings.0.into_inner().unwrap(), ["left out 1 device or socket"]);
    let rootfs = store.rootfs("mine").unwrap();
    let pipe = fs::symlink_metadata(rootfs.layers[0].join("pipe")).unwrap();
    assert!(pipe.file_type().is_fifo());
    assert!(!rootfs.layers[0].join("socket").exists());
}

#[test]
fn several_images_go_at_once_or_none_does() {
    let (_dir, store) = store();
    for name in ["a", "b", "c"] {
        store.commit(name, None, &tar_of(&[(name, name)])[..]).unwrap();
    }
    let unknown = store.discard(&["a", "nope"]).unwrap_err();
    assert!(matches!(unknown, Error::Unknown { name } if name == "nope"));
    assert_eq!(store.list().unwrap().len(), 3);
    let removed = store.discard(&["a", "b", "a"]).unwrap();
    assert_eq!((removed.layers, removed.bytes), (2, 2));
    assert_eq!(names(&store.layers_dir()).len(), 1);
    assert_eq!(store.prune().unwrap(), Pruned { kept: 1, ..Pruned::default() });
    assert_eq!(names(&store.dir("trash")), [""; 0]);
}

#[test]
fn the_trash_of_a_killed_process_is_deleted_by_the_next() {
    let (_dir, store) = store();
    assert!(!store.has_abandoned_trash().unwrap());
    store.commit("a", None, &tar_of(&[("a", "a")])[..]).unwrap();
    store.discard(&["a"]).unwrap();
    assert!(store.has_abandoned_trash().unwrap());
    assert_eq!(names(&store.layers_dir()), [""; 0]);
    // While another process deletes, this one does not wait.
    let other = crate::lock::try_exclusive(&store.dir("trash")).unwrap();
    assert!(!store.has_abandoned_trash().unwrap());
    store.empty_trash(&Silent).unwrap();
    assert_eq!(names(&store.dir("trash")).len(), 1);
    drop(other);
    // A process that starts with the number of one that was killed.
    store.commit("a", None, &tar_of(&[("a", "a")])[..]).unwrap();
    store.remove("a").unwrap();
    assert_eq!(names(&store.dir("trash")), [""; 0]);
}

#[test]
fn commits_stack_on_a_base_or_on_the_host() {
    let (_dir, store) = store();
    let host = store.commit("one", None, &tar_of(&[("a", "1")])[..]).unwrap();
    assert!(host.on_host);
    store.commit("two", Some("one"), &tar_of(&[("b", "2")])[..]).unwrap();
    let two = store.rootfs("two").unwrap();
    assert!(two.on_host);
    assert_eq!(two.layers.len(), 2);
    assert!(two.layers[0].join("b").exists() && two.layers[1].join("a").exists());
    assert!(matches!(store.commit("x", Some("none"), io::empty()), Err(Error::Unknown { .. })));
    // A name given again means the new image.
    store.commit("two", Some("two"), &tar_of(&[("c", "3")])[..]).unwrap();
    assert_eq!(store.rootfs("two").unwrap().layers.len(), 3);
    let list: Vec<_> =
        store.list().unwrap().into_iter().map(|i| (i.name, i.size, i.layers)).collect();
    assert_eq!(list, [("one".into(), 1, 1), ("two".into(), 3, 3)]);
}

#[test]
fn removal_spares_what_others_need_and_prune_what_is_in_use() {
    let (_dir, store) = store();
    store.commit("one", None, &tar_of(&[("a", "1")])[..]).unwrap();
    store.commit("two", Some("one"), &tar_of(&[("b", "22")])[..]).unwrap();
    store.remove("one").unwrap();
    let two = store.rootfs("two").unwrap();
    assert!(two.layers[1].join("a").exists());

    store.remove("two").unwrap();
    assert!(two.layers[0].join("b").exists(), "a layer in use must stay");
    assert_eq!(store.prune().unwrap(), Pruned { in_use: 2, ..Pruned::default() });
    let kept = two.lease.clone();
    drop(two);
    assert_eq!(store.prune().unwrap().in_use, 2);
    drop(kept);
    assert_eq!(store.prune().unwrap(), Pruned { layers: 2, bytes: 3, ..Pruned::default() });
    assert_eq!(names(&store.layers_dir()), [""; 0]);
}

#[test]
fn prune_tells_dead_workspaces_and_downloads_from_living_ones() {
    let (_dir, store) = store();
    let living = store.workspace().unwrap();
    let dead = store.workspaces_dir().join("1-99");
    fs::create_dir_all(dead.join("leases")).unwrap();
    fs::create_dir_all(dead.join("0/fs/locked")).unwrap();
    fs::set_permissions(dead.join("0/fs/locked"), fs::Permissions::from_mode(0o0)).unwrap();
    let cut = store.downloads_dir().join(Digest::of(b"cut").hex());
    private_dir(&store.downloads_dir()).unwrap();
    fs::write(&cut, "12345").unwrap();
    // Only the living one's lease counts.
    let layer = store.add_layer(&living, &tar_of(&[("a", "1")])[..], None).unwrap();
    let loose = {
        let other = store.workspace().unwrap();
        store.add_layer(&other, &tar_of(&[("b", "1")])[..], None).unwrap()
    };
    fs::write(dead.join("leases").join(loose.hex()), "").unwrap();
    let pruned = store.prune().unwrap();
    let expected = Pruned { layers: 1, downloads: 1, workspaces: 1, bytes: 6, ..Pruned::default() };
    assert_eq!(pruned, expected);
    assert!(store.layer_path(&layer).exists() && !dead.exists() && !cut.exists());
    drop(living);
    assert_eq!(store.prune().unwrap().layers, 1);
}

/// A process that dies between storing or removing an image's layers and its record leaves layers without an image.
#[test]
fn what_a_dead_process_was_saving_goes_with_the_next_image() {
    let (_dir, store) = store();
    let add = |name: &str| {
        let other = store.workspace().unwrap();
        store.add_layer(&other, &tar_of(&[(name, "1")])[..], None).unwrap()
    };
    let layers = ["saved", "pulled", "used", "leased"].map(add);
    let [saved, pulled, used, leased] = layers;
    store.commit("kept", None, &tar_of(&[("used", "1")])[..]).unwrap();
    let living = store.workspace().unwrap();
    assert!(store.lease_layer(&living, &leased).unwrap());
    let dead = store.workspaces_dir().join("1-99");
    for (list, noted) in
        [("leases", [saved, pulled].as_slice()), ("expendable", &[saved, used, leased])]
    {
        fs::create_dir_all(dead.join(list)).unwrap();
        noted.iter().for_each(|layer| fs::write(dead.join(list).join(layer.hex()), "").unwrap());
    }
    store.commit("other", None, &tar_of(&[("other", "1")])[..]).unwrap();
    store.remove("other").unwrap();
    let left = layers.map(|layer| store.layer_path(&layer).exists());
    assert_eq!(left, [false, true, true, true]);
    assert_eq!(names(&store.workspaces_dir()).len(), 2, "the living one and the dead one");
}

#[test]
fn layers_are_noted_until_their_image_is_saved() {
    let (_dir, store) = store();
    let workspace = store.workspace().unwrap().with_expendable_leases();
    let at = store.workspaces_dir().join(&names(&store.workspaces_dir())[0]);
    let layer = store.add_layer(&workspace, &tar_of(&[("a", "1")])[..], None).unwrap();
    assert_eq!(Workspace::expendable(&at).unwrap(), [layer]);
    assert_eq!(Workspace::leased(&at).unwrap(), [layer]);
    // It may still become an image.
    store.prune().unwrap();
    assert!(store.layer_path(&layer).exists());
    drop(workspace);
    assert_eq!(names(&store.workspaces_dir()), [""; 0]);
}

#[test]
fn a_layer_that_is_not_what_was_promised_is_not_kept() {
    let (_dir, store) = store();
    let workspace = store.workspace().unwrap();
    let tar = tar_of(&[("a", "1")]);
    let error = store.add_layer(&workspace, &tar[..], Some(&Digest::of(b"else"))).unwrap_err();
    assert!(matches!(error, Error::WrongLayer { .. }), "{error}");
    assert_eq!(names(&store.layers_dir()), [""; 0]);
    // Bytes after the end of the archive belong to the layer.
    let padded = [&tar[..], &[0; 5000]].concat();
    let digest = store.add_layer(&workspace, &padded[..], Some(&Digest::of(&padded))).unwrap();
    assert_eq!(digest, Digest::of(&padded));
}

#[test]
fn a_bomb_ends_at_the_limit_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { layer_bytes: 100_000, ..Limits::default() };
    let store = Store::with_limits(dir.path(), limits).unwrap();
    let big = "x".repeat(200_000);
    assert!(matches!(
        store.commit("bomb", None, &tar_of(&[("a", &big)])[..]),
        Err(Error::Unpack(_))
    ));
    assert_eq!(names(&store.workspaces_dir()), [""; 0]);
    assert_eq!(store.list().unwrap(), []);
}

#[test]
fn a_layer_does_not_fill_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { reserve: Some(u64::MAX), ..Limits::default() };
    let store = Store::with_limits(dir.path(), limits).unwrap();
    let refused = store.commit("full", None, &tar_of(&[("a", "1")])[..]).unwrap_err();
    let mut cause: Option<&dyn std::error::Error> = Some(&refused);
    let mut kinds = Vec::new();
    while let Some(error) = cause {
        kinds.extend(error.downcast_ref::<std::io::Error>().map(std::io::Error::kind));
        cause = error.source();
    }
    assert_eq!(kinds, [std::io::ErrorKind::StorageFull], "{refused:?}");
    assert_eq!(names(&store.workspaces_dir()), [""; 0]);
    assert_eq!(store.list().unwrap(), []);
}

#[test]
fn a_damaged_description_is_named_and_can_be_removed() {
    let (_dir, store) = store();
    store.commit("bad", None, &tar_of(&[("a", "1")])[..]).unwrap();
    store.commit("good", None, &tar_of(&[("b", "1")])[..]).unwrap();
    fs::write(store.record_path(&Name::new("bad").unwrap()), "{").unwrap();
    assert!(matches!(store.list(), Err(Error::Record { .. })));
    assert!(matches!(store.prune(), Err(Error::Record { .. })), "what it refers to is not known");
    store.rootfs("good").unwrap();
    store.remove("bad").unwrap();
    assert_eq!(store.prune().unwrap().layers, 1);
    fs::remove_dir_all(store.layers_dir()).unwrap();
    assert!(matches!(store.rootfs("good"), Err(Error::LostLayer { .. })));
}
