//! The configuration of runs: TOML with every key documented here, unknown keys rejected, all values checked before
//! anything starts.
//!
//! Parses text into settings. Opens no file and loads no model. `docs/training.md` has the same keys for users; keys
//! keep their names in files even where a field is named otherwise.

mod optimization;
mod reward;
mod rollout;
mod sample;
mod sampler;
mod validation;

use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use optimization::{
    AggregationName, AlgorithmName, AlgorithmSettings, CheckpointSettings, HeadPrecision,
    LoraSettings, OldLogprobs, OptimizerSettings, Precision, Projection, Schedule,
};
pub use reward::RewardSettings;
pub use rollout::{RolloutSettings, SamplingSettings, ValidationSettings};
pub use sample::{SampleConfig, SampleData};
pub use sampler::SamplerSettings;
pub use validation::{ResolvedSet, Validation, ValidationSet};

/// The maximum size of a configuration, in bytes.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;

/// The configuration of a reinforcement-learning run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RlConfig {
    /// The initial model: a directory in the Hugging Face layout, or a GGUF file.
    pub model: PathBuf,
    /// A run directory to start from its last checkpoint, or the GGUF file of an adapter; same `model` and same `lora`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// The run directory. A run that is there already is resumed.
    pub output: PathBuf,
    /// Steps in all; with 0 the model is only validated.
    pub steps: u64,
    /// Determines all random choices.
    #[serde(default)]
    pub seed: u64,
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The precision of computation; master weights are always 32-bit.
    #[serde(default)]
    pub precision: Precision,
    /// The precision of logits: `f32`, or `model` for that of computation.
    #[serde(default, skip_serializing_if = "HeadPrecision::is_default")]
    pub head_precision: HeadPrecision,
    /// The source of problems.
    #[serde(default)]
    pub data: DataSettings,
    /// How episodes are played.
    #[serde(default)]
    pub rollout: RolloutSettings,
    /// An inference server that samples; then the model is only validated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<SamplerSettings>,
    /// How scores become rewards.
    #[serde(default, skip_serializing_if = "RewardSettings::is_default")]
    pub reward: RewardSettings,
    /// The training algorithm.
    #[serde(default)]
    pub algorithm: AlgorithmSettings,
    /// The optimizer.
    #[serde(default, rename = "optimiser")]
    pub optimizer: OptimizerSettings,
    /// Trains a low-rank adapter instead of the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraSettings>,
    /// Validation on held-out problems, of one set or of several.
    #[serde(default)]
    pub validation: Validation,
    /// Checkpoints.
    #[serde(default)]
    pub checkpoints: CheckpointSettings,
}

/// The configuration of a supervised fine-tuning run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SftConfig {
    /// The initial model: a directory in the Hugging Face layout, or a GGUF file.
    pub model: PathBuf,
    /// A run directory to start from its last checkpoint, or the GGUF file of an adapter; same `model` and same `lora`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// The run directory. A run that is there already is resumed.
    pub output: PathBuf,
    /// Passes over the data; 1 by default.
    #[serde(default = "default_epochs")]
    pub epochs: u64,
    /// Episodes per step; 16 by default.
    #[serde(default = "default_batch")]
    pub batch: usize,
    /// Determines all random choices.
    #[serde(default)]
    pub seed: u64,
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The precision of computation; master weights are always 32-bit.
    #[serde(default)]
    pub precision: Precision,
    /// The precision of logits: `f32`, or `model` for that of computation.
    #[serde(default, skip_serializing_if = "HeadPrecision::is_default")]
    pub head_precision: HeadPrecision,
    /// The training data.
    pub data: SftData,
    /// How episodes are rendered for the model, as in an `rl` run with the same values, and how demonstrations are
    /// played.
    #[serde(default)]
    pub rollout: RolloutSettings,
    /// The optimizer.
    #[serde(default, rename = "optimiser")]
    pub optimizer: OptimizerSettings,
    /// Trains a low-rank adapter instead of the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraSettings>,
    /// Checkpoints.
    #[serde(default)]
    pub checkpoints: CheckpointSettings,
}

