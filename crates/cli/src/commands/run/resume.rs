//! Resumes a run from the record of an earlier process: its conversation, usage, saved files and tool calls.

use std::path::Path;

use agent::{Opening, tools::SUBMIT};
use sandbox::{Error, ImageRef, Runtime, Spec};
use serde_json::Value;
use trajectory::{Ended, Event, Line, Outcome, Spent, ToolCall};

use super::{
    PreparedRun, RunArgs, RunDir, RunSettings, Start, create_sandbox, record::Results, seal,
};
use crate::{
    console::output,
    exit::UsageError,
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
        let ended = last_end(&lines);
        if let (Some(ended), Results::Saved) = (&ended, results) {
            return Err(UsageError(format!(
                "the episode ended as {}: there is nothing to resume; start a new one",
                ended.outcome
            )));
        }
        let settings = started.settings.clone();
        let (_, turns) = trajectory::history(&lines);
        let saved = lines.iter().rev().find_map(|line| match &line.event {
            Event::Saved { turn, image } => Some((*turn, image.clone())),
            _ => None,
        });
        // Only what a run saved is used, and removed in the end.
        let saved = saved.filter(|(turn, image)| *turn <= turns && image.starts_with(SAVED));
        Ok((Self { lines, turns, saved, ended }, settings))
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

    /// The executed tool calls, with their turns.
    pub(crate) fn calls(&self) -> Vec<(u32, &ToolCall)> {
        let mut calls = Vec::new();
        for line in &self.lines {
            match &line.event {
                Event::Replied(replied) => {
                    calls.extend(replied.message.calls.iter().map(|call| (replied.turn, call)));
                }
                Event::Resumed { turn } => calls.retain(|(at, _)| at <= turn),
                _ => {}
            }
        }
        calls.retain(|(turn, _)| *turn <= self.turns);
        calls
    }

    /// The state to resume from, after this turn.
    pub(crate) fn opening(&self, turn: u32) -> Opening {
        let mut lines = self.lines.clone();
        lines.push(Line::new(0, Event::Resumed { turn }));
        let (history, turns) = trajectory::history(&lines);
        let compacted = trajectory::compacted(&lines);
        Opening::Resumed { history, spent: Spent { turns, ..spent(&lines) }, compacted }
    }
}

/// The usage, including turns that are played again: they were paid for.
fn spent(lines: &[Line]) -> Spent {
    let mut spent = Spent::default();
    // The length of the conversation after each turn that is kept.
    let mut contexts: Vec<(u32, u64)> = Vec::new();
    for line in lines {
        match &line.event {
            Event::Replied(replied) => {
                spent.usage += replied.usage;
                spent.model_ms = spent.model_ms.saturating_add(replied.millis);
                if let Some(cost) = replied.cost {
                    spent.cost = Some(cost + spent.cost.unwrap_or(0.0));
                }
                contexts.push((replied.turn, replied.usage.total()));
            }
            Event::Observed(observed) => {
                spent.tool_ms = spent.tool_ms.saturating_add(observed.millis);
            }
            Event::Resumed { turn } => contexts.retain(|(at, _)| at <= turn),
            _ => {}
        }
    }
    spent.context = contexts.last().map_or(0, |(_, context)| *context);
    spent
}

/// The end of an episode that cannot be resumed: one that was neither cancelled nor failed.
fn last_end(lines: &[Line]) -> Option<Ended> {
    let last = lines.iter().rev().find_map(|line| match &line.event {
        Event::Ended(ended) => Some(Some(ended)),
        Event::Resumed { .. } => Some(None),
        _ => None,
    });
    let stopped =
        |outcome: &Outcome| matches!(outcome, Outcome::Cancelled | Outcome::Infrastructure { .. });
    last.flatten().filter(|ended| !stopped(&ended.outcome)).cloned()
}

impl PreparedRun {
    /// Prepares to resume a run.
    pub(crate) fn resume(path: &Path, args: RunArgs, settings: &Settings) -> anyhow::Result<Self> {
        let dir = RunDir::open(path)?;
        let events = dir.open_events()?;
        let (earlier, record) = EarlierProcess::read(dir.read_events()?, dir.results())?;
        if !args.trust && !seal(settings)?.verify(&record) {
            let text = format!(
                "the settings in {} were not written by you on this machine, or were changed since; they \
                 decide where keys are sent, what is copied in and how strong the sandbox is: check them, \
                 then start a new run with your own, or add --trust",
                path.display()
            );
            return Err(UsageError(text).into());
        }
        let (run, secrets) = RunSettings::resume(&record, args, settings)?;
        // The record decides where a key is sent.
        output::note(&format!("resuming with {} at {}", run.model.name, run.model.location));
        dir.drop_partial_event(&events)?;
        dir.mark_unfinished()?;
        let start = Start::Resumed(Box::new(earlier));
        Ok(Self { settings: run, record, secrets, dir, events, start })
    }
}

