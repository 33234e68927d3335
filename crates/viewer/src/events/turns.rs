//! Turns of an episode in a few numbers each: the outline of the page, and its bars of time and tokens.

use serde::Serialize;
use trajectory::Usage;

use super::light::LightCalls;

/// Most turns of a response.
const MOST_TURNS: usize = 20_000;

/// A turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Turn {
    pub(crate) turn: u32,
    /// Number of the event with the response.
    pub(crate) event: u64,
    at: u64,
    pub(crate) model_ms: u64,
    pub(crate) tool_ms: u64,
    input: u64,
    cached: u64,
    output: u64,
    reasoning: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    calls: Vec<SeenCall>,
    stop: Box<str>,
    /// Files that it changed, as recorded, or as far as its calls obviously change them.
    pub(crate) files: u32,
    /// Number of the event with the files it changed.
    #[serde(skip)]
    pub(crate) changed: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dropped: bool,
}

/// A call of a turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SeenCall {
    name: Box<str>,
    text: Box<str>,
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    error: bool,
}

impl Turn {
    #[expect(clippy::too_many_arguments, reason = "each is a field")]
    pub(super) fn new(
        turn: u32,
        event: u64,
        at: u64,
        usage: Usage,
        cost: Option<f64>,
        model_ms: u64,
        stop: Box<str>,
        calls: LightCalls,
    ) -> Self {
        let shown = |call: super::light::LightCall| SeenCall {
            name: call.name,
            text: call.text,
            exit_code: None,
            error: false,
        };
        Self {
            turn,
            event,
            at,
            model_ms,
            tool_ms: 0,
            input: usage.input,
            cached: usage.cached,
            output: usage.output,
            reasoning: usage.reasoning,
            cost,
            calls: calls.shown.into_iter().map(shown).collect(),
            stop,
            files: calls.files,
            changed: None,
            dropped: false,
        }
    }

    pub(super) fn observe(&mut self, at: usize, ms: u64, exit_code: Option<i32>, error: bool) {
        self.tool_ms = self.tool_ms.saturating_add(ms);
        if let Some(call) = self.calls.get_mut(at) {
            (call.exit_code, call.error) = (exit_code, error);
        }
    }

    pub(super) fn change(&mut self, event: u64, files: u32) {
        (self.changed, self.files) = (Some(event), files);
    }

    pub(super) fn drop_it(&mut self) {
        self.dropped = true;
    }
}

/// Some turns in order.
#[derive(Debug, Serialize)]
pub(crate) struct TurnsPage<'a> {
    total: usize,
    from: usize,
    pub(crate) turns: &'a [Turn],
    /// Positions of the turns that were undone, the first and the last of each range: turn numbers begin again after one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    undone: Vec<(usize, usize)>,
    sums: Sums,
}

/// Sums and maxima over all turns, for the scale of bars.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Sums {
    model_ms: u64,
    tool_ms: u64,
    input: u64,
    cached: u64,
    output: u64,
    max_model_ms: u64,
    max_tool_ms: u64,
    max_input: u64,
    max_output: u64,
}

impl<'a> TurnsPage<'a> {
    pub(crate) fn of(all: &'a [Turn], from: usize, limit: usize) -> Self {
        let from = from.min(all.len());
        let to = from.saturating_add(limit.clamp(1, MOST_TURNS)).min(all.len());
        let mut sums = Sums::default();
        for turn in all {
            sums.model_ms = sums.model_ms.saturating_add(turn.model_ms);
            sums.tool_ms = sums.tool_ms.saturating_add(turn.tool_ms);
            sums.input = sums.input.saturating_add(turn.input);
            sums.cached = sums.cached.saturating_add(turn.cached);
            sums.output = sums.output.saturating_add(turn.output);
            sums.max_model_ms = sums.max_model_ms.max(turn.model_ms);
            sums.max_tool_ms = sums.max_tool_ms.max(turn.tool_ms);
            sums.max_input = sums.max_input.max(turn.input);
            sums.max_output = sums.max_output.max(turn.output);
        }
        Self { total: all.len(), from, turns: &all[from..to], undone: undone(all), sums }
    }
}

fn undone(all: &[Turn]) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (at, _) in all.iter().enumerate().filter(|(_, turn)| turn.dropped) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == at => *last = at,
            _ => ranges.push((at, at)),
        }
    }
    ranges
}
