//! The trained network of a run: its model with the weights of a checkpoint.

use std::path::{Path, PathBuf};

use policy::Network;
use tch::{Device, Tensor, no_grad};

use crate::{
    adamw::{OptimizerStateError, match_parameters},
    checkpoint::Checkpoints,
    run,
    services::TrainError,
    setup::{Machine, Origin, StoredConfig, network},
};

/// A trained network.
pub struct TrainedNetwork {
    /// The network.
    pub net: Network,
    /// The model it was trained from.
    pub model: PathBuf,
    /// The step of its checkpoint.
    pub step: u64,
}

/// Loads the network of a run after a step, or after the last saved one, on the CPU in the run's precision.
pub fn trained_network(run: &Path, step: Option<u64>) -> Result<TrainedNetwork, TrainError> {
    let StoredConfig { model, seed, precision, lora } = run::read_config(run)?;
    let kind = match Origin::read(run)? {
        Some(origin) => origin.precision.kind(Device::Cpu),
        // Not recorded: most runs use a GPU.
        None => precision.kind(Device::Cuda(0)),
    };
    let net = network(&model, Machine { device: Device::Cpu, kind }, lora.as_ref(), seed)?;
    let step = saved_step(run, step)?;
    copy_weights(&net, &Checkpoints::read_only(run).weights(step)?)?;
    Ok(TrainedNetwork { net, model, step })
}

/// The given step if it was saved, or the last saved one.
pub(crate) fn saved_step(run: &Path, step: Option<u64>) -> Result<u64, TrainError> {
    let steps = Checkpoints::read_only(run).steps()?;
    let run = run.display();
    match (step, steps.last()) {
        (Some(step), _) if steps.contains(&step) => Ok(step),
        (Some(step), _) => Err(TrainError::NoData(format!(
            "step {step} of {run} was not saved, or was removed; there are {steps:?}"
        ))),
        (None, Some(last)) => Ok(*last),
        (None, None) => Err(TrainError::NoData(format!("the run in {run} has no checkpoint"))),
    }
}

/// Copies the weights of a checkpoint to a network.
pub(crate) fn copy_weights(
    net: &Network,
    weights: &[(String, Tensor)],
) -> Result<(), OptimizerStateError> {
    let mut trainable = net.trainable();
    let expected = trainable.iter().map(|(name, tensor)| (name.as_str(), tensor.size()));
    let found = match_parameters(expected, weights)?;
    no_grad(|| {
        for ((_, tensor), weight) in trainable.iter_mut().zip(found) {
            tensor.copy_(weight);
        }
    });
    Ok(())
}
