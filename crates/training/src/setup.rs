//! From a configuration to a network on a device, with the initial weights of the run, and a trainer for it.
//!
//! Weights come from a model, from the checkpoint of another run or from the file of an adapter. What the configuration leaves open is resolved once and
//! stored with the run (`origin.json`), so that it resumes as it started, on whatever machine and whatever became of the
//! other run.

use std::path::{Path, PathBuf};

use policy::{
    Checkpointing, CudaError, LoadError, LoraConfig, LoraError, Network, Target, load_cuda,
};
use serde::{Deserialize, Serialize};
use tch::{Cuda, Device, Kind, Tensor};

use crate::{
    checkpoint::Checkpoints,
    config::{
        DeviceName, HeadPrecision, LoraSettings, OptimizerSettings, Precision, Projection,
        RlConfig, SampleConfig, SftConfig,
    },
    export::{copy_weights, saved_step},
    run::{self, RunDirectory},
    services::TrainError,
    trainer::{StepError, Trainer},
};

/// The file of the resolved settings.
const FILE: &str = "origin.json";

/// A network or its device cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// There is no such device.
    #[error(
        "there is no device {name}: libtorch sees {count} GPUs; set `device = \"cpu\"`, or another number"
    )]
    Device {
        /// The requested device.
        name: DeviceName,
        /// The number of GPUs.
        count: i64,
    },
    /// CUDA cannot be used.
    #[error("there is no device {name}; set `device = \"cpu\"`")]
    Cuda {
        /// The requested device.
        name: DeviceName,
        /// Why.
        #[source]
        source: CudaError,
    },
    /// The model cannot be loaded.
    #[error("cannot load the model")]
    Load(#[from] LoadError),
    /// The adapter cannot be added.
    #[error("cannot add the adapter")]
    LoraConfig(#[from] LoraError),
    /// The adapter to start from cannot be loaded.
    #[error("`from`: cannot load the adapter in {}", path.display())]
    Adapter {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: LoadError,
    },
    /// The optimizer cannot be created.
    #[error("cannot create the optimizer")]
    Optimizer(#[from] StepError),
}

/// The device and precision of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// The device.
    pub device: Device,
    /// The element type of weights and activations.
    pub kind: Kind,
}

impl Machine {
    /// Resolves the device and precision of a configuration.
    pub fn new(device: DeviceName, precision: Precision) -> Result<Self, SetupError> {
        let device = match device {
            DeviceName::Cpu => Device::Cpu,
            DeviceName::Auto => load_cuda().map_or(Device::Cpu, |()| Device::Cuda(0)),
            DeviceName::Cuda(number) => {
                load_cuda().map_err(|source| SetupError::Cuda { name: device, source })?;
                let count = Cuda::device_count();
                if number as i64 >= count {
                    return Err(SetupError::Device { name: device, count });
                }
                Device::Cuda(number)
            }
        };
        Ok(Self { device, kind: precision.kind(device) })
    }

    /// A description for the user, such as "GPU 0 in bf16".
    pub fn describe(&self) -> String {
        let device = match self.device {
            Device::Cuda(number) => format!("GPU {number}"),
            _ => "the CPU".to_owned(),
        };
        let kind = if self.kind == Kind::BFloat16 { "bf16" } else { "f32" };
        format!("{device} in {kind}")
    }
}

impl Precision {
    /// The element type on a device.
    pub(crate) fn kind(self, device: Device) -> Kind {
        match (self, device) {
            (Self::Bf16, _) | (Self::Auto, Device::Cuda(_)) => Kind::BFloat16,
            (Self::F32 | Self::Auto, _) => Kind::Float,
        }
    }

    /// The explicit precision of an element type.
    pub(crate) fn of(kind: Kind) -> Self {
        if kind == Kind::BFloat16 { Self::Bf16 } else { Self::F32 }
    }
}

/// Loads a network, with a new adapter where one is configured.
pub fn network(
    model: &Path,
    machine: Machine,
    lora: Option<&LoraSettings>,
    seed: u64,
) -> Result<Network, SetupError> {
    let mut net = Network::load(model, machine.device, machine.kind)?;
    if let Some(LoraSettings { rank, alpha, targets }) = lora {
        let targets = targets.iter().map(|projection| target(*projection)).collect();
        net.add_lora(&LoraConfig { rank: *rank, alpha: *alpha, targets, seed })?;
    }
    Ok(net)
}

/// A trainer for a network.
pub fn trainer(net: Network, settings: &OptimizerSettings) -> Result<Trainer, SetupError> {
    let checkpointing = match settings.checkpointing {
        true => Checkpointing::Layers,
        false => Checkpointing::Off,
    };
    // Full training of a 135M model in 32 bits: over 15 GB with 16,384 tokens per pass, 6.6 GB with 2,048.
    let tokens_per_pass = match (settings.tokens_per_pass, net.device().is_cuda()) {
        (0, true) => 16_384,
        (0, false) => 2048,
        (set, _) => set,
    };
    Ok(Trainer::new(net, settings.adamw(), tokens_per_pass, checkpointing)?)
}

fn target(projection: Projection) -> Target {
    match projection {
        Projection::Q => Target::Query,
        Projection::K => Target::Key,
        Projection::V => Target::Value,
        Projection::O => Target::Output,
        Projection::Gate => Target::Gate,
        Projection::Up => Target::Up,
        Projection::Down => Target::Down,
    }
}

/// The part of a stored configuration that both kinds of runs have.
#[derive(Deserialize)]
pub(crate) struct StoredConfig {
    pub(crate) model: PathBuf,
    pub(crate) seed: u64,
    pub(crate) precision: Precision,
    pub(crate) lora: Option<LoraSettings>,
}

/// The settings of a configuration that determine the initial weights.
pub(crate) struct Start<'a> {
    model: &'a Path,
    from: Option<&'a Path>,
    /// The step of `from`; the last by default.
    from_step: Option<u64>,
    output: &'a Path,
    lora: Option<&'a LoraSettings>,
    optimizer: &'a OptimizerSettings,
    seed: u64,
    device: DeviceName,
    precision: Precision,
    head_precision: HeadPrecision,
}

