//! A finished rollout: its tokens, its end and its reward. Plain data; advantages and losses are the trainer's business.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trajectory::Line;

/// A sequence of tokens as the policy saw and continued it. The first ones are the prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// All tokens, in order.
    pub tokens: Vec<u32>,
    /// Whether the policy sampled each token. These are trained on.
    pub sampled: Vec<bool>,
    /// The log-probability with which each token was sampled; 0 where it was not.
    pub logprobs: Vec<f32>,
    /// The version of the policy that sampled each token, as the sampler counts them; 0 where it was not sampled.
    pub versions: Vec<u32>,
}

impl Segment {
    /// Tokens the policy sampled.
    pub fn response_tokens(&self) -> usize {
        self.sampled.iter().filter(|sampled| **sampled).count()
    }

    /// Tokens that another version of the policy sampled.
    pub fn tokens_of_others(&self, version: u32) -> usize {
        let versions = self.sampled.iter().zip(&self.versions);
        versions.filter(|(sampled, other)| **sampled && **other != version).count()
    }

    /// Tokens before the first that the policy sampled.
    pub fn prompt_tokens(&self) -> usize {
        self.sampled.iter().take_while(|sampled| !**sampled).count()
    }

    /// Tokens of the environment in between.
    pub fn environment_tokens(&self) -> usize {
        self.tokens.len() - self.prompt_tokens() - self.response_tokens()
    }
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The policy submitted; in mode `llm`, it ended its response.
    Submitted,
    /// The turn limit was reached.
    MaxTurns,
    /// The token limit was reached.
    Truncated,
    /// The time limit was reached.
    Timeout,
    /// It repeatedly wrote no valid tool call.
    NoCalls,
    /// The infrastructure failed, and there is no reward; or the policy broke its sandbox or its grader every time, and the
    /// reward is 0.
    Infrastructure,
}

/// Whether the tokens of an episode are trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// They are trained on.
    Counted,
    /// They are left out, while the reward stays in the group.
    Masked,
}

/// One finished rollout.
#[derive(Clone, Debug, Serialize)]
pub struct Rollout {
    /// The id of its problem.
    pub problem: String,
    /// The position in its group, from 0.
    pub member: u32,
    /// Its tokens. More than one segment where the context did not always extend the previous one.
    #[serde(skip)]
    pub segments: Vec<Segment>,
    /// How it ended.
    pub end: End,
    /// The reward for training; none where it leaves its group.
    pub reward: Option<f64>,
    /// The reward of its answer, however it ended.
    pub raw_reward: Option<f64>,
    /// Whether its tokens are trained on.
    pub loss: Loss,
    /// What failed, where something did.
    pub why: Option<String>,
    /// Its answer.
    pub answer: String,
    /// Responses of the policy.
    pub turns: u32,
    /// Tool calls it wrote.
    pub calls: u32,
    /// Of these, valid ones.
    pub valid_calls: u32,
    /// Responses without a tool call.
    pub silent_turns: u32,
    /// Tokens of the first prompt.
    pub prompt_tokens: usize,
    /// Tokens the policy sampled.
    pub response_tokens: usize,
    /// Tokens of the environment in between.
    pub environment_tokens: usize,
    /// The number of tries.
    pub tries: u32,
    /// Milliseconds from the first try to the end, waiting for a sandbox included.
    pub wall_ms: u64,
    /// Its events.
    #[serde(skip)]
    pub events: Vec<Line>,
    /// The file of its events, where there is one.
    pub file: Option<PathBuf>,
}

/// The rollouts of one problem.
#[derive(Clone, Debug)]
pub struct Group {
    /// The id of the problem.
    pub problem: String,
    /// All members, those that left the group included, in order.
    pub members: Vec<Rollout>,
}

impl Group {
    /// The members that have a reward.
    pub fn present(&self) -> impl Iterator<Item = &Rollout> {
        self.members.iter().filter(|rollout| rollout.reward.is_some())
    }

    /// Whether rewards differ: otherwise its advantages are all 0.
    pub fn has_spread(&self) -> bool {
        let mut rewards = self.present().filter_map(|rollout| rollout.reward);
        let first = rewards.next();
        first.is_some_and(|first| rewards.any(|reward| reward != first))
    }
}
