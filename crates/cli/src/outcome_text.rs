//! How episodes end, in words for people, with the option that sets the limit. Files keep the short names.

use std::time::Duration;

use agent::Limits;
use serde::Deserialize;
use serde_json::Value;
use trajectory::{Mode, Outcome};

/// The limits of an episode, as far as they are known. Recorded limits come from a file and may be anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct KnownLimits {
    turns: Option<u32>,
    tokens: Option<u64>,
    plain_tokens: Option<u64>,
    time: Option<Duration>,
    cost: Option<f64>,
    misses: Option<u32>,
}

impl KnownLimits {
    /// The limits among recorded settings, of a run or of a benchmark's attempt.
    pub(crate) fn recorded(settings: &Value) -> Self {
        let limits = ["limits", "caps"].into_iter().find_map(|key| settings.get(key));
        limits.and_then(|limits| Self::deserialize(limits).ok()).unwrap_or_default()
    }
}

impl From<&Limits> for KnownLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            turns: Some(limits.turns),
            tokens: Some(limits.tokens),
            plain_tokens: None,
            time: limits.time,
            cost: limits.cost,
            misses: Some(limits.misses),
        }
    }
}

/// An outcome in words, such as `out of turns (--max-turns 20)`. The cause of a failure is not sanitized.
pub(crate) fn outcome_text(outcome: &Outcome, limits: &KnownLimits, mode: Mode) -> String {
    let option = |name: &str, value: Option<String>| match value {
        Some(value) => format!("(--{name} {value})"),
        None => format!("(--{name})"),
    };
    match outcome {
        Outcome::Submitted if mode == Mode::Llm => "answered".to_owned(),
        Outcome::Submitted => "submitted".to_owned(),
        Outcome::MaxTurns => {
            format!("out of turns {}", option("max-turns", limits.turns.map(|n| n.to_string())))
        }
        Outcome::MaxTokens => {
            let (name, limit) = match mode {
                Mode::Llm => ("max-response-len", limits.plain_tokens),
                Mode::Sandbox => ("max-tokens", limits.tokens),
            };
            format!("out of tokens {}", option(name, limit.map(|n| n.to_string())))
        }
        Outcome::ContextFull => "the model's context is full (--compact shortens it)".to_owned(),
        Outcome::Deadline => {
            format!("out of time {}", option("deadline", limits.time.map(duration)))
        }
        Outcome::Cost => {
            format!("out of budget {}", option("max-cost", limits.cost.map(|usd| usd.to_string())))
        }
        Outcome::NoToolCalls => match limits.misses {
            Some(misses) => format!("no usable tool call in {misses} turns in a row"),
            None => "no usable tool call in several turns in a row".to_owned(),
        },
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::Infrastructure { cause, .. } => format!("failed: {cause}"),
    }
}

/// A duration as options take it: `500ms`, `90`, `30m`, `2h`.
fn duration(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (_, 1..) => format!("{}ms", time.as_millis()),
        (0, 0) => "0".to_owned(),
        (seconds, 0) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (seconds, 0) if seconds % 60 == 0 => format!("{}m", seconds / 60),
        (seconds, 0) => seconds.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trajectory::Fault;

    use super::*;

    #[test]
    fn limits_name_the_option_that_sets_them() {
        let limits = Limits {
            turns: 1,
            tokens: 2000,
            time: Some(Duration::from_secs(1800)),
            cost: Some(0.5),
            ..Limits::default()
        };
        let known = KnownLimits::from(&limits);
        let text = |outcome| outcome_text(&outcome, &known, Mode::Sandbox);
        assert_eq!(text(Outcome::MaxTurns), "out of turns (--max-turns 1)");
        assert_eq!(text(Outcome::MaxTokens), "out of tokens (--max-tokens 2000)");
        assert_eq!(text(Outcome::Deadline), "out of time (--deadline 30m)");
        assert_eq!(text(Outcome::Cost), "out of budget (--max-cost 0.5)");
        assert_eq!(text(Outcome::NoToolCalls), "no usable tool call in 5 turns in a row");
        let failed = Outcome::Infrastructure { cause: "no disk".into(), fault: Fault::Storage };
        assert_eq!(text(failed), "failed: no disk");
    }

    #[test]
    fn recorded_limits_of_runs_and_benchmarks_are_read() {
        let run = json!({"limits": Limits { turns: 7, ..Limits::default() }});
        let known = KnownLimits::recorded(&run);
        let text = outcome_text(&Outcome::MaxTurns, &known, Mode::Sandbox);
        assert_eq!(text, "out of turns (--max-turns 7)");
        // A benchmark without this option has the task's limit, which is not recorded.
        let caps = json!({"caps": {"turns": null, "plain_tokens": 64, "time": null}});
        let known = KnownLimits::recorded(&caps);
        let text = |mode, outcome| outcome_text(&outcome, &known, mode);
        assert_eq!(text(Mode::Sandbox, Outcome::MaxTurns), "out of turns (--max-turns)");
        let plain = text(Mode::Llm, Outcome::MaxTokens);
        assert_eq!(plain, "out of tokens (--max-response-len 64)");
        let hostile = json!({"limits": {"turns": "\u{1b}[2J", "cost": []}});
        assert_eq!(KnownLimits::recorded(&hostile), KnownLimits::default());
    }

    #[test]
    fn durations_are_as_options_take_them() {
        for (millis, text) in
            [(0, "0"), (500, "500ms"), (90_000, "90"), (120_000, "2m"), (7_200_000, "2h")]
        {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }
}
