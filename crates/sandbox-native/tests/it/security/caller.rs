//! The caller's side: no request waits without an end, and none that was cancelled leaves anything behind.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Error, Limits, Process, Runtime, Sandbox, ShellCommand, Spec, Streams};

use super::{Ground, ok, on_the_host, perl_behind, sh, soon};

/// How long a request may make no progress in these tests.
const PATIENCE: Duration = Duration::from_millis(300);

/// The processes whose parent this is.
fn children(parent: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    texts
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The spawner of this test's runtime.
fn spawner() -> i32 {
    let all = children(std::process::id() as i32);
    let is_spawner = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with(b"llm-in-sandbox"))
    };
    all.into_iter().find(is_spawner).unwrap()
}

/// A sandbox that is given up soon, and its PID 1 as the host sees it.
async fn impatient(h: &Ground<'_>) -> (lis_sandbox_native::NativeSandbox, i32) {
    let before = children(spawner());
    let sandbox = h.create(&Spec { stall_timeout: PATIENCE, ..h.spec() }).await;
    ok(&sandbox, "echo text > /testbed/f").await;
    // Files of an earlier one may just be removed, by a child of the spawner in its own namespaces.
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let is_init = |pid: &i32| namespace(&pid.to_string()) != namespace("self");
    let new = children(spawner()).into_iter().filter(|pid| !before.contains(pid));
    (sandbox, new.into_iter().find(is_init).unwrap())
}

/// The error of a request to a sandbox that does nothing any more.
async fn stalled<T>(
    what: &str,
    request: impl Future<Output = Result<T, Error>>,
    waiting_for: &str,
) {
    let begun = Instant::now();
    match soon(what, request).await {
        Err(error @ Error::Stalled { .. }) => {
            assert!(error.is_gone() && error.to_string().contains(waiting_for), "{what}: {error}");
            let waited = begun.elapsed();
            assert!(waited >= PATIENCE && waited < Duration::from_secs(20), "{what}: {waited:?}");
        }
        Err(other) => panic!("{what}: {other:?}"),
        Ok(_) => panic!("{what}: nobody could have answered"),
    }
}

/// Every request to a sandbox that does nothing fails with what it waited for, and the sandbox is removed.
#[test]
fn requests_to_a_sandbox_that_does_nothing_end() {
    on_the_host(async |h| {
        let host = tempfile::tempdir().unwrap();
        let (from, to) = (host.path().join("in"), host.path().join("out"));
        fs::write(&from, vec![0; 4 << 20]).unwrap();
        let file = Path::new("/testbed/f");
        let command = ShellCommand::new("echo hello").timeout(Duration::from_millis(1));
        let process = Process::new(["true"]);
        for request in 0..10 {
            let (sandbox, init) = impatient(h).await;
            send(init, Signal::STOP);
            match request {
                0 => stalled("shell", sandbox.shell(&command), "a command to start").await,
                1 => {
                    let run = sandbox.process(&process, Streams::discard());
                    stalled("process", run, "a command to start").await;
                }
                2 => stalled("read", sandbox.read_file(file), "opened: /testbed/f").await,
                3 => stalled("write", sandbox.write_file(file, b"x"), "written: /testbed/f").await,
                4 => stalled("list", sandbox.list(file), "the entries of /testbed/f").await,
                5 => {
                    let copy = sandbox.copy_in(&from, file);
                    stalled("copy in", copy, "copied to /testbed/f").await;
                }
                6 => stalled("copy out", sandbox.copy_out(file, &to), "files of /testbed/f").await,
                7 => stalled("fork", sandbox.fork(), "the files of a fork").await,
                8 => stalled("snapshot", sandbox.snapshot("x"), "the files of an image").await,
                _ => {
                    stalled("freeze", sandbox.freeze(), "become read-only").await;
                    let usage = sandbox.usage().await;
                    assert!(usage.is_err_and(|error| error.is_gone()));
                }
            }
            assert!(!children(spawner()).contains(&init), "request {request}: it is still there");
            assert!(!to.exists());
            soon("destroy", sandbox.destroy()).await.unwrap();
        }
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 1, "a partial copy is left");
    });
}

