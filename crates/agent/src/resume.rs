//! Reads from the events of an episode what another process needs to continue it.

use trajectory::{Event, Line, Spent, ToolCall};

use crate::{Opening, RestoredFiles};

impl Opening {
    /// The state to resume from, after this turn of a recorded episode.
    pub fn after(lines: &[Line], turn: u32, files: RestoredFiles) -> Self {
        let mut lines = lines.to_vec();
        lines.push(Line::new(0, Event::Resumed { turn }));
        let (history, turns) = trajectory::history(&lines);
        let compacted = trajectory::compacted(&lines);
        Self::Resumed {
            history,
            spent: Spent { turns, ..recorded_usage(&lines) },
            compacted,
            files,
        }
    }
}

/// The executed tool calls of the first `turns` turns, with their turns.
pub fn recorded_calls(lines: &[Line], turns: u32) -> Vec<(u32, &ToolCall)> {
    let mut calls = Vec::new();
    for line in lines {
        match &line.event {
            Event::Responded(replied) => {
                calls.extend(replied.message.calls.iter().map(|call| (replied.turn, call)));
            }
            Event::Resumed { turn } => calls.retain(|(at, _)| at <= turn),
            _ => {}
        }
    }
    calls.retain(|(turn, _)| *turn <= turns);
    calls
}

/// The usage, including turns that are played again: they were paid for. The number of turns is not counted.
pub fn recorded_usage(lines: &[Line]) -> Spent {
    let mut spent = Spent::default();
    // The length of the conversation after each turn that is kept.
    let mut contexts: Vec<(u32, u64)> = Vec::new();
    for line in lines {
        match &line.event {
            Event::Responded(replied) => {
                spent.usage += replied.usage;
                spent.model_ms = spent.model_ms.saturating_add(replied.millis);
                // A negative cost would lift the limit.
                if let Some(cost) = replied.cost.filter(|cost| *cost >= 0.0) {
                    spent.cost = Some(cost + spent.cost.unwrap_or(0.0));
                }
                contexts.push((replied.turn, replied.usage.total()));
            }
            Event::Observed(observed) => {
                spent.tool_ms = spent.tool_ms.saturating_add(observed.millis);
            }
            Event::Resumed { turn } => contexts.retain(|(at, _)| at <= turn),
            // Includes calls that were cut short.
            Event::Ended(ended) => {
                spent.model_ms = spent.model_ms.max(ended.spent.model_ms);
                spent.tool_ms = spent.tool_ms.max(ended.spent.tool_ms);
            }
            _ => {}
        }
    }
    spent.context = contexts.last().map_or(0, |(_, context)| *context);
    spent
}