/// The source of problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSettings {
    /// The task: the name of a built-in one, or a folder.
    #[serde(default = "default_task")]
    pub task: String,
    /// Files of problems to train on.
    #[serde(default)]
    pub train: Vec<PathBuf>,
    /// Files of held-out problems.
    #[serde(default)]
    pub validation: Vec<PathBuf>,
    /// How the problems of a step are drawn: `uniform` or `pass-rate`.
    #[serde(default, skip_serializing_if = "Draw::is_default")]
    pub draw: Draw,
}

/// How the problems of a step are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// Epoch by epoch in shuffled order, each problem as often as any other.
    #[default]
    Uniform,
    /// Mostly from kinds and levels that are solved sometimes: see `draw.rs`.
    PassRate,
}

impl Draw {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The data of a supervised run; at least one of `trajectories` and `demonstrations`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SftData {
    /// The task with prompts and graders: the name of a built-in one, or a folder.
    pub task: Option<String>,
    /// Recorded episodes: event logs (`.jsonl`), trajectories (`.json`), or directories that contain some.
    pub trajectories: Vec<PathBuf>,
    /// Which recorded episodes are trained on: `correct` (default) or `submitted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<KeptEpisodes>,
    /// The score from which an answer counts as correct; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Files of synthetic problems whose scripted solutions are played and trained on.
    pub demonstrations: Vec<PathBuf>,
    /// The maximum number of episodes.
    pub limit: Option<usize>,
}

/// Which recorded episodes are trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeptEpisodes {
    /// Those that were submitted with a correct answer: their score must be known.
    Correct,
    /// Those that were submitted, right or wrong.
    Submitted,
}

impl Default for DataSettings {
    fn default() -> Self {
        let (train, validation) = (Vec::new(), Vec::new());
        Self { task: default_task(), train, validation, draw: Draw::default() }
    }
}

impl SftData {
    /// The score from which an answer counts as correct.
    pub(crate) fn threshold(&self) -> f64 {
        self.threshold.unwrap_or(1.0)
    }

    /// The task, by name or folder.
    pub fn task(&self) -> &str {
        self.task.as_deref().unwrap_or(DEFAULT_TASK)
    }
}

/// `auto`, `cpu`, `cuda` or `cuda:N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// The first GPU, or the CPU where there is none.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

impl std::str::FromStr for DeviceName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let number = name.strip_prefix("cuda:").map(str::parse);
        match (name, number) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(Ok(number))) => Ok(Self::Cuda(number)),
            _ => Err(format!("{name:?} is not a device; use auto, cpu, cuda or cuda:N")),
        }
    }
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl Serialize for DeviceName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is too long.
    #[error("a configuration may have {MAX_CONFIG_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// The text is not valid TOML, or has unknown keys or values of a wrong type.
    #[error("the configuration cannot be read")]
    Toml(#[source] Box<toml::de::Error>),
    /// An override is not of the form `KEY=VALUE`.
    #[error(
        "{given:?} is not a configuration override; write KEY=VALUE, such as optimiser.rate=1e-5"
    )]
    Override {
        /// The override.
        given: String,
    },
    /// An override names a validation set that does not exist.
    #[error("{given:?} names no validation set; there are {}", known.join(", "))]
    NoSet {
        /// The override.
        given: String,
        /// The names of the sets.
        known: Vec<String>,
    },
    /// A validation set cannot be used.
    #[error("validation set `{name}`")]
    Set {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: Box<ConfigError>,
    },
    /// A value is out of range.
    #[error("`{key}` must be {must}, not {found}")]
    Value {
        /// The key.
        key: &'static str,
        /// The allowed values.
        must: &'static str,
        /// The actual value.
        found: String,
    },
}

