//! Copies of trees between the host and a sandbox: byte-exact, with modes, and safe against links.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use sandbox::{CopyReport, Error, Runtime, Sandbox};

use crate::{
    Harness,
    harness::{chain, slow},
    support::{MemoryWatch, ok, read},
};

/// A tree copied in and out again is the same tree.
pub async fn tree_survives_the_round_trip<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let host = tempfile::tempdir().expect("a directory");
    let from = host.path().join("from");
    let mut odd: Vec<&[u8]> = vec![b"-dash", b"two\nlines", b"a b", "雪".as_bytes()];
    if cfg!(target_os = "linux") {
        odd.push(b"\xff\xfe");
    }
    fs::create_dir_all(from.join("a/b/empty dir")).expect("made");
    fs::write(from.join("empty"), b"").expect("written");
    let bytes: Vec<u8> = (0..1_048_576_u32).map(|i| ((i * 7) ^ (i >> 9)) as u8).collect();
    fs::write(from.join("a/b/bytes"), &bytes).expect("written");
    fs::write(from.join("a/run"), "#!/bin/bash\necho ran\n").expect("written");
    fs::set_permissions(from.join("a/run"), fs::Permissions::from_mode(0o755)).expect("set");
    for name in &odd {
        fs::write(from.join(std::ffi::OsStr::from_bytes(name)), name).expect("written");
    }
    fs::write(from.join("x".repeat(200)), "long").expect("written");
    symlink("b/bytes", from.join("a/link")).expect("linked");
    symlink("nowhere", from.join("dangling")).expect("linked");

    let report = copy_in(&sandbox, &from, "/new/place").await;
    assert_eq!(report.skipped, vec![]);
    assert_eq!(report.files, 4 + odd.len() as u64);
    assert_eq!(
        ok(&sandbox, "/new/place/a/run; readlink /new/place/a/link").await,
        "ran\nb/bytes\n"
    );
    assert!(read(&sandbox, "/new/place/a/link").await == bytes);
    let report = copy_out(&sandbox, "/new/place", &host.path().join("made/to")).await;
    assert_eq!(report.skipped, vec![]);
    assert_eq!(tree(&host.path().join("made/to")), tree(&from));
}

/// What a path is: contents and whether it runs, where a link leads, or a directory.
#[derive(Debug, PartialEq)]
enum Node {
    File(Vec<u8>, u32),
    Link(PathBuf),
    Dir,
}

fn tree(root: &Path) -> BTreeMap<PathBuf, Node> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("readable").map(|e| e.expect("an entry").path()) {
            let meta = entry.symlink_metadata().expect("metadata");
            let node = if meta.is_symlink() {
                Node::Link(fs::read_link(&entry).expect("a target"))
            } else if meta.is_dir() {
                open.push(entry.clone());
                Node::Dir
            } else {
                Node::File(fs::read(&entry).expect("contents"), meta.mode() & 0o111)
            };
            found.insert(entry.strip_prefix(root).expect("below").to_path_buf(), node);
        }
    }
    found
}

async fn copy_in(sandbox: &impl Sandbox, host: &Path, path: &str) -> CopyReport {
    sandbox
        .copy_in(host, Path::new(path))
        .await
        .unwrap_or_else(|e| panic!("copy in to {path}: {}", chain(&e)))
}

async fn copy_out(sandbox: &impl Sandbox, path: &str, host: &Path) -> CopyReport {
    sandbox
        .copy_out(Path::new(path), host)
        .await
        .unwrap_or_else(|e| panic!("copy out of {path}: {}", chain(&e)))
}

/// A single file arrives under exactly the given name, in either direction, over what was there.
pub async fn single_files_land_exactly_there<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let host = tempfile::tempdir().expect("a directory");
    let source = host.path().join("source");
    fs::write(&source, "one").expect("written");
    let report = copy_in(&sandbox, &source, "/made/new/name").await;
    assert_eq!((report.files, report.bytes), (1, 3));
    assert_eq!(read(&sandbox, "/made/new/name").await, b"one");
    fs::write(&source, "second").expect("written");
    copy_in(&sandbox, &source, "/made/new/name").await;
    let back = host.path().join("sub/back");
    copy_out(&sandbox, "/made/new/name", &back).await;
    assert_eq!(fs::read(&back).expect("it is there"), b"second");
    copy_out(&sandbox, "/made", &host.path().join("tree")).await;
    assert_eq!(fs::read(host.path().join("tree/new/name")).expect("it is there"), b"second");
    symlink("source", host.path().join("link")).expect("linked");
    copy_in(&sandbox, &host.path().join("link"), "/made/followed").await;
    assert_eq!(read(&sandbox, "/made/followed").await, b"second");
}

