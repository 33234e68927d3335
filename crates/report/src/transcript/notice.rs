//! Events of an episode that are not steps but explain them: failed requests, shortened messages, resumed processes.

use std::collections::BTreeMap;

use trajectory::{Event, Line, Stop};

use super::text::{counted, time};
use crate::text::excerpt;

/// Characters of an error.
const ERROR: usize = 500;
/// Notices of one turn.
const EACH: usize = 10;

/// Something that happened in a turn besides its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The turn, from 1; 0 for the whole episode.
    pub turn: u32,
    /// One sentence of bounded length, without invisible characters; not escaped.
    pub text: String,
}

/// The notices of an episode, in the order of turns, at most ten of each turn.
pub fn notices(lines: &[Line]) -> Vec<Notice> {
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut unknown = 0;
    for line in lines {
        let (turn, text) = match &line.event {
            Event::Retried { turn, attempt, wait_ms, why } => {
                let (why, wait) = (excerpt(why, ERROR), time(*wait_ms));
                (
                    *turn,
                    format!("Request {attempt} to the model failed: {why}. Retried after {wait}."),
                )
            }
            Event::Compacted { turn, messages } => {
                let messages = counted(*messages, "message");
                (
                    *turn,
                    format!("Tool results in the first {messages} were shortened for the model."),
                )
            }
            Event::Resumed { turn } => {
                found.retain(|at, _| at <= turn);
                let next = turn.saturating_add(1);
                (next, format!("The process ended here. Another one resumed after turn {turn}."))
            }
            Event::Responded(replied) => match &replied.stop {
                Stop::End | Stop::ToolCalls | Stop::Length => continue,
                Stop::Refusal => (replied.turn, "The model or its server refused.".to_owned()),
                Stop::Other(why) => {
                    let why = excerpt(why, ERROR);
                    (replied.turn, format!("The server stopped the response: {why}."))
                }
            },
            Event::Unknown => {
                unknown += 1;
                continue;
            }
            _ => continue,
        };
        let texts = found.entry(turn).or_default();
        if texts.len() < EACH {
            texts.push(text);
        }
    }
    if unknown > 0 {
        let events = counted(unknown, "event");
        let text = format!("{events} of a kind this version does not know: not shown.");
        found.entry(0).or_default().push(text);
    }
    let all = found.into_iter();
    all.flat_map(|(turn, texts)| texts.into_iter().map(move |text| Notice { turn, text })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_episode_keeps_only_what_counts() {
        let retried = |turn, attempt| Event::Retried {
            turn,
            attempt,
            wait_ms: 1500,
            why: "503\u{1b}[2J".into(),
        };
        let events = [
            retried(1, 1),
            retried(3, 1),
            Event::Resumed { turn: 1 },
            Event::Compacted { turn: 2, messages: 4 },
            Event::Unknown,
        ];
        let lines = events.map(|event| Line::new(0, event));
        let shown: Vec<(u32, String)> =
            notices(&lines).into_iter().map(|notice| (notice.turn, notice.text)).collect();
        let expected = [
            (0, "1 event of a kind this version does not know: not shown."),
            (1, "Request 1 to the model failed: 503\\u{1b}[2J. Retried after 1.5 s."),
            (2, "The process ended here. Another one resumed after turn 1."),
            (2, "Tool results in the first 4 messages were shortened for the model."),
        ];
        assert_eq!(shown, expected.map(|(turn, text)| (turn, text.to_owned())));
    }

    #[test]
    fn a_flood_of_failures_is_bounded() {
        let event = Event::Retried { turn: 1, attempt: 1, wait_ms: 1, why: "x".repeat(1 << 20) };
        let lines = vec![Line::new(0, event); 100];
        let shown = notices(&lines);
        assert!(shown.len() == EACH && shown.iter().all(|notice| notice.text.len() < 600));
    }
}