impl RlConfig {
    /// Parses and checks a configuration, with overrides (`KEY=VALUE`) applied.
    pub fn parse(text: &str, overrides: &[String]) -> Result<Self, ConfigError> {
        let config: Self = parse(text, overrides)?;
        check("steps", config.steps, config.steps <= MAX_STEPS, "at most 1000000")?;
        match config.steps {
            0 => {
                let some = !config.validation_sets().is_empty();
                check(
                    "data.validation",
                    "none",
                    some,
                    "at least one file, or `[[validation]]` sets",
                )?;
            }
            _ => check("data.train", "none", !config.data.train.is_empty(), "at least one file")?,
        }
        if let Some(sampler) = &config.sampler {
            sampler.check()?;
            check("steps", config.steps, config.steps == 0, ONLY_SAMPLED)?;
            check("from", "given", config.from.is_none(), NO_FROM)?;
        }
        config.rollout.check()?;
        config.reward.check()?;
        if config.steps > 0 {
            config.rollout.sampling.check_for_training()?;
        }
        config.algorithm.check()?;
        let redraws = config.algorithm.resample > 0 && config.data.draw == Draw::PassRate;
        check("algorithm.resample", config.algorithm.resample, !redraws, NO_RESAMPLE)?;
        if config.rollout.carries_groups() {
            let (algorithm, share) = (&config.algorithm, config.rollout.close_at);
            check("rollout.close_at", share, algorithm.importance.is_some(), NEEDS_IMPORTANCE)?;
            check("algorithm.resample", algorithm.resample, algorithm.resample == 0, NO_ROUNDS)?;
        }
        let overlap = config.rollout.overlap;
        check("rollout.overlap", overlap, !overlap || config.can_overlap(), NO_OVERLAP)?;
        config.optimizer.check()?;
        config.check_validation()?;
        config.checkpoints.check()?;
        config.lora.as_ref().map_or(Ok(()), LoraSettings::check)?;
        Ok(config)
    }

    /// Whether a group's gradient can be computed before the others are complete.
    fn can_overlap(&self) -> bool {
        let algorithm = &self.algorithm;
        let is_whole = algorithm.steps_per_batch() == 1 && algorithm.resample == 0;
        is_whole && !self.rollout.carries_groups()
    }
}

impl SftConfig {
    /// Parses and checks a configuration, with overrides (`KEY=VALUE`) applied.
    pub fn parse(text: &str, overrides: &[String]) -> Result<Self, ConfigError> {
        let config: Self = parse(text, overrides)?;
        let data = &config.data;
        let some = !data.trajectories.is_empty() || !data.demonstrations.is_empty();
        check("data", "neither", some, "given `trajectories` or `demonstrations`")?;
        let threshold = data.threshold() > 0.0 && data.threshold() <= 1.0;
        check("data.threshold", data.threshold(), threshold, "above 0 and at most 1")?;
        check("epochs", config.epochs, (1..=1000).contains(&config.epochs), "between 1 and 1000")?;
        check(
            "batch",
            config.batch,
            (1..=MAX_EPISODES).contains(&config.batch),
            "between 1 and 65536",
        )?;
        config.rollout.check()?;
        config.rollout.check_without_updates()?;
        config.optimizer.check()?;
        config.checkpoints.check()?;
        config.lora.as_ref().map_or(Ok(()), LoraSettings::check)?;
        Ok(config)
    }
}

/// What `from` has to be with a server.
const NO_FROM: &str = "absent with `[sampler]`, whose server has its own weights";

/// What is possible with a server.
const ONLY_SAMPLED: &str = "0 with `[sampler]`, since a server's weights cannot be updated: validate its model with 0, \
     collect its episodes with `sample` and train on them with `sft`, or remove `[sampler]`";

/// Both avoid groups without spread: one before they are played, the other after.
const NO_RESAMPLE: &str = "0 where `data.draw` is pass-rate, which replaces it";

/// What makes tokens of an older policy usable.
const NEEDS_IMPORTANCE: &str = "1 (off) without `algorithm.importance`: episodes that are carried into the next step have \
     tokens of an older policy, which importance weights correct for; set it, for example to 2";

/// Rounds are played one after the other, each to its end.
const NO_ROUNDS: &str = "0 where `rollout.close_at` is below 1; use `data.draw = \"pass-rate\"`";

