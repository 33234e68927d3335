//! Real sandboxes: files in, commands one after the other in one shell, the answer out.

use std::time::Duration;

use lis_curriculum::{INPUT_DIR, OUTPUT_DIR};
use problems::{Grading, Problem, Task, clean_answer};
use sandbox::{ImageRef, Runtime, Sandbox, ShellCommand, Spec};
use sandbox_native::NativeRuntime;
use sandbox_testkit::Spawner;
use tokio::io::AsyncReadExt;

use crate::support::{skip, variable};

/// Runs a test with a runtime and the specification of its sandboxes, in bounded time; prints why where it is skipped.
pub(crate) fn with_runtime<F: Future<Output = ()>>(test: impl FnOnce(NativeRuntime, Spec) -> F) {
    let Some(rootfs) = variable("LIS_TEST_ROOTFS") else {
        return skip("rootfs", "LIS_TEST_ROOTFS names no root file system");
    };
    let spec = Spec { image: rootfs.parse::<ImageRef>().unwrap(), ..Spec::default() };
    let spawner = Spawner::Example("lis-curriculum-spawner");
    sandbox_testkit::with_runtime(spawner, Duration::from_secs(180), async |runtime| {
        test(runtime, spec).await;
    });
}

/// The score of a problem's demonstration, and its output.
pub(crate) async fn demonstrated(
    sandbox: &impl Sandbox,
    task: &Task,
    problem: &Problem,
) -> (f64, String) {
    let fresh =
        format!("cd /testbed; rm -rf {INPUT_DIR} {OUTPUT_DIR}; mkdir -p {INPUT_DIR} {OUTPUT_DIR}");
    sandbox.shell(&ShellCommand::new(fresh)).await.unwrap();
    for (name, text) in &problem.files {
        sandbox.write_file(&task.prompts.input_dir.join(name), text.as_bytes()).await.unwrap();
    }
    let mut printed = String::new();
    for command in lis_curriculum::solve(&problem.extra).unwrap() {
        let output = sandbox.shell(&ShellCommand::new(command.clone())).await.unwrap();
        printed.push_str(&format!("$ {command}\n{}{}", output.stdout.text(), output.stderr.text()));
    }
    let mut bytes = Vec::new();
    let path = task.prompts.output_dir.join("answer.txt");
    let mut file = sandbox.read_file(&path).await.unwrap();
    file.read_to_end(&mut bytes).await.unwrap();
    match task.grading(problem, &clean_answer(&bytes)) {
        Grading::Done(grade) => (grade.score, printed),
        other => panic!("{other:?}"),
    }
}

/// A fresh sandbox.
pub(crate) async fn draft(runtime: &NativeRuntime, spec: &Spec) -> impl Sandbox + use<> {
    runtime.create(spec).await.unwrap()
}
