//! `run`: gives a model a task and a sandbox, and stores the answer, the files and the trajectory.
//!
//! The order of steps is here; the steps are in the modules below and in the crates.

mod args;
mod limits;
pub(crate) mod owners;
mod record;
mod resume;
mod seal;
mod settings;
mod signed_events;
mod summary;
mod task;

use std::{path::Path, time::Duration};

use agent::{Episode, Journal, Opening, Prompts};
use anyhow::Context;
use attempt::Collected;
use sandbox::{Runtime, Sandbox};
use serde_json::Value;
use startup::Signals;
use tokio_util::sync::CancellationToken;
use trajectory::{Ended, Event, Outcome, Started};

pub(crate) use self::{
    args::{LimitArgs, PromptArgs, RunArgs},
    record::{RunDir, text_of},
    seal::{Seal, seal},
    settings::{Compact, FOREVER, max_response_tokens, prompts, readable, vision},
};
use self::{
    owners::Owner,
    record::Recorder,
    resume::EarlierProcess,
    settings::RunSettings,
    signed_events::{Chain, SignedEvents},
    summary::Summary,
};
use crate::{
    commands::sandbox::report_skipped,
    console::{Console, EpisodeInfo, Mode, output},
    exit::{self, Exit},
    model::{AnyModel, Secrets},
    runtime::{self, AnyRuntime, AnySandbox},
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
    args: RunArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let show = if args.json { Show::Json } else { Show::Answer };
    let mode = match (args.watch, args.quiet || args.json) {
        (false, true) => Mode::Quiet,
        _ if settings.stderr_is_interactive() => Mode::Live,
        (true, _) => Mode::Stream,
        (false, false) => Mode::Plain,
    };
    let mut run = match args.resume.clone() {
        Some(dir) => PreparedRun::resume(&dir, args, settings, mode)?,
        None => PreparedRun::new(args, settings, mode)?,
    };
    if let Some(hint) = run.settings.model.hint.take() {
        run.note(&hint);
    }
    let console = Console::new(mode, settings.color_stderr(), &run.info());
    let opening = async {
        // The runtime comes first: a model may have to be downloaded, and a machine that cannot run sandboxes should fail
        // before.
        let runtime = runtime::start(run.settings.sandbox.runtime, settings).await?;
        let (model, context) =
            AnyModel::open(&run.settings.model, run.secrets.clone(), settings).await?;
        let (sandbox, start) = open_sandbox(&run, &runtime).await?;
        anyhow::Ok((runtime, model, context, sandbox, start))
    };
    let opened = tokio::select! {
        opened = opening => opened,
        exit = signals.cancelled() => {
            run.discard();
            return Ok(exit);
        }
    };
    let (runtime, model, context, sandbox, start) = opened.inspect_err(|_| run.discard())?;
    run.settings.model.context = context;
    let image = run.start.image();
    let owner = Owner::new(settings.home()?, run.dir.path());
    let name = run.image_prefix.clone();
    let recorder = Recorder::new(&run.events, &console, &runtime, name, owner, image);
    if let Some(settings) = run.reconfigured.clone() {
        recorder.record(Event::Reconfigured { settings })?;
    }
    let ended = match run.start.ended() {
        Some(ended) => ended,
        None => play(&run, &model, &sandbox, &recorder, start, signals).await,
    };
    let collected = collect(&run, &sandbox, ended, signals.clone()).await;
    // Without results the run can be resumed as well, to collect them.
    if collected.as_ref().is_none_or(|(summary, _)| summary.is_resumable()) {
        recorder.keep_image();
    }
    if let Err(error) = sandbox.destroy().await {
        let error = exit::describe(&error.into());
        output::note(&format!("the sandbox may not have been removed: {error}"));
    }
    recorder.remove_images().await;
    let Some((summary, written)) = collected else {
        let dir = output::shell_quoted(&run.dir.path().display().to_string());
        run.note(&format!(
            "the model's files were not collected; collect them with: llm-in-sandbox run --resume {dir}"
        ));
        return Ok(signals.cancelled().await);
    };
    match summary.show(show, mode) {
        // The reader closed the pipe; the exit code still matters.
        Err(error) if !error.is_broken_pipe() => return Err(error.into()),
        _ => written?,
    }
    match exit::of_run(summary.outcome()) {
        Exit::Cancelled(_) => Ok(signals.cancelled().await),
        exit => Ok(exit),
    }
}

