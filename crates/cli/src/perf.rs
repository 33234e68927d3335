//! `perf`: what things cost on this machine, side by side with the alternative, as one table or object.
//!
//! A benchmark, not a test: nothing here fails for being slow.

mod agent;
mod answers;
mod benchmark;
mod figures;
mod grade;
mod measure;
mod model;
mod table;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use sandbox::{ImageRef, Spec};
use sandbox_docker::{DockerOptions, DockerRuntime};

use crate::{exit::Exit, output, settings::Settings};

pub(crate) use self::figures::memory_line;
use self::{
    figures::{Comparison, Images, Machine},
    measure::Effort,
};

/// The things that can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Measure making, using and removing sandboxes.
    #[command(after_help = "Examples:\n  \
        llm-in-sandbox perf sandbox\n  \
        llm-in-sandbox perf sandbox --against docker --docker-image debian --json\n\n\
        Against Docker, both start from the same root file system: unless --image says otherwise, the\n\
        daemon's image is saved and imported into our own store first.")]
    Sandbox(SandboxArgs),
    /// Measure the loop: many episodes at once against a server that answers at once.
    #[command(after_help = "Example:\n  \
        cargo run --release -p testkit --bin mock-server -- --turns 10   # prints its address\n  \
        llm-in-sandbox perf agent --base-url http://127.0.0.1:PORT/v1")]
    Agent(agent::AgentPerfArgs),
    /// Measure a benchmark: one-command episodes a second, beside the reference package.
    #[command(after_help = "Examples:\n  \
        cargo run --release -p testkit --bin mock-server -- --turns 2 --command 'echo A > /testbed/answer.txt'\n  \
        llm-in-sandbox perf benchmark --base-url http://127.0.0.1:PORT/v1\n  \
        llm-in-sandbox perf benchmark --base-url URL --image ./rootfs --python venv/bin/python --docker-image NAME")]
    Benchmark(benchmark::BenchmarkPerfArgs),
    /// Measure a model in this process: tokens per second, and what remembering saves.
    #[command(after_help = "Examples:\n  \
        llm-in-sandbox perf model\n  \
        llm-in-sandbox perf model --model ./file.gguf --threads 2 --against http://127.0.0.1:PORT --json\n\n\
        A server to compare with, such as llama.cpp's own, must serve the same file with as many threads.")]
    Model(model::ModelPerfArgs),
    /// Measure the math grader, beside the official Math-Verify on the same answers
    #[command(after_help = "Examples:\n  \
        python3 -m venv official && official/bin/pip install math-verify\n  \
        llm-in-sandbox perf grade --python official/bin/python\n  \
        llm-in-sandbox perf grade --input answers.jsonl --python official/bin/python --json\n\n\
        Both judge the same answers on one processor each, one after the other.")]
    Grade(grade::GradePerfArgs),
}

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// How many sandboxes to have alive at once.
    #[arg(long, default_value_t = 512)]
    count: usize,
    /// The image native sandboxes start from: host, a name or a directory. [default: host, or the
    /// alternative's own image when there is an alternative]
    #[arg(long)]
    image: Option<ImageRef>,
    /// Measure this alternative in the same run.
    #[arg(long)]
    against: Option<Against>,
    /// The image the alternative starts from; any with bash. [default: the daemon's newest]
    #[arg(long)]
    docker_image: Option<String>,
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
pub(crate) async fn run(command: PerfCommand, settings: &Settings) -> Result<Exit> {
    match command {
        PerfCommand::Sandbox(args) => sandboxes(args, settings).await,
        PerfCommand::Agent(args) => agent::run(&args, settings).await,
        PerfCommand::Benchmark(args) => benchmark::run(&args, settings).await,
        PerfCommand::Model(args) => model::run(args, settings).await,
        PerfCommand::Grade(args) => grade::run(args).await,
    }
}

async fn sandboxes(args: SandboxArgs, settings: &Settings) -> Result<Exit> {
    let home = settings.writable_home()?.to_owned();
    let docker_host = settings.docker_host().map(str::to_owned);
    let other = match args.against {
        Some(Against::Docker) => Some(connect(docker_host, args.docker_image.clone()).await?),
        None => None,
    };
    let mut images =
        Images { native: None, docker: other.as_ref().map(|(_, image)| image.clone()) };
    let native = match native_runtime(home.clone()).await? {
        Some(runtime) => {
            let image = match (&args.image, &other) {
                (Some(image), _) => image.clone(),
                (None, None) => ImageRef::Host,
                (None, Some((docker, name))) => same_image(docker, name, &home).await?,
            };
            images.native = Some(image.to_string());
            let spec = Spec { image, ..Spec::default() };
            Some(measure::all(Arc::new(runtime), &spec, Effort::native(args.count)).await?)
        }
        None => None,
    };
    let docker = match other {
        Some((runtime, name)) => {
            let spec = Spec { image: ImageRef::Name(name), ..Spec::default() };
            Some(measure::all(Arc::new(runtime), &spec, Effort::docker(args.docker_count)).await?)
        }
        None => None,
    };
    let bash_ms = measure::bare_bash().await.context("starting bash on this machine")?;
    let comparison = Comparison { machine: Machine::here(), images, bash_ms, native, docker };
    if args.json {
        output::print_json(&comparison)?;
    } else {
        output::print(&table::render(&comparison))?;
    }
    Ok(Exit::Done)
}

/// The daemon, and the image to use of it.
async fn connect(host: Option<String>, image: Option<String>) -> Result<(DockerRuntime, String)> {
    let options = DockerOptions { host, ..Default::default() };
    let runtime = DockerRuntime::connect(options).await?;
    let image = match image {
        Some(image) => image,
        None => runtime.images().await?.into_iter().next().context(
            "the Docker daemon has no image to compare with; pull one with bash, such as debian, \
             and name it with --docker-image",
        )?,
    };
    Ok((runtime, image))
}

/// The daemon's image in our own store, so that both runtimes start from the same files.
async fn same_image(docker: &DockerRuntime, name: &str, home: &Path) -> Result<ImageRef> {
    let ours = format!("perf/{}", name.replace(['/', ':', '@'], "-"));
    let dir = tempfile::tempdir_in(home)?;
    let archive = dir.path().join("image.tar");
    docker.save_image(name, &archive).await?;
    let (store, imported) = (image::Store::open(home.join("images"))?, ours.clone());
    tokio::task::spawn_blocking(move || store.import_archive(&archive, &imported, &image::Silent))
        .await??;
    Ok(ImageRef::Name(ours))
}

#[cfg(target_os = "linux")]
async fn native_runtime(home: PathBuf) -> Result<Option<sandbox_native::NativeRuntime>> {
    let options = sandbox_native::NativeOptions { home, launcher: crate::runtime::launcher() };
    Ok(Some(sandbox_native::NativeRuntime::start(options).await?))
}

#[cfg(not(target_os = "linux"))]
async fn native_runtime(_: PathBuf) -> Result<Option<DockerRuntime>> {
    Ok(None)
}

/// A tenth of a second: long enough for the machine to calm down between two measurements.
pub(crate) const CALM: Duration = Duration::from_millis(100);
