//! What runs are told: files of TOML with every key documented here, unknown ones refused, all values checked before
//! anything begins.
//!
//! Reads text and hands out finished values. Opens no file and loads no model.

mod learning;
mod playing;

use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use learning::{
    AggregationName, AlgorithmName, AlgorithmSettings, CheckpointSettings, LoraSettings, Old,
    OptimiserSettings, Precision, Projection, Schedule,
};
pub use playing::{Choosing, PlaySettings, ValidationSettings};

/// A configuration may have so many bytes.
pub const LONGEST: usize = 1 << 20;

/// A run of reinforcement learning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RlConfig {
    /// The model to begin with: a directory of the Hugging Face layout, or a GGUF file.
    pub model: PathBuf,
    /// A run to begin with what it has learnt, of the same model and with the same `lora`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// The directory of the run. What is there already is gone on with.
    pub output: PathBuf,
    /// How many steps are taken in all. With none the model is only measured.
    pub steps: u64,
    /// All chance follows from it.
    #[serde(default)]
    pub seed: u64,
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// What is computed with; weights are always kept in 32 bits.
    #[serde(default)]
    pub precision: Precision,
    /// Where problems come from.
    pub data: DataSettings,
    /// How episodes are played.
    #[serde(default)]
    pub rollout: PlaySettings,
    /// What is learnt from them.
    #[serde(default)]
    pub algorithm: AlgorithmSettings,
    /// How weights are changed.
    #[serde(default)]
    pub optimiser: OptimiserSettings,
    /// Trains an adapter instead of the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraSettings>,
    /// When and how held-out problems are played.
    #[serde(default)]
    pub validation: ValidationSettings,
    /// When the run is saved.
    #[serde(default)]
    pub checkpoints: CheckpointSettings,
}

/// A run of supervised learning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SftConfig {
    /// The model to begin with: a directory of the Hugging Face layout, or a GGUF file.
    pub model: PathBuf,
    /// A run to begin with what it has learnt, of the same model and with the same `lora`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// The directory of the run. What is there already is gone on with.
    pub output: PathBuf,
    /// How often everything is seen.
    #[serde(default = "once")]
    pub epochs: u64,
    /// Episodes of one step.
    #[serde(default = "usual_batch")]
    pub batch: usize,
    /// All chance follows from it.
    #[serde(default)]
    pub seed: u64,
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// What is computed with; weights are always kept in 32 bits.
    #[serde(default)]
    pub precision: Precision,
    /// What is learnt from.
    pub data: SftData,
    /// How episodes look to the model: they are put as in `train rl` with the same values, and demonstrations are
    /// played so.
    #[serde(default)]
    pub rollout: PlaySettings,
    /// How weights are changed.
    #[serde(default)]
    pub optimiser: OptimiserSettings,
    /// Trains an adapter instead of the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraSettings>,
    /// When the run is saved.
    #[serde(default)]
    pub checkpoints: CheckpointSettings,
}

/// Where problems come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSettings {
    /// The task: a built-in one by name, or a folder.
    #[serde(default = "usual_task")]
    pub task: String,
    /// Files of rows to train on.
    #[serde(default)]
    pub train: Vec<PathBuf>,
    /// Files of rows that are held out.
    #[serde(default)]
    pub validation: Vec<PathBuf>,
}

/// What supervised runs learn from. At least one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SftData {
    /// The task that prompts and graders are taken from: a built-in one by name, or a folder.
    pub task: Option<String>,
    /// Recorded episodes: events (`.jsonl`), trajectories (`.json`), or directories that hold some, however deep.
    pub trajectories: Vec<PathBuf>,
    /// Files of synthetic rows whose scripted solutions are played and learnt.
    pub demonstrations: Vec<PathBuf>,
    /// Only so many episodes.
    pub limit: Option<usize>,
}

impl SftData {
    /// The task by name or folder.
    pub fn task(&self) -> &str {
        self.task.as_deref().unwrap_or(USUAL_TASK)
    }
}

