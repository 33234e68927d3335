//! Tests of the module of the same name: what it must do, and what it must refuse.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::PathBuf,
};

use proptest::prelude::*;
use tar::EntryType;

use super::*;

/// Writes entries with names and targets exactly as given, however bad.
#[derive(Default)]
struct Layer(Vec<u8>);

impl Layer {
    fn raw(mut self, name: &[u8], link: &[u8], kind: EntryType, mode: u32, data: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name);
        old.linkname[..link.len()].copy_from_slice(link);
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(data.len() as u64);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, data: &str) -> Self {
        self.raw(name.as_bytes(), b"", EntryType::Regular, 0o644, data.as_bytes())
    }

    fn dir(self, name: &str) -> Self {
        self.raw(name.as_bytes(), b"", EntryType::Directory, 0o755, b"")
    }

    fn link(self, name: &str, target: &str) -> Self {
        self.raw(name.as_bytes(), target.as_bytes(), EntryType::Symlink, 0o777, b"")
    }

    fn hard(self, name: &str, target: &str) -> Self {
        self.raw(name.as_bytes(), target.as_bytes(), EntryType::Link, 0o644, b"")
    }
}

/// A root directory inside another, so that escapes can be seen.
struct Place {
    outer: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("root")).unwrap();
        fs::write(outer.path().join("secret"), "untouched").unwrap();
        Self { outer }
    }

    fn root(&self) -> PathBuf {
        self.outer.path().join("root")
    }

    fn take(&self, bytes: &[u8]) -> Result<Unpacked, UnpackError> {
        let result =
            unpack(&mut TarStream::new(bytes, 10_000), &self.root(), Ownership::possible());
        assert_eq!(fs::read_dir(self.outer.path()).unwrap().count(), 2);
        assert_eq!(fs::read(self.outer.path().join("secret")).unwrap(), b"untouched");
        result
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    fn is_whiteout(&self, path: &str) -> bool {
        let meta = fs::symlink_metadata(self.root().join(path)).unwrap();
        meta.file_type().is_char_device() && meta.rdev() == 0
    }

    fn is_opaque(&self, path: &str) -> bool {
        let mut value = [0; 8];
        rustix::fs::getxattr(self.root().join(path), "user.overlay.opaque", &mut value)
            .is_ok_and(|length| &value[..length] == b"y")
    }
}

#[test]
fn files_keep_content_mode_time_and_links() {
    let place = Place::new();
    let layer = Layer::default()
        .raw(b"./", b"", EntryType::Directory, 0o751, b"")
        .dir("bin/")
        .raw(b"bin/su", b"", EntryType::Regular, 0o4755, b"x")
        .hard("bin/su2", "./bin/su")
        .link("bin/sh", "/bin/su")
        .raw(b"locked", b"", EntryType::Directory, 0o500, b"")
        .file("locked/f", "in")
        .raw(b"pipe", b"", EntryType::Fifo, 0o600, b"")
        .raw(b"null", b"", EntryType::Char, 0o666, b"");
    let report = place.take(&layer.0).unwrap();
    assert_eq!((report.entries, report.bytes, report.skipped), (7, 3, 1));
    let meta = |path: &str| fs::symlink_metadata(place.root().join(path)).unwrap();
    assert_eq!(meta("").permissions().mode() & 0o7777, 0o751);
    assert_eq!(meta("bin/su").permissions().mode() & 0o7777, 0o4755);
    assert_eq!(meta("bin/su").ino(), meta("bin/su2").ino());
    assert_eq!(meta("locked").permissions().mode() & 0o7777, 0o500);
    for path in ["bin", "bin/su", "bin/sh", "locked", "locked/f", "pipe"] {
        assert_eq!(meta(path).mtime(), 1_000_000_000, "{path}");
    }
    assert_eq!(fs::read_link(place.root().join("bin/sh")).unwrap(), PathBuf::from("/bin/su"));
    assert!(meta("pipe").file_type().is_fifo());
    assert!(!place.root().join("null").exists());
}

