//! Resumes a run from the record of an earlier process: its conversation, usage, saved files and tool calls.

use std::{path::Path, time::Duration};

use agent::{Limits, Opening, RestoredFiles, recorded_usage, tools::SUBMIT};
use sandbox::{Error, ImageRef, Runtime, Sandbox, Spec};
use serde::Deserialize;
use serde_json::Value;
use trajectory::{
    Ended, Event, Line, Mode as EpisodeMode, Outcome, Spent, Step, ToolCall, Trajectory,
};

use super::{
    PreparedRun, RunArgs, RunDir, RunSettings, Start, create_sandbox, limits,
    record::Results,
    seal::{Seal, seal},
    signed_events::{Chain, SignedEvents},
};
use crate::{
    console::Mode,
    exit::UsageError,
    outcome_text::{KnownLimits, outcome_text},
    runtime::{AnyRuntime, AnySandbox},
    settings::Settings,
};

/// The prefix of the images with saved files.
pub(crate) const SAVED: &str = "run-";

/// The record of an earlier process.
#[derive(Debug)]
pub(crate) struct EarlierProcess {
    lines: Vec<Line>,
    /// The last complete turn.
    turns: u32,
    /// The turn after which the files were saved, and the image that holds them.
    saved: Option<(u32, String)>,
    /// How the episode ended, where only its results are missing.
    pub(crate) ended: Option<Ended>,
    /// The limits it ended with, as far as they are readable.
    limits: Option<Limits>,
    results: Results,
}

/// Whether a run that ended so can be resumed: with the same settings, or with a higher limit.
pub(crate) fn is_resumable(outcome: &Outcome) -> bool {
    stopped(outcome) || limits::option_of(outcome).is_some()
}

/// Whether something other than the model or a limit ended the episode.
fn stopped(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Cancelled | Outcome::Infrastructure { .. })
}

impl EarlierProcess {
    /// Reads the record; also returns the settings in it.
    pub(crate) fn read(lines: Vec<Line>, results: Results) -> Result<(Self, Value), UsageError> {
        let started = lines.iter().find_map(|line| match &line.event {
            Event::Started(started) => Some(started),
            _ => None,
        });
        let Some(started) = started else {
            return Err(UsageError(
                "cannot resume: the process died before the episode started; start a new run"
                    .into(),
            ));
        };
        let settings = settings_after(&lines).unwrap_or(&started.settings).clone();
        let end = last_end(&lines);
        let limits = end.and_then(|(at, _)| settings_after(&lines[..at])?.get("limits"));
        let limits = limits.and_then(|limits| Limits::deserialize(limits).ok());
        let ended = end.map(|(_, ended)| ended.clone());
        if let (Some(Ended { outcome, .. }), Results::Saved) = (&ended, results)
            && !is_resumable(outcome)
        {
            let known = KnownLimits::recorded(&settings);
            return Err(UsageError(format!(
                "cannot resume: the episode has ended: {}; start a new run",
                outcome_text(outcome, &known, EpisodeMode::Sandbox)
            )));
        }
        let (_, turns) = trajectory::history(&lines);
        let saved = lines.iter().rev().find_map(|line| match &line.event {
            Event::Saved { turn, image } => Some((*turn, image.clone())),
            _ => None,
        });
        // Only what a run saved is used, and removed in the end.
        let saved = saved.filter(|(turn, image)| *turn <= turns && image.starts_with(SAVED));
        Ok((Self { lines, turns, saved, ended, limits, results }, settings))
    }

    /// Applies the limits of the resumed run: an episode that reached a limit continues if that one is higher now.
    /// `given` says whether the user gave any.
    pub(crate) fn apply_limits(&mut self, limits: &Limits, given: bool) -> Result<(), UsageError> {
        let spent = Spent { turns: self.turns, ..recorded_usage(&self.lines) };
        let reached = limits.reached(&spent);
        let limit = match &self.ended {
            None => reached.filter(|_| given),
            Some(Ended { outcome, .. }) => {
                let is_raised = |before: &Limits| limits::is_raised(outcome, before, limits);
                match self.limits.as_ref().is_some_and(is_raised) {
                    true => reached,
                    false => Some(outcome.clone()),
                }
            }
        };
        match limit {
            None => {
                self.ended = None;
                Ok(())
            }
            // Only the results are collected.
            Some(_) if self.ended.is_some() && self.results == Results::Missing => Ok(()),
            Some(limit) => Err(limits::too_low(&limit, limits, &spent)),
        }
    }

