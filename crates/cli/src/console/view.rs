//! An episode as text: what is heard goes in, what to show comes out. Time is told from outside, and
//! nothing is written from here.
//!
//! While words stream, the cursor stands behind the last of them and there is no line at the bottom.
//! Everything else is whole lines, below which that line may stand.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use trajectory::{Assistant, Ended, Event, Message, Observed, Outcome, Replied, Stop, ToolCall};

use super::{
    Mode, action,
    figures::{Tally, both_ways, clock, counted, money, one_line, time},
    ink::{Ink, Style},
    status::{Status, Waits},
};
use crate::settings::Color;

/// Characters of what a server or the machine complains about.
const COMPLAINT: usize = 500;
/// Line ends in a row that are shown.
const MOST_LINE_ENDS: usize = 4;

/// A piece of a reply, kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// Thinking.
    Reasoning(String),
    /// Text.
    Text(String),
    /// A call of this tool begins.
    Call(String),
    /// The attempt failed.
    Retry(Retry),
}

/// A failed attempt to reach the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Retry {
    /// Which one, from 1.
    pub(super) attempt: u32,
    /// How long until the next.
    pub(super) wait: Duration,
    /// What went wrong.
    pub(super) why: String,
}

/// What is known of an episode, and what of it is already shown.
#[derive(Debug)]
pub(super) struct View {
    ink: Ink,
    mode: Mode,
    max_turns: u32,
    begun: Instant,
    tally: Tally,
    status: Status,
    /// The turn that goes on or comes next, and the last that has its heading.
    turn: u32,
    announced: u32,
    words: Words,
    /// The calls that have no result yet. The first is shown.
    calls: VecDeque<ToolCall>,
    telling: Telling,
    /// Failed attempts of this turn that came one way and not yet the other.
    retries: Vec<(Way, u32)>,
}

/// The words that stream.
#[derive(Debug, Default)]
struct Words {
    /// What kind they are, if some are on the line.
    kind: Option<Style>,
    /// Line ends that are shown once something follows them.
    held: usize,
    /// Whether this turn's thinking, or its text, was shown.
    reasoning: bool,
    text: bool,
}

/// How calls are shown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Telling {
    /// As a whole.
    Whole,
    /// By a mark: they stood in the text that streamed.
    Mark,
}

/// How we learn of a failed attempt: the record and the listener both tell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Event,
    Piece,
}

impl View {
    /// Nothing has happened yet.
    pub(super) fn new(mode: Mode, color: Color, max_turns: u32, now: Instant) -> Self {
        let color = if mode == Mode::Live { color } else { Color::Never };
        Self {
            ink: Ink::new(color),
            mode,
            max_turns,
            begun: now,
            tally: Tally::default(),
            status: Status::new(now),
            turn: 1,
            announced: 0,
            words: Words::default(),
            calls: VecDeque::new(),
            telling: Telling::Whole,
            retries: Vec::new(),
        }
    }

    /// The episode began.
    pub(super) fn started(&mut self, model: &str, now: Instant) {
        self.begun = now;
        self.end_words();
        self.ink.line(Style::Dim, &format!("model {}", one_line(model, 200)));
        self.status.wait(Waits::Model, now);
    }

