//! Real sandboxes: files in, commands one after the other in one shell, the answer out.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use curriculum::{INPUT_DIR, OUTPUT_DIR};
use problems::{Grading, Problem, Task, clean_answer};
use sandbox::{ImageRef, Runtime, Sandbox, ShellCommand, Spec};
use sandbox_native::{Launcher, NativeOptions, NativeRuntime};
use tokio::io::AsyncReadExt;

use crate::support::{skip, variable};

/// Runs a test in bounded time with a runtime and what its sandboxes are to be like; says why where none can be had.
pub(crate) fn with_runtime<F: Future<Output = ()>>(test: impl FnOnce(NativeRuntime, Spec) -> F) {
    let Some(rootfs) = variable("LIS_TEST_ROOTFS") else {
        return skip("rootfs", "LIS_TEST_ROOTFS names no root file system");
    };
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let launcher = Launcher { program: spawner(), args: Vec::new() };
        match NativeRuntime::start(NativeOptions { home: home(), launcher }).await {
            Err(error) => skip("userns", &chain(&error)),
            Ok(runtime) => {
                let spec = Spec { image: rootfs.parse::<ImageRef>().unwrap(), ..Spec::default() };
                let bound = Duration::from_secs(180);
                let done = tokio::time::timeout(bound, test(runtime, spec)).await;
                assert!(done.is_ok(), "took too long");
            }
        }
    });
}

/// The score of a problem's demonstration, and all that was printed on the way.
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
    for command in curriculum::solve(&problem.extra).unwrap() {
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
pub(crate) async fn made(runtime: &NativeRuntime, spec: &Spec) -> impl Sandbox + use<> {
    runtime.create(spec).await.unwrap()
}

fn chain(error: &dyn Error) -> String {
    let source = error.source().map(|source| format!(": {}", chain(source))).unwrap_or_default();
    format!("{error}{source}")
}

/// The program that makes sandboxes, built beside this test.
fn spawner() -> PathBuf {
    let test = env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    let program = built.join("examples/lis-curriculum-spawner");
    assert!(program.exists(), "first build it: cargo build -p curriculum --examples");
    program
}

/// It must outlive the spawner, which outlives the test a little, so each test removes the homes of tests that are
/// over.
fn home() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    let all = env::temp_dir().join(format!("lis-curriculum-homes-{user}"));
    std::fs::create_dir_all(&all).unwrap();
    for entry in std::fs::read_dir(&all).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let home = all.join(format!("{}-{number}", std::process::id()));
    std::fs::create_dir(&home).unwrap();
    home
}
