//! Where the weights of a run come from: a model, or the checkpoint of another run.
//!
//! What the configuration leaves open is resolved once and stored with the run (`origin.json`), so that it resumes as
//! it started, on whatever machine and whatever became of the other run.

use std::path::{Path, PathBuf};

use policy::Network;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::{
    checkpoint::Checkpoints,
    config::{DeviceName, LoraSettings, OptimizerSettings, Precision, RlConfig, SftConfig},
    export::{copy_weights, saved_step},
    run::{self, RunDirectory},
    services::TrainError,
    setup::{self, Machine, network},
    trainer::Trainer,
};

/// The file of the resolved settings.
const FILE: &str = "origin.json";

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
    output: &'a Path,
    lora: Option<&'a LoraSettings>,
    optimizer: &'a OptimizerSettings,
    seed: u64,
    device: DeviceName,
    precision: Precision,
}

/// The settings that were resolved when a run started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Origin {
    /// The precision of computation; never `auto`.
    pub(crate) precision: Precision,
    /// The step of the run it started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_step: Option<u64>,
}

impl Origin {
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
                Self {
                    model: &config.model,
                    from: config.from.as_deref(),
                    output: &config.output,
                    lora: config.lora.as_ref(),
                    optimizer: &config.optimizer,
                    seed: config.seed,
                    device: config.device,
                    precision: config.precision,
                }
            }
        }
    )*};
}

start_from!(RlConfig, SftConfig);

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
                from_step: from.map(|run| saved_step(run, None)).transpose()?,
            },
        };
        Ok((origin, machine))
    }

    /// A trainer with the initial weights of the run. A run with a checkpoint does not need them: it loads its own.
    pub(crate) fn trainer(&self, origin: Origin, machine: Machine) -> Result<Trainer, TrainError> {
        let net = network(self.model, machine, self.lora, self.seed)?;
        let mut trainer = setup::trainer(net, self.optimizer)?;
        if Checkpoints::read_only(self.output).steps()?.is_empty()
            && let Some(weights) = self.weights_of_other_run(origin)?
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
        match self.weights_of_other_run(origin)? {
            // A new adapter changes nothing yet.
            None => Ok(network(self.model, machine, None, self.seed)?),
            Some(weights) => {
                let net = network(self.model, machine, self.lora, self.seed)?;
                copy_weights(&net, &weights)?;
                Ok(net)
            }
        }
    }

    /// The weights of the run named by `from`, if any.
    fn weights_of_other_run(
        &self,
        origin: Origin,
    ) -> Result<Option<Vec<(String, Tensor)>>, TrainError> {
        let Some(run) = self.from else { return Ok(None) };
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
#[path = "origin_tests.rs"]
mod tests;
