//! Reconstructs the conversation of an episode from its events.

use crate::{Event, Line, Message};

/// The messages of an episode, and its last complete turn: one with its response and all tool results.
///
/// A turn in which the process died is left out.
pub fn history(lines: &[Line]) -> (Vec<Message>, u32) {
    let mut messages = Vec::new();
    let mut complete = (0, 0);
    // The length of the history after each turn.
    let mut ends: Vec<(u32, usize)> = Vec::new();
    let mut open = 0;
    for line in lines {
        match &line.event {
            Event::Started(started) => {
                messages.clone_from(&started.messages);
                complete = (messages.len(), 0);
                ends = vec![(0, messages.len())];
            }
            Event::Responded(replied) => {
                open = replied.message.calls.len().max(1);
                messages.push(Message::Assistant(replied.message.clone()));
            }
            Event::Observed(observed) => {
                messages.push(observed.message.clone());
                open = open.saturating_sub(1);
                if open == 0 {
                    complete = (messages.len(), observed.turn);
                    ends.push((observed.turn, messages.len()));
                }
            }
            Event::Resumed { turn } => {
                ends.retain(|(at, _)| at <= turn);
                complete = ends.last().map_or((0, 0), |(at, length)| (*length, *at));
                messages.truncate(complete.0);
                open = 0;
            }
            _ => {}
        }
    }
    messages.truncate(complete.0);
    (messages, complete.1)
}

/// How many of the first messages were shortened for the model in the last complete turn.
///
/// A decision for a turn in which the process died is ignored: it follows again from the history.
pub fn compacted(lines: &[Line]) -> usize {
    let (_, complete) = history(lines);
    let mut decided: Vec<(u32, usize)> = Vec::new();
    for line in lines {
        match line.event {
            Event::Compacted { turn, messages } => decided.push((turn, messages)),
            Event::Resumed { turn } => decided.retain(|(at, _)| *at <= turn),
            _ => {}
        }
    }
    decided.iter().rev().find(|(turn, _)| *turn <= complete).map_or(0, |(_, messages)| *messages)
}
