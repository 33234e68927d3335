//! Single files of a sandbox: byte-exact, written atomically, and never the host's.

use std::{io, os::unix::ffi::OsStrExt, path::Path, path::PathBuf, time::Duration};

use sandbox::{EntryKind, Error, Runtime, Sandbox};
use tokio::io::AsyncReadExt;

use crate::{
    Harness,
    harness::slow,
    support::{MemoryWatch, ok, read, sh, wait_for, write},
};

/// What was written is what is read, by us and by programs.
pub async fn contents_are_byte_exact<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|i| (i ^ (i >> 7)) as u8).collect();
    for (name, contents) in
        [("/tmp/all", &bytes[..]), ("/tmp/empty", b""), ("/tmp/crlf", b"a\r\n\tb\0no newline")]
    {
        write(&sandbox, name, contents).await;
        assert!(read(&sandbox, name).await == contents, "{name}");
        assert_eq!(
            ok(&sandbox, format!("wc -c < {name}")).await.trim(),
            contents.len().to_string()
        );
    }
    ok(&sandbox, "printf 'from\\0inside' > /tmp/inside").await;
    assert_eq!(read(&sandbox, "/tmp/inside").await, b"from\0inside");
}

/// A new file gets the usual permissions, whatever the shell's mask, and its directories are made.
pub async fn new_file_gets_0644_and_its_directories<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "umask 077").await;
    write(&sandbox, "/deep/er/and deeper/f", b"x").await;
    assert_eq!(ok(&sandbox, "stat -c %a '/deep/er/and deeper/f' /deep/er").await, "644\n755\n");
}

/// Overwriting keeps the permissions.
pub async fn existing_permissions_stay<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    for mode in ["755", "600", "444"] {
        ok(&sandbox, format!("echo old > /tmp/f{mode}; chmod {mode} /tmp/f{mode}")).await;
        write(&sandbox, format!("/tmp/f{mode}"), b"new").await;
        assert_eq!(
            ok(&sandbox, format!("stat -c %a /tmp/f{mode}; cat /tmp/f{mode}")).await,
            format!("{mode}\nnew")
        );
    }
}

/// A reader sees the old or the new contents, never a part; no temporary files stay.
pub async fn writing_is_atomic<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let (a, b) = (vec![b'a'; 1 << 20], vec![b'b'; 2 << 20]);
    write(&sandbox, "/tmp/d/f", &a).await;
    // One open per round: a single letter repeated, in one of the two lengths.
    let reader = "until [ -e /tmp/stop ]; do cat /tmp/d/f > /tmp/seen
        echo \"$(tr -s ab < /tmp/seen) $(wc -c < /tmp/seen)\"; done | sort -u";
    let writer = async {
        for _ in 0..12 {
            write(&sandbox, "/tmp/d/f", &b).await;
            write(&sandbox, "/tmp/d/f", &a).await;
        }
        write(&sandbox, "/tmp/stop", b"").await;
    };
    let (seen, ()) = tokio::join!(ok(&sandbox, reader), writer);
    for line in seen.lines() {
        assert!(["a 1048576", "b 2097152"].contains(&line), "a reader saw `{line}`");
    }
    assert!(!seen.is_empty());
    assert_eq!(names(&sandbox, "/tmp/d").await, [Path::new("f")]);
}

/// A write that cannot be done changes nothing.
pub async fn failed_write_leaves_the_old<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "mkdir -p /tmp/w/dir; echo inner > /tmp/w/dir/f; echo old > /tmp/w/file").await;
    for path in ["/tmp/w/dir", "/tmp/w/file/below", "/tmp/w/dir/", "/"] {
        let failed = sandbox.write_file(Path::new(path), b"new").await;
        assert!(matches!(failed, Err(Error::Path { .. })), "{path}: {failed:?}");
    }
    assert_eq!(ok(&sandbox, "cat /tmp/w/dir/f /tmp/w/file").await, "inner\nold\n");
    assert_eq!(names(&sandbox, "/tmp/w").await, [Path::new("dir"), Path::new("file")]);
}