/// The default of `algorithm.length`, where episodes may be as long: about the sampled tokens of an episode.
const DEFAULT_LENGTH: usize = 1024;

/// The settings that were resolved when a run started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Origin {
    /// The precision of computation; never `auto`.
    pub(crate) precision: Precision,
    /// The step of the run it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_step: Option<u64>,
    /// The precision of logits; absent in runs of versions in which it was that of computation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head_precision: Option<HeadPrecision>,
}

impl Origin {
    /// The constant that losses are divided by where the configuration does not set it, for episodes of at most this
    /// many tokens. Runs of older versions keep theirs.
    pub(crate) fn default_length(self, max_tokens: usize) -> usize {
        match self.head_precision {
            Some(_) => max_tokens.min(DEFAULT_LENGTH),
            None => max_tokens,
        }
    }

    /// That of a run; `None` where the run has not started.
    pub(crate) fn read(run: &Path) -> Result<Option<Self>, TrainError> {
        Ok(run::read_json(run, FILE)?)
    }

    /// Stores it with its run.
    pub(crate) fn write(self, directory: &RunDirectory) -> Result<(), TrainError> {
        Ok(directory.write_json(FILE, &self)?)
    }
}

macro_rules! start_from {
    ($($config:ty),*) => {$(
        impl<'a> From<&'a $config> for Start<'a> {
            fn from(config: &'a $config) -> Self {
                let (from, from_step) = config.from.as_deref().map(run_and_step).unzip();
                Self {
                    model: &config.model,
                    from,
                    from_step: from_step.flatten(),
                    output: &config.output,
                    lora: config.lora.as_ref(),
                    optimizer: &config.optimizer,
                    seed: config.seed,
                    device: config.device,
                    precision: config.precision,
                    head_precision: config.head_precision,
                }
            }
        }
    )*};
}

start_from!(RlConfig, SampleConfig, SftConfig);

/// The run and the step of `RUN@STEP`; a directory whose name holds an `@` is taken as it is.
fn run_and_step(from: &Path) -> (&Path, Option<u64>) {
    let split = from.to_str().filter(|_| !from.exists()).and_then(|text| text.rsplit_once('@'));
    match split.and_then(|(run, step)| Some((run, step.parse().ok()?))) {
        Some((run, step)) => (Path::new(run), Some(step)),
        None => (from, None),
    }
}

/// Whether `from` names the file of an adapter instead of a run.
fn is_adapter(from: &Path) -> bool {
    from.extension().is_some_and(|extension| extension == "gguf") && !from.is_dir()
}