/// Links of the host are copied as links: never what they lead to. Those that lead out are reported.
pub async fn links_are_copied_as_links<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let host = tempfile::tempdir().expect("a directory");
    let secret = host.path().join("secret");
    fs::write(&secret, "of the host").expect("written");
    let tree = host.path().join("tree");
    fs::create_dir(&tree).expect("made");
    symlink(&secret, tree.join("absolute")).expect("linked");
    symlink("../secret", tree.join("up")).expect("linked");
    symlink("..", tree.join("dir")).expect("linked");
    symlink("plain", tree.join("fine")).expect("linked");
    fs::write(tree.join("plain"), "x").expect("written");
    let report = copy_in(&sandbox, &tree, "/tree").await;
    assert_eq!(report.files, 1);
    assert_eq!(report.outward_links, ["absolute", "dir", "up"].map(PathBuf::from));
    let script = "cd /tree; readlink absolute up dir; cat absolute up 2>/dev/null";
    let shown = crate::support::sh(&sandbox, script).await;
    assert_eq!(shown.stdout.text(), format!("{}\n../secret\n..\n", secret.display()));
}

/// The error for a missing source names it, on either side.
pub async fn missing_sources_are_named<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let host = tempfile::tempdir().expect("a directory");
    let nothing = host.path().join("nothing");
    let failed = sandbox.copy_in(&nothing, Path::new("/tmp/x")).await;
    assert!(matches!(&failed, Err(Error::HostPath { path, .. }) if *path == nothing), "{failed:?}");
    let failed = sandbox.copy_out(Path::new("/no/such"), &nothing).await;
    assert!(
        matches!(&failed, Err(Error::Path { path, .. }) if path == Path::new("/no/such")),
        "{failed:?}"
    );
    assert!(!nothing.exists());
    ok(&sandbox, "! [ -e /tmp/x ]; mkfifo /tmp/fifo").await;
    for path in ["/tmp/fifo", "/dev/zero"] {
        let failed = sandbox.copy_out(Path::new(path), &nothing).await;
        assert!(matches!(failed, Err(Error::Path { .. })), "{path}: {failed:?}");
    }
    assert!(!nothing.exists());
}

/// Links that lead out, pipes and devices stay behind and are reported; the rest arrives.
pub async fn links_leading_out_are_reported<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let host = tempfile::tempdir().expect("a directory");
    ok(
        &sandbox,
        "mkdir -p /t/d; cd /t; echo fine > d/file; ln -s d/file good; ln -s ../good d/also-good
         ln -s /etc/passwd absolute; ln -s ../../etc up; ln -s .. parent; mkfifo fifo",
    )
    .await;
    let dest = host.path().join("dest");
    let report = copy_out(&sandbox, "/t", &dest).await;
    let mut skipped: Vec<_> =
        report.skipped.iter().map(|s| s.path.to_string_lossy().into_owned()).collect();
    skipped.sort();
    assert_eq!(skipped, ["absolute", "fifo", "parent", "up"]);
    assert!(report.skipped.iter().all(|s| !s.why.is_empty()));
    assert_eq!(fs::read(dest.join("d/also-good")).expect("it is there"), b"fine\n");
    for name in skipped {
        assert!(dest.join(&name).symlink_metadata().is_err(), "{name} arrived");
    }
    // A link given as the source is followed inside, as reading would.
    copy_out(&sandbox, "/t/good", &host.path().join("followed")).await;
    assert_eq!(fs::read(host.path().join("followed")).expect("it is there"), b"fine\n");
    assert!(!host.path().join("followed").symlink_metadata().expect("there").is_symlink());
}

/// A link inside cannot turn a copy into a write on the host.
pub async fn copy_in_through_links_stays_inside<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let host = tempfile::tempdir().expect("a directory");
    let (source, outside) = (host.path().join("source"), host.path().join("outside"));
    fs::create_dir(&outside).expect("made");
    fs::write(&source, "x").expect("written");
    ok(
        &sandbox,
        format!(
            "ln -s {0} /tmp/a; ln -s ../../../../../..{0} /tmp/b; mkdir -p {0}",
            outside.display()
        ),
    )
    .await;
    for link in ["/tmp/a/f", "/tmp/b/g"] {
        let _ = sandbox.copy_in(&source, Path::new(link)).await;
        assert_eq!(fs::read_dir(&outside).expect("readable").count(), 0, "{link} led to the host");
    }
}

/// Copies of any size take bounded memory.
pub async fn large_copies_use_constant_memory<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let host = tempfile::tempdir().expect("a directory");
    let size: u64 = if slow() { 1 << 30 } else { 256 << 20 };
    let (big, back) = (host.path().join("big"), host.path().join("back"));
    fs::File::create(&big).and_then(|file| file.set_len(size)).expect("a large file");
    let memory = MemoryWatch::start();
    assert_eq!(copy_in(&sandbox, &big, "/tmp/big").await.bytes, size);
    assert_eq!(copy_out(&sandbox, "/tmp/big", &back).await.bytes, size);
    memory.grew_at_most(64);
    assert_eq!(fs::metadata(&back).expect("it is there").len(), size);
}

/// Copied files belong to the sandbox's user.
pub async fn copied_files_belong_to_the_sandbox<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let host = tempfile::tempdir().expect("a directory");
    fs::write(host.path().join("f"), "x").expect("written");
    copy_in(&sandbox, host.path(), "/tmp/own").await;
    sandbox.write_file(Path::new("/tmp/own/g"), b"y").await.expect("written");
    let script = "cd /tmp/own; [ \"$(stat -c %u f g . | sort -u)\" = \"$(id -u)\" ] && echo z >> f && rm f g";
    ok(&sandbox, script).await;
}