async fn names(sandbox: &impl Sandbox, path: &str) -> Vec<PathBuf> {
    let entries = sandbox.list(Path::new(path)).await.expect("it can be listed");
    entries.into_iter().map(|entry| entry.name).collect()
}

/// What does not exist is named.
pub async fn missing_paths_are_named<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    for path in ["/no/such/file", "/tmp/nothing", "/etc/passwd/below"] {
        let path = Path::new(path);
        names_it(path, sandbox.read_file(path).await.map(drop));
        names_it(path, sandbox.list(path).await.map(drop));
    }
    match sandbox.read_file(Path::new("/tmp/nothing")).await.map(drop) {
        Err(Error::Path { source, .. }) => assert_eq!(source.kind(), io::ErrorKind::NotFound),
        other => panic!("{other:?}"),
    }
    names_it(Path::new("/etc/passwd"), sandbox.list(Path::new("/etc/passwd")).await.map(drop));
}

fn names_it(path: &Path, result: Result<(), Error>) {
    match result {
        Err(Error::Path { path: named, source }) => {
            assert_eq!(named, path);
            assert!(!source.to_string().is_empty());
        }
        other => panic!("{}: {other:?}", path.display()),
    }
}

/// Directories, pipes, sockets and devices are refused without waiting.
pub async fn special_files_are_refused_at_once<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(
        &sandbox,
        "mkdir /tmp/s; mkfifo /tmp/s/fifo; ln -s fifo /tmp/s/link; ln -s loop /tmp/s/loop",
    )
    .await;
    for path in ["/tmp/s", "/tmp/s/fifo", "/tmp/s/link", "/tmp/s/loop", "/dev/zero", "/dev/null"] {
        let path = Path::new(path);
        let answer = tokio::time::timeout(Duration::from_secs(60), sandbox.read_file(path)).await;
        names_it(path, answer.expect("an answer").map(drop));
    }
}

/// Links are followed inside: what they reach is the sandbox's own.
pub async fn links_resolve_inside<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(
        &sandbox,
        "echo '# of the sandbox' >> /etc/passwd; mkdir -p /tmp/l; cd /tmp/l
         ln -s /etc/passwd absolute; ln -s ../../../../../../etc/passwd up; ln -s /etc dir; ln -s absolute twice",
    )
    .await;
    for path in ["/tmp/l/absolute", "/tmp/l/up", "/tmp/l/dir/passwd", "/tmp/l/twice"] {
        let text = read(&sandbox, path).await;
        assert!(text.ends_with(b"# of the sandbox\n"), "{path}");
    }
    let inside = ok(&sandbox, "cat /etc/passwd").await;
    assert_eq!(read(&sandbox, "/tmp/l/up").await, inside.as_bytes());
}

/// Upward steps end at the sandbox's root.
pub async fn dotdot_stays_inside<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "echo mine > /top").await;
    assert_eq!(read(&sandbox, "/tmp/../../../../../top").await, b"mine\n");
    write(&sandbox, "/tmp/../../../new-top", b"new").await;
    assert_eq!(ok(&sandbox, "cat /new-top").await, "new");
    assert!(names(&sandbox, "/../../tmp/../").await.contains(&"top".into()));
    assert!(!Path::new("/new-top").exists());
}

/// Writing through a link never leaves the sandbox, and the new contents are found by the same name.
pub async fn writes_through_links_stay_inside<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let outside = tempfile::tempdir().expect("a directory on the host");
    let target = outside.path().join("escaped");
    let shown = target.display();
    ok(
        &sandbox,
        format!(
            "ln -s {shown} /tmp/link; ln -s ../../../../../..{} /tmp/dir",
            outside.path().display()
        ),
    )
    .await;
    // Whether the directories of a link's target are made is the runtime's choice.
    if sandbox.write_file(Path::new("/tmp/link"), b"x").await.is_ok() {
        assert_eq!(read(&sandbox, "/tmp/link").await, b"x");
    }
    let _ = sandbox.write_file(Path::new("/tmp/dir/escaped"), b"x").await;
    assert!(!target.exists(), "a write reached the host");
    ok(&sandbox, "echo old > /tmp/real; ln -s real /tmp/alias").await;
    write(&sandbox, "/tmp/alias", b"new").await;
    assert_eq!(ok(&sandbox, "cat /tmp/alias").await, "new");
}

