//! What an earlier process left of an episode: the conversation, what it used up, saved files, and the
//! calls that were carried out after they were saved.

use agent::Opening;
use serde_json::Value;
use trajectory::{Ended, Event, Line, Message, Outcome, Spent, ToolCall};

use super::folder::Results;

use crate::exit::Usage;

/// The first part of an episode.
#[derive(Debug)]
pub(crate) struct Past {
    history: Vec<Message>,
    spent: Spent,
    compacted: usize,
    /// The turn after which the files were saved, and the image that holds them.
    pub(crate) saved: Option<(u32, String)>,
    /// How the episode ended, where only its results are missing.
    pub(crate) ended: Option<Ended>,
    /// The calls that were carried out, by turn.
    calls: Vec<(u32, ToolCall)>,
}

impl Past {
    /// Reads the record; also gives back the settings in it.
    pub(crate) fn read(lines: &[Line], results: Results) -> Result<(Self, Value), Usage> {
        let started = lines.iter().find_map(|line| match &line.event {
            Event::Started(started) => Some(started),
            _ => None,
        });
        let Some(started) = started else {
            return Err(Usage("the process died before the episode began; start anew".into()));
        };
        let ended = last_end(lines);
        if let (Some(ended), Results::Kept) = (&ended, results) {
            return Err(Usage(format!(
                "the episode ended as {}: there is nothing to resume; start a new one",
                ended.outcome
            )));
        }
        let (history, turns) = trajectory::history(lines);
        let mut past = Self {
            history,
            spent: Spent::default(),
            compacted: trajectory::compacted(lines),
            saved: None,
            ended,
            calls: Vec::new(),
        };
        for line in lines {
            past.take(&line.event);
        }
        past.calls.retain(|(turn, _)| *turn <= turns);
        past.saved = past.saved.filter(|(turn, _)| *turn <= turns);
        past.spent.turns = turns;
        Ok((past, started.settings.clone()))
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Replied(replied) => {
                // Paid for, even if the turn is played again.
                self.spent.usage += replied.usage;
                self.spent.context = replied.usage.total();
                self.spent.model_ms += replied.millis;
                if let Some(cost) = replied.cost {
                    self.spent.cost = Some(cost + self.spent.cost.unwrap_or(0.0));
                }
                let calls = replied.message.calls.iter().cloned();
                self.calls.extend(calls.map(|call| (replied.turn, call)));
            }
            Event::Observed(observed) => self.spent.tool_ms += observed.millis,
            Event::Saved { turn, image } => self.saved = Some((*turn, image.clone())),
            Event::Resumed { turn } => self.calls.retain(|(at, _)| at <= turn),
            // What was saved is removed when an episode ends, unless the process died first.
            Event::Ended(_) if self.ended.is_none() => self.saved = None,
            _ => {}
        }
    }

    /// What the episode goes on from.
    pub(crate) fn opening(&self) -> Opening {
        let Self { spent, compacted, .. } = *self;
        Opening::Resumed { history: self.history.clone(), spent, compacted }
    }

    /// The calls to carry out again in a sandbox that has the files as they were after this turn.
    pub(crate) fn calls_after(&self, turn: u32) -> impl Iterator<Item = &ToolCall> {
        self.calls.iter().filter(move |(at, _)| *at > turn).map(|(_, call)| call)
    }
}

/// The end of an episode that cannot go on: one that was not stopped from outside.
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