/// `auto`, `cpu`, `cuda` or `cuda:N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// A GPU where there is one.
    #[default]
    Auto,
    /// The processor.
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
            _ => Err(format!("no device is called {name:?}; there are auto, cpu, cuda and cuda:N")),
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
    /// It is too long to be one.
    #[error("a configuration may have {LONGEST} bytes, this one has {0}")]
    Long(usize),
    /// It is no TOML, or holds what nobody knows.
    #[error("the configuration cannot be read")]
    Toml(#[source] Box<toml::de::Error>),
    /// A change on the command line is none.
    #[error(
        "{given:?} is no change of the configuration; write KEY=VALUE, such as optimiser.rate=1e-5"
    )]
    Change {
        /// What was given.
        given: String,
    },
    /// A value makes no sense.
    #[error("`{key}` must be {must}, not {found}")]
    Value {
        /// The key.
        key: &'static str,
        /// What it must be.
        must: &'static str,
        /// What it is.
        found: String,
    },
}

impl RlConfig {
    /// Reads a configuration with changes (`KEY=VALUE`) made to it.
    pub fn parse(text: &str, changes: &[String]) -> Result<Self, ConfigError> {
        let config: Self = parse(text, changes)?;
        check("steps", config.steps, config.steps <= MOST_STEPS, "at most 1000000")?;
        let only_measured = config.steps == 0;
        let some = if only_measured { &config.data.validation } else { &config.data.train };
        let key = if only_measured { "data.validation" } else { "data.train" };
        check(key, "none", !some.is_empty(), "at least one file")?;
        config.rollout.check()?;
        config.algorithm.check()?;
        config.optimiser.check()?;
        config.validation.check()?;
        config.checkpoints.check()?;
        config.lora.as_ref().map_or(Ok(()), LoraSettings::check)?;
        Ok(config)
    }
}

impl SftConfig {
    /// Reads a configuration with changes (`KEY=VALUE`) made to it.
    pub fn parse(text: &str, changes: &[String]) -> Result<Self, ConfigError> {
        let config: Self = parse(text, changes)?;
        let data = &config.data;
        let some = !data.trajectories.is_empty() || !data.demonstrations.is_empty();
        check("data", "neither", some, "given `trajectories` or `demonstrations`")?;
        check("epochs", config.epochs, (1..=1000).contains(&config.epochs), "between 1 and 1000")?;
        check(
            "batch",
            config.batch,
            (1..=MOST_EPISODES).contains(&config.batch),
            "between 1 and 65536",
        )?;
        config.rollout.check()?;
        config.optimiser.check()?;
        config.checkpoints.check()?;
        config.lora.as_ref().map_or(Ok(()), LoraSettings::check)?;
        Ok(config)
    }
}

/// No run is longer.
const MOST_STEPS: u64 = 1_000_000;

/// No step plays more.
const MOST_EPISODES: usize = 65_536;

const USUAL_TASK: &str = "instruct_pretrain";

fn once() -> u64 {
    1
}

fn usual_batch() -> usize {
    16
}

fn usual_task() -> String {
    USUAL_TASK.to_owned()
}

/// Refuses a value that makes no sense.
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

/// Keys below keys.
const DEEPEST: usize = 8;

fn parse<T: DeserializeOwned>(text: &str, changes: &[String]) -> Result<T, ConfigError> {
    if text.len() > LONGEST {
        return Err(ConfigError::Long(text.len()));
    }
    let toml = |error| ConfigError::Toml(Box::new(error));
    if changes.is_empty() {
        // Straight from the text, so that errors name lines.
        return toml::from_str(text).map_err(toml);
    }
    let mut table: toml::Table = toml::from_str(text).map_err(toml)?;
    for change in changes {
        let bad = || ConfigError::Change { given: change.clone() };
        let (key, value) = change.split_once('=').ok_or_else(bad)?;
        set(&mut table, key.trim(), value.trim()).ok_or_else(bad)?;
    }
    table.try_into().map_err(toml)
}

/// Sets a value below dotted keys; what is no value of TOML is a text.
fn set(table: &mut toml::Table, key: &str, value: &str) -> Option<()> {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {value}"));
    let parsed = parsed.ok().and_then(|mut table| table.remove("value"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()));
    let mut parts: Vec<&str> = key.splitn(DEEPEST + 1, '.').collect();
    if parts.len() > DEEPEST {
        return None;
    }
    let last = parts.pop().filter(|last| !last.is_empty())?;
    let mut inner = table;
    for part in parts {
        let below = inner.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        inner = below.as_table_mut()?;
    }
    inner.insert(last.to_owned(), value);
    Some(())
}

#[cfg(test)]
#[path = "config/config_tests.rs"]
mod tests;
