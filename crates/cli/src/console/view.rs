//! An episode as text: events and streamed items go in, text to show comes out. The caller passes the time and writes
//! the text.
//!
//! While text streams, the cursor is behind it and there is no status line. Everything else is whole lines, below which
//! the status line may be.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use trajectory::{
    Assistant, Ended, Event, Message, Mode as EpisodeMode, Observed, Outcome, Responded, Stop,
    ToolCall,
};

use super::{
    EpisodeInfo, Mode, action,
    format::{
        UsageTotals, counted, money, one_line, time, time_at_least, time_at_most, token_counts,
    },
    status::{Status, WaitingFor},
    styled::{Style, StyledBuffer},
};
use crate::{
    outcome_text::{KnownLimits, outcome_text},
    settings::Color,
};

/// Characters shown of an error message.
const MAX_ERROR: usize = 500;
/// Consecutive line ends that are shown.
const MAX_LINE_ENDS: usize = 4;

/// A streamed part of a response.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StreamItem {
    /// Reasoning.
    Reasoning(String),
    /// Text.
    Text(String),
    /// A call of this tool starts.
    Call(String),
    /// The request failed.
    Retry(Retry),
}

/// A failed request to the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Retry {
    /// Its number, from 1.
    pub(super) attempt: u32,
    /// Time until the next.
    pub(super) wait: Duration,
    /// The error.
    pub(super) why: String,
}

/// The state of an episode and of its display.
#[derive(Debug)]
pub(super) struct View {
    out: StyledBuffer,
    mode: Mode,
    info: EpisodeInfo,
    begun: Instant,
    totals: UsageTotals,
    status: Status,
    /// Steps so far: tool results and reminders, as trajectories number them.
    steps: usize,
    /// The current or next turn, and the last one whose heading was shown.
    turn: u32,
    announced: u32,
    streamed: Streamed,
    /// Calls without a result yet. The first is shown.
    calls: VecDeque<ToolCall>,
    call_display: CallDisplay,
    /// Failed requests of this turn that were reported by one source and not yet by the other.
    retries: Vec<(RetrySource, u32)>,
}

/// The text that streams.
#[derive(Debug, Default)]
struct Streamed {
    /// Its style, if some is on the line.
    kind: Option<Style>,
    /// Line ends to show once text follows.
    held: usize,
    /// Whether this turn's reasoning, or its text, was shown.
    reasoning: bool,
    text: bool,
}

/// How calls are shown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CallDisplay {
    /// In full.
    Whole,
    /// In one line: the text that streamed contained them.
    Mark,
}

/// Where a failed request was reported: both the journal and the listener report it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RetrySource {
    Event,
    StreamItem,
}

impl View {
    /// An episode that has not started.
    pub(super) fn new(mode: Mode, color: Color, info: &EpisodeInfo, now: Instant) -> Self {
        let color = if mode == Mode::Plain { Color::Never } else { color };
        Self {
            out: StyledBuffer::new(color),
            mode,
            info: info.clone(),
            begun: now,
            totals: UsageTotals::default(),
            status: Status::new(now),
            steps: 0,
            turn: 1,
            announced: 0,
            streamed: Streamed::default(),
            calls: VecDeque::new(),
            call_display: CallDisplay::Whole,
            retries: Vec::new(),
        }
    }

    /// The episode started.
    pub(super) fn started(&mut self, model: &str, now: Instant) {
        self.begun = now;
        self.end_stream();
        self.out.line(Style::Dim, &format!("model {}", one_line(model, 200)));
        self.status.wait(WaitingFor::Model, now);
    }

