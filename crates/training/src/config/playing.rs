//! How episodes are played, for training and for validation.

use std::time::Duration;

use agent::Limits;
use model::ToolFormat;
use rollout::{Choice, Context, Method, Mode, Overlong};
use sandbox::{ByteSize, ImageRef, Network, Spec};
use serde::{Deserialize, Serialize};

use super::{ConfigError, MOST_EPISODES, check};

/// Sequences at once where nobody says otherwise.
const MOST_SLOTS: usize = 256;

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Choosing {
    /// Randomness; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Only the likeliest tokens that together have this probability.
    pub top_p: f64,
    /// Only this many of the likeliest tokens; 0 for all.
    pub top_k: usize,
}

impl Default for Choosing {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0 }
    }
}

impl Choosing {
    /// What a sampler is told.
    pub fn choice(&self, seed: u64) -> Choice {
        let top_k = (self.top_k > 0).then_some(self.top_k);
        Choice { temperature: self.temperature, top_p: self.top_p, top_k, seed }
    }

    fn check(&self, keys: [&'static str; 2]) -> Result<(), ConfigError> {
        let [temperature, top_p] = keys;
        let sane = self.temperature == 0.0 || (0.001..=10.0).contains(&self.temperature);
        check(temperature, self.temperature, sane, "0, or between 0.001 and 10")?;
        check(top_p, self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1")
    }
}

/// How episodes are played.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlaySettings {
    /// Problems of one step.
    pub problems: usize,
    /// Episodes of each.
    pub members: usize,
    /// `sandbox`, or `llm` for one reply without a computer.
    pub mode: Mode,
    /// Where documents are: `files` or `prompt`.
    pub context: Context,
    /// How calls are written: `fenced`, `hermes`, `qwen3-coder` or `native`.
    pub format: ToolFormat,
    /// The most replies of an episode.
    pub turns: u32,
    /// The most tokens of an episode, all included.
    pub tokens: usize,
    /// The most tokens of a reply.
    pub tokens_per_reply: usize,
    /// How tokens are chosen.
    pub sampling: Choosing,
    /// What becomes of episodes that run out of turns or tokens: `zero`, `mask` or `keep`; absent, `mask` with `grpo++`
    /// and else `zero`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<Overlong>,
    /// Seconds a command may take.
    pub command_timeout: f64,
    /// Seconds an episode may take.
    pub timeout: f64,
    /// Sandboxes at once.
    pub sandboxes: usize,
    /// Sequences the sampler continues at once; 0 for as many as are played at once.
    pub slots: usize,
    /// What sandboxes are made of: `host`, or an image in the store.
    pub image: String,
    /// Memory a sandbox may use, in MiB.
    pub memory: u64,
}

impl Default for PlaySettings {
    fn default() -> Self {
        Self {
            problems: 8,
            members: 8,
            mode: Mode::default(),
            context: Context::default(),
            format: ToolFormat::Fenced,
            turns: 100,
            tokens: 65_536,
            tokens_per_reply: 65_536,
            sampling: Choosing::default(),
            overlong: None,
            command_timeout: 120.0,
            timeout: 5400.0,
            sandboxes: 64,
            slots: 0,
            image: "host".to_owned(),
            memory: 1024,
        }
    }
}

impl PlaySettings {
    /// Episodes of one step.
    pub fn episodes(&self) -> usize {
        self.problems * self.members
    }

    /// How episodes are played, with `overlong` as the algorithm has it where nobody said otherwise.
    pub fn method(&self, overlong: Overlong) -> Method {
        let limits = Limits {
            turns: self.turns,
            tokens: self.tokens as u64,
            tokens_per_call: self.tokens_per_reply as u64,
            time: Some(Duration::from_secs_f64(self.timeout)),
            ..Limits::default()
        };
        let usual = Spec::default();
        let spec = Spec {
            image: self.image.parse().unwrap_or(ImageRef::Host),
            limits: sandbox::Limits {
                memory: Some(ByteSize(self.memory << 20)),
                ..usual.limits.clone()
            },
            network: Network::None,
            ..usual
        };
        Method {
            mode: self.mode,
            context: self.context,
            format: self.format,
            limits,
            command_timeout: Duration::from_secs_f64(self.command_timeout),
            spec,
            sandboxes: self.sandboxes,
            ahead: self.sandboxes.min(8),
            overlong: self.overlong.unwrap_or(overlong),
            settings: serde_json::to_value(self).unwrap_or_default(),
            ..Method::default()
        }
    }

    /// Sequences the sampler continues at once, where validation plays so many.
    pub fn slots(&self, validation: usize) -> usize {
        let most = self.episodes().max(validation);
        match (self.slots, self.mode) {
            (0, Mode::Sandbox) => self.sandboxes.min(most),
            (0, Mode::Llm) => MOST_SLOTS.min(most),
            (slots, _) => slots,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let some = |count: usize| (1..=MOST_EPISODES).contains(&count);
        check("rollout.problems", self.problems, some(self.problems), "between 1 and 65536")?;
        check("rollout.members", self.members, some(self.members), "between 1 and 65536")?;
        let all = self.problems.saturating_mul(self.members);
        check("rollout.problems times rollout.members", all, some(all), "at most 65536")?;
        check("rollout.sandboxes", self.sandboxes, some(self.sandboxes), "between 1 and 65536")?;
        check("rollout.slots", self.slots, self.slots <= MOST_EPISODES, "at most 65536")?;
        check("rollout.turns", self.turns, self.turns > 0, "above 0")?;
        check("rollout.tokens", self.tokens, self.tokens > 1, "above 1")?;
        check(
            "rollout.tokens_per_reply",
            self.tokens_per_reply,
            self.tokens_per_reply > 0,
            "above 0",
        )?;
        let written = matches!(
            self.format,
            ToolFormat::Fenced | ToolFormat::Hermes | ToolFormat::Qwen3Coder | ToolFormat::Native
        );
        check("rollout.format", self.format, written, "a format of calls in text, or native")?;
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

/// When and how held-out problems are played.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValidationSettings {
    /// After how many steps each; 0 for never. It also comes before the first step and after the last.
    pub every: u64,
    /// The first so many problems; 0 for all.
    pub problems: usize,
    /// Episodes of each.
    pub members: usize,
    /// How tokens are chosen.
    pub sampling: Choosing,
}

impl Default for ValidationSettings {
    fn default() -> Self {
        let sampling = Choosing { temperature: 0.7, top_p: 0.8, top_k: 20 };
        Self { every: 10, problems: 0, members: 1, sampling }
    }
}

impl ValidationSettings {
    /// Whether it is time after a step of so many.
    pub fn is_due(&self, step: u64, steps: u64) -> bool {
        self.every > 0 && (step.is_multiple_of(self.every) || step == steps)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let some = (1..=MOST_EPISODES).contains(&self.members);
        check("validation.members", self.members, some, "between 1 and 65536")?;
        self.sampling.check(["validation.sampling.temperature", "validation.sampling.top_p"])
    }
}
