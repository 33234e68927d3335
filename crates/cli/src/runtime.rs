//! Starts the runtime that the user chose. Commands use only the traits of sandboxes.

#[cfg(target_os = "linux")]
use std::path::Path;

use sandbox_docker::DockerRuntime;
#[cfg(target_os = "linux")]
use sandbox_native::NativeRuntime;

pub(crate) use runtimes::{AnyRuntime, AnySandbox};

use crate::{args::sandbox::RuntimeKind, settings::Settings};

/// Starts the runtime of this kind.
pub(crate) async fn start(kind: RuntimeKind, settings: &Settings) -> anyhow::Result<AnyRuntime> {
    match kind {
        RuntimeKind::Native => start_native(settings).await,
        RuntimeKind::Docker => {
            Ok(AnyRuntime::Docker(DockerRuntime::connect(settings.docker()).await?))
        }
    }
}

/// Starts the native runtime with its state in another directory than the usual.
#[cfg(target_os = "linux")]
pub(crate) async fn start_in(state: &Path, settings: &Settings) -> anyhow::Result<AnyRuntime> {
    let options = sandbox_native::NativeOptions {
        state: state.to_owned(),
        home: settings.writable_home()?.to_owned(),
        launcher: startup::launcher(),
    };
    Ok(AnyRuntime::Native(NativeRuntime::start(options).await?))
}

#[cfg(target_os = "linux")]
async fn start_native(settings: &Settings) -> anyhow::Result<AnyRuntime> {
    native(settings).await.map(AnyRuntime::Native)
}

/// Starts the native runtime.
#[cfg(target_os = "linux")]
pub(crate) async fn native(settings: &Settings) -> anyhow::Result<NativeRuntime> {
    Ok(NativeRuntime::start(settings.native()?).await?)
}

#[cfg(not(target_os = "linux"))]
async fn start_native(_: &Settings) -> anyhow::Result<AnyRuntime> {
    let reason = "it needs the Linux kernel".into();
    let remedy = "use --runtime docker".into();
    Err(sandbox::Error::Unsupported { feature: sandbox::Feature::NativeRuntime, reason, remedy }
        .into())
}
