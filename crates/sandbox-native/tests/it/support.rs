//! Runtimes for tests, each with a home of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use sandbox::{ImageRef, LayerState, Runtime, Sandbox, Spec};
use sandbox_conformance::{Capabilities, Capability, Harness, Missing};
use sandbox_native::{Launcher, NativeOptions, NativeRuntime};

/// A setting of the test run.
#[expect(clippy::disallowed_methods, reason = "how tests are run is told by the environment")]
pub(crate) fn setting(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// The program that runs the spawner: built beside this test, or where the test runner put it.
pub(crate) fn launcher() -> Launcher {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_lis-sandbox-helper"));
    // The test runner tells where it is now; it may have been copied since it was built.
    let told = setting("CARGO_BIN_EXE_lis-sandbox-helper").or_else(|| setting("LIS_TEST_HELPER"));
    Launcher { program: told.unwrap_or(built), args: Vec::new() }
}

/// A runtime with this home.
pub(crate) async fn start(home: PathBuf) -> Result<NativeRuntime, Missing> {
    NativeRuntime::start(NativeOptions { home, launcher: launcher() }).await.map_err(|error| {
        Missing {
            capability: "userns".into(),
            reason: format!("{error}: {:?}", std::error::Error::source(&error)),
        }
    })
}

/// A home of this test's own. It must outlive the spawner, which outlives the test a little, so each test
/// removes the homes of tests that are over.
pub(crate) fn home() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let all =
        std::env::temp_dir().join(format!("lis-homes-{}", rustix::process::getuid().as_raw()));
    std::fs::create_dir_all(&all).unwrap();
    for entry in std::fs::read_dir(&all).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let own = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let home = all.join(own);
    std::fs::create_dir(&home).unwrap();
    home
}

pub(crate) async fn on_a_directory() -> Result<Harness<NativeRuntime>, Missing> {
    let rootfs = setting("LIS_TEST_ROOTFS").ok_or_else(|| Missing {
        capability: "rootfs".into(),
        reason: "LIS_TEST_ROOTFS names no directory with a root file system".into(),
    })?;
    harness(ImageRef::Dir(rootfs)).await
}

pub(crate) async fn on_the_host() -> Result<Harness<NativeRuntime>, Missing> {
    harness(ImageRef::Host).await
}

async fn harness(image: ImageRef) -> Result<Harness<NativeRuntime>, Missing> {
    let runtime = Arc::new(start(home()).await?);
    let caps = capabilities(&runtime, &image).await?;
    Ok(Harness::new(runtime, image, caps))
}

/// What this machine enforces, as a sandbox itself reports it.
async fn capabilities(runtime: &NativeRuntime, image: &ImageRef) -> Result<Capabilities, Missing> {
    let spec = Spec { image: image.clone(), ..Spec::default() };
    let sandbox = runtime.create(&spec).await.map_err(|error| Missing {
        capability: "userns".into(),
        reason: format!("{error}: {:?}", std::error::Error::source(&error)),
    })?;
    let protection = sandbox.protection().clone();
    sandbox.destroy().await.unwrap();
    let full = |name: &str| match protection.state(name) {
        LayerState::Enforced => Capability::Yes,
        _ => Capability::no(format!("{name} is not enforced here: {protection:?}")),
    };
    Ok(Capabilities {
        memory_limit: full("memory limit"),
        pids_limit: full("process limit"),
        cpu_limit: full("cpu limit"),
        peak_memory: full("memory limit"),
        ..Capabilities::all()
    })
}
