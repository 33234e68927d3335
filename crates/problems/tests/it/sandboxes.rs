//! Real sandboxes for graders: files in, a command, its output.

use std::{path::Path, time::Duration};

use lis_problems::{Check, Grade};
use sandbox::{CaptureBuffer, OutputCap, Process, Runtime, Sandbox, Spec, Status, Streams};
use sandbox_native::{NativeRuntime, NativeSandbox};
use sandbox_testkit::Spawner;
use tokio::io::AsyncReadExt;

/// Runs a test with a runtime and a time limit; skips it where there is none.
pub(crate) fn with_runtime<F: Future<Output = ()>>(test: impl FnOnce(NativeRuntime) -> F) {
    let spawner = Spawner::Example("lis-problems-spawner");
    sandbox_testkit::with_runtime(spawner, Duration::from_secs(120), async |runtime| {
        test(runtime).await;
    });
}

/// Carries out a check in a fresh sandbox.
pub(crate) async fn graded(runtime: &NativeRuntime, check: &Check) -> Result<Grade, String> {
    let sandbox = runtime.create(&Spec::default()).await.unwrap();
    for (path, bytes) in &check.files {
        sandbox.write_file(path, bytes).await.unwrap();
    }
    let (stdout, status) = run(&sandbox, &check.command).await;
    sandbox.destroy().await.unwrap();
    check.grade(&stdout, Some(status.code()))
}

/// Runs a program of its own and returns what it printed.
pub(crate) async fn run(sandbox: &NativeSandbox, command: &str) -> (String, Status) {
    let captured = CaptureBuffer::new(OutputCap::default());
    let streams = Streams::Pipes {
        stdin: None,
        stdout: captured.writer(),
        stderr: Box::new(tokio::io::sink()),
    };
    let exit = sandbox.process(&Process::new(["bash", "-c", command]), streams).await.unwrap();
    (captured.take().text().into_owned(), exit.status)
}

/// A text file of a sandbox.
pub(crate) async fn read(sandbox: &NativeSandbox, path: &str) -> String {
    let mut text = String::new();
    let mut file = sandbox.read_file(Path::new(path)).await.unwrap();
    file.read_to_string(&mut text).await.unwrap();
    text
}
