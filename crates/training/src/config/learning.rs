//! How weights are changed: algorithm, optimiser, adapter, checkpoints.

use serde::{Deserialize, Serialize};

use super::{ConfigError, check};
use crate::{
    adamw::AdamW,
    grpo::Grpo,
    grpo_plus_plus::GrpoPlusPlus,
    objective::{Aggregation, Objective},
    rloo::Rloo,
};

/// What is computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 16 bits on a GPU, 32 elsewhere.
    #[default]
    Auto,
    /// 16 bits with the range of 32.
    Bf16,
    /// 32 bits.
    F32,
}

/// Which algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlgorithmName {
    /// The released recipe.
    #[default]
    #[serde(rename = "rloo")]
    Rloo,
    /// Group-relative advantages in units of their spread.
    #[serde(rename = "grpo")]
    Grpo,
    /// Clip higher, no spread, constant length, compact filtering.
    #[serde(rename = "grpo++")]
    GrpoPlusPlus,
}

/// Where the log-probs before a batch's first step come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Old {
    /// From the step itself where a batch has only one: they are the same.
    #[default]
    Current,
    /// From a pass of its own, as the released code does.
    Recomputed,
}

/// How tokens add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AggregationName {
    /// Summed over the tokens of an episode, averaged over episodes.
    TokenSum,
    /// The same, divided by `length`.
    Constant,
    /// Averaged over the tokens of each episode, then over episodes.
    EpisodeMean,
    /// Averaged over all tokens of the batch.
    TokenMean,
}

/// What is learnt from episodes. What is absent is the algorithm's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlgorithmSettings {
    /// `rloo`, `grpo` or `grpo++`.
    pub name: AlgorithmName,
    /// How far ratios count below 1.
    pub clip_low: Option<f64>,
    /// How far ratios count above 1.
    pub clip_high: Option<f64>,
    /// The second clip, of bad episodes; 0 for none.
    pub dual_clip: Option<f64>,
    /// How tokens add up: `token-sum`, `constant`, `episode-mean` or `token-mean`.
    pub aggregation: Option<AggregationName>,
    /// What sums over tokens are divided by where `aggregation` is `constant`; else the most tokens of an episode.
    pub length: Option<f64>,
    /// How strongly `grpo` is held to the model it began with; wants the memory of a second one.
    pub kl: f64,
    /// Bounds the weight of tokens that the trainer finds likelier than the sampler did; off where absent.
    pub importance: Option<f64>,
    /// Where the log-probs before the first step come from: `current` or `recomputed`.
    pub old: Old,
    /// How often a batch is learnt from.
    pub epochs: Option<usize>,
    /// Into how many steps each of these is divided.
    pub mini_batches: Option<usize>,
    /// How often groups without spread are replaced by new problems, in each step.
    pub resample: usize,
}

impl AlgorithmSettings {
    /// Steps of the optimiser in each step of the run.
    pub fn steps_per_batch(&self) -> usize {
        self.epochs() * self.mini_batches()
    }

    pub(crate) fn epochs(&self) -> usize {
        self.epochs.unwrap_or(1)
    }

    pub(crate) fn mini_batches(&self) -> usize {
        self.mini_batches.unwrap_or(1)
    }

    /// The algorithm, for episodes of so many tokens.
    pub fn objective(&self, most_tokens: usize) -> Box<dyn Objective> {
        let length = self.length.unwrap_or(most_tokens as f64).max(1.0);
        let aggregation = |own: Aggregation| match self.aggregation {
            None => own,
            Some(AggregationName::TokenSum) => Aggregation::TokenSum,
            Some(AggregationName::Constant) => Aggregation::Constant(length),
            Some(AggregationName::EpisodeMean) => Aggregation::EpisodeMean,
            Some(AggregationName::TokenMean) => Aggregation::TokenMean,
        };
        let clip = |own: crate::objective::Clip| crate::objective::Clip {
            low: self.clip_low.unwrap_or(own.low),
            high: self.clip_high.unwrap_or(own.high),
            dual: self.dual_clip.map_or(own.dual, |most| (most > 0.0).then_some(most)),
        };
        match self.name {
            AlgorithmName::Rloo => {
                let own = Rloo::default();
                Box::new(Rloo { clip: clip(own.clip), aggregation: aggregation(own.aggregation) })
            }
            AlgorithmName::Grpo => {
                let own = Grpo::default();
                let (clip, aggregation) = (clip(own.clip), aggregation(own.aggregation));
                Box::new(Grpo { clip, aggregation, kl: self.kl })
            }
            AlgorithmName::GrpoPlusPlus => {
                let own = GrpoPlusPlus::new(length);
                let (clip, aggregation) = (clip(own.clip), aggregation(own.aggregation));
                Box::new(GrpoPlusPlus { clip, aggregation })
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let share = |value: Option<f64>| value.is_none_or(|value| value > 0.0 && value < 1.0);
        let shown = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        check("algorithm.clip_low", shown(self.clip_low), share(self.clip_low), "between 0 and 1")?;
        let high = self.clip_high.is_none_or(|value| value > 0.0 && value.is_finite());
        check("algorithm.clip_high", shown(self.clip_high), high, "above 0")?;
        let dual = self.dual_clip.is_none_or(|value| value == 0.0 || value > 1.0);
        check("algorithm.dual_clip", shown(self.dual_clip), dual, "above 1, or 0 for none")?;
        let length = self.length.is_none_or(|value| value >= 1.0 && value.is_finite());
        check("algorithm.length", shown(self.length), length, "at least 1")?;
        let kl = self.kl >= 0.0 && self.kl.is_finite();
        check("algorithm.kl", self.kl, kl, "0 or above")?;
        let alone = self.kl == 0.0 || self.name == AlgorithmName::Grpo;
        check("algorithm.kl", self.kl, alone, "0 with any algorithm but grpo")?;
        let importance = self.importance.is_none_or(|value| value >= 1.0 && value.is_finite());
        check("algorithm.importance", shown(self.importance), importance, "at least 1")?;
        check(
            "algorithm.epochs",
            self.epochs(),
            (1..=100).contains(&self.epochs()),
            "between 1 and 100",
        )?;
        let parts = self.mini_batches();
        check("algorithm.mini_batches", parts, (1..=1024).contains(&parts), "between 1 and 1024")?;
        check("algorithm.resample", self.resample, self.resample <= 16, "at most 16")
    }
}

/// How the learning rate changes over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Not at all.
    #[default]
    Constant,
    /// Down to nothing in a line.
    Linear,
    /// Down to nothing along half a cosine.
    Cosine,
}

/// How weights are changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimiserSettings {
    /// The learning rate.
    pub rate: f64,
    /// How it changes: `constant`, `linear` or `cosine`.
    pub schedule: Schedule,
    /// Steps over which it first rises.
    pub warmup: u64,
    /// How much of the old mean of gradients is kept, and of their squares.
    pub betas: [f64; 2],
    /// Keeps the division a number.
    pub eps: f64,
    /// How much weights shrink, in units of the learning rate.
    pub weight_decay: f64,
    /// Longer gradients are shortened to this.
    pub clip: f64,
    /// Tokens computed at once; more are added up over several passes. Halved where a GPU's memory does not suffice. 0:
    /// what suits the device.
    pub tokens_at_once: usize,
    /// Computes layers twice instead of keeping what lies between: less memory, a third more time.
    pub checkpointing: bool,
}

