//! `run`: gives a model a task and a computer, and keeps what comes of it.
//!
//! The order of things is here; how each is done is in the modules below and in the crates.

mod computer;
mod folder;
mod job;
mod model_plan;
mod plan;
mod recorder;
mod resume;
mod seal;
mod server;
mod summary;

use agent::{Episode, Opening};
use sandbox::Sandbox;
use trajectory::{Ended, Started};

pub(crate) use self::{
    computer::fill,
    folder::{Folder, text_of},
    job::{FOREVER, seal, vision},
    model_plan::{ModelPlan, Place, Secrets, without_vendor},
    plan::{Compact, longest_reply, readable},
    server::AnyModel,
};
use self::{
    job::{Beginning, Job},
    recorder::Recorder,
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
    let mut job = match args.resume.clone() {
        Some(dir) => Job::resume(&dir, args, settings)?,
        None => Job::begin(args, settings)?,
    };
    if let (Some(hint), Mode::Live | Mode::Plain) = (job.plan.model.hint.take(), mode) {
        output::note(&hint);
    }
    let console = Console::new(mode, settings.color_stderr(), job.plan.limits.turns);
    let making = async {
        // A model may have to be fetched: what is wrong with the machine is better known before.
        let runtime = AnyRuntime::start(job.plan.computer.runtime, settings).await?;
        let (model, context) =
            AnyModel::open(&job.plan.model, job.secrets.clone(), settings).await?;
        let (sandbox, opening) = make(&job, &runtime).await?;
        anyhow::Ok((runtime, model, context, sandbox, opening))
    };
    let made = tokio::select! {
        made = making => made,
        exit = interrupts.cancelled() => {
            job.give_up();
            return Ok(exit);
        }
    };
    let (runtime, model, context, sandbox, opening) = made.inspect_err(|_| job.give_up())?;
    job.plan.model.context = context;
    let (file, image) = (job.events.try_clone()?, job.beginning.image());
    let recorder = Recorder::new(file, &console, &runtime, job.name(), image)?;
    let ended = match job.beginning.ended() {
        Some(ended) => ended,
        None => play(&job, &model, &sandbox, &recorder, opening, interrupts).await,
    };
    let (summary, written) = keep(&job, &sandbox, ended, &recorder).await;
    if let Err(error) = sandbox.destroy().await {
        output::note(&format!("the sandbox may not be gone: {}", exit::line(&error.into())));
    }
    recorder.forget().await;
    match summary.tell(show, mode) {
        // Nobody listens any more; how the episode ended still matters.
        Err(error) if !error.is_broken_pipe() => return Err(error.into()),
        _ => written?,
    }
    match summary.exit() {
        Exit::Cancelled(_) => Ok(interrupts.cancelled().await),
        exit => Ok(exit),
    }
}

/// Makes the computer, puts everything into it, and says what the episode starts from.
async fn make(job: &Job, runtime: &AnyRuntime) -> anyhow::Result<(AnySandbox, Opening)> {
    let (sandbox, opening) = match &job.beginning {
        Beginning::Fresh => {
            let sandbox = computer::fresh(&job.plan, runtime).await?;
            let started = started(job, &sandbox)?;
            (sandbox, Opening::Fresh(Box::new(started)))
        }
        Beginning::Resumed(past) => {
            let (sandbox, turn) = computer::restored(&job.plan, past, runtime).await?;
            (sandbox, past.opening(turn))
        }
    };
    job.plan.computer.accept(sandbox.protection())?;
    Ok((sandbox, opening))
}

fn started(job: &Job, sandbox: &AnySandbox) -> anyhow::Result<Started> {
    let plan = &job.plan;
    let inputs = computer::told(plan.input.as_deref());
    let rendered = plan.prompts.render_with(&plan.task, &plan.computer.spec.network, &inputs)?;
    Ok(Started {
        problem_statement: plan.task.clone(),
        messages: rendered.messages(),
        model: plan.model.name.clone(),
        settings: job.record.clone(),
        protection: serde_json::to_value(sandbox.protection())?,
        program: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Plays the episode.
async fn play(
    job: &Job,
    model: &AnyModel,
    sandbox: &AnySandbox,
    recorder: &Recorder<'_>,
    opening: Opening,
    interrupts: &Interrupts,
) -> Ended {
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
    ended
}

/// Brings back the files and writes down what came of the run; what came of it is known even if it cannot
/// be written.
async fn keep(
    job: &Job,
    sandbox: &AnySandbox,
    ended: Ended,
    recorder: &Recorder<'_>,
) -> (Summary, anyhow::Result<()>) {
    let brought = computer::bring_back(&job.plan, sandbox, &job.folder).await;
    if brought.are_lost() {
        recorder.leave();
    }
    let written = job.folder.write_trajectory();
    let summary = Summary::new(job, ended, brought);
    let written = written.and_then(|()| job.folder.write_run(&summary));
    (summary, written)
}
