//! How episodes are played and sampled, for training and for validation.

use std::time::Duration;

use attempt::LimitSettings;
use model::ToolFormat;
use rollout::{Documents, Mode, Overlong};
use sampling::SamplingParams;
use sandbox::{ByteSize, ImageRef, Network, Spec};
use serde::{Deserialize, Serialize};

use super::{ConfigError, MAX_EPISODES, check};

/// Characters of an observation by default, as in benchmarks.
const DEFAULT_OBSERVATION: usize = 12_000;

/// The default maximum of concurrent sequences without sandboxes.
const MAX_SLOTS: usize = 256;

/// How tokens are drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingSettings {
    /// Divides the logits; 0 always takes the most likely token. Default 1.
    pub temperature: f64,
    /// Nucleus sampling: the most likely tokens that together have this probability. Default 1, which disables it.
    pub top_p: f64,
    /// Only this many of the most likely tokens; 0, the default, for all.
    pub top_k: usize,
}

impl Default for SamplingSettings {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0 }
    }
}

impl SamplingSettings {
    /// The parameters for a sampler.
    pub fn params(&self, seed: u64) -> SamplingParams {
        let top_k = (self.top_k > 0).then_some(self.top_k);
        SamplingParams { temperature: self.temperature, top_p: self.top_p, top_k, seed }
    }

    fn check(&self, keys: [&'static str; 2]) -> Result<(), ConfigError> {
        let [temperature, top_p] = keys;
        let valid = self.temperature == 0.0 || (0.001..=10.0).contains(&self.temperature);
        check(temperature, self.temperature, valid, "0, or between 0.001 and 10")?;
        check(top_p, self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1")
    }
}

impl SamplingSettings {
    /// Checks that tokens are drawn from the distribution that is trained: the trainer scores them among all tokens.
    pub(super) fn check_for_training(&self) -> Result<(), ConfigError> {
        let must = "1 (off) in training, which scores each token among all; `validation.sampling` may have it";
        check("rollout.sampling.top_p", self.top_p, self.top_p >= 1.0, must)?;
        let must = "0 (off) in training, which scores each token among all; `validation.sampling` may have it";
        check("rollout.sampling.top_k", self.top_k, self.top_k == 0, must)
    }
}

/// How episodes are played.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutSettings {
    /// Problems per step.
    pub problems: usize,
    /// Episodes per problem (the group size).
    pub members: usize,
    /// `sandbox`, or `llm` for a single response without a sandbox.
    pub mode: Mode,
    /// Where documents are given: `files` or `prompt`.
    pub context: Documents,
    /// The tool-call format: `fenced`, `hermes`, `qwen3-coder` or `native`.
    pub format: ToolFormat,
    /// Maximum responses per episode.
    pub turns: u32,
    /// Maximum tokens per episode, prompt and observations included.
    pub tokens: usize,
    /// Maximum tokens per response.
    pub tokens_per_reply: usize,
    /// Maximum characters of each output stream of a command, or of a file, that the model sees.
    #[serde(skip_serializing_if = "is_default_observation")]
    pub observation: usize,
    /// How tokens are drawn.
    pub sampling: SamplingSettings,
    /// The treatment of episodes that run out of turns or tokens: `zero`, `mask` or `keep`. Default: `mask` with
    /// `grpo++`, else `zero`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<Overlong>,
    /// Time limit of a command, in seconds.
    pub command_timeout: f64,
    /// Time limit of an episode, in seconds.
    pub timeout: f64,
    /// Maximum concurrent sandboxes.
    pub sandboxes: usize,
    /// Sequences the sampler continues concurrently; 0 for as many as there are concurrent episodes.
    pub slots: usize,
    /// The share of a step's groups with which it closes; the others join the next step. Default 1, for all.
    #[serde(skip_serializing_if = "is_one")]
    pub close_at: f64,
    /// Whether gradients of complete groups are computed while the others are played. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overlap: bool,
    /// The image of sandboxes: `host`, or one in the store.
    pub image: String,
    /// Memory limit of a sandbox, in MiB.
    pub memory: u64,
}

impl Default for RolloutSettings {
    fn default() -> Self {
        Self {
            problems: 8,
            members: 8,
            mode: Mode::default(),
            context: Documents::default(),
            format: ToolFormat::Fenced,
            turns: 100,
            tokens: 65_536,
            tokens_per_reply: 65_536,
            observation: DEFAULT_OBSERVATION,
            sampling: SamplingSettings::default(),
            overlong: None,
            command_timeout: 120.0,
            timeout: 5400.0,
            sandboxes: 64,
            slots: 0,
            close_at: 1.0,
            overlap: false,
            image: "host".to_owned(),
            memory: 1024,
        }
    }
}

impl RolloutSettings {
    /// Episodes per step.
    pub fn episodes(&self) -> usize {
        self.problems * self.members
    }

    /// The number of groups with which a step closes.
    pub fn groups_to_close(&self) -> usize {
        // A share such as 0.7 of 10 must not become 8 by rounding.
        let groups = (self.close_at * self.problems as f64 - 1e-9).ceil();
        (groups as usize).clamp(1, self.problems)
    }

    /// Whether episodes may continue in the step after their own.
    pub fn carries_groups(&self) -> bool {
        self.close_at < 1.0
    }

