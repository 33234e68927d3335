//! What a run begins with: a model as it is, or as another run left it.
//!
//! What a configuration leaves open is settled once and kept with the run, so that it goes on as it began, wherever it
//! does and whatever became of the other run.

use std::path::{Path, PathBuf};

use policy::Net;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::{
    checkpoint::Checkpoints,
    config::{DeviceName, LoraSettings, OptimiserSettings, Precision, RlConfig, SftConfig},
    export::{give, saved},
    learner::Learner,
    outside::TrainError,
    run::{self, RunDirectory},
    setup::{self, Machine, network},
};

/// The file of what was settled.
const FILE: &str = "origin.json";

/// As much of a configuration as both kinds of runs have.
#[derive(Deserialize)]
pub(crate) struct Begun {
    pub(crate) model: PathBuf,
    pub(crate) seed: u64,
    pub(crate) precision: Precision,
    pub(crate) lora: Option<LoraSettings>,
}

/// What a configuration says about the beginning.
pub(crate) struct Start<'a> {
    model: &'a Path,
    from: Option<&'a Path>,
    output: &'a Path,
    lora: Option<&'a LoraSettings>,
    optimiser: &'a OptimiserSettings,
    seed: u64,
    device: DeviceName,
    precision: Precision,
}

/// What was settled when a run began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Origin {
    /// What is computed with; never `auto`.
    pub(crate) precision: Precision,
    /// The step of the run it began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_step: Option<u64>,
}

impl Origin {
    /// That of a run, where it was begun.
    pub(crate) fn kept(run: &Path) -> Result<Option<Self>, TrainError> {
        Ok(run::kept(run, FILE)?)
    }

    /// Keeps it with its run.
    pub(crate) fn keep(self, directory: &RunDirectory) -> Result<(), TrainError> {
        Ok(directory.keep(FILE, &self)?)
    }
}

impl<'a> From<&'a RlConfig> for Start<'a> {
    fn from(config: &'a RlConfig) -> Self {
        Self {
            model: &config.model,
            from: config.from.as_deref(),
            output: &config.output,
            lora: config.lora.as_ref(),
            optimiser: &config.optimiser,
            seed: config.seed,
            device: config.device,
            precision: config.precision,
        }
    }
}

impl<'a> From<&'a SftConfig> for Start<'a> {
    fn from(config: &'a SftConfig) -> Self {
        Self {
            model: &config.model,
            from: config.from.as_deref(),
            output: &config.output,
            lora: config.lora.as_ref(),
            optimiser: &config.optimiser,
            seed: config.seed,
            device: config.device,
            precision: config.precision,
        }
    }
}

impl Start<'_> {
    /// Settles what is open, as it was settled before where the run was begun, and finds the device.
    pub(crate) fn settle(&self) -> Result<(Origin, Machine), TrainError> {
        let origin = Origin::kept(self.output)?;
        let precision = origin.map_or(self.precision, |origin| origin.precision);
        let machine = Machine::of(self.device, precision)?;
        let origin = match (origin, self.from) {
            (Some(origin), _) => origin,
            (None, from) => Origin {
                precision: Precision::of(machine.kind),
                from_step: from.map(|run| saved(run, None)).transpose()?,
            },
        };
        Ok((origin, machine))
    }

    /// A learner with the weights the run begins with. A run that was saved has weights of its own to go on with.
    pub(crate) fn learner(&self, origin: Origin, machine: Machine) -> Result<Learner, TrainError> {
        let net = network(self.model, machine, self.lora, self.seed)?;
        let mut learner = setup::learner(net, self.optimiser)?;
        if Checkpoints::of(self.output, usize::MAX).steps()?.is_empty()
            && let Some(weights) = self.left(origin)?
        {
            learner.adopt(&weights)?;
        }
        Ok(learner)
    }

    /// The network the run begins with, for good.
    pub(crate) fn reference(&self, origin: Origin, machine: Machine) -> Result<Net, TrainError> {
        match self.left(origin)? {
            // An adapter changes nothing yet.
            None => Ok(network(self.model, machine, None, self.seed)?),
            Some(weights) => {
                let net = network(self.model, machine, self.lora, self.seed)?;
                give(&net, &weights)?;
                Ok(net)
            }
        }
    }

    /// The weights that the run to begin with left, where there is one.
    fn left(&self, origin: Origin) -> Result<Option<Vec<(String, Tensor)>>, TrainError> {
        let Some(run) = self.from else { return Ok(None) };
        let begun: Begun = run::read(run)?;
        let foreign = |key, its, ours| TrainError::Foreign { run: run.to_owned(), key, its, ours };
        if begun.model != self.model {
            let (its, ours) = (begun.model.display(), self.model.display());
            return Err(foreign("model", its.to_string(), ours.to_string()));
        }
        let alike = match (&begun.lora, self.lora) {
            (Some(its), Some(ours)) => its.is_like(ours),
            (its, ours) => its.is_none() && ours.is_none(),
        };
        if !alike {
            let shown = |lora: Option<&LoraSettings>| {
                lora.map_or_else(|| "absent".to_owned(), LoraSettings::shown)
            };
            return Err(foreign("lora", shown(begun.lora.as_ref()), shown(self.lora)));
        }
        let step = saved(run, origin.from_step)?;
        Ok(Some(Checkpoints::of(run, usize::MAX).weights(step)?))
    }
}

#[cfg(test)]
#[path = "origin_tests.rs"]
mod tests;
