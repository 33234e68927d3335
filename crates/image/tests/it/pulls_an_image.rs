//! The ordinary case: an image of several layers from a real registry.

use std::{fs, os::unix::fs::FileTypeExt, path::Path};

use lis_image::{Platform, Silent};

use crate::{
    registry::{Access, Registry},
    support::{Packing, TestImage, TestStore, chain, quick, skip, tar},
};

fn three_layers() -> TestImage {
    let low = tar(&[
        ("etc/", b""),
        ("etc/motd", b"old"),
        ("etc/keep", b"kept"),
        ("opt/", b""),
        ("opt/below", b"hidden"),
    ]);
    let middle = tar(&[("etc/", b""), ("etc/.wh.motd", b""), ("bin/", b""), ("bin/tool", b"tool")]);
    let top = tar(&[("opt/", b""), ("opt/.wh..wh..opq", b""), ("opt/above", b"seen")]);
    TestImage::new(&[(low, Packing::Gzip), (middle, Packing::Zstd), (top, Packing::Plain)])
}

#[tokio::test]
async fn layers_of_every_packing_arrive_in_order_with_their_whiteouts() {
    let Some(registry) = Registry::start(Access::Everyone) else { return };
    registry.push("team/tool", "1.0", &three_layers());
    let test = TestStore::new();
    let name = registry.name("team/tool:1.0");
    let info = test.store.pull(&name, &quick(), &Silent).await.unwrap();
    assert_eq!((info.name.as_str(), info.layers), (name.as_str(), 3));
    assert_eq!(info.id, lis_image::Digest::of(&three_layers().config));
    assert_eq!(test.store.list().unwrap(), [info]);

    let rootfs = test.store.rootfs(&name).unwrap();
    let [top, middle, low] = &rootfs.layers[..] else { panic!("{rootfs:?}") };
    assert_eq!(fs::read(low.join("etc/motd")).unwrap(), b"old");
    assert!(fs::symlink_metadata(middle.join("etc/motd")).unwrap().file_type().is_char_device());
    assert_eq!(fs::read(top.join("opt/above")).unwrap(), b"seen");
    assert_eq!(rootfs.env, [("PATH".into(), "/usr/bin".into()), ("A".into(), "b=c".into())]);
    assert_eq!(rootfs.workdir.as_deref(), Some(Path::new("/work")));
    assert!(!rootfs.on_host);
    assert_eq!((test.names("downloads"), test.names("tmp")), (vec![], vec![]));
    see_through_overlayfs(&rootfs.layers);
}

/// The kernel is the judge of whether whiteouts are right.
fn see_through_overlayfs(layers: &[std::path::PathBuf]) {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let point = tempfile::tempdir().unwrap();
    let lower: Vec<_> = layers.iter().map(|layer| layer.to_str().unwrap()).collect();
    let options =
        std::ffi::CString::new(format!("lowerdir={},userxattr", lower.join(":"))).unwrap();
    if let Err(error) = mount("overlay", point.path(), "overlay", MountFlags::RDONLY, &*options) {
        return skip("overlay", &format!("overlayfs cannot be mounted here: {error}"));
    }
    let seen = |path: &str| fs::read_to_string(point.path().join(path)).ok();
    let found = ["etc/motd", "etc/keep", "opt/below", "opt/above", "bin/tool"].map(seen);
    unmount(point.path(), UnmountFlags::DETACH).unwrap();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(found, [None, some("kept"), None, some("seen"), some("tool")]);
}

#[tokio::test]
async fn an_index_gives_the_image_of_this_machine() {
    let Some(registry) = Registry::start(Access::Everyone) else { return };
    let here = Platform::here();
    let other: Platform = "linux/s390x".parse().unwrap();
    let layer = |text: &[u8]| vec![(tar(&[("which", text)]), Packing::Gzip)];
    let ours = TestImage::new(&layer(b"ours"));
    let theirs = TestImage::for_platform(&layer(b"theirs"), &other);
    registry.push_index(
        "multi",
        "latest",
        &[(&theirs, "linux", "s390x"), (&ours, "linux", &here.architecture)],
    );
    registry.push_index("foreign", "latest", &[(&theirs, "linux", "s390x")]);
    registry.push("single", "latest", &theirs);

    let test = TestStore::new();
    let which = |name: &str| {
        let rootfs = test.store.rootfs(name).unwrap();
        fs::read_to_string(rootfs.layers[0].join("which")).unwrap()
    };
    // No tag means `latest`, and the name is kept as typed.
    let name = registry.name("multi");
    test.store.pull(&name, &quick(), &Silent).await.unwrap();
    assert_eq!(which(&name), "ours");
    for name in ["foreign", "single"] {
        let error = test.store.pull(&registry.name(name), &quick(), &Silent).await.unwrap_err();
        let text = chain(&error);
        assert!(text.contains(&here.to_string()) && text.contains("linux/s390x"), "{text}");
        assert!(error.is_usage());
    }
    let mut options = quick();
    options.platform = other;
    test.store.pull(&name, &options, &Silent).await.unwrap();
    assert_eq!(which(&name), "theirs");
}

#[tokio::test]
async fn a_digest_pins_the_image_and_known_layers_are_not_fetched_again() {
    let Some(registry) = Registry::start(Access::Everyone) else { return };
    let image = three_layers();
    registry.push("pinned", "latest", &image);
    let test = TestStore::new();
    let name = registry.name(&format!("pinned@{}", image.digest()));
    test.store.pull(&name, &quick(), &Silent).await.unwrap();
    // Without the blobs only what is stored already can serve a second pull.
    for layer in &image.layers {
        fs::remove_file(registry.blob_file(&lis_image::Digest::of(layer))).unwrap();
    }
    let other = registry.name("pinned:latest");
    test.store.pull(&other, &quick(), &Silent).await.unwrap();
    assert_eq!(test.store.rootfs(&other).unwrap().layers, test.store.rootfs(&name).unwrap().layers);
    test.store.remove(&name).unwrap();
    test.store.remove(&other).unwrap();
    assert_eq!(test.names("layers"), [""; 0]);
    assert!(test.store.pull(&other, &quick(), &Silent).await.is_err());
}
