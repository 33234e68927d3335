//! Language models that can be trained: Llama, Qwen2 and Qwen3 on libtorch. Loading and saving weights, forward and
//! backward passes, log-probabilities, low-rank adapters, and a batched sampler over the same tensors.
//!
//! Knows tensors and weight files. Knows no text, no rewards, no optimizer and no sandbox. Where to start reading:
//! [`Network`] and its forward pass in `net.rs`, then [`Engine`], the sampler.
//!
//! ```no_run,standalone_crate
//! use lis_policy::{Checkpointing, Network, Row};
//! use tch::{Device, Kind};
//!
//! // Doctests cannot be linked with libtorch, so this one is only compiled.
//! let net = Network::load("models/smollm2-135m".as_ref(), Device::Cpu, Kind::Float)?;
//! let row = Row { tokens: &[1, 2, 3], scored: &[false, true, true], shared: 0 };
//! let batch = net.batch(&[row])?;
//! let loss = |scored: &lis_policy::Scored| Ok(-scored.logprob.sum(Kind::Float));
//! let result = net.accumulate(&batch, 1.0, Checkpointing::Off, loss)?;
//! println!("cross-entropy: {}", result.loss.double_value(&[]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adapter;
mod adapter_gradients;
mod attention;
mod backward;
mod batch;
mod config;
mod convert;
mod cpu;
mod error;
mod graph;
mod head;
mod kernels;
mod layer;
mod load;
mod lora;
mod merged;
mod net;
mod noise;
pub mod perf;
mod rope;
mod sampler;
mod save;
mod shape;
mod tensor_file;

pub use adapter_gradients::{AdapterGradients, AdapterGradientsError};
pub use attention::AttentionPath;
pub use backward::{Accumulated, Checkpointing};
pub use batch::{BatchError, Row, TokenBatch};
pub use config::ConfigError;
pub use cpu::disable_amx;
pub use error::{TchResult, out_of_memory};
pub use graph::{CudaError, load_cuda};
pub use head::{HeadPrecision, Scored};
pub use load::LoadError;
pub use lora::{LoraConfig, LoraError, TARGETS, Target};
pub use net::{Network, RandomError};
pub use sampler::{
    AdapterPath, CudaGraphs, Engine, EngineError, EngineSettings, EngineStats, PrefixSharing,
};
pub use save::SaveError;
pub use shape::{Architecture, Output, Scaling, Shape, ShapeError};
pub use tensor_file::{TensorFile, TensorFileError, write_tensors};
