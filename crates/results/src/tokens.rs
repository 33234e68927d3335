//! Tokens of an episode by who wrote them, from its events. Knows no tokenizer: servers count whole calls, and
//! what belongs to whom follows from how the calls grow.

use trajectory::{Assistant, Event, Line, Message, Usage};

use crate::Tokens;

/// Bytes that make up a token, roughly, in what no server has counted.
const BYTES_PER_TOKEN: u64 = 4;

impl Tokens {
    /// The tokens of an episode. Turns that were forgotten when a process died are left out.
    ///
    /// `prompt` is what the first call read, the descriptions of tools included. `model` is what all calls wrote,
    /// thinking included. `environment` is what each call read beyond the call before it: its input, less the input
    /// and the reply before. Some servers drop old thinking; of both readings the one counts that is nearer to the
    /// length of what the computer answered. Where old results were shortened in between, where the input did not
    /// grow, and for what no later call read, that length itself counts, four bytes a token.
    pub fn of(lines: &[Line]) -> Self {
        let mut tokens = Self::default();
        let turns = turns(lines);
        for (at, turn) in turns.iter().enumerate() {
            tokens.model = tokens.model.saturating_add(turn.usage.output);
            let seen = match turns.get(at + 1) {
                Some(next) if !next.after_compaction => turn.seen(next.usage.input),
                _ => turn.observed,
            };
            tokens.environment = tokens.environment.saturating_add(seen);
        }
        tokens.prompt = match turns.first() {
            Some(first) if first.usage.input > 0 => first.usage.input,
            _ => opening(lines),
        };
        tokens
    }
}

/// One reply and what came of it.
struct Turn {
    number: u32,
    usage: Usage,
    /// Of the tokens written, those of thinking.
    thinking: u64,
    /// Old results were shortened before this call.
    after_compaction: bool,
    /// Tokens of what the computer answered, estimated.
    observed: u64,
}

impl Turn {
    /// What the computer answered, when the next call read so much.
    fn seen(&self, next: u64) -> u64 {
        let kept = self.usage.input.saturating_add(self.usage.output);
        let dropped = kept.saturating_sub(self.thinking);
        [kept, dropped]
            .into_iter()
            .filter_map(|before| next.checked_sub(before))
            .min_by_key(|grown| grown.abs_diff(self.observed))
            .unwrap_or(self.observed)
    }
}

fn turns(lines: &[Line]) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut after_compaction = false;
    for line in lines {
        match &line.event {
            Event::Started(_) => turns.clear(),
            Event::Compacted { .. } => after_compaction = true,
            Event::Responded(replied) => turns.push(Turn {
                number: replied.turn,
                usage: replied.usage,
                thinking: thinking(&replied.message, &replied.usage),
                after_compaction: std::mem::take(&mut after_compaction),
                observed: 0,
            }),
            Event::Observed(observed) => {
                if let Some(turn) = turns.last_mut() {
                    turn.observed = turn.observed.saturating_add(estimate(&observed.message));
                }
            }
            Event::Resumed { turn } => {
                turns.retain(|kept| kept.number <= *turn);
                after_compaction = false;
            }
            _ => {}
        }
    }
    turns
}

/// The server's word, or the share of the thinking in the text.
fn thinking(message: &Assistant, usage: &Usage) -> u64 {
    if usage.reasoning > 0 {
        return usage.reasoning.min(usage.output);
    }
    let (part, whole) = (message.reasoning.len() as u128, message.size().max(1) as u128);
    u64::try_from(u128::from(usage.output) * part / whole).unwrap_or(usage.output)
}

fn opening(lines: &[Line]) -> u64 {
    let started = lines.iter().find_map(|line| match &line.event {
        Event::Started(started) => Some(started),
        _ => None,
    });
    started.map_or(0, |started| started.messages.iter().map(estimate).sum())
}

fn estimate(message: &Message) -> u64 {
    (message.size() as u64).div_ceil(BYTES_PER_TOKEN)
}

#[cfg(test)]
mod tests {
    use trajectory::{Observed, Responded, Started, Stop};

    use super::*;

    fn started(text: &str) -> Event {
        Event::Started(Box::new(Started {
            problem_statement: text.into(),
            messages: vec![Message::user(text)],
            model: "m".into(),
            settings: serde_json::Value::Null,
            protection: serde_json::Value::Null,
            program: String::new(),
        }))
    }

