//! A frozen sandbox: everything works as before, except that no file can be changed in any way. Each way is first shown to
//! work in a sandbox that is not frozen.

use std::{io::ErrorKind, path::Path, time::Duration};

use sandbox::{Error, ImageRef, Process, Runtime, Sandbox, Spec, Status};
use tokio::io::AsyncWriteExt;

use crate::{
    Harness,
    harness::chain,
    processes::in_terminal,
    support::{has, ok, process_ok, read, run_process, running, sh, sh_within, wait_for, write},
};

/// Directories that must be read-only.
const PLACES: [&str; 9] =
    ["/", "/tmp", "/dev/shm", "/run", "/testbed", "/root", "/etc", "/usr", "/var/tmp"];

/// Every way has `/testbed/p/f` with one line to work on, and ends with 0 if it changed something.
const WAYS: [&str; 24] = [
    "echo x > p/new",
    "echo x >> p/f",
    ": > p/f",
    "mkdir p/d",
    "touch p/new",
    "touch p/f",
    "ln p/f p/new",
    "ln -s f p/new",
    "mkfifo p/new",
    "mv p/f p/new",
    "rm p/f",
    "rm -r p",
    "chmod 600 p/f",
    "chown 0 p/f",
    "truncate -s 0 p/f",
    "cp p/f p/new",
    "sed -i s/old/new/ p/f",
    "dd if=/dev/zero of=p/f bs=1 count=1 conv=notrunc status=none",
    "mktemp >/dev/null",
    "cd p && echo x > /proc/self/cwd/new",
    "echo x > /proc/self/root/testbed/p/new",
    "exec 9<p && echo x > /proc/self/fd/9/new",
    "exec 9<p/f && echo x > /proc/self/fd/9",
    "exec 9<>p/f && echo x >&9",
];

/// The same from programs, which have calls that no command has.
const PROGRAMS: [&str; 7] = [
    "open('p/new', 'w').write('x')",
    "import os; os.utime('p/f', (1, 1))",
    "import os; os.close(os.open('p', os.O_TMPFILE | os.O_RDWR))",
    "import socket; socket.socket(socket.AF_UNIX).bind('p/new')",
    "import os; os.setxattr('p/f', 'user.x', b'x')",
    "import os; os.rename('p/f', '/testbed/g')",
    "import multiprocessing.shared_memory as m; s = m.SharedMemory(create=True, size=10); s.close(); s.unlink()",
];

/// Tricks that must not make anything writable again; none has to work anywhere.
const TRICKS: [&str; 12] = [
    "mount -o remount,rw /",
    "mount -o remount,bind,rw /",
    "mount -o remount,rw /tmp; mount -o remount,rw /dev/shm; mount -o remount,rw /dev/.lis",
    "mount -t tmpfs none /tmp",
    "mount -t tmpfs none /mnt; umount -l /dev/shm; umount -l /",
    "unshare -Urm mount -t tmpfs none /tmp",
    "unshare -m mount -o remount,rw /",
    "nsenter -t 1 -m touch /testbed/p/new",
    "echo x > /proc/1/root/testbed/p/new; for fd in /proc/[0-9]*/fd/*; do echo x > $fd/new; done",
    "mknod /testbed/p/disk b 8 0; mknod /tmp/mem c 1 1",
    "setpriv --ambient-caps +sys_admin mount -o remount,rw /; capsh --user=root -- -c 'touch /testbed/p/new'",
    "su -c 'touch /testbed/p/new'; chroot / touch /testbed/p/new",
];

/// Freezes a sandbox. A runtime that cannot returns an error with a remedy, and changes nothing.
async fn freeze<R: Runtime>(h: &Harness<R>, sandbox: &R::Sandbox) -> bool {
    match (sandbox.freeze().await, h.caps.freeze.or_skip("freeze")) {
        (Ok(()), true) => true,
        (Err(Error::Unsupported { remedy, .. }), false) => {
            assert!(!remedy.is_empty());
            ok(sandbox, "echo x > /tmp/written && rm /tmp/written").await;
            false
        }
        (frozen, able) => panic!("able: {able}, but {frozen:?}"),
    }
}

async fn prepared<R: Runtime>(h: &Harness<R>) -> R::Sandbox {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "mkdir /testbed/p; echo old > /testbed/p/f").await;
    sandbox
}

/// Runs one attempt in a shell of its own, with `/testbed/p/f` as it was.
async fn attempt(sandbox: &impl Sandbox, script: &str) -> (Status, String) {
    let process = Process::new(["bash", "-c", script]);
    let process = Process { timeout: Some(Duration::from_secs(20)), ..process };
    let ran = run_process(sandbox, &process, None).await;
    (ran.exit.status, String::from_utf8_lossy(&ran.stderr).into_owned())
}