    /// Something was recorded.
    pub(super) fn event(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Replied(replied) => self.replied(replied, now),
            Event::Observed(observed) => self.observed(observed, now),
            Event::Ended(ended) => self.ended(ended, now),
            Event::Retried { attempt, wait_ms, why, .. } => {
                let wait = Duration::from_millis(*wait_ms);
                self.retried(Way::Event, &Retry { attempt: *attempt, wait, why: why.clone() }, now);
            }
            Event::Compacted { messages, .. } => {
                self.end_words();
                let shortened = format!("shortened what the first {messages} messages show");
                self.ink.line(Style::Dim, &shortened);
            }
            Event::Resumed { turn } => {
                self.begun = now;
                (self.turn, self.announced) = (turn.saturating_add(1), *turn);
                self.calls.clear();
                self.end_words();
                self.ink.line(Style::Mark, &format!("resumed after turn {turn}"));
                self.status.wait(Waits::Model, now);
            }
            Event::Started(_) | Event::Saved { .. } | Event::Unknown => {}
        }
    }

    /// The model goes on.
    pub(super) fn piece(&mut self, piece: &Piece, now: Instant) {
        match piece {
            Piece::Retry(retry) => self.retried(Way::Piece, retry, now),
            _ if self.mode != Mode::Live => {}
            Piece::Reasoning(text) => self.stream(Style::Thinking, text),
            Piece::Text(text) => self.stream(Style::Normal, text),
            Piece::Call(tool) => {
                self.announce();
                self.end_words();
                self.status.wait(Waits::Call(tool.clone()), now);
            }
        }
    }

    /// Time went by: draws the line at the bottom, cut to the terminal's width, where there is something
    /// to wait for and no words stand in its place.
    pub(super) fn tick(&mut self, columns: usize, now: Instant) {
        if !self.is_waiting() {
            return self.ink.clear();
        }
        if !self.status.is_fresh(now) {
            let turn = self.turn_words();
            let line = self.status.draw(&turn, &self.tally, self.begun, now, columns);
            self.ink.pass(Style::Dim, &line);
        }
    }

    /// Whether the line at the bottom belongs there now.
    pub(super) fn is_waiting(&self) -> bool {
        self.mode == Mode::Live && self.words.kind.is_none() && self.status.is_waiting()
    }

    /// Nothing will follow.
    pub(super) fn close(&mut self) {
        self.end_words();
        self.ink.clear();
        self.status.stop();
    }

    /// What to show since the last time.
    pub(super) fn take(&mut self) -> String {
        self.ink.take()
    }

    fn replied(&mut self, replied: &Replied, now: Instant) {
        self.turn = replied.turn;
        self.announce();
        self.end_words();
        self.tally.add(replied.usage, replied.cost);
        let Assistant { text, reasoning, calls, said, .. } = &replied.message;
        self.telling = match said {
            Some(_) if self.words.text => Telling::Mark,
            _ => Telling::Whole,
        };
        if !self.words.reasoning {
            self.whole(Style::Thinking, reasoning);
        }
        if !self.words.text {
            self.whole(Style::Normal, text);
        }
        if self.mode == Mode::Plain {
            let took = time(Duration::from_millis(replied.millis));
            let used = both_ways(&replied.usage);
            self.ink.line(Style::Dim, &format!("model took {took}, {used}"));
        }
        if replied.from_cache {
            self.ink.line(Style::Dim, "from the cache of replies");
        }
        match &replied.stop {
            Stop::End | Stop::ToolCalls => {}
            Stop::Length => self.ink.line(Style::Warning, "cut off at the limit of tokens"),
            Stop::Refusal => self.ink.line(Style::Warning, "refused"),
            Stop::Other(word) => {
                self.ink.line(Style::Warning, &format!("stopped: {}", one_line(word, COMPLAINT)));
            }
        }
        self.words = Words::default();
        self.retries.clear();
        self.calls = calls.iter().cloned().collect();
        self.next_call(now);
    }

    fn observed(&mut self, observed: &Observed, now: Instant) {
        self.end_words();
        action::observation(&mut self.ink, observed);
        if matches!(observed.message, Message::Tool(_)) {
            self.calls.pop_front();
        }
        self.next_call(now);
        if self.calls.is_empty() {
            self.turn = observed.turn.saturating_add(1);
            self.status.wait(Waits::Model, now);
        }
    }

    /// Shows the next call right before its own result.
    fn next_call(&mut self, now: Instant) {
        let Some(call) = self.calls.front() else {
            return self.status.wait(Waits::Nothing, now);
        };
        match self.telling {
            Telling::Whole => action::call(&mut self.ink, call),
            Telling::Mark => action::mark(&mut self.ink, call),
        }
        self.status.wait(Waits::Tool(call.name.clone()), now);
    }

    fn retried(&mut self, way: Way, retry: &Retry, now: Instant) {
        let known = |(other, attempt): &(Way, u32)| *other != way && *attempt == retry.attempt;
        if let Some(at) = self.retries.iter().position(known) {
            self.retries.swap_remove(at);
            return;
        }
        self.retries.push((way, retry.attempt));
        self.announce();
        self.end_words();
        let void = self.words.reasoning || self.words.text;
        self.words = Words::default();
        let Retry { attempt, wait, why } = retry;
        let void = if void { "; what it said is void" } else { "" };
        let (wait_words, why) = (time(*wait), one_line(why, COMPLAINT));
        let words = format!("attempt {attempt} failed: {why}{void}; again in {wait_words}");
        self.ink.line(Style::Warning, &words);
        // A wait beyond all clocks cannot be counted down.
        let waits = now.checked_add(*wait).map_or(Waits::Model, Waits::Retry);
        self.status.wait(waits, now);
    }

    fn ended(&mut self, ended: &Ended, now: Instant) {
        self.close();
        let spent = &ended.spent;
        let (style, outcome) = match &ended.outcome {
            Outcome::Submitted => (Style::Good, "submitted".to_owned()),
            Outcome::Infrastructure { .. } => (Style::Bad, ended.outcome.to_string()),
            limit => (Style::Warning, limit.to_string()),
        };
        self.ink.put(style, &one_line(&outcome, COMPLAINT));
        let mut parts = vec![counted(spent.turns as usize, "turn"), both_ways(&spent.usage)];
        parts.extend(spent.cost.map(money));
        let within = |millis| time(Duration::from_millis(millis));
        parts.push(format!(
            "{} (model {}, tools {})",
            clock(now.saturating_duration_since(self.begun)),
            within(spent.model_ms),
            within(spent.tool_ms)
        ));
        self.ink.line(Style::Dim, &format!(" · {}", parts.join(" · ")));
    }

    /// The heading of a turn, once.
    fn announce(&mut self) {
        if self.announced != self.turn {
            self.announced = self.turn;
            self.ink.line(Style::Mark, &format!("── {} ──", self.turn_words()));
        }
    }

    fn turn_words(&self) -> String {
        format!("turn {}/{}", self.turn, self.max_turns)
    }

    fn stream(&mut self, style: Style, text: &str) {
        let begins = self.words.kind != Some(style);
        let text = if begins { text.trim_start() } else { text };
        let body = text.trim_end_matches('\n');
        let ends = text.len() - body.len();
        if body.is_empty() {
            // What only ends lines begins nothing.
            if !begins {
                self.words.held += ends;
            }
            return;
        }
        self.announce();
        if begins {
            self.end_words();
        }
        let held = "\n".repeat(self.words.held.min(MOST_LINE_ENDS));
        self.ink.put(style, &format!("{held}{body}"));
        self.words.kind = Some(style);
        self.words.held = ends;
        match style {
            Style::Thinking => self.words.reasoning = true,
            _ => self.words.text = true,
        }
    }

    fn end_words(&mut self) {
        if self.words.kind.take().is_some() {
            self.ink.line(Style::Normal, "");
        }
        self.words.held = 0;
    }

    fn whole(&mut self, style: Style, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            self.ink.line(style, text);
        }
    }
}
