//! Real sandboxes for graders: files in, a command, its output.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use problems::{Check, Grade};
use sandbox::{Process, Runtime, Sandbox, Spec, Status, Streams};
use sandbox_native::{Launcher, NativeOptions, NativeRuntime, NativeSandbox};
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::support::skip;

/// Runs a test in bounded time with a runtime; says why where none can be had.
pub(crate) fn with_runtime<F: Future<Output = ()>>(test: impl FnOnce(NativeRuntime) -> F) {
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let launcher = Launcher { program: spawner(), args: Vec::new() };
        match NativeRuntime::start(NativeOptions { home: home(), launcher }).await {
            Err(error) => skip("userns", &chain(&error)),
            Ok(runtime) => {
                let bound = Duration::from_secs(120);
                assert!(tokio::time::timeout(bound, test(runtime)).await.is_ok(), "took too long");
            }
        }
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
    let kept = Kept::default();
    let streams = Streams::Pipes {
        stdin: None,
        stdout: Box::new(kept.clone()),
        stderr: Box::new(tokio::io::sink()),
    };
    let exit = sandbox.process(&Process::new(["bash", "-c", command]), streams).await.unwrap();
    let text = String::from_utf8_lossy(&kept.0.lock().unwrap()).into_owned();
    (text, exit.status)
}

/// A text file of a sandbox.
pub(crate) async fn read(sandbox: &NativeSandbox, path: &str) -> String {
    let mut text = String::new();
    let mut file = sandbox.read_file(Path::new(path)).await.unwrap();
    file.read_to_string(&mut text).await.unwrap();
    text
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Kept {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn chain(error: &dyn Error) -> String {
    let source = error.source().map(|source| format!(": {}", chain(source))).unwrap_or_default();
    format!("{error}{source}")
}

/// The program that makes sandboxes, built beside this test.
fn spawner() -> PathBuf {
    let test = env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    let program = built.join("examples/lis-problems-spawner");
    assert!(program.exists(), "first build it: cargo build -p problems --examples");
    program
}

/// It must outlive the spawner, which outlives the test a little, so each test removes the homes of tests that are
/// over.
fn home() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    let all = env::temp_dir().join(format!("lis-problems-homes-{user}"));
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
