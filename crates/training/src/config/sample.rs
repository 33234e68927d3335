//! The configuration of `sample`: which model plays which problems, and how.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    ConfigError, DeviceName, HeadPrecision, LoraSettings, NO_FROM, OptimizerSettings, Precision,
    RolloutSettings, SamplerSettings, check, default_task, parse,
};

/// The configuration of a run that collects episodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleConfig {
    /// The model: a directory in the Hugging Face layout, or a GGUF file.
    pub model: PathBuf,
    /// A run directory whose last checkpoint plays; same `model` and same `lora`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// The directory of the episodes. What is there already is not played again.
    pub output: PathBuf,
    /// Determines all random choices.
    #[serde(default)]
    pub seed: u64,
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The precision of computation.
    #[serde(default)]
    pub precision: Precision,
    /// The precision of logits: `f32`, or `model` for that of computation.
    #[serde(default, skip_serializing_if = "HeadPrecision::is_default")]
    pub head_precision: HeadPrecision,
    /// The problems.
    pub data: SampleData,
    /// How episodes are played; `members` of each problem.
    #[serde(default)]
    pub rollout: RolloutSettings,
    /// An inference server that samples instead of the model here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<SamplerSettings>,
    /// The adapter of `from`, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraSettings>,
    /// Not used: nothing is trained.
    #[serde(skip)]
    pub(crate) optimizer: OptimizerSettings,
}

/// The problems to play.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleData {
    /// The task: the name of a built-in one, or a folder.
    #[serde(default = "default_task")]
    pub task: String,
    /// Files of problems.
    pub problems: Vec<PathBuf>,
    /// The number of problems, from the first; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The score from which an answer counts as right in the summary; 1 by default.
    #[serde(default = "default_threshold")]
    pub threshold: f64,
}

fn default_threshold() -> f64 {
    1.0
}

impl SampleConfig {
    /// Parses and checks a configuration, with overrides (`KEY=VALUE`) applied.
    pub fn parse(text: &str, overrides: &[String]) -> Result<Self, ConfigError> {
        let config: Self = parse(text, overrides)?;
        let data = &config.data;
        check("data.problems", "none", !data.problems.is_empty(), "at least one file")?;
        check("data.limit", 0, data.limit != Some(0), "above 0")?;
        let threshold = data.threshold > 0.0 && data.threshold <= 1.0;
        check("data.threshold", data.threshold, threshold, "above 0 and at most 1")?;
        config.sampler.as_ref().map_or(Ok(()), SamplerSettings::check)?;
        let one = config.sampler.is_none() || config.from.is_none();
        check("from", "given", one, NO_FROM)?;
        config.rollout.check()?;
        config.rollout.check_without_updates()?;
        config.lora.as_ref().map_or(Ok(()), LoraSettings::check)?;
        Ok(config)
    }
}
