//! Harnesses of the native runtime, each with a home of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{path::PathBuf, sync::Arc};

use lis_sandbox_native::{NativeRuntime, Upstream};
use sandbox::{ImageRef, Layer, LayerState, Runtime, Sandbox, Spec};
use sandbox_conformance::{Capabilities, Capability, Harness, Missing};
use sandbox_testkit::Spawner;
pub(crate) use sandbox_testkit::{home, setting};

/// The program that runs the spawner.
pub(crate) fn spawner() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_lis-sandbox-helper").into();
    // The test runner sets these where it has moved the program since it was built.
    let moved = setting("CARGO_BIN_EXE_lis-sandbox-helper").or_else(|| setting("LIS_TEST_HELPER"));
    moved.unwrap_or(built).into()
}

/// Starts a runtime with this home.
pub(crate) async fn start(home: PathBuf) -> Result<NativeRuntime, Missing> {
    sandbox_testkit::start(Spawner::Program(&spawner()), home).await
}

/// Starts a runtime with this home, whose sandboxes reach this network instead of the host's.
pub(crate) async fn start_with(
    home: PathBuf,
    upstream: Arc<dyn Upstream>,
) -> Result<NativeRuntime, Missing> {
    sandbox_testkit::start_with(Spawner::Program(&spawner()), home, upstream).await
}

pub(crate) async fn on_a_directory() -> Result<Harness<NativeRuntime>, Missing> {
    let rootfs = setting("LIS_TEST_ROOTFS").ok_or_else(|| Missing {
        capability: "rootfs".into(),
        reason: "LIS_TEST_ROOTFS does not name a directory with a root file system".into(),
    })?;
    harness(ImageRef::Dir(rootfs.into())).await
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
    let sandbox = runtime
        .create(&spec)
        .await
        .map_err(|error| Missing { capability: "userns".into(), reason: error.chain() })?;
    let protection = sandbox.protection().clone();
    sandbox.destroy().await.unwrap();
    let full = |layer: Layer| match protection.state(&layer) {
        LayerState::Enforced => Capability::Yes,
        _ => Capability::no(format!("{layer} is not enforced here: {protection:?}")),
    };
    Ok(Capabilities {
        memory_limit: full(Layer::MemoryLimit),
        pids_limit: full(Layer::ProcessLimit),
        cpu_limit: full(Layer::CpuLimit),
        peak_memory: full(Layer::MemoryLimit),
        ..Capabilities::all()
    })
}
