//! The settings of an engine, and why it may not start.

use tch::TchError;

/// The size and features of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// Conversations that are cached, and continued concurrently.
    pub slots: usize,
    /// The maximum number of tokens of a sequence, prompt and response together.
    pub context: usize,
    /// Whether decode steps use CUDA graphs.
    pub cuda_graphs: CudaGraphs,
    /// The maximum memory in bytes, as [`super::Engine::memory`] counts it; `None` for the free memory of the device.
    pub memory_limit: Option<u64>,
    /// Whether a common prefix of several conversations is evaluated once.
    pub prefix_sharing: PrefixSharing,
}

/// Whether a common prefix of several conversations is evaluated once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixSharing {
    /// Once. How a response is rounded then depends on concurrent requests.
    On,
    /// Each is evaluated separately, so that rounding does not depend on concurrent requests.
    Off,
}

/// Whether the kernels of a decode step are recorded as a CUDA graph and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaGraphs {
    /// Where the device supports it.
    Auto,
    /// Never.
    Off,
}

/// An engine cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A setting is out of range.
    #[error("{name} is {value}, and must be between 1 and {max}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The maximum.
        max: usize,
    },
    /// The cache does not fit into memory.
    #[error(
        "out of memory: {slots} conversations of {context} tokens need {needed} bytes, and {available} are available; \
         use fewer or shorter ones"
    )]
    OutOfMemory {
        /// Requested conversations.
        slots: usize,
        /// Tokens of each.
        context: usize,
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// The new network has another shape.
    #[error("the network does not have the shape this engine was started with")]
    OtherShape,
    /// libtorch failed.
    #[error("libtorch failed")]
    Torch(#[from] TchError),
    /// The thread could not be started.
    #[error("cannot start the thread of the engine")]
    Thread(#[source] std::io::Error),
    /// The thread has ended.
    #[error("the engine has stopped")]
    Stopped,
}
