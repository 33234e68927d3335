//! Attacks: the classic ways out of a sandbox, and some of our own, each tried for real and refused.
//!
//! A test here plays the command inside or an image it made. Where it can, it first shows by a control
//! that the attempt would have been noticed. What a sandbox is good for is tested elsewhere.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; a failed expectation must fail the test"
)]

mod descriptors;
mod exhaustion;
mod images;
mod kernel;
mod links;
mod proxy;
mod sockets;
mod syscalls;
mod tampering;

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use sandbox::{
    ExecOutput, ImageRef, LayerState, Process, Runtime, Sandbox, ShellCommand, Spec, Streams,
};
use sandbox_conformance::{Capabilities, Capability, Harness, run, skip};
use sandbox_native::NativeRuntime;
use tokio::io::AsyncReadExt;

use crate::support;

/// What attacks are tried in.
struct Ground<'a> {
    harness: &'a Harness<NativeRuntime>,
    /// Where on the host the runtime keeps everything.
    home: PathBuf,
}

impl std::ops::Deref for Ground<'_> {
    type Target = Harness<NativeRuntime>;

    fn deref(&self) -> &Self::Target {
        self.harness
    }
}

/// Longer than this nothing may keep the caller waiting, whatever the sandbox does.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tries an attack on the built-in image and on a root file system of its own.
fn on_both(attack: impl AsyncFn(&Ground<'_>)) {
    on(ImageRef::Host, &attack);
    match support::setting("LIS_TEST_ROOTFS") {
        Some(rootfs) => on(ImageRef::Dir(rootfs), &attack),
        None => skip("rootfs", "LIS_TEST_ROOTFS names no directory with a root file system"),
    }
}

/// Tries an attack where the image makes no difference.
fn on_the_host(attack: impl AsyncFn(&Ground<'_>)) {
    on(ImageRef::Host, &attack);
}

fn on(image: ImageRef, attack: &impl AsyncFn(&Ground<'_>)) {
    let home = support::home();
    let start = async || {
        let runtime = Arc::new(support::start(home.clone()).await?);
        let caps = capabilities(&runtime, &image).await;
        Ok(Harness::new(runtime, image.clone(), caps))
    };
    run(start, async |harness| attack(&Ground { harness, home: home.clone() }).await);
    nothing_is_left(&home);
}

/// What this machine enforces, as a sandbox itself reports it.
async fn capabilities(runtime: &NativeRuntime, image: &ImageRef) -> Capabilities {
    let spec = Spec { image: image.clone(), ..Spec::default() };
    let sandbox = runtime.create(&spec).await.unwrap();
    let full = |name: &str| match sandbox.protection().state(name) {
        LayerState::Enforced => Capability::Yes,
        _ => Capability::no(format!("{name} is not enforced here")),
    };
    let caps = Capabilities {
        memory_limit: full("memory limit"),
        pids_limit: full("process limit"),
        ..Capabilities::all()
    };
    sandbox.destroy().await.unwrap();
    caps
}

/// Whatever was tried, no directory of a sandbox outlives the runtime.
fn nothing_is_left(home: &Path) {
    let deadline = Instant::now() + PATIENCE;
    let runs = home.join("run");
    while std::fs::read_dir(&runs).is_ok_and(|mut entries| entries.next().is_some()) {
        assert!(Instant::now() < deadline, "directories are left in {}", runs.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = std::fs::remove_dir_all(home);
}

/// The answer to a request, which must come in bounded time.
async fn soon<T>(what: &str, request: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer,
        Err(_) => panic!("{what}: the caller was kept waiting for {PATIENCE:?}"),
    }
}

/// Evaluates a script, whatever its result.
async fn sh(sandbox: &impl Sandbox, script: &str) -> ExecOutput {
    sh_within(sandbox, script, Duration::from_secs(15)).await
}

async fn sh_within(sandbox: &impl Sandbox, script: &str, timeout: Duration) -> ExecOutput {
    let command = ShellCommand::new(script).timeout(timeout);
    soon(script, sandbox.shell(&command)).await.unwrap_or_else(|e| panic!("{script}: {e}"))
}

/// Evaluates a script that must succeed; its standard output.
async fn ok(sandbox: &impl Sandbox, script: &str) -> String {
    let output = sh(sandbox, script).await;
    let (out, err) = (output.stdout.text(), output.stderr.text());
    assert!(output.status.success(), "{script}: {:?}: {out} {err}", output.status);
    out.into_owned()
}

/// Runs a Perl program that must succeed; its standard output. Every Debian image has Perl, and Perl
/// makes any system call.
async fn perl(sandbox: &impl Sandbox, program: &str) -> String {
    store(sandbox, "/tmp/attack.pl", program).await;
    ok(sandbox, "perl /tmp/attack.pl </dev/null").await
}

/// Leaves a Perl program running when it has said that it is ready, by a line.
async fn perl_behind(sandbox: &impl Sandbox, program: &str) {
    store(sandbox, "/tmp/behind.pl", program).await;
    let script = "rm -f /tmp/ready; perl /tmp/behind.pl >/tmp/ready 2>&1 </dev/null &
        for i in {1..200}; do [ -s /tmp/ready ] && break; sleep 0.02; done; cat /tmp/ready";
    let said = ok(sandbox, script).await;
    assert_eq!(said, "ready\n", "the attack did not start");
}

async fn store(sandbox: &impl Sandbox, path: &str, content: &str) {
    let written = sandbox.write_file(Path::new(path), content.as_bytes());
    soon(path, written).await.unwrap_or_else(|e| panic!("{path}: {e}"));
}

/// Runs a program apart from the shell; everything it wrote.
async fn program(sandbox: &impl Sandbox, process: &Process) -> String {
    let (stdout, mut from_stdout) = tokio::io::duplex(64 << 10);
    let (stderr, mut from_stderr) = tokio::io::duplex(64 << 10);
    let streams =
        Streams::Pipes { stdin: None, stdout: Box::new(stdout), stderr: Box::new(stderr) };
    let (mut out, mut err) = (String::new(), String::new());
    let all = async {
        tokio::join!(
            sandbox.process(process, streams),
            from_stdout.read_to_string(&mut out),
            from_stderr.read_to_string(&mut err)
        )
    };
    let (exit, ..) = soon("a program", all).await;
    let exit = exit.unwrap_or_else(|e| panic!("{:?}: {e}", process.argv));
    format!("{out}{err}[{}]", exit.status.code())
}

/// A Perl program on the host, as a control; its standard output.
#[expect(
    clippy::disallowed_methods,
    reason = "the control of an attack runs outside of any sandbox"
)]
fn perl_outside(program: &str) -> String {
    let output = std::process::Command::new("perl").args(["-e", program]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
