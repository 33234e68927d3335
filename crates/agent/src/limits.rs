//! What an episode may use up, and which limit it has reached.

use std::{ops::ControlFlow, time::Duration};

use serde::{Deserialize, Serialize};
use trajectory::{Outcome, Spent};

/// What an episode may use up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Replies of the model.
    pub turns: u32,
    /// Tokens of one reply.
    pub tokens_per_call: u64,
    /// Tokens of the whole conversation.
    pub tokens: u64,
    /// Time, waiting for the model included.
    pub time: Option<Duration>,
    /// Dollars.
    pub cost: Option<f64>,
    /// Replies in a row without a tool call that makes sense.
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
    /// Ends an episode that has used up what it may.
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

    /// The most tokens the next reply may have.
    pub(crate) fn next_reply(&self, spent: &Spent) -> u64 {
        self.tokens_per_call.min(self.tokens.saturating_sub(spent.context)).max(1)
    }

    /// What the model is told about its turns, at the end of what it gets to see.
    pub(crate) fn countdown(&self, spent: &Spent) -> String {
        match self.turns.saturating_sub(spent.turns) {
            0 => "[no steps remaining]".to_owned(),
            1 => "[1 step remaining: leave your answer in its place and submit now]".to_owned(),
            left => format!("[{left} steps remaining]"),
        }
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
    }

    #[test]
    fn a_reply_never_outgrows_the_conversation() {
        let limits = Limits { tokens: 100, tokens_per_call: 60, ..Limits::default() };
        assert_eq!(limits.next_reply(&spent(0, 10, 0.0)), 60);
        assert_eq!(limits.next_reply(&spent(0, 70, 0.0)), 30);
    }

    #[test]
    fn the_model_is_told_how_many_steps_remain() {
        let limits = Limits { turns: 3, ..Limits::default() };
        assert_eq!(limits.countdown(&spent(1, 0, 0.0)), "[2 steps remaining]");
        assert!(limits.countdown(&spent(2, 0, 0.0)).contains("submit now"));
    }
}