#[test]
fn whiteouts_become_what_overlayfs_reads() {
    let place = Place::new();
    let layer = Layer::default()
        .file("etc/.wh.gone", "")
        .dir("opt/")
        .file("opt/.wh..wh..opq", "")
        .file("opt/new", "n")
        .file(".wh..wh.plnk", "")
        .file(".wh.again", "")
        .dir("again")
        .file("again/f", "f")
        .dir("late")
        .file(".wh.late", "")
        .file("kept", "k")
        .file(".wh.kept", "")
        .file(".wh.deep", "")
        .file("deep/er", "d");
    place.take(&layer.0).unwrap();
    assert!(place.is_whiteout("etc/gone"));
    assert!(place.is_opaque("opt") && place.read("opt/new") == "n");
    assert!(!place.is_opaque("etc"));
    assert!(place.is_opaque("again") && place.read("again/f") == "f");
    assert!(place.is_opaque("late"));
    assert_eq!(place.read("kept"), "k");
    assert!(place.is_opaque("deep") && place.read("deep/er") == "d");
    assert!(!place.root().join(".wh..wh.plnk").exists());
}

#[test]
fn writing_through_a_link_stays_inside_the_layer() {
    let place = Place::new();
    let layer = Layer::default()
        .dir("usr/lib")
        .link("lib", "usr/lib")
        .file("lib/a", "a")
        .link("run", "/var/run")
        .file("run/b", "b")
        .link("up", "../../../../secret-dir")
        .file("up/c", "c")
        .link("far", "usr/lib/../../../../..")
        .file("far/secret", "s")
        .hard("linked", "lib/a");
    place.take(&layer.0).unwrap();
    assert_eq!(place.read("usr/lib/a"), "a");
    assert_eq!(place.read("var/run/b"), "b");
    assert_eq!(place.read("secret-dir/c"), "c");
    assert_eq!(place.read("secret"), "s");
    assert_eq!(place.read("linked"), "a");
}

#[test]
fn a_file_replaces_a_link_instead_of_following_it() {
    let place = Place::new();
    let target = place.outer.path().join("secret");
    let layer = Layer::default()
        .link("f", target.to_str().unwrap())
        .file("f", "new")
        .dir("d")
        .file("d/x", "x")
        .link("d", "/")
        .file("d/y", "y")
        .dir("e")
        .file("e", "file now");
    place.take(&layer.0).unwrap();
    assert_eq!(place.read("f"), "new");
    assert_eq!(place.read("y"), "y");
    assert_eq!(place.read("e"), "file now");
}

#[test]
fn names_that_lead_out_are_refused() {
    let outside = "/etc/passwd";
    for (what, layer) in [
        ("up", Layer::default().file("../evil", "x")),
        ("inner up", Layer::default().file("a/../../evil", "x")),
        ("whiteout of ..", Layer::default().file("a/.wh...", "")),
        ("whiteout of .", Layer::default().file("a/.wh..", "")),
        ("whiteout of nothing", Layer::default().file("a/.wh.", "")),
        ("hard link up", Layer::default().hard("h", "../secret")),
        ("hard link outside", Layer::default().hard("h", outside)),
        ("hard link to the root", Layer::default().hard("h", "/")),
        ("hard link to a directory", Layer::default().dir("d").hard("h", "d")),
        (
            "root as a file",
            Layer::default().file("./", "x").raw(b".", b"", EntryType::Regular, 0, b""),
        ),
        ("below a file", Layer::default().file("f", "x").file("f/g", "x")),
        ("a loop", Layer::default().link("l", "l").file("l/x", "x")),
    ] {
        let place = Place::new();
        assert!(place.take(&layer.0).is_err(), "{what}");
    }
    // Absolute names are names below the root.
    let place = Place::new();
    place.take(&Layer::default().file("/abs", "x").0).unwrap();
    assert_eq!(place.read("abs"), "x");
}