/// No file can be changed in any directory by any means.
pub async fn frozen_sandboxes_cannot_be_written<R: Runtime>(h: &Harness<R>) {
    let sandbox = prepared(h).await;
    let mut ways: Vec<String> = WAYS.iter().map(ToString::to_string).collect();
    if has(&sandbox, "python3").await {
        ways.extend(PROGRAMS.iter().map(|program| format!("python3 -c \"{program}\"")));
    }
    let mut places = Vec::new();
    for place in PLACES {
        let way = format!("echo x > {place}/lis-new");
        if attempt(&sandbox, &way).await.0.success() {
            ok(&sandbox, format!("rm {place}/lis-new")).await;
            places.push(way);
        }
    }
    assert!(places.len() >= 4, "hardly anything can be written to begin with: {places:?}");
    let mut possible = Vec::new();
    for way in ways {
        let (status, said) = attempt(&sandbox, &way).await;
        ok(&sandbox, "rm -rf p g; mkdir p; echo old > p/f").await;
        // Older kernels have no nameless files on an overlay.
        if way.contains("O_TMPFILE") && said.contains("Operation not supported") {
            continue;
        }
        assert!(status.success(), "the control of `{way}`: {status:?} {said}");
        possible.push(way);
    }
    let listing = "ls -lR --time-style=full-iso /testbed; ls -A / /tmp /run /root; cat p/f";
    let before = ok(&sandbox, listing).await;
    if !freeze(h, &sandbox).await {
        return;
    }
    for way in places.iter().chain(&possible) {
        let (status, said) = attempt(&sandbox, way).await;
        assert!(!status.success(), "`{way}` changed something");
        assert!(said.contains("ead-only file system"), "`{way}`: {status:?} {said}");
    }
    assert_eq!(ok(&sandbox, listing).await, before);
}

/// Neither root's rights nor new namespaces, mounts or devices bring the right to write back.
pub async fn freezing_cannot_be_undone<R: Runtime>(h: &Harness<R>) {
    let sandbox = prepared(h).await;
    if !freeze(h, &sandbox).await {
        return;
    }
    for trick in TRICKS {
        let _ =
            sh_within(&sandbox, format!("( {trick} ) </dev/null"), Duration::from_secs(20)).await;
        for place in PLACES {
            let (status, _) = attempt(&sandbox, &format!("echo x > {place}/lis-new")).await;
            assert!(!status.success(), "after `{trick}` {place} can be written");
        }
    }
    assert_eq!(ok(&sandbox, "ls p; cat p/f").await, "f\nold\n");
    let writable = "while read -r _ at _ options _; do case ,$options, in *,rw,*) echo $at;; esac; done </proc/mounts";
    assert_eq!(ok(&sandbox, writable).await, "");
}

/// Everything that changes no file still works: commands, state, pipes, terminals, reading.
pub async fn frozen_sandboxes_still_work<R: Runtime>(h: &Harness<R>) {
    let sandbox = prepared(h).await;
    ok(&sandbox, "cd /testbed/p; before=1; f() { echo \"f $1\"; }; sleep 38201 &").await;
    if !freeze(h, &sandbox).await {
        return;
    }
    assert_eq!(ok(&sandbox, "pwd; echo $before; f x; cat f").await, "/testbed/p\n1\nf x\nold\n");
    assert_eq!(running(&sandbox, "sleep 38201").await, 1, "it wrote to no file");
    ok(&sandbox, "after=2; cd /usr").await;
    assert_eq!(ok(&sandbox, "echo $after; pwd; echo lost > /dev/null").await, "2\n/usr\n");
    assert_eq!(
        ok(&sandbox, "cat <<END\nhere $before\nEND\ncat <<<string").await,
        "here 1\nstring\n"
    );
    let pipes = "seq 5 | tee >(wc -l >&2) | tail -1; diff <(echo a) <(echo a) && echo same";
    assert_eq!(ok(&sandbox, pipes).await, "5\nsame\n");
    let failed = sh(&sandbox, "echo x > /tmp/x; echo code $?").await;
    assert_eq!((&*failed.stdout.text(), failed.cause), ("code 1\n", None));
    let late = sh_within(&sandbox, "before=3; sleep 1000", Duration::from_secs(1)).await;
    assert_eq!(late.status, Status::TimedOut);
    assert_eq!(ok(&sandbox, "echo $before; pwd").await, "1\n/usr\n");
    assert_eq!(sh(&sandbox, "exit 7").await.status.code(), 7);
    assert_eq!(ok(&sandbox, "echo $after").await, "2\n");
    let long = sh(&sandbox, "seq 300000").await;
    assert_eq!((long.status, long.stdout.total), (Status::Exited(0), 1_988_895));
    assert_eq!(process_ok(&sandbox, &["cat", "/testbed/p/f"]).await, "old\n");
    assert_eq!(read(&sandbox, "/testbed/p/f").await, b"old\n");
    assert_eq!(sandbox.list(Path::new("/testbed/p")).await.expect("listed").len(), 1);
    let host = tempfile::tempdir().expect("a directory");
    let report = sandbox.copy_out(Path::new("/testbed"), &host.path().join("t")).await;
    assert_eq!(report.expect("copied").files, 1);
    let (shown, status) = in_terminal(&sandbox, "tty; read -r x; exit 5", async |mut input, _| {
        input.write_all(b"typed\n").await.expect("it takes input");
        input
    })
    .await;
    assert!(shown.contains("/dev/pts/") && status == Status::Exited(5), "{shown} {status:?}");
    sandbox.freeze().await.expect("a second time changes nothing");
    sandbox.destroy().await.expect("it goes");
}

