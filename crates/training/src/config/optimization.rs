//! How weights are trained: algorithm, optimizer, adapter, checkpoints.

use serde::{Deserialize, Serialize};

use super::{ConfigError, check};
use crate::{
    adamw::AdamW,
    grpo::Grpo,
    grpo_plus_plus::GrpoPlusPlus,
    objective::{Aggregation, Clip, Objective, Surrogate},
    rloo::Rloo,
};

/// The precision of computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// bf16 on a GPU, f32 on the CPU.
    #[default]
    Auto,
    /// 16-bit brain floating point.
    Bf16,
    /// 32-bit floating point.
    F32,
}

/// The precision of logits, in training and in sampling, where `precision` has 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadPrecision {
    /// 32 bits: products of 16-bit numbers, added and kept in 32.
    #[default]
    F32,
    /// That of the model.
    Model,
}

impl HeadPrecision {
    /// Whether it is the default, which files of older runs do not name.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl From<HeadPrecision> for policy::HeadPrecision {
    fn from(precision: HeadPrecision) -> Self {
        match precision {
            HeadPrecision::F32 => Self::F32,
            HeadPrecision::Model => Self::Model,
        }
    }
}

/// The algorithm, see the file of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlgorithmName {
    /// RLOO, the released recipe.
    #[default]
    #[serde(rename = "rloo")]
    Rloo,
    /// GRPO: advantages in units of the group's standard deviation.
    #[serde(rename = "grpo")]
    Grpo,
    /// GRPO++: clip higher, leave-one-out, constant length, compact filtering.
    #[serde(rename = "grpo++")]
    GrpoPlusPlus,
}

/// The source of the log-probabilities `pi_old`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OldLogprobs {
    /// The step itself, where a batch has only one: then they are the same.
    #[default]
    Current,
    /// A separate pass, as in the released code.
    Recomputed,
}

/// How token losses are aggregated.
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

/// The algorithm and its settings. Absent values are the algorithm's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlgorithmSettings {
    /// `rloo`, `grpo` or `grpo++`.
    pub name: AlgorithmName,
    /// Lower clip bound of the ratio: 1 minus this.
    pub clip_low: Option<f64>,
    /// Upper clip bound of the ratio: 1 plus this.
    pub clip_high: Option<f64>,
    /// The dual clip for negative advantages; 0 disables it.
    pub dual_clip: Option<f64>,
    /// How tokens add up: `token-sum`, `constant`, `episode-mean` or `token-mean`.
    pub aggregation: Option<AggregationName>,
    /// The divisor where `aggregation` is `constant`. Default 1024, or `rollout.tokens` where that is less.
    pub length: Option<f64>,
    /// The coefficient of the KL term of `grpo` to the initial model; needs the memory of a second model.
    pub kl: f64,
    /// The cap of truncated importance sampling between sampler and trainer; off where absent.
    pub importance: Option<f64>,
    /// The source of `pi_old`: `current` or `recomputed`.
    pub old: OldLogprobs,
    /// Passes over a batch.
    pub epochs: Option<usize>,
    /// Optimizer steps per pass.
    pub mini_batches: Option<usize>,
    /// The number of times per step that groups without spread are replaced by new problems.
    pub resample: usize,
}

impl AlgorithmSettings {
    /// Optimizer steps per step of the run.
    pub fn steps_per_batch(&self) -> usize {
        self.epochs() * self.mini_batches()
    }

    pub(crate) fn epochs(&self) -> usize {
        self.epochs.unwrap_or(1)
    }

    pub(crate) fn mini_batches(&self) -> usize {
        self.mini_batches.unwrap_or(1)
    }