/// What needs all groups at once, or is played on during the update anyway.
const NO_OVERLAP: &str = "false where `rollout.close_at` is below 1, or `algorithm.epochs`, `algorithm.mini_batches` or \
     `algorithm.resample` have other values than their defaults";

/// The maximum number of steps of a run.
const MAX_STEPS: u64 = 1_000_000;

/// The maximum number of episodes of a step.
const MAX_EPISODES: usize = 65_536;

const DEFAULT_TASK: &str = "instruct_pretrain";

fn default_epochs() -> u64 {
    1
}

fn default_batch() -> usize {
    16
}

fn default_task() -> String {
    DEFAULT_TASK.to_owned()
}

/// Fails where a value is not `good`.
fn check(
    key: &'static str,
    found: impl ToString,
    good: bool,
    must: &'static str,
) -> Result<(), ConfigError> {
    match good {
        true => Ok(()),
        false => Err(ConfigError::Value { key, must, found: found.to_string() }),
    }
}

/// The maximum depth of dotted keys.
const MAX_DEPTH: usize = 8;

fn parse<T: DeserializeOwned>(text: &str, overrides: &[String]) -> Result<T, ConfigError> {
    if text.len() > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLong(text.len()));
    }
    let toml = |error| ConfigError::Toml(Box::new(error));
    if overrides.is_empty() {
        // Directly from the text, so that errors name lines.
        return toml::from_str(text).map_err(toml);
    }
    let mut table: toml::Table = toml::from_str(text).map_err(toml)?;
    for given in overrides {
        let bad = || ConfigError::Override { given: given.clone() };
        let (key, value) = given.split_once('=').ok_or_else(bad)?;
        set(&mut table, key.trim(), value.trim()).map_err(|why| match why {
            Unset::Key => bad(),
            Unset::Name(known) => ConfigError::NoSet { given: given.clone(), known },
        })?;
    }
    table.try_into().map_err(toml)
}

/// Why a key cannot be set.
enum Unset {
    /// It is not a key.
    Key,
    /// No table of a list has this name; these exist.
    Name(Vec<String>),
}

/// Sets the value of a dotted key; what is not a TOML value is taken as a string.
fn set(table: &mut toml::Table, key: &str, value: &str) -> Result<(), Unset> {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {value}"));
    let parsed = parsed.ok().and_then(|mut table| table.remove("value"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let parts: Vec<&str> = key.splitn(MAX_DEPTH + 1, '.').collect();
    let (last, mut parts) = match &parts[..] {
        [parts @ .., last] if parts.len() < MAX_DEPTH && !last.is_empty() => (*last, parts),
        _ => return Err(Unset::Key),
    };
    let mut inner = table;
    while let [part, rest @ ..] = parts {
        let below = inner.entry(*part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        (inner, parts) = match below {
            toml::Value::Array(tables) => named(tables, rest)?,
            below => (below.as_table_mut().ok_or(Unset::Key)?, rest),
        };
    }
    inner.insert(last.to_owned(), value);
    Ok(())
}

/// The table of a list whose `name` is the first of these parts of a key, and the parts that follow. A name may itself
/// have dots: the longest one is meant.
fn named<'t, 'k>(
    tables: &'t mut [toml::Value],
    parts: &'k [&'k str],
) -> Result<(&'t mut toml::Table, &'k [&'k str]), Unset> {
    let name = |table: &toml::Value| Some(table.get("name")?.as_str()?.to_owned());
    let known: Vec<String> = tables.iter().filter_map(name).collect();
    let lengths = (1..=parts.len()).rev();
    let found = lengths
        .filter_map(|length| {
            let wanted = parts[..length].join(".");
            let at = tables.iter().position(|table| name(table).as_deref() == Some(&wanted))?;
            Some((at, length))
        })
        .next();
    let unknown = if known.is_empty() { Unset::Key } else { Unset::Name(known) };
    let (at, length) = found.ok_or(unknown)?;
    let table = tables[at].as_table_mut().ok_or(Unset::Key)?;
    Ok((table, &parts[length..]))
}

#[cfg(test)]
mod keys_tests;
#[cfg(test)]
#[path = "config/config_tests.rs"]
mod tests;
