//! What callers that speak for remote clients do: programs of a user, signals, single files, changes, ports.
#![expect(clippy::unwrap_used, reason = "a failed expectation must fail the test")]

use std::{path::Path, time::Duration};

use lis_sandbox_native::NativeSandbox;
use sandbox::{
    Control, EntryKind, Error, FileEventKind, FileOperation, Identity, Layer, LayerState, Process,
    RemoteSandbox, Runtime, Sandbox, ShellCommand, Spec, Status, Streams, WatchDepth,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::support;

const SOON: Duration = Duration::from_secs(20);

/// Runs a test in a sandbox.
async fn with_sandbox(test: impl AsyncFnOnce(&NativeSandbox)) {
    let runtime = match support::start(support::home()).await {
        Ok(runtime) => runtime,
        Err(missing) => return sandbox_conformance::skip(&missing.capability, &missing.reason),
    };
    let sandbox = runtime.create(&Spec::default()).await.unwrap();
    test(&sandbox).await;
    sandbox.destroy().await.unwrap();
}

fn root() -> Identity {
    Identity::default()
}

/// A user other than root, where there can be one.
fn other_user(sandbox: &NativeSandbox) -> Option<Identity> {
    if sandbox.protection().state(&Layer::Users) == LayerState::Enforced {
        return Some(Identity { uid: 1000, gid: 1000, groups: vec![1000, 2000] });
    }
    sandbox_conformance::skip("subuid", "there is one user inside only");
    None
}

async fn output(sandbox: &NativeSandbox, script: &str, user: Identity) -> (Status, String) {
    let (mut ours, theirs) = tokio::io::duplex(64 << 10);
    let streams = Streams::Pipes {
        stdin: None,
        stdout: Box::new(theirs),
        stderr: Box::new(tokio::io::sink()),
    };
    let control = Control { user: Some(user), ..Control::default() };
    let process = Process::new(["bash", "-c", script]);
    let mut text = String::new();
    let (exit, _) = tokio::join!(
        sandbox.controlled_process(&process, streams, control),
        ours.read_to_string(&mut text)
    );
    (exit.unwrap().status, text)
}

#[tokio::test]
async fn a_program_runs_with_the_rights_of_its_user() {
    with_sandbox(async |sandbox| {
        let Some(user) = other_user(sandbox) else { return };
        let (status, text) =
            output(sandbox, "id -u; id -g; id -G; cat /proc/self/status", user).await;
        assert_eq!(status, Status::Exited(0));
        assert!(text.starts_with("1000\n1000\n1000 2000\n"), "{text}");
        for set in ["CapEff", "CapPrm", "CapInh"] {
            assert!(text.contains(&format!("{set}:\t0000000000000000")), "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn nobody_becomes_a_user_that_cannot_exist() {
    with_sandbox(async |sandbox| {
        let user = Identity { uid: u32::MAX, gid: 0, groups: vec![] };
        let (status, _) = output(sandbox, "id -u", user).await;
        assert_eq!(status, Status::Exited(126));
    })
    .await;
}

#[tokio::test]
async fn signals_reach_a_program_by_its_number() {
    with_sandbox(async |sandbox| {
        let (started, pid) = oneshot::channel();
        let (signal, signals) = mpsc::channel(1);
        let control =
            Control { started: Some(started), signals: Some(signals), ..Control::default() };
        let process = Process::new(["bash", "-c", "trap 'exit 9' TERM; sleep 60 & wait"]);
        let running = sandbox.controlled_process(&process, Streams::discard(), control);
        let control = async {
            let pid = pid.await.unwrap();
            // The shell of the sandbox sees the same number, and the trap is set once it waits.
            let wait = format!("until grep -q wait /proc/{pid}/wchan; do sleep 0.01; done");
            let wait = ShellCommand::new(wait).timeout(SOON);
            assert!(sandbox.shell(&wait).await.unwrap().status.success());
            signal.send(15).await.unwrap();
        };
        let (exit, ()) = timeout(SOON, async { tokio::join!(running, control) }).await.unwrap();
        assert_eq!(exit.unwrap().status, Status::Exited(9));
    })
    .await;
}

async fn one(sandbox: &NativeSandbox, operation: FileOperation) -> sandbox::FileInfo {
    sandbox.file_operation(&root(), &operation).await.unwrap().pop().unwrap()
}

#[tokio::test]
async fn files_are_written_described_moved_and_removed() {
    with_sandbox(async |sandbox| {
        let attributes = [("kind".to_owned(), "note".to_owned())];
        let content = Box::new(std::io::Cursor::new(b"hello".to_vec()));
        let path = Path::new("/tmp/a/b.txt");
        let info = sandbox.write_file_as(&root(), path, content, &attributes).await.unwrap();
        assert_eq!((info.kind, info.size, info.mode), (EntryKind::File, 5, 0o644));
        assert_eq!(info.path, path);
        let described = one(sandbox, FileOperation::Describe(path.into())).await;
        assert_eq!(described, info);
        let to = Path::new("/tmp/c/d.txt");
        let moved = one(sandbox, FileOperation::Move { from: path.into(), to: to.into() }).await;
        assert_eq!((moved.path.as_path(), moved.size), (to, 5));
        let mut text = String::new();
        let mut file = sandbox.read_file_as(&root(), to).await.unwrap();
        file.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        let made = FileOperation::CreateDirectory("/tmp/c/e".into());
        assert_eq!(one(sandbox, made.clone()).await.kind, EntryKind::Directory);
        let again = sandbox.file_operation(&root(), &made).await;
        assert!(matches!(again, Err(Error::Path { source, .. })
            if source.kind() == std::io::ErrorKind::AlreadyExists));
        sandbox.shell(&ShellCommand::new("ln -s d.txt /tmp/c/link")).await.unwrap();
        let list = |depth| FileOperation::List { path: "/tmp".into(), depth };
        let names = |infos: Vec<sandbox::FileInfo>| -> Vec<String> {
            infos.iter().map(|info| info.path.display().to_string()).collect()
        };
        let flat = sandbox.file_operation(&root(), &list(1)).await.unwrap();
        assert_eq!(names(flat), ["/tmp/a", "/tmp/c"]);
        let deep = sandbox.file_operation(&root(), &list(9)).await.unwrap();
        let link = deep.iter().find(|info| info.path.ends_with("link")).unwrap();
        assert_eq!(link.target.as_deref(), Some(Path::new("/tmp/c/d.txt")));
        assert_eq!(names(deep), ["/tmp/a", "/tmp/c", "/tmp/c/d.txt", "/tmp/c/e", "/tmp/c/link"]);
        for _ in 0..2 {
            let removed = FileOperation::Remove("/tmp/c".into());
            assert_eq!(sandbox.file_operation(&root(), &removed).await.unwrap(), []);
        }
        let gone = sandbox.file_operation(&root(), &FileOperation::Describe(to.into())).await;
        assert!(matches!(gone, Err(Error::Path { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound));
    })
    .await;
}

#[tokio::test]
async fn files_have_the_rights_of_their_user() {
    with_sandbox(async |sandbox| {
        let Some(user) = other_user(sandbox) else { return };
        let content = || Box::new(std::io::Cursor::new(b"x".to_vec()));
        let refused = sandbox.write_file_as(&user, Path::new("/root/x"), content(), &[]).await;
        assert!(matches!(refused, Err(Error::Path { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied));
        let info = sandbox.write_file_as(&user, Path::new("/tmp/x"), content(), &[]).await.unwrap();
        assert_eq!((info.uid, info.gid), (1000, 1000));
        let secret = ShellCommand::new("echo s > /tmp/s; chmod 600 /tmp/s");
        sandbox.shell(&secret).await.unwrap();
        let refused = sandbox.read_file_as(&user, Path::new("/tmp/s")).await;
        assert!(refused.is_err());
    })
    .await;
}

#[tokio::test]
async fn missing_directories_are_made_for_a_user_and_not_behind_links() {
    with_sandbox(async |sandbox| {
        let Some(user) = other_user(sandbox) else { return };
        let content = || Box::new(std::io::Cursor::new(b"x".to_vec()));
        let write = async |path: &str| {
            sandbox.write_file_as(&user, Path::new(path), content(), &[]).await.map(|info| info.uid)
        };
        let script = "mkdir -p /secret /open /shared; chmod 700 /secret; chmod 777 /open
            echo root > /open/roots; ln -s /etc /open/link; echo root > /etc/own";
        let done = sandbox.shell(&ShellCommand::new(script)).await.unwrap();
        assert!(done.status.success(), "{done:?}");
        // New directories are the user's, at any depth; a file of root's in a directory of everybody becomes the user's.
        for path in ["/tests/a/b.sh", "/tests/c.sh", "/shared/new/x", "/open/roots"] {
            assert_eq!(write(path).await.unwrap(), 1000, "{path}");
        }
        let made = FileOperation::CreateDirectory("/made".into());
        assert_eq!(sandbox.file_operation(&user, &made).await.unwrap()[0].uid, 1000);
        assert!(sandbox.file_operation(&user, &made).await.is_err(), "it exists");
        for path in ["/x", "/shared/x", "/secret/new/x", "/etc/own", "/open/link/new/x", "/proc/new/x"] {
            let refused = write(path).await;
            assert!(matches!(refused, Err(Error::Path { .. })), "{path}: {refused:?}");
        }
        let left = "stat -c %u /tests /tests/a /shared /shared/new; ls -d /secret/new /etc/new /x 2> /dev/null";
        let left = sandbox.shell(&ShellCommand::new(left)).await.unwrap();
        assert_eq!(left.stdout.text(), "1000\n1000\n0\n1000\n");
    })
    .await;
}

/// The number of processes in the sandbox.
async fn processes(sandbox: &NativeSandbox) -> usize {
    let output = sandbox.shell(&ShellCommand::new("echo /proc/[0-9]*")).await.unwrap();
    output.stdout.text().split_whitespace().count()
}

#[tokio::test]
async fn changes_are_reported_until_nobody_listens() {
    with_sandbox(async |sandbox| {
        let before = processes(sandbox).await;
        let at = Path::new("/tmp");
        let mut changes = sandbox.watch(&root(), at, WatchDepth::Recursive).await.unwrap();
        let script = "mkdir d; sleep 0.2; echo x > d/f; mv d/f d/g; rm d/g; chmod 700 d";
        let command = ShellCommand::new(format!("cd /tmp; {script}"));
        sandbox.shell(&command).await.unwrap();
        let mut seen = Vec::new();
        while seen.last().is_none_or(|(_, kind)| *kind != FileEventKind::AttributesChanged) {
            let change = timeout(SOON, changes.recv()).await.unwrap().unwrap();
            seen.push((change.name.display().to_string(), change.kind));
        }
        use FileEventKind::{AttributesChanged, Created, Removed, Renamed, Written};
        let expected = [
            ("d", Created),
            ("d/f", Created),
            ("d/f", Written),
            ("d/f", Renamed),
            ("d/g", Created),
            ("d/g", Removed),
            ("d", AttributesChanged),
        ];
        assert_eq!(seen, expected.map(|(name, kind)| (name.to_owned(), kind)));
        drop(changes);
        timeout(SOON, async { while processes(sandbox).await > before {} }).await.unwrap();
        let missing = sandbox.watch(&root(), Path::new("/nope"), WatchDepth::Directory).await;
        assert!(matches!(missing, Err(Error::Path { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_port_inside_is_reached() {
    with_sandbox(async |sandbox| {
        let refused = sandbox.connect(5000).await;
        assert!(matches!(refused, Err(Error::Path { source, .. })
            if source.kind() == std::io::ErrorKind::ConnectionRefused));
        let script = "import socket\ns=socket.create_server(('127.0.0.1',5000))\n\
             print('up',flush=True)\nc,_=s.accept()\nc.sendall(c.recv(9).upper())";
        let server = Process::new(["python3", "-c", script]);
        let (mut ours, theirs) = tokio::io::duplex(64);
        let streams = Streams::Pipes {
            stdin: None,
            stdout: Box::new(theirs),
            stderr: Box::new(tokio::io::sink()),
        };
        let serving = sandbox.process(&server, streams);
        let asking = async {
            let mut up = [0; 3];
            ours.read_exact(&mut up).await.unwrap();
            let mut stream = sandbox.connect(5000).await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let (exit, answer) = timeout(SOON, async { tokio::join!(serving, asking) }).await.unwrap();
        assert_eq!((exit.unwrap().status, answer.as_str()), (Status::Exited(0), "HELLO"));
    })
    .await;
}

/// A command that reaches its time limit while everything is paused does not let the rest continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_command_leaves_a_pause_alone() {
    with_sandbox(async |sandbox| {
        let count = "(while :; do echo x >> /testbed/ticks; sleep 0.01; done) >/dev/null 2>&1 &";
        sandbox.shell(&ShellCommand::new(count)).await.unwrap();
        let slow = ShellCommand::new("sleep 100").timeout(Duration::from_millis(700));
        let pause = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            sandbox.set_paused(sandbox::Paused::Yes).await.unwrap();
        };
        let (killed, ()) = tokio::join!(sandbox.shell(&slow), pause);
        assert_eq!(killed.unwrap().status, Status::TimedOut);
        let ticks = async || {
            let mut text = String::new();
            let mut file = sandbox.read_file(Path::new("/testbed/ticks")).await.unwrap();
            file.read_to_string(&mut text).await.unwrap();
            text.len()
        };
        let before = ticks().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(ticks().await, before, "it was resumed");
        sandbox.set_paused(sandbox::Paused::No).await.unwrap();
        let resumed = async {
            while ticks().await == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, resumed).await.unwrap();
        let after = sandbox.shell(&ShellCommand::new("echo usable")).await.unwrap();
        assert_eq!(after.stdout.text(), "usable\n");
    })
    .await;
}

/// A command that the caller starts while a fork or an image is made would not be stopped, and could let the others continue: it
/// waits until the files are copied. While the caller has paused the sandbox, it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn commands_are_not_started_while_others_are_stopped() {
    with_sandbox(async |sandbox| {
        let many = "perl -e 'for (1..20000) { open(my $f, q(>), qq(/testbed/$_)) or die }'; sleep 1000 >/dev/null 2>&1 & echo $!";
        let started = sandbox.shell(&ShellCommand::new(many)).await.unwrap();
        let look = format!("grep State /proc/{}/status", started.stdout.text().trim());
        for save in [false, true] {
            let copied = std::sync::atomic::AtomicBool::new(false);
            let copy = async {
                match save {
                    true => sandbox.snapshot("copied-while-busy").await.unwrap(),
                    false => sandbox.fork().await.unwrap().destroy().await.unwrap(),
                }
                copied.store(true, std::sync::atomic::Ordering::Relaxed);
            };
            let looks = async {
                let mut waited = Duration::ZERO;
                while !copied.load(std::sync::atomic::Ordering::Relaxed) {
                    let begun = std::time::Instant::now();
                    let seen = sandbox.shell(&ShellCommand::new(look.as_str())).await.unwrap();
                    assert!(!seen.stdout.text().contains("stopped"), "{}", seen.stdout.text());
                    let (status, seen) = output(sandbox, &look, root()).await;
                    assert!(status.success() && !seen.contains("stopped"), "{seen}");
                    waited = waited.max(begun.elapsed());
                }
                waited
            };
            let ((), waited) = timeout(SOON * 3, async { tokio::join!(copy, looks) }).await.unwrap();
            assert!(waited > Duration::from_millis(50), "the copy was too fast: {waited:?}");
        }
        sandbox.set_paused(sandbox::Paused::Yes).await.unwrap();
        let refused = sandbox.shell(&ShellCommand::new("true")).await.unwrap_err().chain();
        assert!(refused.contains("paused"), "{refused}");
        let program = Process::new(["true"]);
        assert!(sandbox.process(&program, Streams::discard()).await.is_err());
        sandbox.set_paused(sandbox::Paused::No).await.unwrap();
        assert!(sandbox.process(&program, Streams::discard()).await.unwrap().status.success());
    })
    .await;
}

/// Processes that fork all the time, each child in place of its parent, do not escape a pause.
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_never_stay_are_paused() {
    with_sandbox(async |sandbox| {
        let chain = "use POSIX; POSIX::setsid(); while (1) { my $p = fork; exit if $p; open(my $f, '>>', '/testbed/ticks'); \
                     print $f 'x'; close $f; kill 'CONT', -1 }";
        let start = format!("for i in 1 2 3; do perl -e \"{}\" >/dev/null 2>&1 & done", chain.replace('$', "\\$"));
        sandbox.shell(&ShellCommand::new(start)).await.unwrap();
        let ticks = async || {
            let file = sandbox.read_file(Path::new("/testbed/ticks")).await;
            let mut text = Vec::new();
            file.unwrap().read_to_end(&mut text).await.unwrap();
            text.len()
        };
        let exists = async || {
            let entries = sandbox.list(Path::new("/testbed")).await.unwrap();
            entries.iter().any(|entry| entry.name == Path::new("ticks"))
        };
        while !exists().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for _ in 0..10 {
            sandbox.set_paused(sandbox::Paused::Yes).await.unwrap();
            let before = ticks().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(ticks().await, before, "one was not paused");
            sandbox.set_paused(sandbox::Paused::No).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The kernel lets stopped processes continue when the last parent of their session exits. One that takes long to exit does so
/// after they were stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_exits_slowly_does_not_end_a_pause() {
    with_sandbox(async |sandbox| {
        let parent = "use POSIX; POSIX::setsid(); my $m = 'x' x 200_000_000; \
            if (!fork) { setpgrp(0, 0); $SIG{HUP} = 'IGNORE'; undef $m; \
                while (1) { open(my $f, '>>', '/testbed/ticks'); print $f 'x'; close $f; select(undef, undef, undef, 0.002) } } \
            while (! -e '/testbed/go') { select(undef, undef, undef, 0.001) } POSIX::_exit(0)";
        let ticks = async || {
            let mut text = Vec::new();
            if let Ok(mut file) = sandbox.read_file(Path::new("/testbed/ticks")).await {
                file.read_to_end(&mut text).await.unwrap();
            }
            text.len()
        };
        for round in 0..6 {
            let start = format!(
                "cd /testbed; rm -f ticks go; perl -e \"{}\" >/dev/null 2>&1 & while [ ! -s ticks ]; do sleep 0.01; done",
                parent.replace('$', "\\$")
            );
            sandbox.shell(&ShellCommand::new(start)).await.unwrap();
            sandbox.shell(&ShellCommand::new("touch /testbed/go")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2 * round)).await;
            sandbox.set_paused(sandbox::Paused::Yes).await.unwrap();
            let before = ticks().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(ticks().await, before, "it was resumed, in round {round}");
            sandbox.set_paused(sandbox::Paused::No).await.unwrap();
            sandbox.shell(&ShellCommand::new("kill -9 -1; true")).await.unwrap();
        }
    })
    .await;
}

/// Whether processes of a sandbox can be frozen; otherwise the protection report says that signals have to do.
fn can_freeze(sandbox: &NativeSandbox) -> bool {
    let can = sandbox.protection().state(&Layer::Pause) == LayerState::Enforced;
    if !can {
        sandbox_conformance::skip("freezer", "processes are stopped by signals only");
    }
    can
}

/// The content of a file that a process writes all the time.
async fn clock(sandbox: &NativeSandbox) -> String {
    let mut text = String::new();
    if let Ok(mut file) = sandbox.read_file(Path::new("/testbed/clock")).await {
        file.read_to_string(&mut text).await.unwrap();
    }
    text
}

/// Perl that counts in that file.
const TICK: &str = "my $n = 0; while (1) { $n++; open(my $f, '>', '/testbed/clock.new'); print $f $n; close $f; \
    rename '/testbed/clock.new', '/testbed/clock'; select(undef, undef, undef, 0.001) }";

/// The kernel sends a stopped process signals without another process that runs: those of its timers. They do not let it
/// continue while it is paused.
#[tokio::test(flavor = "multi_thread")]
async fn timers_do_not_end_a_pause() {
    with_sandbox(async |sandbox| {
        if !can_freeze(sandbox) {
            return;
        }
        let timer = format!(
            r#"$SIG{{CONT}} = sub {{}}; my $event = pack('Q i i x48', 0, 18, 0); my $id = pack('i', 0);
            syscall({}, 1, $event, $id) == 0 or die; my $often = pack('qqqq', 0, 5_000_000, 0, 5_000_000);
            syscall({}, unpack('i', $id), 0, $often, 0) == 0 or die; {TICK}"#,
            libc::SYS_timer_create, libc::SYS_timer_settime
        );
        sandbox.write_file(Path::new("/tmp/timer.pl"), timer.as_bytes()).await.unwrap();
        let start = "perl /tmp/timer.pl >/dev/null 2>&1 & while [ ! -s /testbed/clock ]; do sleep 0.01; done";
        sandbox.shell(&ShellCommand::new(start)).await.unwrap();
        for _ in 0..5 {
            sandbox.set_paused(sandbox::Paused::Yes).await.unwrap();
            let before = clock(sandbox).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(clock(sandbox).await, before, "it was continued");
            sandbox.set_paused(sandbox::Paused::No).await.unwrap();
            while clock(sandbox).await == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
}

/// The kernel lets the jobs of a shell continue when the shell dies. They stay paused if that is at its time limit.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_killed_shell_stay_paused() {
    with_sandbox(async |sandbox| {
        if !can_freeze(sandbox) {
            return;
        }
        let job = format!("$SIG{{HUP}} = 'IGNORE'; {TICK}");
        sandbox.write_file(Path::new("/tmp/job.pl"), job.as_bytes()).await.unwrap();
        let start = "set -m; perl /tmp/job.pl >/dev/null 2>&1 </dev/null & set +m; sleep 0.3";
        sandbox.shell(&ShellCommand::new(start)).await.unwrap();
        let slow = ShellCommand::new("touch /testbed/begun; sleep 100");
        let slow = slow.timeout(Duration::from_millis(1500));
        let pause = async {
            while sandbox.read_file(Path::new("/testbed/begun")).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            sandbox.set_paused(sandbox::Paused::Yes).await.unwrap();
            let before = clock(sandbox).await;
            assert!(!before.is_empty());
            for _ in 0..25 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert_eq!(clock(sandbox).await, before, "it was continued");
            }
        };
        let (killed, ()) =
            timeout(SOON, async { tokio::join!(sandbox.shell(&slow), pause) }).await.unwrap();
        assert_eq!(killed.unwrap().status, Status::TimedOut);
        sandbox.set_paused(sandbox::Paused::No).await.unwrap();
        let after = sandbox.shell(&ShellCommand::new("pgrep -x sleep || echo gone")).await.unwrap();
        assert_eq!(after.stdout.text(), "gone\n");
    })
    .await;
}

/// A sandbox whose processes are stopped, or are being stopped, can be destroyed, and so can one that is made read-only or
/// stops by itself meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn paused_sandboxes_can_be_destroyed() {
    let runtime = match support::start(support::home()).await {
        Ok(runtime) => runtime,
        Err(missing) => return sandbox_conformance::skip(&missing.capability, &missing.reason),
    };
    for round in 0..8 {
        let sandbox = runtime.create(&Spec::default()).await.unwrap();
        let writers = "for i in 1 2 3 4; do (exec 5>/testbed/f$i; while :; do echo x >&5; done) >/dev/null 2>&1 & done; sleep 0.1";
        sandbox.shell(&ShellCommand::new(writers)).await.unwrap();
        let pause = sandbox.set_paused(sandbox::Paused::Yes);
        match round {
            // PID 1 is killed at some moment of it.
            0..4 => drop(timeout(Duration::from_micros(100 * (1 << round)), pause).await),
            _ => pause.await.unwrap(),
        }
        if round == 7 {
            timeout(SOON, sandbox.freeze()).await.unwrap().unwrap();
        }
        timeout(SOON, sandbox.destroy()).await.unwrap().unwrap();
    }
    // Nothing keeps the spawner, which removes all when its caller is gone.
    let sandbox = runtime.create(&Spec::default()).await.unwrap();
    sandbox.shell(&ShellCommand::new("sleep 1000 >/dev/null 2>&1 &")).await.unwrap();
    sandbox.set_paused(sandbox::Paused::Yes).await.unwrap();
    drop((sandbox, runtime));
}

/// Writers that fork all the time, each child in place of its parent, neither keep a sandbox from being frozen nor write after it.
#[tokio::test(flavor = "multi_thread")]
async fn writers_that_never_stay_do_not_escape_a_freeze() {
    with_sandbox(async |sandbox| {
        let chain = "use POSIX; $SIG{TERM} = 'IGNORE'; POSIX::setsid(); open(my $g, '>>', '/testbed/ticks'); while (1) { my $p = fork; exit if $p; \
                     open(my $f, '>>', '/testbed/ticks'); syswrite $f, 'x'; syswrite $g, 'x'; kill 'CONT', -1 }";
        let start = format!(
            "cd /testbed; for i in 1 2 3; do perl -e \"{}\" >/dev/null 2>&1 & done; while [ ! -s ticks ]; do sleep 0.01; done",
            chain.replace('$', "\\$")
        );
        sandbox.shell(&ShellCommand::new(start)).await.unwrap();
        timeout(SOON, sandbox.freeze()).await.unwrap().unwrap();
        let look = ShellCommand::new("cd /testbed; wc -c < ticks; sleep 0.2; wc -c < ticks; echo x > new || echo frozen");
        let seen = sandbox.shell(&look).await.unwrap();
        let seen = seen.stdout.text();
        let lines: Vec<_> = seen.lines().collect();
        assert!(lines.len() == 3 && lines[0] == lines[1] && lines[2] == "frozen", "{seen}");
    })
    .await;
}