#[test]
fn broken_and_boundless_streams_end_in_errors() {
    let fine = Layer::default().file("f", "data").0;
    let mut wrong_sum = fine.clone();
    wrong_sum[0] ^= 1;
    let cut = &fine[..fine.len() - 100];
    let many = (0..20).fold(Layer::default(), |layer, i| layer.file(&format!("f{i}"), "")).0;
    let long_name = {
        let layer = Layer::default().raw(b"@", b"", EntryType::GNULongName, 0, &vec![b'a'; 10_000]);
        layer.file("f", "").0
    };
    let huge = {
        let mut header = tar::Header::new_gnu();
        header.set_path("f").unwrap();
        header.set_size(u64::MAX);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    for bytes in [&wrong_sum[..], cut, &long_name, &huge] {
        assert!(Place::new().take(bytes).is_err());
    }
    let place = Place::new();
    let result = unpack(&mut TarStream::new(&many[..], 19), &place.root(), Ownership::CurrentUser);
    assert!(matches!(result, Err(UnpackError::Tar(TarError::TooMany(19)))));
    let deep = Layer::default().raw(b"@", b"", EntryType::GNULongName, 0, &b"d/".repeat(1000));
    assert!(Place::new().take(&deep.file("f", "").0).is_err());
}

#[test]
fn long_names_and_sparse_files_are_read() {
    let name = format!("{}/{}", "d".repeat(150), "f".repeat(200));
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    builder.append_data(&mut header, &name, &b"long"[..]).unwrap();
    let mut sparse = tar::Header::new_gnu();
    sparse.set_path("sparse").unwrap();
    sparse.set_entry_type(EntryType::GNUSparse);
    sparse.set_mode(0o600);
    sparse.set_size(6);
    let gnu = sparse.as_gnu_mut().unwrap();
    gnu.set_real_size(1 << 30);
    gnu.sparse[0].set_offset(10);
    gnu.sparse[0].set_length(3);
    gnu.sparse[1].set_offset(1 << 20);
    gnu.sparse[1].set_length(3);
    sparse.set_cksum();
    builder.append(&sparse, &b"onetwo"[..]).unwrap();
    let place = Place::new();
    place.take(&builder.into_inner().unwrap()).unwrap();
    assert_eq!(place.read(&name), "long");
    use std::os::unix::fs::FileExt;
    let file = fs::File::open(place.root().join("sparse")).unwrap();
    let mut three = [0; 3];
    file.read_exact_at(&mut three, 1 << 20).unwrap();
    assert_eq!(&three, b"two");
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), 1 << 30);
    assert!(meta.blocks() * 512 < 1 << 21);
}

fn kinds() -> impl Strategy<Value = EntryType> {
    prop::sample::select(vec![
        EntryType::Regular,
        EntryType::Directory,
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Fifo,
        EntryType::Char,
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
        EntryType::GNUSparse,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn arbitrary_bytes_never_panic_or_escape(data in prop::collection::vec(any::<u8>(), 0..2048)) {
        let _ = Place::new().take(&data);
    }

    #[test]
    fn arbitrary_entries_never_escape(entries in prop::collection::vec(
        ("[a-c./]{1,9}|(a/)?\\.wh\\.[a-c.]{0,3}", "[a-c./]{0,9}", kinds(), 0u32..0o10000), 0..25,
    )) {
        let place = Place::new();
        let layer = entries.iter().fold(Layer::default(), |layer, (name, target, kind, mode)| {
            let data = if kind.is_file() || kind.is_gnu_longname() { name.as_bytes() } else { b"" };
            layer.raw(name.as_bytes(), target.as_bytes(), *kind, *mode, data)
        });
        // `take` checks what lies outside.
        let _ = place.take(&layer.0);
        crate::delete::delete(&place.root(), &|_| {}).unwrap();
        fs::create_dir(place.root()).unwrap();
    }

    #[test]
    fn a_changed_byte_never_panics_or_escapes(at in 0usize..4096, with in 1u8..) {
        let mut bytes = Layer::default()
            .dir("a").link("a/l", "/b").file("a/l/f", "data").hard("h", "b/f").file(".wh.x", "").0;
        let at = at % bytes.len();
        bytes[at] ^= with;
        // A wrong checksum would end most runs early; set it right again.
        let header = at / 512 * 512;
        let sum: u32 = bytes[header..header + 512].iter().enumerate()
            .map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u32::from(b) }).sum();
        bytes[header + 148..header + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let _ = Place::new().take(&bytes);
    }
}
