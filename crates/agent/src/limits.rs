//! The limits of an episode, and which of them is reached.

use std::{ops::ControlFlow, time::Duration};

use serde::{Deserialize, Serialize};
use trajectory::{Outcome, Spent};

/// The limits of an episode. Reaching one ends it with the outcome of that limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Responses of the model; 100 by default.
    pub turns: u32,
    /// Tokens of one response; 65,536 by default. What is longer is cut off, and the episode continues.
    pub tokens_per_call: u64,
    /// Tokens of the whole conversation, as the model's server counts them; 65,536 by default.
    pub tokens: u64,
    /// Time spent in calls to the model and to tools. Waiting for a permit to call the model does not count.
    pub time: Option<Duration>,
    /// Dollars. Has no effect where the model's price is not known.
    pub cost: Option<f64>,
    /// Turns in a row without a usable tool call; 5 by default.
    pub misses: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: 100,
            tokens_per_call: 65_536,
            tokens: 65_536,
            time: None,
            cost: None,
            misses: 5,
        }
    }
}

impl Limits {
    /// Breaks with the outcome of the limit that is reached, if one is.
    pub(crate) fn check(&self, spent: &Spent, misses: u32) -> ControlFlow<Outcome> {
        let out_of_money = self.cost.zip(spent.cost).is_some_and(|(limit, cost)| cost >= limit);
        ControlFlow::Break(if misses >= self.misses {
            Outcome::NoToolCalls
        } else if spent.turns >= self.turns {
            Outcome::MaxTurns
        } else if spent.context >= self.tokens {
            Outcome::MaxTokens
        } else if out_of_money {
            Outcome::Cost
        } else {
            return ControlFlow::Continue(());
        })
    }

    /// The limit that an episode with this usage has reached, if any. For one that is to be resumed: while it runs,
    /// its deadline is a timer.
    pub fn reached(&self, spent: &Spent) -> Option<Outcome> {
        let used = Duration::from_millis(spent.model_ms.saturating_add(spent.tool_ms));
        let out_of_time = self.time.is_some_and(|limit| used >= limit);
        self.check(spent, 0).break_value().or(out_of_time.then_some(Outcome::Deadline))
    }

    /// The most tokens the next response may have.
    pub(crate) fn next_response(&self, spent: &Spent) -> u64 {
        self.tokens_per_call.min(self.tokens.saturating_sub(spent.context)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(turns: u32, context: u64, cost: f64) -> Spent {
        Spent { turns, context, cost: Some(cost), ..Spent::default() }
    }

    #[test]
    fn every_limit_ends_with_its_own_outcome() {
        let limits =
            Limits { turns: 3, tokens: 100, cost: Some(1.0), misses: 2, ..Limits::default() };
        let check = |spent, misses| limits.check(&spent, misses).break_value();
        assert_eq!(check(spent(2, 99, 0.99), 1), None);
        assert_eq!(check(spent(3, 0, 0.0), 0), Some(Outcome::MaxTurns));
        assert_eq!(check(spent(0, 100, 0.0), 0), Some(Outcome::MaxTokens));
        assert_eq!(check(spent(0, 0, 1.0), 0), Some(Outcome::Cost));
        assert_eq!(check(spent(0, 0, 0.0), 2), Some(Outcome::NoToolCalls));
        let unpriced = Spent { cost: None, ..Spent::default() };
        assert_eq!(check(unpriced, 0), None);
        let limits = Limits { time: Some(Duration::from_secs(1)), ..limits };
        let used = |tool_ms| Spent { model_ms: 400, tool_ms, ..Spent::default() };
        assert_eq!(limits.reached(&used(599)), None);
        assert_eq!(limits.reached(&used(600)), Some(Outcome::Deadline));
        assert_eq!(limits.reached(&spent(3, 0, 0.0)), Some(Outcome::MaxTurns));
    }

    #[test]
    fn a_response_never_outgrows_the_conversation() {
        let limits = Limits { tokens: 100, tokens_per_call: 60, ..Limits::default() };
        assert_eq!(limits.next_response(&spent(0, 10, 0.0)), 60);
        assert_eq!(limits.next_response(&spent(0, 70, 0.0)), 30);
    }
}
