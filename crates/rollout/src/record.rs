//! What is left of a finished episode: its tokens, how it ended, what it is worth.
//!
//! Plain data. What advantages and losses are made of it is the trainer's business.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trajectory::Line;

/// A sequence of tokens as the policy saw and continued it. The first are a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// All tokens, in order.
    pub tokens: Vec<u32>,
    /// For each: whether the policy sampled it. These are trained on.
    pub sampled: Vec<bool>,
    /// For each: the log-probability with which it was sampled; 0 where it was not.
    pub logprobs: Vec<f32>,
}

impl Segment {
    /// Tokens the policy sampled.
    pub fn response_tokens(&self) -> usize {
        self.sampled.iter().filter(|sampled| **sampled).count()
    }

    /// Tokens before the first that the policy sampled.
    pub fn prompt_tokens(&self) -> usize {
        self.sampled.iter().take_while(|sampled| !**sampled).count()
    }

    /// Tokens that came in between.
    pub fn environment_tokens(&self) -> usize {
        self.tokens.len() - self.prompt_tokens() - self.response_tokens()
    }
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The policy declared its work done; in mode `llm`, it ended its reply.
    Submitted,
    /// It took all its turns.
    MaxTurns,
    /// It reached its limit of tokens.
    Truncated,
    /// Its time was up.
    Timeout,
    /// It kept talking without a call that could be understood.
    NoCalls,
    /// Something broke. On our side: then it says nothing about the policy and has no reward. Or, again and again, the
    /// sandbox in which it acted, or the command that grades its answer: then it is worth nothing.
    Infrastructure,
}

/// Whether the tokens of an episode are trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// They are.
    Counted,
    /// They are left out, while the reward stays in the group.
    Masked,
}

/// One finished episode.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// The id of its problem.
    pub problem: String,
    /// Which of the group it is, from 0.
    pub member: u32,
    /// Its tokens. More than one where the context was not always an extension of the former one.
    #[serde(skip)]
    pub segments: Vec<Segment>,
    /// How it ended.
    pub end: End,
    /// What it is worth to the trainer; none where it leaves its group.
    pub reward: Option<f64>,
    /// What its answer is worth, however it ended.
    pub raw_reward: Option<f64>,
    /// Whether its tokens are trained on.
    pub loss: Loss,
    /// What failed, where something did.
    pub why: Option<String>,
    /// Its answer.
    pub answer: String,
    /// Replies of the policy.
    pub turns: u32,
    /// Calls it wrote.
    pub calls: u32,
    /// Of these, calls that could be understood.
    pub valid_calls: u32,
    /// Replies without any call.
    pub silent_turns: u32,
    /// Tokens of the first prompt.
    pub prompt_tokens: usize,
    /// Tokens the policy sampled.
    pub response_tokens: usize,
    /// Tokens it was shown in between.
    pub environment_tokens: usize,
    /// How often it was tried.
    pub tries: u32,
    /// Milliseconds from its first try to its end, waiting for a sandbox included.
    pub wall_ms: u64,
    /// Its events, as the file has them.
    #[serde(skip)]
    pub events: Vec<Line>,
    /// The file of its events, where it is kept.
    pub file: Option<PathBuf>,
}

/// The episodes of one problem.
#[derive(Clone, Debug)]
pub struct Group {
    /// The id of the problem.
    pub problem: String,
    /// All members, those that left the group included, in order.
    pub members: Vec<Played>,
}

impl Group {
    /// The members that have a reward.
    pub fn present(&self) -> impl Iterator<Item = &Played> {
        self.members.iter().filter(|played| played.reward.is_some())
    }

    /// Whether rewards differ: otherwise there is nothing to learn from it.
    pub fn has_spread(&self) -> bool {
        let mut rewards = self.present().filter_map(|played| played.reward);
        let first = rewards.next();
        first.is_some_and(|first| rewards.any(|reward| reward != first))
    }
}