    /// An event was recorded.
    pub(super) fn event(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Responded(replied) => self.replied(replied, now),
            Event::Observed(observed) => self.observed(observed, now),
            Event::Ended(ended) => self.ended(ended, now),
            Event::Retried { attempt, wait_ms, why, .. } => {
                let wait = Duration::from_millis(*wait_ms);
                self.retried(
                    RetrySource::Event,
                    &Retry { attempt: *attempt, wait, why: why.clone() },
                    now,
                );
            }
            Event::Compacted { messages, .. } => {
                self.end_stream();
                let shortened = format!("shortened the first {messages} messages");
                self.out.line(Style::Dim, &shortened);
            }
            Event::Resumed { turn } => {
                self.begun = now;
                (self.turn, self.announced) = (turn.saturating_add(1), *turn);
                self.steps = self.info.steps_before.iter().filter(|at| *at <= turn).count();
                self.calls.clear();
                self.end_stream();
                self.out.line(Style::Mark, &format!("resumed after turn {turn}"));
                self.status.wait(WaitingFor::Model, now);
            }
            Event::Started(_)
            | Event::Changed(_)
            | Event::Saved { .. }
            | Event::Reconfigured { .. }
            | Event::Unknown => {}
        }
    }

    /// The model streams.
    pub(super) fn piece(&mut self, piece: &StreamItem, now: Instant) {
        match piece {
            StreamItem::Retry(retry) => self.retried(RetrySource::StreamItem, retry, now),
            _ if self.mode == Mode::Plain => {}
            StreamItem::Reasoning(text) => self.stream(Style::Thinking, text),
            StreamItem::Text(text) => self.stream(Style::Normal, text),
            StreamItem::Call(tool) => {
                self.announce();
                self.end_stream();
                self.status.wait(WaitingFor::Call(tool.clone()), now);
            }
        }
    }

    /// Draws the status line, cut to the terminal's width, while something is awaited and no text streams.
    pub(super) fn tick(&mut self, columns: usize, now: Instant) {
        if !self.is_waiting() {
            return self.out.clear();
        }
        if !self.status.is_fresh(now) {
            let turn = self.turn_title();
            let line = self.status.draw(&turn, &self.totals, self.begun, now, columns);
            self.out.status(Style::Dim, &line);
        }
    }

    /// Whether the status line is to be shown.
    pub(super) fn is_waiting(&self) -> bool {
        self.mode == Mode::Live && self.streamed.kind.is_none() && self.status.is_waiting()
    }

    /// Ends the display.
    pub(super) fn close(&mut self) {
        self.end_stream();
        self.out.clear();
        self.status.stop();
    }

    /// Takes the text to show since the last call.
    pub(super) fn take(&mut self) -> String {
        self.out.take()
    }

    fn replied(&mut self, replied: &Responded, now: Instant) {
        self.turn = replied.turn;
        self.announce();
        self.end_stream();
        self.totals.add(replied.usage, replied.cost);
        let Assistant { text, reasoning, calls, raw, .. } = &replied.message;
        self.call_display = match raw {
            Some(_) if self.streamed.text => CallDisplay::Mark,
            _ => CallDisplay::Whole,
        };
        if !self.streamed.reasoning {
            self.whole(Style::Thinking, reasoning);
        }
        if !self.streamed.text {
            self.whole(Style::Normal, text);
        }
        if self.mode == Mode::Plain {
            let took = time(Duration::from_millis(replied.millis));
            let used = token_counts(&replied.usage);
            self.out.line(Style::Dim, &format!("model took {took}, {used}"));
        }
        if replied.from_cache {
            self.out.line(Style::Dim, "response from the cache");
        }
        match &replied.stop {
            Stop::End | Stop::ToolCalls => {}
            Stop::Length => self.out.line(Style::Warning, "cut off at the token limit"),
            Stop::Refusal => self.out.line(Style::Warning, "refused"),
            Stop::Other(word) => {
                self.out.line(Style::Warning, &format!("stopped: {}", one_line(word, MAX_ERROR)));
            }
        }
        self.streamed = Streamed::default();
        self.retries.clear();
        self.calls = calls.iter().cloned().collect();
        self.next_call(now);
    }

    fn observed(&mut self, observed: &Observed, now: Instant) {
        self.end_stream();
        action::observation(&mut self.out, observed);
        self.steps += 1;
        if matches!(observed.message, Message::Tool(_)) {
            self.calls.pop_front();
        }
        self.next_call(now);
        if self.calls.is_empty() {
            self.turn = observed.turn.saturating_add(1);
            self.status.wait(WaitingFor::Model, now);
        }
    }

    /// Shows the next call right before its own result.
    fn next_call(&mut self, now: Instant) {
        let Some(call) = self.calls.front() else {
            return self.status.wait(WaitingFor::Nothing, now);
        };
        match self.call_display {
            CallDisplay::Whole => action::call(&mut self.out, call),
            CallDisplay::Mark => action::mark(&mut self.out, call),
        }
        self.status.wait(WaitingFor::Tool(call.name.clone()), now);
    }

    fn retried(&mut self, way: RetrySource, retry: &Retry, now: Instant) {
        let known =
            |(other, attempt): &(RetrySource, u32)| *other != way && *attempt == retry.attempt;
        if let Some(at) = self.retries.iter().position(known) {
            self.retries.swap_remove(at);
            return;
        }
        self.retries.push((way, retry.attempt));
        self.announce();
        self.end_stream();
        let void = self.streamed.reasoning || self.streamed.text;
        self.streamed = Streamed::default();
        let Retry { attempt, wait, why } = retry;
        let void = if void { "; its output is discarded" } else { "" };
        let (wait_words, why) = (time(*wait), one_line(why, MAX_ERROR));
        let line = format!("request {attempt} failed: {why}{void}; retrying in {wait_words}");
        self.out.line(Style::Warning, &line);
        // A wait too long for the clock cannot be counted down.
        let waits = now.checked_add(*wait).map_or(WaitingFor::Model, WaitingFor::Retry);
        self.status.wait(waits, now);
    }

    fn ended(&mut self, ended: &Ended, now: Instant) {
        self.close();
        let spent = &ended.spent;
        let style = match &ended.outcome {
            Outcome::Submitted => Style::Good,
            Outcome::Infrastructure { .. } => Style::Bad,
            _ => Style::Warning,
        };
        let limits = KnownLimits::from(&self.info.limits);
        let outcome = outcome_text(&ended.outcome, &limits, EpisodeMode::Sandbox);
        self.out.put(style, &one_line(&outcome, MAX_ERROR));
        let mut parts = vec![counted(spent.turns as usize, "turn"), token_counts(&spent.usage)];
        parts.extend(spent.cost.map(money));
        let elapsed = now.saturating_duration_since(self.begun) + self.info.time_before;
        let (model, tools) =
            (Duration::from_millis(spent.model_ms), Duration::from_millis(spent.tool_ms));
        // The parts are rounded down and the sum up, so that the sum is never below its parts.
        parts.push(format!(
            "{} (model {}, tools {})",
            time_at_least(elapsed.max(model.saturating_add(tools))),
            time_at_most(model),
            time_at_most(tools)
        ));
        self.out.line(Style::Dim, &format!(" · {}", parts.join(" · ")));
    }

    /// Shows the heading of a turn, once.
    fn announce(&mut self) {
        if self.announced != self.turn {
            self.announced = self.turn;
            let heading = format!("── step {} ({}) ──", self.steps + 1, self.turn_title());
            self.out.line(Style::Mark, &heading);
        }
    }

    fn turn_title(&self) -> String {
        format!("turn {}/{}", self.turn, self.info.limits.turns)
    }

    fn stream(&mut self, style: Style, text: &str) {
        let begins = self.streamed.kind != Some(style);
        let text = if begins { text.trim_start() } else { text };
        let body = text.trim_end_matches('\n');
        let ends = text.len() - body.len();
        if body.is_empty() {
            // Line ends alone start nothing.
            if !begins {
                self.streamed.held += ends;
            }
            return;
        }
        self.announce();
        if begins {
            self.end_stream();
        }
        let held = "\n".repeat(self.streamed.held.min(MAX_LINE_ENDS));
        self.out.put(style, &format!("{held}{body}"));
        self.streamed.kind = Some(style);
        self.streamed.held = ends;
        match style {
            Style::Thinking => self.streamed.reasoning = true,
            _ => self.streamed.text = true,
        }
    }

    fn end_stream(&mut self) {
        if self.streamed.kind.take().is_some() {
            self.out.line(Style::Normal, "");
        }
        self.streamed.held = 0;
    }

    fn whole(&mut self, style: Style, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            self.out.line(style, text);
        }
    }
}