    fn replied(turn: u32, input: u64, output: u64) -> Event {
        reply(turn, Usage { input, output, ..Usage::default() }, "")
    }

    fn reply(turn: u32, usage: Usage, reasoning: &str) -> Event {
        let message = Assistant { reasoning: reasoning.into(), ..Assistant::default() };
        let stop = Stop::ToolCalls;
        let replied =
            Responded { turn, message, stop, usage, cost: None, millis: 1, from_cache: false };
        Event::Responded(Box::new(replied))
    }

    fn observed(turn: u32, bytes: usize) -> Event {
        let message = Message::user("x".repeat(bytes));
        Event::Observed(Box::new(Observed { turn, message, exit_code: None, millis: 1 }))
    }

    #[track_caller]
    fn check(events: Vec<Event>, prompt: u64, model: u64, environment: u64) {
        let lines: Vec<Line> = events.into_iter().map(|event| Line::new(0, event)).collect();
        assert_eq!(Tokens::of(&lines), Tokens { prompt, model, environment });
    }

    #[test]
    fn a_plain_reply_has_no_environment() {
        check(vec![started("hello"), replied(1, 100, 40)], 100, 40, 0);
    }

    #[test]
    fn nothing_comes_of_nothing() {
        check(vec![], 0, 0, 0);
        check(vec![started(&"x".repeat(40))], 10, 0, 0);
    }

    #[test]
    fn the_environment_is_what_the_input_grows_beyond_the_replies() {
        let events = vec![
            started("p"),
            replied(1, 100, 10),
            observed(1, 80),
            replied(2, 131, 20),
            observed(2, 400),
            replied(3, 260, 5),
            observed(3, 9),
        ];
        check(events, 100, 35, 21 + 109 + 3);
    }

    #[test]
    fn cached_tokens_are_part_of_the_input() {
        let usage = Usage { input: 200, cached: 180, output: 5, ..Usage::default() };
        let events = vec![started("p"), replied(1, 150, 10), observed(1, 160), reply(2, usage, "")];
        check(events, 150, 15, 40);
    }

    #[test]
    fn dropped_thinking_does_not_hide_what_the_computer_answered() {
        let usage = Usage { input: 100, output: 500, reasoning: 480, ..Usage::default() };
        let dropped = vec![started("p"), reply(1, usage, ""), observed(1, 400), replied(2, 225, 7)];
        check(dropped, 100, 507, 105);
        let kept = vec![started("p"), reply(1, usage, ""), observed(1, 400), replied(2, 705, 7)];
        check(kept, 100, 507, 105);
        let unsaid = Usage { input: 100, output: 500, ..Usage::default() };
        let shown = reply(1, unsaid, &"t".repeat(96));
        check(vec![started("p"), shown, observed(1, 400), replied(2, 205, 7)], 100, 507, 105);
    }

    #[test]
    fn a_shortened_past_is_estimated() {
        let compacted = Event::Compacted { turn: 2, messages: 3 };
        let events = vec![
            started("p"),
            replied(1, 1000, 10),
            observed(1, 400),
            compacted,
            replied(2, 300, 10),
            observed(2, 40),
            replied(3, 320, 1),
        ];
        check(events, 1000, 21, 100 + 10);
        let silent =
            vec![started("p"), replied(1, 1000, 10), observed(1, 400), replied(2, 300, 10)];
        check(silent, 1000, 20, 100);
    }

    #[test]
    fn forgotten_turns_do_not_count() {
        let events = vec![
            started("p"),
            replied(1, 100, 10),
            observed(1, 80),
            replied(2, 130, 1000),
            Event::Resumed { turn: 1 },
            observed(1, 20),
            replied(2, 136, 4),
        ];
        check(events, 100, 14, 26);
    }

    #[test]
    fn absurd_figures_end_nothing() {
        let events = vec![
            started("p"),
            replied(1, u64::MAX, u64::MAX),
            observed(1, 8),
            reply(2, Usage { reasoning: u64::MAX, output: u64::MAX, ..Usage::default() }, "x"),
            replied(3, 0, u64::MAX),
        ];
        check(events, u64::MAX, u64::MAX, 2);
    }
}
