//! The turns of an episode, and how much of each fits on a page.

use serde_json::Value;
use trajectory::{Step, Trajectory};

use super::cut::weight;

/// Bytes of all texts of the turns on a page.
pub(super) const BUDGET: usize = 4 << 20;
/// Bytes of one text, from what is comfortable down to what is still of use.
const ROOMS: [usize; 8] = [64 << 10, 32 << 10, 16 << 10, 8 << 10, 4 << 10, 2 << 10, 1 << 10, 512];
/// Bytes of markup around a text.
const MARKUP: usize = 150;
/// Steps shown of one turn.
pub(super) const STEPS: usize = 64;

/// A turn: one response of the model, with one step for each of its tool calls.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// Its number, where the record has it.
    pub(super) number: Option<u64>,
    /// Number of its first step, from 1.
    pub(super) first: usize,
    /// Its steps: at least one.
    pub(super) steps: &'a [Step],
}

impl<'a> Turn<'a> {
    /// Number of its last step.
    pub(super) fn last(&self) -> usize {
        self.first + self.steps.len() - 1
    }

    /// The steps that are shown.
    pub(super) fn shown(&self) -> &'a [Step] {
        &self.steps[..self.steps.len().min(STEPS)]
    }

    /// Heading: `Step 5 (turn 4)`.
    pub(super) fn title(&self) -> String {
        let steps = match (self.first, self.last()) {
            (first, last) if first == last => format!("Step {first}"),
            (first, last) => format!("Steps {first}–{last}"),
        };
        match self.number {
            Some(turn) => format!("{steps} (turn {turn})"),
            None => steps,
        }
    }
}

/// The turns of an episode.
pub(super) fn turns(trajectory: &Trajectory) -> Vec<Turn<'_>> {
    let same = |a: &Step, b: &Step| turn_of(a).is_some() && turn_of(a) == turn_of(b);
    let mut first = 1;
    let turns = trajectory.steps.chunk_by(same).map(|steps| {
        let turn = Turn { number: turn_of(&steps[0]), first, steps };
        first += steps.len();
        turn
    });
    turns.collect()
}

/// The turn of a step, from 1, where the record has it.
pub(super) fn turn_of(step: &Step) -> Option<u64> {
    step.metadata.get("turn").and_then(Value::as_u64)
}

/// How much of an episode is shown.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// Bytes of one text.
    pub(super) room: usize,
    /// Turns shown from the start.
    pub(super) head: usize,
    /// Turns shown from the end.
    pub(super) tail: usize,
}

/// Decides how much is shown: all turns, with shorter texts if need be; if they are too many, the first and the last.
pub(super) fn plan(turns: &[Turn<'_>]) -> Plan {
    plan_within(turns, BUDGET)
}

/// The same with another number of bytes for all texts.
pub(super) fn plan_within(turns: &[Turn<'_>], budget: usize) -> Plan {
    let weights: Vec<Vec<usize>> = turns.iter().map(weights).collect();
    let cost = |turn: &Vec<usize>, room: usize| -> usize {
        turn.iter().map(|weight| *weight.min(&room) + MARKUP).sum()
    };
    let all = |room: usize| weights.iter().map(|turn| cost(turn, room)).sum::<usize>();
    if let Some(room) = ROOMS.into_iter().find(|room| all(*room) <= budget) {
        return Plan { room, head: turns.len(), tail: 0 };
    }
    let room = ROOMS[ROOMS.len() - 1];
    let (mut head, mut tail, mut sum) = (0, 0, 0);
    while head + tail < turns.len() {
        let from_end = tail < head;
        let next = if from_end { turns.len() - 1 - tail } else { head };
        sum += cost(&weights[next], room);
        if sum > budget {
            break;
        }
        *(if from_end { &mut tail } else { &mut head }) += 1;
    }
    Plan { room, head, tail }
}

/// The bytes that each text of a turn takes on the page, at most.
fn weights(turn: &Turn<'_>) -> Vec<usize> {
    let most = ROOMS[0];
    let mut weights = Vec::new();
    for step in turn.shown() {
        weights.extend([&step.reasoning_content, &step.thought].map(|text| weight(text, most)));
        strings(&step.action.parameters, &mut |text| weights.push(weight(text, most)));
        weights.push(weight(&step.observation, most));
    }
    weights
}

/// All strings of a value, and the names of its parts.
fn strings(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, visit)),
        Value::Object(map) => map.iter().for_each(|(name, item)| {
            visit(name);
            strings(item, visit);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn steps(turns: impl Iterator<Item = (Option<u64>, usize)>) -> Trajectory {
        let steps = turns.map(|(turn, size)| {
            let metadata = turn.map(|turn| ("turn".to_owned(), json!(turn))).into_iter().collect();
            Step { observation: "x".repeat(size), metadata, ..Step::default() }
        });
        Trajectory { steps: steps.collect(), ..Trajectory::default() }
    }

    #[test]
    fn steps_and_turns_have_one_numbering() {
        let calls = [Some(1), Some(2), Some(2), Some(2), Some(3), None, None];
        let record = steps(calls.into_iter().map(|turn| (turn, 1)));
        let titles: Vec<String> = turns(&record).iter().map(Turn::title).collect();
        let expected =
            ["Step 1 (turn 1)", "Steps 2–4 (turn 2)", "Step 5 (turn 3)", "Step 6", "Step 7"];
        assert_eq!(titles, expected);
    }

    #[test]
    fn texts_become_shorter_before_turns_are_left_out() {
        let few = steps((1..=10).map(|turn| (Some(turn), 1 << 20)));
        let room = ROOMS[0];
        assert_eq!(plan(&turns(&few)), Plan { room, head: 10, tail: 0 });
        let more = steps((1..=200).map(|turn| (Some(turn), 1 << 16)));
        assert_eq!(plan(&turns(&more)), Plan { room: 16 << 10, head: 200, tail: 0 });
        let many = steps((1..=10_000).map(|turn| (Some(turn), 600)));
        let Plan { room, head, tail } = plan(&turns(&many));
        assert!(room == 512 && head > 1000 && head.abs_diff(tail) <= 1, "{head} {tail}");
        assert_eq!(plan(&[]), Plan { room: ROOMS[0], head: 0, tail: 0 });
    }
}
