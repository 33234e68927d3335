//! What a run has learnt, as a network again: the model it began with, and the weights of a checkpoint.

use std::path::{Path, PathBuf};

use policy::Net;
use tch::{Device, Tensor, no_grad};

use crate::{
    adamw::{MemoryError, matched},
    checkpoint::Checkpoints,
    origin::{Begun, Origin},
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

/// What a run has learnt after a step; after the last that was saved, where none is named.
pub fn trained(run: &Path, step: Option<u64>) -> Result<Trained, TrainError> {
    let Begun { model, seed, precision, lora } = run::read(run)?;
    let kind = match Origin::kept(run)? {
        Some(origin) => origin.precision.kind(Device::Cpu),
        // A GPU is the likelier place.
        None => precision.kind(Device::Cuda(0)),
    };
    let net = network(&model, Machine { device: Device::Cpu, kind }, lora.as_ref(), seed)?;
    let step = saved(run, step)?;
    give(&net, &Checkpoints::of(run, usize::MAX).weights(step)?)?;
    Ok(Trained { net, model, step })
}

/// A step that was saved, of which nothing but the weights is wanted: this one, or the last.
pub(crate) fn saved(run: &Path, step: Option<u64>) -> Result<u64, TrainError> {
    let steps = Checkpoints::of(run, usize::MAX).steps()?;
    let run = run.display();
    match (step, steps.last()) {
        (Some(step), _) if steps.contains(&step) => Ok(step),
        (Some(step), _) => Err(TrainError::Nothing(format!(
            "step {step} of {run} was not saved, or not kept; there are {steps:?}"
        ))),
        (None, Some(last)) => Ok(*last),
        (None, None) => {
            Err(TrainError::Nothing(format!("there is no run in {run} that has saved anything")))
        }
    }
}

/// Gives a network the weights of a checkpoint.
pub(crate) fn give(net: &Net, weights: &[(String, Tensor)]) -> Result<(), MemoryError> {
    let mut trainable = net.trainable();
    let wanted = trainable.iter().map(|(name, tensor)| (name.as_str(), tensor.size()));
    let found = matched(wanted, weights)?;
    no_grad(|| {
        for ((_, tensor), weight) in trainable.iter_mut().zip(found) {
            tensor.copy_(weight);
        }
    });
    Ok(())
}
