//! Attacks: known ways out of a sandbox, each tried for real.
//!
//! The attacker is a command in the sandbox, or an image. Where possible a control shows first that a success would have
//! been noticed.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; a failed expectation must fail the test"
)]

mod caller;
mod descriptors;
mod disk;
mod exhaustion;
mod images;
mod internet;
mod kernel;
mod links;
mod project;
mod proxy;
mod shared;
mod sockets;
mod starvation;
mod syscalls;
mod tampering;
mod written;

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use lis_sandbox_native::NativeRuntime;
use sandbox::{
    ExecOutput, ImageRef, Layer, LayerState, Process, Runtime, Sandbox, ShellCommand, Spec, Streams,
};
use sandbox_conformance::{Capabilities, Capability, Harness, patience, run, skip};
use tokio::io::AsyncReadExt;

use crate::support;

/// Where attacks are tried.
struct Ground<'a> {
    harness: &'a Harness<NativeRuntime>,
    /// The home of the runtime on the host.
    home: PathBuf,
}

impl std::ops::Deref for Ground<'_> {
    type Target = Harness<NativeRuntime>;

    fn deref(&self) -> &Self::Target {
        self.harness
    }
}

/// The caller never waits longer than this, whatever the sandbox does. Generous: a busy machine is slow, too.
const BOUND: Duration = Duration::from_secs(80);
/// How long a script of an attack may take. One searches the whole file system.
const SCRIPT: Duration = Duration::from_secs(60);

/// Perl that waits until [`go`] is called.
const WAIT: &str = "select(undef, undef, undef, 0.01) until -e '/tmp/go';";

/// Tries an attack on the built-in image and on a root file system of its own.
fn on_both(attack: impl AsyncFn(&Ground<'_>)) {
    on(ImageRef::Host, &attack);
    match support::setting("LIS_TEST_ROOTFS") {
        Some(rootfs) => on(ImageRef::Dir(rootfs.into()), &attack),
        None => skip("rootfs", "LIS_TEST_ROOTFS does not name a directory with a root file system"),
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
    let full = |layer: Layer| match sandbox.protection().state(&layer) {
        LayerState::Enforced => Capability::Yes,
        _ => Capability::no(format!("{layer} is not enforced here")),
    };
    let caps = Capabilities {
        memory_limit: full(Layer::MemoryLimit),
        pids_limit: full(Layer::ProcessLimit),
        ..Capabilities::all()
    };
    sandbox.destroy().await.unwrap();
    caps
}

/// Checks that no directory of a sandbox outlives the runtime.
fn nothing_is_left(home: &Path) {
    let deadline = Instant::now() + BOUND;
    let runs = home.join("run");
    while std::fs::read_dir(&runs).is_ok_and(|mut entries| entries.next().is_some()) {
        assert!(Instant::now() < deadline, "directories are left in {}", runs.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = std::fs::remove_dir_all(home);
}

/// Waits for the result of a request, in bounded time.
async fn soon<T>(what: &str, request: impl Future<Output = T>) -> T {
    let bound = BOUND * patience();
    match tokio::time::timeout(bound, request).await {
        Ok(answer) => answer,
        Err(_) => panic!("{what}: the caller has waited for {bound:?}"),
    }
}

/// Evaluates a script, whatever its result.
async fn sh(sandbox: &impl Sandbox, script: &str) -> ExecOutput {
    sh_within(sandbox, script, SCRIPT).await
}

async fn sh_within(sandbox: &impl Sandbox, script: &str, timeout: Duration) -> ExecOutput {
    // A shorter limit is part of the attack.
    let factor = if timeout >= SCRIPT { patience() } else { 1 };
    let command = ShellCommand::new(script).timeout(timeout * factor);
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

/// Leaves a Perl program running in the background once it has printed the line `ready`.
async fn perl_behind(sandbox: &impl Sandbox, program: &str) {
    store(sandbox, "/tmp/behind.pl", program).await;
    let script = "rm -f /tmp/ready; perl /tmp/behind.pl >/tmp/ready 2>&1 </dev/null &
        for i in {1..2500}; do [ -s /tmp/ready ] && break; sleep 0.02; done; cat /tmp/ready";
    let said = ok(sandbox, script).await;
    assert_eq!(said, "ready\n", "the attack did not start");
}

/// Lets a background program that [`WAIT`]s attack. Until then the shell is undisturbed.
async fn go(sandbox: &impl Sandbox) {
    store(sandbox, "/tmp/go", "").await;
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
