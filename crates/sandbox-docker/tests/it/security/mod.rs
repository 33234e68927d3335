//! Attacks on containers: what commands can take from the machine, from other sandboxes and from the caller.
//!
//! The doc comment of a test is the promise it tries to break. What Docker has no means against is reported as partial, and
//! the tests check the report.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; a failed expectation must fail the test"
)]

mod caller;
mod calls;
mod exhaustion;
mod shared;

use std::{path::Path, time::Duration};

use lis_sandbox_docker::DockerRuntime;
use sandbox::{ExecOutput, Sandbox, ShellCommand};
use sandbox_conformance::{Harness, run};

/// The caller never waits longer than this, whatever the container does.
const BOUND: Duration = Duration::from_secs(60);

fn on_docker(attack: impl AsyncFn(&Harness<DockerRuntime>)) {
    run(crate::harness, async |h| attack(h).await);
}

async fn soon<T>(what: &str, request: impl Future<Output = T>) -> T {
    match tokio::time::timeout(BOUND, request).await {
        Ok(answer) => answer,
        Err(_) => panic!("{what}: the caller has waited for {BOUND:?}"),
    }
}

async fn sh_within(sandbox: &impl Sandbox, script: &str, timeout: Duration) -> ExecOutput {
    let command = ShellCommand::new(script).timeout(timeout);
    soon(script, sandbox.shell(&command)).await.unwrap_or_else(|e| panic!("{script}: {e}"))
}

async fn sh(sandbox: &impl Sandbox, script: &str) -> ExecOutput {
    sh_within(sandbox, script, BOUND / 2).await
}

/// Evaluates a script that must succeed; its standard output.
async fn ok(sandbox: &impl Sandbox, script: &str) -> String {
    let output = sh(sandbox, script).await;
    let (out, err) = (output.stdout.text(), output.stderr.text());
    assert!(output.status.success(), "{script}: {:?}: {out} {err}", output.status);
    out.into_owned()
}

async fn store(sandbox: &impl Sandbox, path: &str, content: &str) {
    let written = sandbox.write_file(Path::new(path), content.as_bytes());
    soon(path, written).await.unwrap_or_else(|e| panic!("{path}: {e}"));
}

/// Runs a Perl program that must succeed; its standard output.
async fn perl(sandbox: &impl Sandbox, program: &str) -> String {
    store(sandbox, "/tmp/attack.pl", program).await;
    ok(sandbox, "perl /tmp/attack.pl </dev/null").await
}

/// Leaves a Perl program running in the background once it has printed a line; returns that line.
async fn perl_behind(sandbox: &impl Sandbox, program: &str) -> String {
    store(sandbox, "/tmp/behind.pl", &format!("$| = 1; {program}; sleep 60")).await;
    let script = "perl /tmp/behind.pl >/tmp/ready 2>&1 </dev/null &
        for i in {1..1000}; do [ -s /tmp/ready ] && break; sleep 0.02; done; cat /tmp/ready";
    ok(sandbox, script).await.trim().to_owned()
}

/// A Perl program on the host, as a control; its standard output.
#[expect(clippy::disallowed_methods, reason = "the control of an attack runs outside")]
fn perl_outside(program: &str) -> String {
    let output = std::process::Command::new("perl").args(["-e", program]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
