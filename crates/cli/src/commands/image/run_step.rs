//! Runs a step of a build in a sandbox and stores what it changed as a layer.

use std::sync::Arc;

use image::{Draft, StepLayer};
use startup::Signals;

use super::{build::Outcome, step::Step};
use crate::{console::build::BuildView, settings::Settings};

/// Why there is no layer.
pub(crate) enum StepError {
    /// The program of the step failed with this exit code.
    Failed { code: i32 },
    /// Something else did.
    Other(anyhow::Error),
}

impl From<image::Error> for StepError {
    fn from(error: image::Error) -> Self {
        Self::Other(error.into())
    }
}

impl From<sandbox::Error> for StepError {
    fn from(error: sandbox::Error) -> Self {
        Self::Other(error.into())
    }
}

/// A layer, and the draft that has it.
type Extended = Outcome<(Draft, StepLayer)>;

#[cfg(not(target_os = "linux"))]
pub(crate) struct BuildSandboxes;

#[cfg(not(target_os = "linux"))]
impl BuildSandboxes {
    pub(crate) async fn start(_: &Settings) -> anyhow::Result<Self> {
        anyhow::bail!("images are built in native sandboxes, which need Linux")
    }

    pub(crate) async fn layer(
        &self,
        _: Draft,
        _: &Step,
        _: &Arc<BuildView>,
        _: &mut Signals,
    ) -> Result<Extended, StepError> {
        Err(StepError::Failed { code: 1 })
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::BuildSandboxes;

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        io,
        path::{Path, PathBuf},
        sync::atomic::{AtomicBool, Ordering},
        time::Instant,
    };

    use sandbox::{ImageRef, Limits, Network, Sandbox, Spec, Streams};
    use sandbox_native::{NativeRuntime, NativeSandbox};

    use super::*;
    use crate::{
        commands::image::{sources::PackageSources, step::CERTIFICATES},
        console::output,
        exit,
    };

    /// Processes of a build; a compiler starts many.
    const MAX_PROCESSES: u32 = 8192;

    /// Creates the sandboxes in which steps run.
    pub(crate) struct BuildSandboxes {
        runtime: NativeRuntime,
        sources: PackageSources,
    }

    impl BuildSandboxes {
        /// Starts the native runtime.
        pub(crate) async fn start(settings: &Settings) -> anyhow::Result<Self> {
            let runtime = NativeRuntime::start(settings.native()?).await?;
            Ok(Self { runtime, sources: PackageSources::read(settings) })
        }

        /// Runs a step on the layers of a draft, and adds the layer of the step to it.
        pub(crate) async fn layer(
            &self,
            draft: Draft,
            step: &Step,
            view: &Arc<BuildView>,
            signals: &mut Signals,
        ) -> Result<Extended, StepError> {
            let begun = Instant::now();
            let rootfs = draft.rootfs()?;
            let workdir = rootfs.workdir.clone().unwrap_or_else(|| PathBuf::from("/"));
            let spec = Spec {
                image: ImageRef::Name("build".into()),
                limits: Limits { memory: None, cpus: None, pids: Some(MAX_PROCESSES), disk: None },
                network: Network::Full,
                workdir,
                ..Spec::default()
            };
            let sandbox = tokio::select! {
                created = self.runtime.create_on(&spec, rootfs) => created?,
                exit = signals.cancelled() => return Ok(Outcome::Cancelled(exit)),
            };
            let layer = self.layer_of(&sandbox, draft, step, begun, (view, signals)).await;
            if let Err(error) = sandbox.destroy().await {
                let line = exit::describe(&error.into());
                output::note(&format!("a sandbox may not have been removed: {line}"));
            }
            layer
        }

        async fn layer_of(
            &self,
            sandbox: &NativeSandbox,
            mut draft: Draft,
            step: &Step,
            begun: Instant,
            (view, signals): (&Arc<BuildView>, &mut Signals),
        ) -> Result<Extended, StepError> {
            if let Some(certificates) = &self.sources.certificates {
                sandbox.write_file(Path::new(CERTIFICATES), certificates).await?;
            }
            let mut process = step.process();
            process.env = self.sources.env(step);
            let (stdout, stderr) = (view.writer(), view.writer());
            let streams = Streams::Pipes { stdin: None, stdout, stderr };
            let ended = tokio::select! {
                ended = sandbox.process(&process, streams) => ended?,
                exit = signals.cancelled() => return Ok(Outcome::Cancelled(exit)),
            };
            if !ended.status.success() {
                return Err(StepError::Failed { code: ended.status.code() });
            }
            let cancelled = Arc::new(AtomicBool::new(false));
            let (key, stop) = (step.key(), Arc::clone(&cancelled));
            let saving = sandbox.save_layer(move |stream| {
                let layer = draft.add(&key, Interruptible { stream, stop }, begun)?;
                Ok((draft, layer))
            });
            let mut saving = std::pin::pin!(saving);
            tokio::select! {
                saved = &mut saving => Ok(Outcome::Done(saved?)),
                exit = signals.cancelled() => {
                    // It removes what it has written.
                    cancelled.store(true, Ordering::Relaxed);
                    let _ = saving.await;
                    Ok(Outcome::Cancelled(exit))
                }
            }
        }
    }

    /// A stream that fails once it is told to stop.
    struct Interruptible<R> {
        stream: R,
        stop: Arc<AtomicBool>,
    }

    impl<R: io::Read> io::Read for Interruptible<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.stop.load(Ordering::Relaxed) {
                true => Err(io::Error::other("cancelled")),
                false => self.stream.read(buffer),
            }
        }
    }
}
