//! `run`: gives a model a task and a computer, and keeps what comes of it.
//!
//! The order of things is here; how each is done is in the modules below and in the crates.

mod computer;
mod folder;
mod job;
mod plan;
mod recorder;
mod resume;
mod server;
mod summary;

use agent::{Episode, Opening};
use sandbox::Sandbox;
use trajectory::{Ended, Started};

pub(crate) use self::{computer::fill, folder::Folder};
use self::{
    job::{Beginning, Job},
    recorder::Recorder,
    server::AnyModel,
    summary::Summary,
};
use crate::{
    agent_args::AgentArgs,
    console::{Console, Mode},
    exit::{self, Exit},
    interrupt::Interrupts,
    output,
    runtime::{AnyRuntime, AnySandbox},
    settings::Settings,
};

/// How results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    /// The answer alone.
    Answer,
    /// One JSON object.
    Json,
}

/// Runs an episode, new or resumed.
pub(crate) async fn run(
    args: AgentArgs,
    settings: &Settings,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    let show = if args.json { Show::Json } else { Show::Answer };
    let mode = match (args.watch, args.quiet || args.json) {
        (true, _) => Mode::Live,
        (false, true) => Mode::Quiet,
        (false, false) if settings.watches_stderr() => Mode::Live,
        (false, false) => Mode::Plain,
    };
    let job = match args.resume.clone() {
        Some(dir) => Job::resume(&dir, args, settings)?,
        None => Job::begin(args, settings)?,
    };
    let console = Console::new(mode, settings.color_stderr(), job.plan.limits.turns);
    let model = AnyModel::new(&job.plan.model, job.secrets.clone());
    let model = model.inspect_err(|_| job.give_up())?;

    let making = make(&job, settings);
    let made = tokio::select! {
        made = making => made,
        exit = interrupts.cancelled() => {
            job.give_up();
            return Ok(exit);
        }
    };
    let (runtime, sandbox) = made.inspect_err(|_| job.give_up())?;
    let recorder = Recorder::new(
        job.events.try_clone()?,
        &console,
        &runtime,
        job.name(),
        job.beginning.image(),
    );
    let ended = match job.beginning.ended() {
        Some(ended) => ended,
        None => play(&job, &model, &sandbox, &recorder, interrupts).await?,
    };
    let summary = keep(&job, &sandbox, ended, &recorder).await;
    if let Err(error) = sandbox.destroy().await {
        output::note(&format!("the sandbox may not be gone: {}", exit::line(&error.into())));
    }
    let summary = summary?;
    summary.tell(show, mode)?;
    match summary.exit() {
        Exit::Cancelled(_) => Ok(interrupts.cancelled().await),
        exit => Ok(exit),
    }
}

/// Makes the computer and puts everything into it.
async fn make(job: &Job, settings: &Settings) -> anyhow::Result<(AnyRuntime, AnySandbox)> {
    let runtime = AnyRuntime::start(job.plan.computer.runtime, settings).await?;
    let sandbox = match &job.beginning {
        Beginning::Fresh => computer::fresh(&job.plan, &runtime).await?,
        Beginning::Resumed(past) => computer::restored(&job.plan, past, &runtime).await?,
    };
    job.plan.computer.accept(sandbox.protection())?;
    Ok((runtime, sandbox))
}

/// Plays the episode.
async fn play(
    job: &Job,
    model: &AnyModel,
    sandbox: &AnySandbox,
    recorder: &Recorder<'_>,
    interrupts: &Interrupts,
) -> anyhow::Result<Ended> {
    let opening = match &job.beginning {
        Beginning::Fresh => {
            let rendered =
                job.plan.prompts.render(&job.plan.task, &job.plan.computer.spec.network)?;
            Opening::Fresh(Box::new(Started {
                problem_statement: job.plan.task.clone(),
                messages: rendered.messages(),
                model: job.plan.model.name.clone(),
                settings: job.plan.record(),
                protection: serde_json::to_value(sandbox.protection())?,
                program: env!("CARGO_PKG_VERSION").to_owned(),
            }))
        }
        Beginning::Resumed(past) => past.opening(),
    };
    let (stopper, watch) = agent::stopper();
    let mut interrupts = interrupts.clone();
    let stopping = tokio::spawn(async move {
        interrupts.cancelled().await;
        stopper.stop();
    });
    let settings = job.plan.episode();
    let episode = Episode::new(model, sandbox, recorder, &settings, opening, watch);
    let ended = agent::run(episode).await;
    stopping.abort();
    Ok(ended)
}

/// Brings back the files and writes down what came of the run.
async fn keep(
    job: &Job,
    sandbox: &AnySandbox,
    ended: Ended,
    recorder: &Recorder<'_>,
) -> anyhow::Result<Summary> {
    let brought = computer::bring_back(&job.plan, sandbox, &job.folder).await;
    recorder.forget().await;
    job.folder.write_trajectory()?;
    let summary = Summary::new(job, ended, brought)?;
    job.folder.write_run(&summary)?;
    Ok(summary)
}