    /// The time the earlier processes spent in calls to the model and to tools.
    pub(crate) fn time(&self) -> Duration {
        let Spent { model_ms, tool_ms, .. } = recorded_usage(&self.lines);
        Duration::from_millis(model_ms.saturating_add(tool_ms))
    }

    /// The turns of the steps in the trajectory; 0 for a step outside any turn.
    pub(crate) fn steps(&self) -> Vec<u32> {
        let turn = |step: &Step| step.metadata.get("turn").and_then(Value::as_u64).unwrap_or(0);
        let steps = Trajectory::from_events(&self.lines).steps;
        steps.iter().map(|step| u32::try_from(turn(step)).unwrap_or(u32::MAX)).collect()
    }

    /// The last complete turn.
    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    /// The image an earlier process saved.
    pub(crate) fn image(&self) -> Option<&str> {
        self.saved.as_ref().map(|(_, image)| image.as_str())
    }

    /// The image to start from, and the turn whose files it holds. For an episode that ended it must hold the last ones.
    pub(crate) fn saved(&self) -> Option<(u32, &str)> {
        let (turn, image) = self.saved.as_ref()?;
        let mut later = self.calls().into_iter().filter(|(at, _)| at > turn);
        let usable = self.ended.is_none() || later.all(|(_, call)| call.name == SUBMIT);
        usable.then_some((*turn, image.as_str()))
    }

    /// Forgets saved files that are not this run's own: whoever changes the record could name an image of another run,
    /// which would be mounted, and removed in the end. Returns the beginning of the names of this run's images.
    pub(crate) fn authenticate_images(&mut self, seal: &Seal) -> String {
        let started = self.lines.iter().find_map(|line| match &line.event {
            Event::Started(started) => Some(&started.settings),
            _ => None,
        });
        let settings = started.unwrap_or(&Value::Null);
        let prefix = seal.image_prefix(settings);
        let is_ours = seal.verify(settings);
        self.saved.take_if(|(_, image)| !is_ours || !image.starts_with(&prefix));
        prefix
    }

    /// The executed tool calls, with their turns.
    pub(crate) fn calls(&self) -> Vec<(u32, &ToolCall)> {
        agent::recorded_calls(&self.lines, self.turns)
    }

    /// The state to resume from, after this turn.
    pub(crate) fn opening(&self, turn: u32, files: RestoredFiles) -> Opening {
        Opening::after(&self.lines, turn, files)
    }
}

/// The settings in force after these lines.
fn settings_after(lines: &[Line]) -> Option<&Value> {
    lines.iter().rev().find_map(|line| match &line.event {
        Event::Started(started) => Some(&started.settings),
        Event::Reconfigured { settings } => Some(settings),
        _ => None,
    })
}

/// The end of an episode that was neither cancelled nor failed, and its line.
fn last_end(lines: &[Line]) -> Option<(usize, &Ended)> {
    let last = lines.iter().enumerate().rev().find_map(|(at, line)| match &line.event {
        Event::Ended(ended) => Some(Some((at, ended))),
        Event::Resumed { .. } => Some(None),
        _ => None,
    });
    last.flatten().filter(|(_, ended)| !stopped(&ended.outcome))
}

