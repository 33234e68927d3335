//! From a configuration to a network on a device, and a trainer for it.
//!
//! Knows devices, precisions and adapters. Plays no episodes.

use std::path::Path;

use policy::{
    Checkpointing, CudaError, LoadError, LoraConfig, LoraError, Network, Target, load_cuda,
};
use tch::{Cuda, Device, Kind};

use crate::{
    config::{DeviceName, LoraSettings, OptimizerSettings, Precision, Projection},
    trainer::{StepError, Trainer},
};

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
