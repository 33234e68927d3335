//! Native sandboxes for the tests of other crates: [`with_runtime`] runs a test with a [`NativeRuntime`], or skips it
//! visibly where this machine cannot create sandboxes. [`Faulty`] adds delays and failures.
//!
//! A dev-dependency only. Reads the variables of a test run through [`setting`].
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, reason = "a test that cannot be set up fails")]

mod faulty;

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

pub use faulty::{Faults, Faulty, FaultySandbox, Operation};
use sandbox_conformance::Missing;
pub use sandbox_conformance::{setting, skip};
use sandbox_native::{HostNetwork, Launcher, NativeOptions, NativeRuntime, Upstream};

/// The program that runs the spawner.
#[derive(Clone, Copy, Debug)]
pub enum Spawner<'a> {
    /// An example of the crate under test, by name. Examples are built along with the tests.
    Example(&'a str),
    /// A program.
    Program(&'a Path),
}

impl Spawner<'_> {
    fn program(self) -> PathBuf {
        let name = match self {
            Self::Program(path) => return path.to_owned(),
            Self::Example(name) => name,
        };
        // Tests lie in `deps`, beside `examples`.
        let test = env::current_exe().expect("a test has a path");
        let built =
            test.parent().and_then(Path::parent).expect("a test lies in a target directory");
        let program = built.join("examples").join(name);
        assert!(program.exists(), "first build it: cargo build --example {name}");
        program
    }
}

/// Runs a test with a native runtime of its own, in bounded time; skips it where there can be none.
pub fn with_runtime(spawner: Spawner<'_>, bound: Duration, test: impl AsyncFnOnce(NativeRuntime)) {
    // Not part of the test's time: it removes the homes of all tests that were killed.
    let home = home();
    within(bound, async {
        match start(spawner, home).await {
            Ok(runtime) => test(runtime).await,
            Err(Missing { capability, reason }) => skip(&capability, &reason),
        }
    });
}

/// Runs a test on a tokio runtime of its own, and fails it when it takes longer than `bound`.
pub fn within(bound: Duration, test: impl Future<Output = ()>) {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("tokio starts");
    tokio.block_on(async {
        let done = tokio::time::timeout(bound, test).await;
        assert!(done.is_ok(), "the test did not end within {bound:?}");
    });
}

/// Starts a runtime that keeps its state in `home`; see [`home`].
pub async fn start(spawner: Spawner<'_>, home: PathBuf) -> Result<NativeRuntime, Missing> {
    start_with(spawner, home, Arc::new(HostNetwork)).await
}

/// Starts a runtime whose sandboxes reach this network instead of the host's.
pub async fn start_with(
    spawner: Spawner<'_>,
    home: PathBuf,
    upstream: Arc<dyn Upstream>,
) -> Result<NativeRuntime, Missing> {
    let launcher = Launcher::new(spawner.program());
    let options = NativeOptions { state: home.clone(), home, launcher };
    let started = NativeRuntime::start_with(options, upstream).await;
    started.map_err(|error| Missing { capability: "userns".into(), reason: error.chain() })
}

/// Creates a home directory for one runtime.
///
/// The spawner removes its own files a moment after the test has ended, so a test cannot remove its home; each test
/// removes those of test processes that are over.
pub fn home() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let user = rustix::process::getuid().as_raw();
    let all = env::temp_dir().join(format!("lis-homes-{user}"));
    fs::create_dir_all(&all).expect("the temporary directory is writable");
    for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let own = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let home = all.join(own);
    fs::create_dir(&home).expect("no other runtime has this home");
    home
}
