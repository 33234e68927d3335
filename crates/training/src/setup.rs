//! From a configuration to a network on a device, ready to learn.
//!
//! Knows devices, kinds of numbers and adapters. Plays nothing.

use std::path::Path;

use policy::{Checkpointing, CudaError, LoadError, Lora, LoraError, Net, Target, load_cuda};
use tch::{Cuda, Device, Kind};

use crate::{
    config::{DeviceName, LoraSettings, OptimiserSettings, Precision, Projection},
    learner::{LearnError, Learner},
};

/// A network cannot be made ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The device is not there.
    #[error(
        "there is no device {name}: libtorch sees {count} GPUs; use `device = \"cpu\"`, or another number"
    )]
    Device {
        /// What was asked for.
        name: DeviceName,
        /// How many there are.
        count: i64,
    },
    /// No GPU can be used.
    #[error("there is no device {name}; use `device = \"cpu\"`")]
    Cuda {
        /// What was asked for.
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
    Lora(#[from] LoraError),
    /// The optimiser cannot be made.
    #[error("cannot make the optimiser")]
    Learn(#[from] LearnError),
}

/// What a run computes with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Where.
    pub device: Device,
    /// In what numbers.
    pub kind: Kind,
}

impl Machine {
    /// The device and numbers of a configuration.
    pub fn of(device: DeviceName, precision: Precision) -> Result<Self, SetupError> {
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

    /// In words.
    pub fn shown(&self) -> String {
        let device = match self.device {
            Device::Cuda(number) => format!("GPU {number}"),
            _ => "the processor".to_owned(),
        };
        let kind = if self.kind == Kind::BFloat16 { "bf16" } else { "f32" };
        format!("{device} in {kind}")
    }
}

impl Precision {
    /// The numbers it means on a device.
    pub(crate) fn kind(self, device: Device) -> Kind {
        match (self, device) {
            (Self::Bf16, _) | (Self::Auto, Device::Cuda(_)) => Kind::BFloat16,
            (Self::F32 | Self::Auto, _) => Kind::Float,
        }
    }

    /// What means these numbers everywhere.
    pub(crate) fn of(kind: Kind) -> Self {
        if kind == Kind::BFloat16 { Self::Bf16 } else { Self::F32 }
    }
}

/// A network as it is in its file, with an adapter where one is wanted.
pub fn network(
    model: &Path,
    machine: Machine,
    lora: Option<&LoraSettings>,
    seed: u64,
) -> Result<Net, SetupError> {
    let mut net = Net::load(model, machine.device, machine.kind)?;
    if let Some(LoraSettings { rank, alpha, targets }) = lora {
        let targets = targets.iter().map(|projection| target(*projection)).collect();
        net.add_lora(&Lora { rank: *rank, alpha: *alpha, targets, seed })?;
    }
    Ok(net)
}

/// A network that learns as the settings say.
pub fn learner(net: Net, settings: &OptimiserSettings) -> Result<Learner, SetupError> {
    let checkpointing = match settings.checkpointing {
        true => Checkpointing::Layers,
        false => Checkpointing::Off,
    };
    // All weights of a model of 135 million, in 32 bits: over 15 GB with 16,384 tokens at once, 6.6 with 2,048.
    let at_once = match (settings.tokens_at_once, net.device().is_cuda()) {
        (0, true) => 16_384,
        (0, false) => 2048,
        (set, _) => set,
    };
    Ok(Learner::new(net, settings.adamw(), at_once, checkpointing)?)
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
    fn the_processor_computes_in_full_unless_told() {
        let machine = Machine::of(DeviceName::Cpu, Precision::Auto).unwrap();
        assert_eq!((machine.device, machine.kind), (Device::Cpu, Kind::Float));
        assert_eq!(Machine::of(DeviceName::Cpu, Precision::Bf16).unwrap().kind, Kind::BFloat16);
    }

    #[test]
    fn a_gpu_that_is_not_there_is_named() {
        let error = Machine::of(DeviceName::Cuda(99), Precision::Auto).unwrap_err();
        assert!(error.to_string().contains("no device cuda:99"), "{error}");
    }
}