/// The caller cannot write either, and gets an [`Error::Path`].
pub async fn callers_cannot_write_what_is_frozen<R: Runtime>(h: &Harness<R>) {
    let sandbox = prepared(h).await;
    if !freeze(h, &sandbox).await {
        return;
    }
    let host = tempfile::tempdir().expect("a directory");
    std::fs::write(host.path().join("f"), "x").expect("written");
    for path in ["/testbed/p/f", "/testbed/new/f", "/tmp/f", "/dev/shm/f", "/dev/.lis/f"] {
        let path = Path::new(path);
        for refused in [
            sandbox.write_file(path, b"x").await,
            sandbox.copy_in(&host.path().join("f"), path).await.map(drop),
        ] {
            let Err(Error::Path { source, .. }) = refused else { panic!("{path:?}: {refused:?}") };
            assert_eq!(source.kind(), ErrorKind::ReadOnlyFilesystem, "{path:?}: {source}");
        }
    }
    assert_eq!(ok(&sandbox, "ls p; cat p/f").await, "f\nold\n");
}

/// Processes that have a file open for writing are killed before they can write again.
pub async fn freezing_kills_writers<R: Runtime>(h: &Harness<R>) {
    let sandbox = prepared(h).await;
    if !h.caps.freeze.or_skip("freeze") {
        return;
    }
    ok(&sandbox, "kept=1; bash -c 'while :; do echo x; done' > /testbed/grows 2>&1 &").await;
    let program = Process::new(["bash", "-c", "while :; do echo x; done > /dev/shm/grows"]);
    let writes = run_process(&sandbox, &program, None);
    let freezes = async {
        let size = "stat -c %s /testbed/grows /dev/shm/grows 2>/dev/null | grep -cv '^0$'";
        wait_for("both write", Duration::from_secs(60), async || {
            sh(&sandbox, size).await.stdout.text() == "2\n"
        })
        .await;
        assert!(freeze(h, &sandbox).await);
    };
    let (ran, ()) = tokio::join!(writes, freezes);
    assert_eq!(ran.exit.status.code(), 137, "{:?}", ran.exit);
    let size = ok(&sandbox, "stat -c %s /testbed/grows /dev/shm/grows").await;
    assert_eq!(
        ok(&sandbox, "stat -c %s /testbed/grows /dev/shm/grows; echo $kept").await,
        size + "1\n"
    );

    // Not even the shell's own file stays open, nor one that is mapped and closed.
    let sandbox = prepared(h).await;
    ok(&sandbox, "exec 7>/testbed/log; echo first >&7").await;
    if has(&sandbox, "python3").await {
        let map = "import mmap, time; f = open('/testbed/map', 'w+b'); f.truncate(4096); \
                   m = mmap.mmap(f.fileno(), 4096); f.close(); print('ready', flush=True)\n\
                   while True: m[0] = (m[0] + 1) % 256; time.sleep(0.001)";
        write(&sandbox, "/tmp/map.py", map.as_bytes()).await;
        let script = "exec 8< <(exec python3 /tmp/map.py); read -r said <&8; echo $said";
        assert_eq!(ok(&sandbox, script).await, "ready\n");
    }
    assert!(freeze(h, &sandbox).await);
    let gone = sh(&sandbox, "echo second >&7; pgrep -c python3").await;
    assert!(gone.stderr.text().contains("7") && gone.stdout.text() == "0\n", "{gone:?}");
    assert_eq!(ok(&sandbox, "cat /testbed/log").await, "first\n");
}

/// A fork and an image of a frozen sandbox have its files, and are not frozen.
pub async fn copies_of_a_frozen_sandbox_can_be_written<R: Runtime>(h: &Harness<R>) {
    let sandbox = prepared(h).await;
    if !freeze(h, &sandbox).await {
        return;
    }
    let fork = sandbox.fork().await.unwrap_or_else(|e| panic!("fork: {}", chain(&e)));
    assert_eq!(ok(&fork, "cat p/f; echo new > p/f; cat p/f; touch /tmp/x").await, "old\nnew\n");
    fork.freeze().await.expect("it can be frozen itself");
    assert!(!sh(&fork, "echo newer > p/f").await.status.success());
    if h.caps.snapshot.or_skip("snapshot") {
        let name = format!("lis-frozen-{}", std::process::id());
        sandbox.snapshot(&name).await.unwrap_or_else(|e| panic!("snapshot: {}", chain(&e)));
        let spec = Spec { image: ImageRef::Name(name.clone()), ..h.spec() };
        let third = h.create(&spec).await;
        assert_eq!(ok(&third, "cat p/f; echo new > p/f; cat p/f").await, "old\nnew\n");
        third.destroy().await.expect("it goes");
        if let Some(remove) = h.remove_image {
            remove(h.runtime.clone(), name).await;
        }
    }
    assert_eq!(ok(&sandbox, "cat p/f").await, "old\n");
    assert!(!sh(&sandbox, "echo new > p/f").await.status.success());
}