impl PreparedRun {
    /// Prepares to resume a run.
    pub(crate) fn resume(
        path: &Path,
        args: RunArgs,
        settings: &Settings,
        mode: Mode,
    ) -> anyhow::Result<Self> {
        let dir = RunDir::open(path)?;
        let file = dir.open_events()?;
        let (lines, text) = dir.read_events_with_text()?;
        let (mut earlier, record) = EarlierProcess::read(lines, dir.results())?;
        let seal = seal(settings)?;
        let is_ours = seal.verify(&record);
        let chain = Chain::verify(seal.clone(), &text).filter(|_| is_ours);
        if !args.trust && chain.is_none() {
            return Err(from_elsewhere(path, is_ours).into());
        }
        let has_limits = args.limits.is_given();
        let (run, secrets) = RunSettings::resume(&record, args, settings)?;
        earlier.apply_limits(&run.limits, has_limits)?;
        let mut current = run.record()?;
        let is_changed = current != Seal::unsigned(&record);
        // Settings from elsewhere stay marked as such.
        if is_ours {
            seal.sign(&mut current);
        }
        let reconfigured = is_changed.then_some(current);
        dir.drop_partial_event(&file)?;
        let events = SignedEvents::new(file, chain)?;
        dir.mark_unfinished()?;
        let prefix = earlier.authenticate_images(&seal);
        let run = Self {
            settings: run,
            record,
            secrets,
            image_prefix: prefix + &dir.image_name(),
            dir,
            events,
            start: Start::Resumed(Box::new(earlier)),
            mode,
            reconfigured,
        };
        // The record decides where a key is sent.
        let model = &run.settings.model;
        run.note(&format!("resuming with {} at {}", model.title(), model.location));
        Ok(run)
    }
}

/// Why a record is not resumed: its settings, or only its events, are not known to be the user's own.
fn from_elsewhere(path: &Path, has_own_settings: bool) -> UsageError {
    let path = path.display();
    UsageError(match has_own_settings {
        false => format!(
            "the settings in {path} were not written by you on this machine, or were changed since; they decide where \
             keys are sent, what is copied in and how strong the sandbox is: check them, then start a new run with \
             your own, or add --trust"
        ),
        true => format!(
            "the events in {path} were changed since you recorded them, or are from a version that did not sign them; \
             they decide which commands are run again and what the model is told: check them with `replay`, then start \
             a new run, or add --trust"
        ),
    })
}

/// Creates a sandbox with the files of an earlier one; returns the turn after which they were so, and where they come
/// from.
///
/// Commands that ran after the files were saved are not repeated on top of them: they may rely on the directory and the
/// variables of the shell, which are gone. From the very start everything can be repeated.
pub(crate) async fn restore(
    run: &PreparedRun,
    earlier: &EarlierProcess,
    runtime: &AnyRuntime,
) -> anyhow::Result<(AnySandbox, u32, RestoredFiles)> {
    let settings = &run.settings;
    if let Some((turn, image)) = earlier.saved() {
        let spec =
            Spec { image: ImageRef::Name(image.to_owned()), ..settings.sandbox.spec.clone() };
        match runtime.create(&spec).await {
            Ok(sandbox) => {
                settings.sandbox.accept(sandbox.protection())?;
                return Ok((sandbox, turn, RestoredFiles::Saved));
            }
            Err(Error::UnknownImage { .. }) => {
                run.note("the saved files are missing; all commands are run again");
            }
            Err(error) => return Err(error.into()),
        }
    }
    let sandbox = create_sandbox(settings, runtime).await?;
    let files = repeat(run, earlier, &sandbox).await?;
    Ok((sandbox, earlier.turns(), files))
}

/// Runs all recorded tool calls again. Their results are recorded already.
async fn repeat(
    run: &PreparedRun,
    earlier: &EarlierProcess,
    sandbox: &AnySandbox,
) -> anyhow::Result<RestoredFiles> {
    let tools = run.settings.episode().tools;
    let calls = earlier.calls();
    if calls.is_empty() {
        return Ok(RestoredFiles::Saved);
    }
    run.note(&format!("repeating {} recorded tool calls", calls.len()));
    for (number, (_, call)) in (1..).zip(calls) {
        tools.call(call, number, sandbox).await?;
    }
    Ok(RestoredFiles::Repeated)
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;