    /// The settings of the rollout engine; `overlong` is the default of the algorithm.
    pub fn engine_settings(&self, overlong: Overlong) -> rollout::RolloutSettings {
        let tokens_per_call = self.tokens_per_reply as u64;
        let limits = LimitSettings {
            turns: Some(self.turns),
            tokens: Some(self.tokens as u64),
            tokens_per_call,
            plain_tokens: tokens_per_call.min(self.tokens as u64),
            time: Some(Duration::from_secs_f64(self.timeout)),
            ..LimitSettings::default()
        };
        let default = Spec::default();
        let sandbox = Spec {
            image: self.image.parse().unwrap_or(ImageRef::Host),
            limits: sandbox::Limits {
                memory: Some(ByteSize(self.memory << 20)),
                ..default.limits.clone()
            },
            network: Network::None,
            ..default
        };
        rollout::RolloutSettings {
            mode: self.mode,
            format: self.format,
            attempt: attempt::Settings {
                sandbox,
                limits,
                documents: self.context,
                command_timeout: Duration::from_secs_f64(self.command_timeout),
                output_chars: self.observation,
                ..attempt::Settings::default()
            },
            sandboxes: self.sandboxes,
            // All episodes of a step begin at once: without these they would wait for one another.
            warm: self.sandboxes.min(self.episodes()),
            overlong: self.overlong.unwrap_or(overlong),
            ..rollout::RolloutSettings::default()
        }
    }

    /// Concurrent sequences of the sampler: no more than there are episodes at once, in a step or in a validation.
    pub fn slots(&self, training: usize, validation: usize) -> usize {
        match self.slots {
            0 => self.episodes_at_once(training, validation),
            slots => slots,
        }
    }

    /// Episodes that are played concurrently, where a step has `training` and a validation `validation` of them.
    pub fn episodes_at_once(&self, training: usize, validation: usize) -> usize {
        let most = training.max(validation).max(1);
        match self.mode {
            Mode::Sandbox => self.sandboxes.min(most),
            Mode::Llm => MAX_SLOTS.min(most),
        }
    }

    /// Checks what a run without updates of the weights cannot have.
    pub(super) fn check_without_updates(&self) -> Result<(), ConfigError> {
        let must = "1 (off) except in `rl`, whose steps it closes early";
        check("rollout.close_at", self.close_at, !self.carries_groups(), must)?;
        let must = "false except in `rl`, which computes gradients of groups";
        check("rollout.overlap", self.overlap, !self.overlap, must)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let in_range = |count: usize| (1..=MAX_EPISODES).contains(&count);
        check("rollout.problems", self.problems, in_range(self.problems), "between 1 and 65536")?;
        check("rollout.members", self.members, in_range(self.members), "between 1 and 65536")?;
        let all = self.problems.saturating_mul(self.members);
        check("rollout.problems times rollout.members", all, in_range(all), "at most 65536")?;
        check(
            "rollout.sandboxes",
            self.sandboxes,
            in_range(self.sandboxes),
            "between 1 and 65536",
        )?;
        check("rollout.slots", self.slots, self.slots <= MAX_EPISODES, "at most 65536")?;
        let share = self.close_at > 0.0 && self.close_at <= 1.0;
        check("rollout.close_at", self.close_at, share, "above 0 and at most 1")?;
        check("rollout.turns", self.turns, self.turns > 0, "above 0")?;
        check("rollout.tokens", self.tokens, self.tokens > 1, "above 1")?;
        check(
            "rollout.tokens_per_reply",
            self.tokens_per_reply,
            self.tokens_per_reply > 0,
            "above 0",
        )?;
        let observation = (200..=1_000_000).contains(&self.observation);
        check("rollout.observation", self.observation, observation, "between 200 and 1000000")?;
        let written = matches!(
            self.format,
            ToolFormat::Fenced | ToolFormat::Hermes | ToolFormat::Qwen3Coder | ToolFormat::Native
        );
        check("rollout.format", self.format, written, "a text format of calls, or native")?;
        let seconds = |value: f64| value > 0.0 && value <= 1e6;
        check(
            "rollout.command_timeout",
            self.command_timeout,
            seconds(self.command_timeout),
            "above 0",
        )?;
        check("rollout.timeout", self.timeout, seconds(self.timeout), "above 0")?;
        let memory = (16..=1 << 24).contains(&self.memory);
        check("rollout.memory", self.memory, memory, "between 16 MiB and 16 TiB")?;
        self.sampling.check(["rollout.sampling.temperature", "rollout.sampling.top_p"])?;
        let spread = self.sampling.temperature > 0.0 || self.members == 1;
        check(
            "rollout.sampling.temperature",
            0,
            spread,
            "above 0 where a problem has several episodes",
        )
    }
}

// Older configurations have no such keys: a run with the defaults has to look the same.

fn is_default_observation(characters: &usize) -> bool {
    *characters == DEFAULT_OBSERVATION
}

fn is_one(share: &f64) -> bool {
    *share == 1.0
}

/// Validation on held-out problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValidationSettings {
    /// The number of steps between validations; 0 for never. There is also one before the first step and one after the
    /// last.
    pub every: u64,
    /// The number of problems, from the first; 0 for all.
    pub problems: usize,
    /// Episodes per problem.
    pub members: usize,
    /// How tokens are drawn.
    pub sampling: SamplingSettings,
}

impl Default for ValidationSettings {
    fn default() -> Self {
        let sampling = SamplingSettings { temperature: 0.7, top_p: 0.8, top_k: 20 };
        Self { every: 10, problems: 0, members: 1, sampling }
    }
}

impl ValidationSettings {
    /// Whether to validate after this step of `steps`.
    pub fn is_due(&self, step: u64, steps: u64) -> bool {
        self.every > 0 && (step.is_multiple_of(self.every) || step == steps)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let in_range = (1..=MAX_EPISODES).contains(&self.members);
        check("validation.members", self.members, in_range, "between 1 and 65536")?;
        self.sampling.check(["validation.sampling.temperature", "validation.sampling.top_p"])
    }
}