/// A spawner that does not answer is an error as well.
#[test]
fn requests_to_a_spawner_that_does_nothing_end() {
    on_the_host(async |h| {
        let (sandbox, _) = impatient(h).await;
        let spec = Spec { stall_timeout: PATIENCE, ..h.spec() };
        let spawner = spawner();
        send(spawner, Signal::STOP);
        let create = async { h.runtime.create(&spec).await.map(drop) };
        stalled("create", create, "a new sandbox").await;
        stalled("fork", async { sandbox.fork().await.map(drop) }, "the directories of a fork")
            .await;
        stalled("destroy", sandbox.destroy(), "a sandbox to be destroyed").await;
        send(spawner, Signal::CONT);
        // Nothing of what was given up remains.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !children(spawner).is_empty() {
            assert!(Instant::now() < deadline, "{:?}", children(spawner));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// A tree that grows, shrinks and moves while it is copied, in a sandbox whose processors are busy, is copied in time.
#[test]
fn a_tree_that_never_rests_does_not_hold_the_caller() {
    on_the_host(async |h| {
        let limits = Limits { disk: Some(sandbox::ByteSize::mib(200)), ..Limits::default() };
        let sandbox = h.create(&Spec { limits, ..h.spec() }).await;
        ok(&sandbox, "mkdir -p /testbed/t/d; echo kept > /testbed/t/kept").await;
        perl_behind(
            &sandbox,
            "use POSIX; $| = 1; chdir '/testbed/t'; my $end = time + 60; \
             for (1..40) { unless (fork) { POSIX::nice(-20); while (time < $end) { } exit } } \
             unless (fork) { my $n = 0; while (time < $end) { open(F, '>', \"d/f$n\"); unlink('d/f' . ($n - 500)); $n++ } exit } \
             unless (fork) { open(G, '>>', 'growing'); my $i = 0; while (time < $end && $i++ < 4000) { syswrite(G, 'x' x 4096) } exit } \
             unless (fork) { while (time < $end) { mkdir 'm'; rename('m', 'n'); rmdir 'n' } exit } \
             print qq(ready\\n); sleep 60;",
        )
        .await;
        let to = tempfile::tempdir().unwrap();
        for round in 0..3 {
            let dest = to.path().join(round.to_string());
            let begun = Instant::now();
            let report = soon("copy", sandbox.copy_out(Path::new("/testbed/t"), &dest)).await;
            let report = report.unwrap_or_else(|error| panic!("{}", error.chain()));
            assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
            assert!(report.files > 0);
            assert_eq!(fs::read_to_string(dest.join("kept")).unwrap(), "kept\n");
        }
        soon("destroy", sandbox.destroy()).await.unwrap();
    });
}

/// A copy that its caller does not want any more ends at once: no file of it stays on the host, no process in the sandbox,
/// which can be used as before.
#[test]
fn cancelled_copies_leave_nothing() {
    on_the_host(async |h| {
        let limits = Limits { disk: None, ..Limits::default() };
        let sandbox = h.create(&Spec { limits, ..h.spec() }).await;
        ok(&sandbox, "mkdir t; truncate -s 1T t/endless").await;
        let host = tempfile::tempdir().unwrap();
        let (large, to) = (host.path().join("large"), host.path().join("to"));
        fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
        let wait = Duration::from_millis(200);
        for request in 0..3 {
            let ended = match request {
                0 => {
                    let copy = sandbox.copy_out(Path::new("t"), &to);
                    tokio::time::timeout(wait, copy).await.is_ok()
                }
                1 => {
                    let copy = sandbox.copy_in(&large, Path::new("/testbed/large"));
                    tokio::time::timeout(wait, copy).await.is_ok()
                }
                _ => tokio::time::timeout(wait, sandbox.snapshot("x")).await.is_ok(),
            };
            assert!(!ended, "request {request}: it cannot be complete");
            let begun = Instant::now();
            // PID 1, and no worker: both have the name of the spawner's program.
            let workers = "read -r own < /proc/1/comm; for p in /proc/[0-9]*; do read -r c < $p/comm && [ \"$c\" = \"$own\" ] && echo $p; done; true";
            loop {
                let left: Vec<_> = fs::read_dir(host.path()).unwrap().flatten().collect();
                let inside = sh(&sandbox, workers).await.stdout.text().into_owned();
                if left.len() == 1 && inside.lines().count() == 1 {
                    break;
                }
                assert!(begun.elapsed() < Duration::from_secs(10), "{request}: {left:?} {inside}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            ok(&sandbox, "rm -f large; echo fine").await;
        }
        assert!(h.runtime.store().list().is_ok_and(|images| images.is_empty()));
        soon("destroy", sandbox.destroy()).await.unwrap();
    });
}

/// A directory with millions of entries is not listed: the caller would hold them in memory.
#[test]
fn listings_are_bounded() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        // Links to one file, with long names: the bound on bytes is reached with the fewest.
        let make =
            "mkdir many; cd many; perl -e 'open F, q(>), 1; link(1, $_ . q(x) x 250) for 2..16500'";
        ok(&sandbox, make).await;
        let many = Path::new("/testbed/many");
        match soon("list", sandbox.list(many)).await {
            Err(Error::Path { source, .. }) => {
                assert!(source.to_string().contains("too many entries"), "{source}");
            }
            other => panic!("{:?}", other.map(|entries| entries.len())),
        }
        ok(&sandbox, "cd /testbed/many; rm 15[0-9][0-9][0-9]x*").await;
        assert_eq!(soon("list", sandbox.list(many)).await.unwrap().len(), 15_500);
        soon("destroy", sandbox.destroy()).await.unwrap();
    });
}
