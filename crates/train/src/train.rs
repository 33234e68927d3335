//! The commands `rl`, `sft` and `sample`: reads the configuration, starts the sandbox runtime and threads, and trains until the end
//! or a signal.

use std::{fs, io::Read, path::Path, sync::Arc};

use anyhow::Context;
use sandbox_native::{NativeOptions, NativeRuntime};
use startup::{Exit, Program, Signals, Threads, UsageError, launcher, note};
use tokio_util::sync::CancellationToken;
use training::{
    MAX_CONFIG_BYTES, Mode, RlConfig, RunOutcome, SampleConfig, Services, SftConfig, TrainError,
};

use crate::{args::TrainArgs, environment, progress::Progress};

/// Reinforcement learning.
pub(crate) fn rl(program: Program, args: &TrainArgs) -> anyhow::Result<Exit> {
    let mut config = RlConfig::parse(&read(&args.config)?, &args.set)
        .with_context(|| cannot_use(&args.config))?;
    match &mut config.sampler {
        Some(sampler) => environment::complete(sampler, &mut config.model)?,
        None => config.model = environment::model(&config.model)?,
    }
    let sandboxes = match config.plays_in_sandboxes() {
        true => Sandboxes::Required,
        false => Sandboxes::Optional,
    };
    run(program, args, sandboxes, |services| training::rl(&config, services))
}

/// Supervised learning.
pub(crate) fn sft(program: Program, args: &TrainArgs) -> anyhow::Result<Exit> {
    let mut config = SftConfig::parse(&read(&args.config)?, &args.set)
        .with_context(|| cannot_use(&args.config))?;
    config.model = environment::model(&config.model)?;
    let sandboxes = match config.data.demonstrations.is_empty() {
        true => Sandboxes::Optional,
        false => Sandboxes::Required,
    };
    run(program, args, sandboxes, |services| training::sft(&config, services))
}

/// Collecting episodes.
pub(crate) fn sample(program: Program, args: &TrainArgs) -> anyhow::Result<Exit> {
    let mut config = SampleConfig::parse(&read(&args.config)?, &args.set)
        .with_context(|| cannot_use(&args.config))?;
    match &mut config.sampler {
        Some(sampler) => environment::complete(sampler, &mut config.model)?,
        None => config.model = environment::model(&config.model)?,
    }
    let sandboxes = match config.rollout.mode {
        Mode::Sandbox => Sandboxes::Required,
        Mode::Llm => Sandboxes::Optional,
    };
    run(program, args, sandboxes, |services| training::sample(&config, services))
}

/// Whether a run needs sandboxes.
#[derive(Clone, Copy)]
enum Sandboxes {
    /// It cannot run without.
    Required,
    /// Only graders of some tasks need them, and report where there are none.
    Optional,
}

fn run(
    program: Program,
    args: &TrainArgs,
    sandboxes: Sandboxes,
    train: impl FnOnce(&Services<'_, NativeRuntime>) -> Result<RunOutcome, TrainError>,
) -> anyhow::Result<Exit> {
    let threads = program.runtime(Threads::AsManyAsProcessors)?;
    let runtime = match (sandboxes, threads.block_on(start())) {
        (Sandboxes::Required, started) => Some(started.context("sandboxes cannot be created")?),
        (Sandboxes::Optional, Ok(runtime)) => Some(runtime),
        (Sandboxes::Optional, Err(error)) => {
            note(&format!(
                "graders cannot run commands, since sandboxes cannot be created: {error:#}"
            ));
            None
        }
    };
    let runtime = runtime.map(Arc::new);
    let signals = {
        let _guard = threads.enter();
        Signals::listen().context("cannot install signal handlers")?
    };
    let cancel = CancellationToken::new();
    threads.spawn(cancel_when_signalled(signals.clone(), cancel.clone()));
    let progress = if args.json { Progress::Json } else { Progress::for_stderr() };
    let services = Services { runtime, tokio: threads.handle(), observer: &progress, cancel };
    let outcome = train(&services);
    drop(services);
    drop(progress);
    Program::shut_down(threads);
    Ok(match outcome? {
        RunOutcome::Complete => Exit::Done,
        RunOutcome::Stopped(step) => {
            note(&format!("stopped after step {step}; start the run again to resume"));
            signals.stopped()
        }
    })
}

/// The first signal stops the run so that it can be resumed; [`Signals`] exits at the second.
async fn cancel_when_signalled(mut signals: Signals, cancel: CancellationToken) {
    signals.cancelled().await;
    note(
        "stopping at the next point where the run can resume, which may take a step; press Ctrl-C again to exit at once",
    );
    cancel.cancel();
}

async fn start() -> anyhow::Result<NativeRuntime> {
    let home = environment::home()?;
    let options = NativeOptions { state: environment::state(&home)?, home, launcher: launcher() };
    Ok(NativeRuntime::start(options).await?)
}

/// The text of a configuration, cut just after the maximum size, which parsing then rejects.
fn read(path: &Path) -> Result<String, UsageError> {
    let read = |file: fs::File| {
        let mut text = String::new();
        file.take(MAX_CONFIG_BYTES as u64 + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = fs::File::open(path).and_then(read);
    text.map_err(|error| UsageError(format!("{}: {error}", cannot_use(path))))
}

fn cannot_use(path: &Path) -> String {
    format!("cannot use {}", path.display())
}