impl Default for OptimiserSettings {
    fn default() -> Self {
        let AdamW { beta1, beta2, eps, decay, clip } = AdamW::default();
        Self {
            rate: 1e-6,
            schedule: Schedule::default(),
            warmup: 0,
            betas: [beta1, beta2],
            eps,
            weight_decay: decay,
            clip,
            tokens_at_once: 0,
            checkpointing: false,
        }
    }
}

impl OptimiserSettings {
    /// The rate of a step, from 1, of so many.
    pub fn rate_at(&self, step: u64, steps: u64) -> f64 {
        if step <= self.warmup {
            return self.rate * step as f64 / self.warmup as f64;
        }
        let (done, all) = (step - self.warmup - 1, steps.saturating_sub(self.warmup).max(1));
        let done = (done as f64 / all as f64).min(1.0);
        self.rate
            * match self.schedule {
                Schedule::Constant => 1.0,
                Schedule::Linear => 1.0 - done,
                Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
            }
    }

    /// What the optimiser gets to know.
    pub fn adamw(&self) -> AdamW {
        let [beta1, beta2] = self.betas;
        AdamW { beta1, beta2, eps: self.eps, decay: self.weight_decay, clip: self.clip }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        check(
            "optimiser.rate",
            self.rate,
            positive(self.rate) && self.rate < 1.0,
            "between 0 and 1",
        )?;
        let betas = self.betas.iter().all(|beta| (0.0..1.0).contains(beta));
        check("optimiser.betas", format!("{:?}", self.betas), betas, "from 0 to below 1")?;
        check("optimiser.eps", self.eps, positive(self.eps), "above 0")?;
        let decay = (0.0..=10.0).contains(&self.weight_decay);
        check("optimiser.weight_decay", self.weight_decay, decay, "between 0 and 10")?;
        check("optimiser.clip", self.clip, positive(self.clip), "above 0")
    }
}

/// A projection an adapter sits at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Projection {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// From the heads back.
    O,
    /// The gate of the feed-forward part.
    Gate,
    /// What is gated.
    Up,
    /// From the feed-forward part back.
    Down,
}

/// An adapter of low rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoraSettings {
    /// Its rank.
    pub rank: i64,
    /// It is scaled by this over its rank.
    pub alpha: f64,
    /// Where it sits: any of `q`, `k`, `v`, `o`, `gate`, `up`, `down`.
    pub targets: Vec<Projection>,
}

impl Default for LoraSettings {
    fn default() -> Self {
        use Projection::{Down, Gate, K, O, Q, Up, V};
        Self { rank: 16, alpha: 32.0, targets: vec![Q, K, V, O, Gate, Up, Down] }
    }
}

impl LoraSettings {
    /// Whether one can take the place of the other: rank, scale and places are the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let within =
            |one: &Self, other: &Self| one.targets.iter().all(|at| other.targets.contains(at));
        (self.rank, self.alpha) == (other.rank, other.alpha)
            && within(self, other)
            && within(other, self)
    }

    /// In words.
    pub(crate) fn shown(&self) -> String {
        let targets = format!("{:?}", self.targets).to_lowercase();
        format!("rank {}, alpha {}, targets {targets}", self.rank, self.alpha)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        check("lora.rank", self.rank, (1..=4096).contains(&self.rank), "between 1 and 4096")?;
        let alpha = self.alpha > 0.0 && self.alpha.is_finite();
        check("lora.alpha", self.alpha, alpha, "above 0")?;
        check("lora.targets", "none", !self.targets.is_empty(), "at least one projection")
    }
}

/// When a run is saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSettings {
    /// After how many steps each.
    pub every: u64,
    /// How many are kept.
    pub keep: usize,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self { every: 10, keep: 2 }
    }
}

impl CheckpointSettings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        check("checkpoints.every", self.every, self.every > 0, "above 0")?;
        check("checkpoints.keep", self.keep, self.keep > 0, "above 0")
    }
}
