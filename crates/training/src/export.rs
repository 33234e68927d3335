//! What a run has learnt, as a network again: the model it began with, and the weights of a checkpoint.

use std::path::{Path, PathBuf};

use policy::Net;
use serde::Deserialize;
use tch::{Device, Kind, no_grad};

use crate::{
    adamw::MemoryError,
    checkpoint::Checkpoints,
    config::{LoraSettings, Precision},
    outside::TrainError,
    run,
    setup::{Machine, network},
};

/// A network that was trained.
pub struct Trained {
    /// The network.
    pub net: Net,
    /// The model it began with.
    pub model: PathBuf,
    /// After which step.
    pub step: u64,
}

/// As much of a configuration as both kinds of runs have.
#[derive(Deserialize)]
struct Begun {
    model: PathBuf,
    seed: u64,
    precision: Precision,
    lora: Option<LoraSettings>,
}

/// What a run has learnt after a step; after the last that was saved, where none is named.
pub fn trained(run: &Path, step: Option<u64>) -> Result<Trained, TrainError> {
    let begun: Begun = run::read(run)?;
    let checkpoints = Checkpoints::of(run, usize::MAX);
    let steps = checkpoints.steps()?;
    let step = match step {
        Some(step) if steps.contains(&step) => step,
        Some(step) => {
            return Err(TrainError::Nothing(format!(
                "step {step} was not saved, or not kept; there are {steps:?}"
            )));
        }
        None => {
            *steps.last().ok_or_else(|| TrainError::Nothing("the run was not saved yet".into()))?
        }
    };
    let kind = if begun.precision == Precision::F32 { Kind::Float } else { Kind::BFloat16 };
    let machine = Machine { device: Device::Cpu, kind };
    let net = network(&begun.model, machine, begun.lora.as_ref(), begun.seed)?;
    let weights = checkpoints.weights(step)?;
    for (name, mut tensor) in net.trainable() {
        let found = weights.iter().find(|(known, _)| *known == name);
        let (_, weight) = found.ok_or_else(|| MemoryError::Missing(name.clone()))?;
        if weight.size() != tensor.size() {
            let (found, wanted) = (weight.size(), tensor.size());
            return Err(MemoryError::Shape { name, found, wanted }.into());
        }
        no_grad(|| tensor.copy_(weight));
    }
    Ok(Trained { net, model: begun.model, step })
}