    /// The algorithm, where episodes have at most `max_tokens` tokens.
    pub fn objective(&self, default_length: usize) -> Box<dyn Objective> {
        let length = self.length.unwrap_or(default_length as f64).max(1.0);
        let with_overrides = |own: Surrogate| Surrogate {
            clip: Clip {
                low: self.clip_low.unwrap_or(own.clip.low),
                high: self.clip_high.unwrap_or(own.clip.high),
                dual: self.dual_clip.map_or(own.clip.dual, |dual| (dual > 0.0).then_some(dual)),
            },
            aggregation: match self.aggregation {
                None => own.aggregation,
                Some(AggregationName::TokenSum) => Aggregation::TokenSum,
                Some(AggregationName::Constant) => Aggregation::Constant(length),
                Some(AggregationName::EpisodeMean) => Aggregation::EpisodeMean,
                Some(AggregationName::TokenMean) => Aggregation::TokenMean,
            },
        };
        match self.name {
            AlgorithmName::Rloo => Box::new(Rloo(with_overrides(Rloo::default().0))),
            AlgorithmName::Grpo => {
                let surrogate = with_overrides(Grpo::default().surrogate);
                Box::new(Grpo { surrogate, kl: self.kl })
            }
            AlgorithmName::GrpoPlusPlus => {
                Box::new(GrpoPlusPlus(with_overrides(GrpoPlusPlus::new(length).0)))
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let fraction = |value: Option<f64>| value.is_none_or(|value| value > 0.0 && value < 1.0);
        let shown = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        check(
            "algorithm.clip_low",
            shown(self.clip_low),
            fraction(self.clip_low),
            "between 0 and 1",
        )?;
        let high = self.clip_high.is_none_or(|value| value > 0.0 && value.is_finite());
        check("algorithm.clip_high", shown(self.clip_high), high, "above 0")?;
        let dual = self.dual_clip.is_none_or(|value| value == 0.0 || value > 1.0);
        check("algorithm.dual_clip", shown(self.dual_clip), dual, "above 1, or 0 for none")?;
        let length = self.length.is_none_or(|value| value >= 1.0 && value.is_finite());
        check("algorithm.length", shown(self.length), length, "at least 1")?;
        let kl = self.kl >= 0.0 && self.kl.is_finite();
        check("algorithm.kl", self.kl, kl, "0 or above")?;
        let supported = self.kl == 0.0 || self.name == AlgorithmName::Grpo;
        check("algorithm.kl", self.kl, supported, "0 with any algorithm but grpo")?;
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
    /// Constant.
    #[default]
    Constant,
    /// Linear decay to 0.
    Linear,
    /// Cosine decay to 0.
    Cosine,
}

/// The optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerSettings {
    /// The learning rate. Default 1e-6.
    #[serde(rename = "rate")]
    pub learning_rate: f64,
    /// The schedule of the learning rate: `constant`, `linear` or `cosine`.
    pub schedule: Schedule,
    /// Steps of linear warmup.
    pub warmup: u64,
    /// The decay rates of the first and second moment.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay, multiplied by the learning rate.
    pub weight_decay: f64,
    /// The maximum gradient norm.
    #[serde(rename = "clip")]
    pub max_grad_norm: f64,
    /// Tokens per pass; gradients are accumulated over passes. Halved on out-of-memory. 0: a default for the device.
    #[serde(rename = "tokens_at_once")]
    pub tokens_per_pass: usize,
    /// Activation checkpointing: recomputes layers in the backward pass; less memory, a third more time.
    pub checkpointing: bool,
}

impl Default for OptimizerSettings {
    fn default() -> Self {
        let AdamW { beta1, beta2, eps, weight_decay, max_grad_norm } = AdamW::default();
        Self {
            learning_rate: 1e-6,
            schedule: Schedule::default(),
            warmup: 0,
            betas: [beta1, beta2],
            eps,
            weight_decay,
            max_grad_norm,
            tokens_per_pass: 0,
            checkpointing: false,
        }
    }
}

impl OptimizerSettings {
    /// The learning rate of a step, from 1, of `steps`.
    pub fn learning_rate_at(&self, step: u64, steps: u64) -> f64 {
        if step <= self.warmup {
            return self.learning_rate * step as f64 / self.warmup as f64;
        }
        let (done, all) = (step - self.warmup - 1, steps.saturating_sub(self.warmup).max(1));
        let done = (done as f64 / all as f64).min(1.0);
        self.learning_rate
            * match self.schedule {
                Schedule::Constant => 1.0,
                Schedule::Linear => 1.0 - done,
                Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
            }
    }

    /// The hyperparameters of AdamW.
    pub fn adamw(&self) -> AdamW {
        let [beta1, beta2] = self.betas;
        let Self { eps, weight_decay, max_grad_norm, .. } = *self;
        AdamW { beta1, beta2, eps, weight_decay, max_grad_norm }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        check(
            "optimiser.rate",
            self.learning_rate,
            positive(self.learning_rate) && self.learning_rate < 1.0,
            "between 0 and 1",
        )?;
        let betas = self.betas.iter().all(|beta| (0.0..1.0).contains(beta));
        check("optimiser.betas", format!("{:?}", self.betas), betas, "from 0 to below 1")?;
        check("optimiser.eps", self.eps, positive(self.eps), "above 0")?;
        let decay = (0.0..=10.0).contains(&self.weight_decay);
        check("optimiser.weight_decay", self.weight_decay, decay, "between 0 and 10")?;
        check("optimiser.clip", self.max_grad_norm, positive(self.max_grad_norm), "above 0")
    }
}

/// A projection of a layer that an adapter may extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Projection {
    /// Query.
    Q,
    /// Key.
    K,
    /// Value.
    V,
    /// Attention output.
    O,
    /// Feed-forward gate.
    Gate,
    /// Feed-forward up.
    Up,
    /// Feed-forward down.
    Down,
}

/// A low-rank adapter (LoRA).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoraSettings {
    /// Its rank.
    pub rank: i64,
    /// Its scale is `alpha / rank`.
    pub alpha: f64,
    /// The adapted projections: any of `q`, `k`, `v`, `o`, `gate`, `up`, `down`.
    pub targets: Vec<Projection>,
}

impl Default for LoraSettings {
    fn default() -> Self {
        use Projection::{Down, Gate, K, O, Q, Up, V};
        Self { rank: 16, alpha: 32.0, targets: vec![Q, K, V, O, Gate, Up, Down] }
    }
}

impl LoraSettings {
    /// Whether weights of one fit the other: rank, scale and targets are the same.
    pub(crate) fn is_compatible(&self, other: &Self) -> bool {
        let within =
            |one: &Self, other: &Self| one.targets.iter().all(|at| other.targets.contains(at));
        (self.rank, self.alpha) == (other.rank, other.alpha)
            && within(self, other)
            && within(other, self)
    }

    /// A description for the user.
    pub(crate) fn describe(&self) -> String {
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

/// When checkpoints are saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSettings {
    /// The number of steps between checkpoints.
    pub every: u64,
    /// The number of checkpoints that are kept.
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