/// Creates a sandbox with the files of an earlier one; returns the turn after which they were so.
///
/// Commands that ran after the files were saved are not repeated on top of them: they may rely on the directory and the
/// variables of the shell, which are gone. From the very start everything can be repeated.
pub(crate) async fn restore(
    settings: &RunSettings,
    earlier: &EarlierProcess,
    runtime: &AnyRuntime,
) -> anyhow::Result<(AnySandbox, u32)> {
    if let Some((turn, image)) = earlier.saved() {
        let spec =
            Spec { image: ImageRef::Name(image.to_owned()), ..settings.sandbox.spec.clone() };
        match runtime.create(&spec).await {
            Ok(sandbox) => return Ok((sandbox, turn)),
            Err(Error::UnknownImage { .. }) => {
                output::note("the saved files are missing; all commands are run again");
            }
            Err(error) => return Err(error.into()),
        }
    }
    let sandbox = create_sandbox(settings, runtime).await?;
    repeat(settings, earlier, &sandbox).await?;
    Ok((sandbox, earlier.turns()))
}

/// Runs all recorded tool calls again. Their results are recorded already.
async fn repeat(
    settings: &RunSettings,
    earlier: &EarlierProcess,
    sandbox: &AnySandbox,
) -> anyhow::Result<()> {
    let tools = settings.episode().tools;
    let calls = earlier.calls();
    if !calls.is_empty() {
        output::note(&format!("repeating {} recorded tool calls", calls.len()));
    }
    for (number, (_, call)) in (1..).zip(calls) {
        tools.call(call, number, sandbox).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::Response;
    use trajectory::{Arguments, Assistant, Message, Observed, Replied, Started, Stop, Usage};

    use super::*;

    fn started() -> Event {
        Event::Started(Box::new(Started {
            problem_statement: "p".into(),
            messages: vec![Message::user("p")],
            model: "m".into(),
            settings: Value::Null,
            protection: Value::Null,
            program: String::new(),
        }))
    }

    fn replied(turn: u32, tool: &str, tokens: u64) -> Event {
        let arguments = Arguments::Object(serde_json::Map::new());
        let call = ToolCall { id: "1".into(), name: tool.into(), arguments };
        let usage = Usage { input: tokens, ..Usage::default() };
        let message = Assistant { calls: vec![call], ..Assistant::default() };
        let Response { message, stop, usage, from_cache } =
            Response { message, stop: Stop::ToolCalls, usage, from_cache: false };
        let cost = Some(1.0);
        let millis = u64::MAX;
        Event::Replied(Box::new(Replied { turn, message, stop, usage, cost, millis, from_cache }))
    }

    fn observed(turn: u32) -> Event {
        let message = Message::user("seen");
        Event::Observed(Box::new(Observed { turn, message, exit_code: None, millis: u64::MAX }))
    }

    fn saved(turn: u32) -> Event {
        Event::Saved { turn, image: format!("{SAVED}i{turn}") }
    }

    fn past(events: impl IntoIterator<Item = Event>) -> EarlierProcess {
        let lines = events.into_iter().map(|event| Line::new(0, event)).collect();
        EarlierProcess::read(lines, Results::Missing).unwrap().0
    }

    #[test]
    fn the_conversation_goes_back_to_the_saved_files() {
        let bash = |turn, tokens| [replied(turn, "execute_bash", tokens), observed(turn)];
        let events = [started()].into_iter().chain(bash(1, 10)).chain([saved(1)]);
        let past = past(events.chain(bash(2, 20)).chain([replied(3, "execute_bash", 900)]));
        assert_eq!((past.turns(), past.saved()), (2, Some((1, "run-i1"))));
        let calls: Vec<u32> = past.calls().iter().map(|(turn, _)| *turn).collect();
        assert_eq!(calls, [1, 2]);
        for (turn, messages, context) in [(1, 3, 10), (2, 5, 20)] {
            let Opening::Resumed { history, spent, .. } = past.opening(turn) else { panic!() };
            assert_eq!((history.len(), spent.turns, spent.context), (messages, turn, context));
            assert_eq!((spent.cost, spent.usage.input), (Some(3.0), 930));
        }
    }

    #[test]
    fn results_come_from_the_last_files_alone() {
        let ended = || Event::Ended(Ended { outcome: Outcome::Submitted, spent: Spent::default() });
        let first = || [started(), replied(1, "execute_bash", 1), observed(1), saved(1)];
        let submitted = || [replied(2, "submit", 1), observed(2), ended()];
        let done = past(first().into_iter().chain(submitted()));
        assert_eq!(done.saved(), Some((1, "run-i1")));
        let more = [replied(2, "execute_bash", 1), observed(2), ended()];
        let done = past(first().into_iter().chain(more));
        assert_eq!((done.saved(), done.image()), (None, Some("run-i1")));
        let lines = first().into_iter().chain(submitted()).map(|event| Line::new(0, event));
        assert!(EarlierProcess::read(lines.collect(), Results::Saved).is_err());
    }
}
