//! What the events of an episode say about continuing it: where it can be resumed, and from which turns it can be forked.

use trajectory::{Ended, Event, Line, Outcome};

/// The prefix of the images with saved files.
pub(crate) const IMAGES: &str = "episode-";

/// The image with an episode's files after a turn.
pub(crate) fn image_after(id: &str, turn: u32) -> String {
    format!("{IMAGES}{}-{turn}", id.trim_start_matches("ep_"))
}

/// The image with the files an episode ended with.
pub(crate) fn image_at_end(id: &str) -> String {
    format!("{IMAGES}{}-end", id.trim_start_matches("ep_"))
}

/// Whether the episode has begun.
pub(crate) fn is_started(lines: &[Line]) -> bool {
    lines.iter().any(|line| matches!(line.event, Event::Started(_)))
}

/// The end of an episode that was neither cancelled nor failed: only its results are missing.
pub(crate) fn ended(lines: &[Line]) -> Option<&Ended> {
    let last = lines.iter().rev().find_map(|line| match &line.event {
        Event::Ended(ended) => Some(Some(ended)),
        Event::Resumed { .. } => Some(None),
        _ => None,
    });
    let stopped = |ended: &Ended| {
        matches!(ended.outcome, Outcome::Cancelled | Outcome::Infrastructure { .. })
    };
    last.flatten().filter(|ended| !stopped(ended))
}

/// The files that were saved last of the turns that still count: the turn and the image.
pub(crate) fn last_saved(lines: &[Line], turns: u32) -> Option<(u32, String)> {
    let turn = |at: &CompleteTurn| Some((at.turn, at.image.clone()?));
    complete_turns(lines).iter().rev().filter(|at| at.turn <= turns).find_map(turn)
}

/// A complete turn of an episode that still counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompleteTurn {
    /// The turn; 0 is the start.
    pub(crate) turn: u32,
    /// How many of the first lines lead up to its end.
    pub(crate) lines: usize,
    /// The image with the files after it.
    pub(crate) image: Option<String>,
}

/// The complete turns, in order. A turn that was played again counts as it was played last, and files saved before that do not
/// count.
pub(crate) fn complete_turns(lines: &[Line]) -> Vec<CompleteTurn> {
    let mut turns: Vec<CompleteTurn> = Vec::new();
    let mut open = 0;
    for (at, line) in lines.iter().enumerate() {
        let complete = |turn| CompleteTurn { turn, lines: at + 1, image: None };
        match &line.event {
            Event::Started(_) => turns = vec![complete(0)],
            Event::Responded(replied) => open = replied.message.calls.len().max(1),
            Event::Observed(observed) => {
                open = open.saturating_sub(1);
                // A message after a resumption belongs to a turn that was complete before.
                if open == 0 && turns.last().is_none_or(|last| last.turn < observed.turn) {
                    turns.push(complete(observed.turn));
                }
            }
            Event::Saved { turn, image } if image.starts_with(IMAGES) => {
                if let Some(found) = turns.iter_mut().find(|at| at.turn == *turn) {
                    found.image = Some(image.clone());
                }
            }
            Event::Resumed { turn } => {
                turns.retain(|at| at.turn <= *turn);
                open = 0;
            }
            _ => {}
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use trajectory::{Assistant, Message, Observed, Responded, Stop, Usage};

    use super::*;

    fn responded(turn: u32) -> Event {
        Event::Responded(Box::new(Responded {
            turn,
            message: Assistant::default(),
            stop: Stop::End,
            usage: Usage::default(),
            cost: None,
            millis: 0,
            from_cache: false,
        }))
    }

    fn observed(turn: u32) -> Event {
        let message = Message::user("x");
        Event::Observed(Box::new(Observed { turn, message, exit_code: None, millis: 0 }))
    }

    fn saved(turn: u32, image: &str) -> Event {
        Event::Saved { turn, image: image.into() }
    }

    #[test]
    fn a_turn_counts_as_it_was_played_last() {
        let events = [
            Event::Started(Box::default()),
            responded(1),
            observed(1),
            saved(1, "episode-a-1"),
            responded(2),
            observed(2),
            saved(2, "episode-a-2"),
            saved(2, "another-image"),
            Event::Resumed { turn: 1 },
            observed(1),
            responded(2),
            observed(2),
            responded(3),
        ];
        let lines: Vec<Line> = events.into_iter().map(|event| Line::new(0, event)).collect();
        let turns = complete_turns(&lines);
        let shown: Vec<(u32, usize, Option<&str>)> =
            turns.iter().map(|at| (at.turn, at.lines, at.image.as_deref())).collect();
        assert_eq!(shown, [(0, 1, None), (1, 3, Some("episode-a-1")), (2, 12, None)]);
        assert_eq!(last_saved(&lines, 2), Some((1, "episode-a-1".into())));
        assert_eq!(last_saved(&lines, 0), None);
    }
}