/// Creates or restores the sandbox; returns it with what the episode starts from.
async fn open_sandbox(
    run: &PreparedRun,
    runtime: &AnyRuntime,
) -> anyhow::Result<(AnySandbox, Opening)> {
    let (sandbox, opening) = match &run.start {
        Start::Fresh => {
            let sandbox = create_sandbox(&run.settings, runtime).await?;
            let started = started(run, &sandbox)?;
            (sandbox, Opening::Fresh(Box::new(started)))
        }
        Start::Resumed(earlier) => {
            let (sandbox, turn, files) = resume::restore(run, earlier, runtime).await?;
            (sandbox, earlier.opening(turn, files))
        }
    };
    if let Some(line) = run.settings.sandbox.weakness_line(sandbox.protection()) {
        run.note(&line);
    }
    Ok((sandbox, opening))
}

/// Creates a sandbox with the input files.
async fn create_sandbox(
    settings: &RunSettings,
    runtime: &AnyRuntime,
) -> anyhow::Result<AnySandbox> {
    let sandbox = runtime.create(&settings.sandbox.spec).await?;
    // Before anything enters it or runs in it.
    settings.sandbox.accept(sandbox.protection())?;
    fill(&settings.prompts, settings.input.as_deref(), &sandbox).await?;
    Ok(sandbox)
}

/// Creates the directories of the prompt and copies the input.
pub(crate) async fn fill(
    prompts: &Prompts,
    input: Option<&Path>,
    sandbox: &AnySandbox,
) -> anyhow::Result<()> {
    let created = attempt::create_directories(sandbox, prompts).await;
    created.context("cannot create the directories of the prompt; is the image complete?")?;
    if let Some(input) = input {
        let report = attempt::copy_input(sandbox, prompts, input).await;
        let report = report.with_context(|| format!("cannot copy {} in", input.display()))?;
        report_skipped(&report);
    }
    Ok(())
}

