//! The limits of a run and the options that set them: which one a resumed run has to raise.

use std::time::Duration;

use agent::Limits;
use trajectory::{Mode, Outcome, Spent};

use super::args::LimitArgs;
use crate::{
    args::limits::EpisodeLimitArgs,
    console::counted,
    exit::UsageError,
    outcome_text::{KnownLimits, outcome_text},
};

/// The option that sets the limit an episode ended with. `None` if it did not end with a limit that can be raised.
pub(crate) fn option_of(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::MaxTurns => Some("--max-turns"),
        Outcome::MaxTokens => Some("--max-tokens"),
        Outcome::Deadline => Some("--deadline"),
        Outcome::Cost => Some("--max-cost"),
        _ => None,
    }
}

/// Whether the limit an episode ended with is higher now than before.
pub(crate) fn is_raised(outcome: &Outcome, before: &Limits, now: &Limits) -> bool {
    match outcome {
        Outcome::MaxTurns => now.turns > before.turns,
        Outcome::MaxTokens => now.tokens > before.tokens,
        Outcome::Deadline => now.time.is_none_or(|time| before.time.is_some_and(|old| time > old)),
        Outcome::Cost => now.cost.is_none_or(|cost| before.cost.is_some_and(|old| cost > old)),
        _ => false,
    }
}

/// The options that continue an episode which ended with this limit: twice the limit.
pub(crate) fn higher(outcome: &Outcome, limits: &Limits) -> Option<String> {
    let option = option_of(outcome)?;
    let value = match outcome {
        Outcome::MaxTurns => limits.turns.saturating_mul(2).to_string(),
        Outcome::MaxTokens => limits.tokens.saturating_mul(2).to_string(),
        Outcome::Deadline => seconds(limits.time?.saturating_mul(2)),
        _ => (limits.cost? * 2.0).to_string(),
    };
    Some(format!("{option} {value}"))
}

/// The error for a limit that does not let a resumed run continue.
pub(crate) fn too_low(limit: &Outcome, limits: &Limits, spent: &Spent) -> UsageError {
    let ended = outcome_text(limit, &KnownLimits::from(limits), Mode::Sandbox);
    let used = match limit {
        Outcome::MaxTurns => counted(spent.turns as usize, "turn"),
        Outcome::MaxTokens => format!("{} tokens", spent.context),
        Outcome::Deadline => {
            let millis = spent.model_ms.saturating_add(spent.tool_ms);
            format!("{} s", seconds(Duration::from_millis(millis)))
        }
        _ => format!("${:.4}", spent.cost.unwrap_or_default()),
    };
    let option = option_of(limit).unwrap_or_default();
    UsageError(format!("cannot resume: the run is {ended}, it used {used}; give a higher {option}"))
}

fn seconds(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

impl LimitArgs {
    /// Whether a limit was given that also applies to a resumed run.
    pub(crate) fn is_given(&self) -> bool {
        let EpisodeLimitArgs { max_turns, max_tokens, max_tokens_per_call, max_cost, .. } =
            &self.episode;
        let tokens = max_tokens.is_some() || max_tokens_per_call.is_some();
        max_turns.is_some() || tokens || max_cost.is_some() || self.deadline.is_some()
    }

    /// Sets the limits that were given.
    pub(crate) fn apply(&self, limits: &mut Limits) {
        let episode = &self.episode;
        limits.turns = episode.max_turns.unwrap_or(limits.turns);
        limits.tokens = episode.max_tokens.unwrap_or(limits.tokens);
        limits.tokens_per_call = episode.max_tokens_per_call.unwrap_or(limits.tokens_per_call);
        limits.cost = episode.max_cost.or(limits.cost);
        limits.time = self.deadline.map_or(limits.time, |deadline| deadline.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suggested_limit_is_higher() {
        let limits = Limits {
            turns: 3,
            tokens: 100,
            time: Some(Duration::from_millis(1500)),
            cost: Some(0.25),
            ..Limits::default()
        };
        let higher = |outcome| higher(&outcome, &limits);
        assert_eq!(higher(Outcome::MaxTurns).unwrap(), "--max-turns 6");
        assert_eq!(higher(Outcome::MaxTokens).unwrap(), "--max-tokens 200");
        assert_eq!(higher(Outcome::Deadline).unwrap(), "--deadline 3");
        assert_eq!(higher(Outcome::Cost).unwrap(), "--max-cost 0.5");
        assert_eq!(higher(Outcome::Submitted), None);
    }
}
