//! Language models that can be trained: Llama, Qwen2 and Qwen3 on libtorch. Weights in and out, forward and backward
//! passes, log-probabilities, adapters of low rank, and a batched sampler over the same tensors.
//!
//! Knows tensors and files of weights. It knows no text, no rewards, no optimiser and no sandbox.

mod adapter;
mod backward;
mod batch;
mod config;
mod convert;
mod error;
mod graph;
mod head;
mod layer;
mod load;
mod lora;
mod net;
mod noise;
pub mod perf;
mod rope;
mod sampler;
mod save;
mod shape;
mod tensor_file;

pub use backward::{Accumulated, Checkpointing};
pub use batch::{BatchError, Row, Tokens};
pub use config::ConfigError;
pub use error::{Fallible, out_of_memory};
pub use graph::{CudaError, load_cuda};
pub use head::Scored;
pub use load::LoadError;
pub use lora::{Lora, LoraError, TARGETS, Target};
pub use net::{Net, RandomError};
pub use sampler::{
    Ask, Choice, Counts, Engine, EngineError, Flow, Recording, SampleEnd, SampleError, Sampled,
    Settings, Sharing, Until,
};
pub use save::SaveError;
pub use shape::{Architecture, Output, Scaling, Shape, ShapeError};
pub use tensor_file::{TensorFile, TensorFileError, write_tensors};