/// The first event of a new episode.
fn started(run: &PreparedRun, sandbox: &AnySandbox) -> anyhow::Result<Started> {
    let settings = &run.settings;
    let inputs = settings.input.as_deref().map(attempt::input_listing).unwrap_or_default();
    let network = &settings.sandbox.spec.network;
    let rendered = settings.prompts.render_with(&settings.task, network, &inputs)?;
    Ok(Started {
        problem_statement: settings.task.clone(),
        messages: rendered.messages(),
        model: settings.model.name.clone(),
        settings: run.record.clone(),
        protection: serde_json::to_value(sandbox.protection())?,
        program: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Plays the episode until it ends or the user cancels it.
async fn play(
    run: &PreparedRun,
    model: &AnyModel,
    sandbox: &AnySandbox,
    recorder: &Recorder<'_>,
    opening: Opening,
    signals: &Signals,
) -> Ended {
    let cancel = CancellationToken::new();
    let (canceller, mut signals) = (cancel.clone(), signals.clone());
    let listening = tokio::spawn(async move {
        signals.cancelled().await;
        canceller.cancel();
    });
    let settings = run.settings.episode();
    let episode = Episode::new(model, sandbox, recorder, &settings, opening, cancel);
    let ended = agent::run(episode).await;
    listening.abort();
    ended
}

/// How long the files of a cancelled episode are collected: enough for a few.
const LAST_FILES: Duration = Duration::from_millis(500);

/// Collects the files and writes the results. The summary is returned even if it cannot be written. There is none if the
/// user cancels the collection of an episode that ended by itself.
async fn collect(
    run: &PreparedRun,
    sandbox: &AnySandbox,
    ended: Ended,
    mut signals: Signals,
) -> Option<(Summary, anyhow::Result<()>)> {
    let (output_dir, to) = (&run.settings.prompts.output_dir, run.dir.files());
    let collecting = attempt::collect_directory(sandbox, output_dir, &to);
    let collected = match ended.outcome {
        Outcome::Cancelled => {
            tokio::time::timeout(LAST_FILES, collecting).await.unwrap_or_else(|_| Collected {
                error: Some(sandbox::Error::Io {
                    what: "collecting the files".into(),
                    source: std::io::Error::other("the run was cancelled"),
                }),
                ..Collected::default()
            })
        }
        _ => tokio::select! {
            collected = collecting => collected,
            _ = signals.cancelled() => return None,
        },
    };
    report_skipped(&collected.report);
    let written = run.dir.write_trajectory();
    let summary = Summary::new(run, ended, collected, sandbox.refused_connections());
    let written = written.and_then(|()| run.dir.write_run(&summary));
    Some((summary, written))
}

/// A run that is ready to start.
#[derive(Debug)]
pub(crate) struct PreparedRun {
    pub(crate) settings: RunSettings,
    /// The settings as they are recorded: without secrets, and sealed.
    pub(crate) record: Value,
    pub(crate) secrets: Secrets,
    pub(crate) dir: RunDir,
    pub(crate) events: SignedEvents,
    pub(crate) start: Start,
    /// How the run is shown.
    pub(crate) mode: Mode,
    /// The settings to record because they differ from the recorded ones.
    pub(crate) reconfigured: Option<Value>,
    /// The beginning of the names of the images of this run.
    pub(crate) image_prefix: String,
}

/// What a run starts from.
#[derive(Debug)]
pub(crate) enum Start {
    /// The task.
    Fresh,
    /// The record of an earlier process.
    Resumed(Box<EarlierProcess>),
}

impl Start {
    /// How the episode ended, where only its results are missing.
    pub(crate) fn ended(&self) -> Option<Ended> {
        match self {
            Self::Fresh => None,
            Self::Resumed(earlier) => earlier.ended.clone(),
        }
    }

    /// The image an earlier process saved.
    pub(crate) fn image(&self) -> Option<String> {
        match self {
            Self::Fresh => None,
            Self::Resumed(earlier) => earlier.image().map(str::to_owned),
        }
    }
}

impl PreparedRun {
    /// Prepares a new run.
    pub(crate) fn new(args: RunArgs, settings: &Settings, mode: Mode) -> anyhow::Result<Self> {
        let output = args.output.clone();
        let (run, secrets) = RunSettings::check(args, settings)?;
        let mut record = run.record()?;
        let seal = seal(settings)?;
        seal.sign(&mut record);
        let dir = RunDir::create(&output)?;
        let image_prefix = seal.image_prefix(&record) + &dir.image_name();
        let events = SignedEvents::new(dir.open_events()?, Some(Chain::new(seal)))?;
        Ok(Self {
            settings: run,
            image_prefix,
            record,
            secrets,
            dir,
            events,
            start: Start::Fresh,
            mode,
            reconfigured: None,
        })
    }

    /// What the view of the episode has to know before it starts.
    fn info(&self) -> EpisodeInfo {
        let limits = self.settings.limits.clone();
        match &self.start {
            Start::Fresh => EpisodeInfo { limits, ..EpisodeInfo::default() },
            Start::Resumed(earlier) => {
                let (time_before, steps_before) = (earlier.time(), earlier.steps());
                EpisodeInfo { limits, time_before, steps_before }
            }
        }
    }

    /// Shows a line about the run, unless only results and errors are shown.
    fn note(&self, text: &str) {
        if self.mode != Mode::Quiet {
            output::note(text);
        }
    }

    /// Removes the directory of a new run that did not start.
    pub(crate) fn discard(&self) {
        if matches!(self.start, Start::Fresh) {
            self.dir.discard();
        }
    }
}