impl Start<'_> {
    /// Resolves what the configuration leaves open, or reads it where the run has started before, and finds the device.
    pub(crate) fn resolve(&self) -> Result<(Origin, Machine), TrainError> {
        let origin = Origin::read(self.output)?;
        let precision = origin.map_or(self.precision, |origin| origin.precision);
        let machine = Machine::new(self.device, precision)?;
        let origin = match (origin, self.from) {
            (Some(origin), _) => origin,
            (None, from) => Origin {
                precision: Precision::of(machine.kind),
                from_step: match from {
                    Some(run) if !is_adapter(run) => Some(saved_step(run, self.from_step)?),
                    _ => None,
                },
                head_precision: Some(self.head_precision),
            },
        };
        Ok((origin, machine))
    }

    /// A trainer with the initial weights of the run. A run with a checkpoint does not need them: it loads its own.
    pub(crate) fn trainer(&self, origin: Origin, machine: Machine) -> Result<Trainer, TrainError> {
        let net = self.network(origin, machine, self.lora)?;
        let mut trainer = trainer(net, self.optimizer)?;
        if Checkpoints::read_only(self.output).steps()?.is_empty()
            && let Some(weights) = self.initial_weights(origin, trainer.net())?
        {
            trainer.reset_to(&weights)?;
        }
        Ok(trainer)
    }

    /// A network with the initial weights of the run: the reference of a KL term.
    pub(crate) fn reference(
        &self,
        origin: Origin,
        machine: Machine,
    ) -> Result<Network, TrainError> {
        // A new adapter changes nothing yet.
        let lora = self.lora.filter(|_| self.from.is_some());
        let net = self.network(origin, machine, lora)?;
        if let Some(weights) = self.initial_weights(origin, &net)? {
            copy_weights(&net, &weights)?;
        }
        Ok(net)
    }

    fn network(
        &self,
        origin: Origin,
        machine: Machine,
        lora: Option<&LoraSettings>,
    ) -> Result<Network, TrainError> {
        let net = network(self.model, machine, lora, self.seed)?;
        let precision = origin.head_precision.unwrap_or(HeadPrecision::Model);
        Ok(net.with_head_precision(precision.into()))
    }

    /// The weights of the run or the adapter named by `from`, if any, for this network.
    fn initial_weights(
        &self,
        origin: Origin,
        net: &Network,
    ) -> Result<Option<Vec<(String, Tensor)>>, TrainError> {
        let Some(run) = self.from else { return Ok(None) };
        if is_adapter(run) {
            let read = net.read_adapter_gguf(run);
            let failed = |source| SetupError::Adapter { path: run.to_owned(), source };
            return Ok(Some(read.map_err(failed)?));
        }
        let other: StoredConfig = run::read_config(run)?;
        let incompatible =
            |key, its, ours| TrainError::IncompatibleRun { run: run.to_owned(), key, its, ours };
        if other.model != self.model {
            let (its, ours) = (other.model.display(), self.model.display());
            return Err(incompatible("model", its.to_string(), ours.to_string()));
        }
        let compatible = match (&other.lora, self.lora) {
            (Some(its), Some(ours)) => its.is_compatible(ours),
            (its, ours) => its.is_none() && ours.is_none(),
        };
        if !compatible {
            let shown = |lora: Option<&LoraSettings>| {
                lora.map_or_else(|| "absent".to_owned(), LoraSettings::describe)
            };
            return Err(incompatible("lora", shown(other.lora.as_ref()), shown(self.lora)));
        }
        let step = saved_step(run, origin.from_step)?;
        Ok(Some(Checkpoints::read_only(run).weights(step)?))
    }
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod weights_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_computes_in_f32_by_default() {
        let machine = Machine::new(DeviceName::Cpu, Precision::Auto).unwrap();
        assert_eq!((machine.device, machine.kind), (Device::Cpu, Kind::Float));
        assert_eq!(Machine::new(DeviceName::Cpu, Precision::Bf16).unwrap().kind, Kind::BFloat16);
    }

    #[test]
    fn a_missing_gpu_is_named() {
        let error = Machine::new(DeviceName::Cuda(99), Precision::Auto).unwrap_err();
        assert!(error.to_string().contains("no device cuda:99"), "{error}");
    }
}