/// Names may hold any byte but `/` and NUL.
pub async fn odd_names_work<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let long = "n".repeat(255);
    let odd: [&[u8]; 10] = [
        b"-dash",
        b"two\nlines",
        b" space ",
        b"'\"`$\\",
        b"*?[",
        b"\xff\xfe",
        "雪".as_bytes(),
        b"#",
        b"...",
        long.as_bytes(),
    ];
    let mut expected = Vec::new();
    for name in odd {
        let name = std::ffi::OsStr::from_bytes(name);
        let path = Path::new("/tmp/odd").join(name);
        write(&sandbox, &path, name.as_bytes()).await;
        assert_eq!(read(&sandbox, &path).await, name.as_bytes(), "{name:?}");
        expected.push(PathBuf::from(name));
    }
    expected.sort();
    assert_eq!(names(&sandbox, "/tmp/odd").await, expected);
    assert_eq!(ok(&sandbox, "cd /tmp/odd; set -- * ...; echo $#").await, "10\n");
}

/// A listing has kinds, sizes and modes, without following links, sorted by name.
pub async fn listing_has_kinds_sizes_and_modes<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(
        &sandbox,
        "mkdir -p /tmp/k/dir/sub /tmp/empty; cd /tmp/k; printf 12345 > file; chmod 750 file; : > .hidden
         ln -s /etc/passwd link; ln -s nowhere dangling; mkfifo pipe; echo deep > dir/deep; chmod 1777 dir",
    )
    .await;
    let entries = sandbox.list(Path::new("/tmp/k")).await.expect("it can be listed");
    let seen: Vec<_> =
        entries.iter().map(|e| (e.name.to_str().expect("plain names"), e.kind)).collect();
    assert_eq!(
        seen,
        [
            (".hidden", EntryKind::File),
            ("dangling", EntryKind::Link),
            ("dir", EntryKind::Directory),
            ("file", EntryKind::File),
            ("link", EntryKind::Link),
            ("pipe", EntryKind::Other),
        ]
    );
    assert_eq!((entries[3].size, entries[3].mode), (5, 0o750));
    assert_eq!(entries[2].mode, 0o1777);
    assert_eq!(entries[0].size, 0);
    assert_eq!(sandbox.list(Path::new("/tmp/empty")).await.expect("listed"), vec![]);
    ok(&sandbox, "ln -s k /tmp/to-k").await;
    assert_eq!(names(&sandbox, "/tmp/to-k").await.len(), 6);
}

/// A file larger than our memory would be streams through.
pub async fn large_file_streams_in_constant_memory<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let mib: u64 = if slow() { 1024 } else { 256 };
    ok(&sandbox, format!("head -c {mib}M /dev/zero > /tmp/big; printf end >> /tmp/big")).await;
    let memory = MemoryWatch::start();
    let mut input = sandbox.read_file(Path::new("/tmp/big")).await.expect("it opens");
    let mut piece = vec![0; 1 << 16];
    let (mut total, mut last) = (0_u64, Vec::new());
    loop {
        let got = input.read(&mut piece).await.expect("it reads");
        if got == 0 {
            break;
        }
        total += got as u64;
        last = [&last[..], &piece[..got]].concat();
        last.drain(..last.len().saturating_sub(3));
    }
    assert_eq!((total, last.as_slice()), ((mib << 20) + 3, &b"end"[..]));
    memory.grew_at_most(64);
    // Reading only half of a file leaves no process behind in the sandbox.
    let count = "set -- /proc/[0-9]*; echo $#";
    let before = ok(&sandbox, count).await;
    let mut input = sandbox.read_file(Path::new("/tmp/big")).await.expect("it opens");
    input.read_exact(&mut piece).await.expect("it reads");
    drop(input);
    wait_for("no reader is left", Duration::from_secs(60), async || {
        ok(&sandbox, count).await == before
    })
    .await;
    assert!(sh(&sandbox, "rm /tmp/big").await.status.success());
}
