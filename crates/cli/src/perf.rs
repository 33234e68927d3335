//! `perf`: what things cost on this machine, side by side with the alternative, as one table or object.
//!
//! A benchmark, not a test: nothing here fails for being slow.

mod figures;
mod measure;
mod table;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use sandbox::{ImageRef, Spec};

use self::{
    figures::{Comparison, Machine},
    measure::Effort,
};

/// The things that can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Measure making, using and removing sandboxes.
    #[command(after_help = "Examples:\n  \
        llm-in-sandbox perf sandbox\n  \
        llm-in-sandbox perf sandbox --image debian --against docker --docker-image debian --json\n\n\
        For a fair comparison give both runtimes the same root file system:\n  \
        llm-in-sandbox image import rootfs.tar base && docker import rootfs.tar base\n  \
        llm-in-sandbox perf sandbox --image base --against docker --docker-image base")]
    Sandbox(SandboxArgs),
}

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// How many sandboxes to have alive at once.
    #[arg(long, default_value_t = 512)]
    count: usize,
    /// The image native sandboxes start from: host, a name or a directory.
    #[arg(long, default_value = "host")]
    image: ImageRef,
    /// Measure this alternative in the same run.
    #[arg(long)]
    against: Option<Against>,
    /// The image the alternative starts from.
    #[arg(long, default_value = "debian:stable-slim")]
    docker_image: String,
    /// How many containers the alternative has alive at once.
    #[arg(long, default_value_t = 64)]
    docker_count: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// An alternative to compare with.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Against {
    /// A Docker daemon, over its API.
    Docker,
}

/// Runs a measurement and prints it.
pub(crate) async fn run(
    command: PerfCommand,
    home: PathBuf,
    docker_host: Option<String>,
) -> Result<ExitCode> {
    let PerfCommand::Sandbox(args) = command;
    let native = match native_runtime(home).await? {
        Some(runtime) => {
            let spec = Spec { image: args.image.clone(), ..Spec::default() };
            Some(measure::all(Arc::new(runtime), &spec, Effort::native(args.count)).await?)
        }
        None => None,
    };
    let docker = match args.against {
        Some(Against::Docker) => {
            let options = sandbox_docker::DockerOptions { host: docker_host, ..Default::default() };
            let runtime = sandbox_docker::DockerRuntime::connect(options).await?;
            let image = ImageRef::Name(args.docker_image.clone());
            let spec = Spec { image, ..Spec::default() };
            Some(measure::all(Arc::new(runtime), &spec, Effort::docker(args.docker_count)).await?)
        }
        None => None,
    };
    let bash_ms = measure::bare_bash().await.context("starting bash on this machine")?;
    let comparison = Comparison { machine: Machine::here(), bash_ms, native, docker };
    if args.json {
        table::json(&comparison)?;
    } else {
        table::text(&comparison)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(target_os = "linux")]
async fn native_runtime(home: PathBuf) -> Result<Option<sandbox_native::NativeRuntime>> {
    let options = sandbox_native::NativeOptions { home, launcher: crate::runtime::launcher() };
    Ok(Some(sandbox_native::NativeRuntime::start(options).await?))
}

#[cfg(not(target_os = "linux"))]
async fn native_runtime(_: PathBuf) -> Result<Option<sandbox_docker::DockerRuntime>> {
    Ok(None)
}

/// A tenth of a second: long enough for the machine to calm down between two measurements.
pub(crate) const CALM: Duration = Duration::from_millis(100);
