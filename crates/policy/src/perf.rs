//! Measures the speed of sampling and training, on the same work as a plain PyTorch loop
//! (`crates/train/perf/eager.py`), so that the two can be compared. Checks that the sampler's probabilities are those of
//! training.

mod check;
mod decode;

use std::time::Instant;

use sampling::{SampleError, SampleRequest, SamplingParams};
use tch::{Device, Kind, Tensor};

use crate::{
    net::{Network, RandomError},
    sampler::{CudaGraphs, Engine, EngineError, EngineSettings, EngineStats, PrefixSharing},
    shape::{Architecture, Output, Scaling, Shape},
};

pub use check::{Agreement, CheckSettings, Memory, SamplerPath, check};
pub use decode::{Decoded, Decoding, decoding};

/// Tokens and the time they took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The number of tokens.
    pub tokens: u64,
    /// The time in seconds.
    pub seconds: f64,
}

/// The sampling work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Concurrent responses.
    pub batch: usize,
    /// Tokens per prompt.
    pub prompt: usize,
    /// Tokens per response.
    pub response: usize,
    /// Whether to use CUDA graphs.
    pub cuda_graphs: CudaGraphs,
}

/// The result of measuring sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Sampled tokens; the time includes the prefill.
    pub rate: Rate,
    /// The engine's statistics, warm-up included.
    pub stats: EngineStats,
    /// Why CUDA graphs were not used; `None` where they were.
    pub graphs_disabled_reason: Option<String>,
    /// Why our own kernels were not used; `None` where they were.
    pub kernels_disabled_reason: Option<String>,
    /// The memory of the engine besides the network in bytes, by its own estimate.
    pub memory: u64,
}

/// The measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The engine cannot start.
    #[error("the engine cannot start")]
    Engine(#[from] EngineError),
    /// Sampling failed.
    #[error("sampling failed")]
    Sample(#[from] SampleError),
    /// libtorch failed.
    #[error("libtorch failed")]
    Torch(#[from] tch::TchError),
    /// The check's sequences cannot be batched.
    #[error("cannot batch sequences")]
    Batch(#[from] crate::batch::BatchError),
    /// The tokio runtime cannot start.
    #[error("cannot start the tokio runtime")]
    Runtime(#[from] std::io::Error),
}

impl Rate {
    /// Tokens per second.
    pub fn per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }
}

/// The shape of the measured model, SmolLM2-135M.
pub fn small_shape() -> Shape {
    Shape {
        architecture: Architecture::Llama,
        hidden: 576,
        layers: 30,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        intermediate: 1536,
        vocabulary: 49152,
        rope_theta: 100_000.0,
        rope_scaling: Scaling::None,
        norm_eps: 1e-5,
        output: Output::Tied,
        positions: 8192,
    }
}

/// The names of the shapes that [`named_shape`] knows.
pub const SHAPES: [&str; 6] =
    ["smollm2-135m", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b", "qwen3-0.6b"];

/// The shape of a well-known model.
pub fn named_shape(name: &str) -> Option<Shape> {
    // Hidden size, layers, heads, key-value heads, head size, intermediate size, vocabulary.
    let qwen2 = |sizes: [i64; 7], output| qwen(Architecture::Qwen2, sizes, output);
    match name {
        "smollm2-135m" => Some(small_shape()),
        "qwen2.5-0.5b" => Some(qwen2([896, 24, 14, 2, 64, 4864, 151_936], Output::Tied)),
        "qwen2.5-1.5b" => Some(qwen2([1536, 28, 12, 2, 128, 8960, 151_936], Output::Tied)),
        "qwen2.5-3b" => Some(qwen2([2048, 36, 16, 2, 128, 11_008, 151_936], Output::Tied)),
        "qwen2.5-7b" => Some(qwen2([3584, 28, 28, 4, 128, 18_944, 152_064], Output::Own)),
        "qwen3-0.6b" => {
            let sizes = [1024, 28, 16, 8, 128, 3072, 151_936];
            Some(qwen(Architecture::Qwen3, sizes, Output::Tied))
        }
        _ => None,
    }
}

fn qwen(architecture: Architecture, sizes: [i64; 7], output: Output) -> Shape {
    let [hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary] = sizes;
    Shape {
        architecture,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        intermediate,
        vocabulary,
        rope_theta: 1e6,
        rope_scaling: Scaling::None,
        norm_eps: 1e-6,
        output,
        positions: 32_768,
    }
}

/// A network of random weights, made on the device: those of [`Network::random`] take long for large ones.
pub fn random(shape: Shape, device: Device, kind: Kind) -> Result<Network, RandomError> {
    Network::filled(shape, device, kind, |rows, columns| {
        Tensor::f_empty([rows, columns], (kind, device))?.f_normal_(0.0, 0.02)
    })
}

/// Measures sampling at temperature 1 with a new engine: one round to warm up, in which all graphs are recorded, and one
/// measured round.
pub fn generation(net: &Network, what: &Generation) -> Result<Generated, PerfError> {
    let settings = EngineSettings {
        slots: what.batch,
        context: what.prompt + what.response,
        cuda_graphs: what.cuda_graphs,
        memory_limit: None,
        prefix_sharing: PrefixSharing::Off,
    };
    let memory = Engine::memory(net, &settings);
    let engine = Engine::start(net, settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(round(&engine, net.shape(), what, 0))?;
    let begun = Instant::now();
    let tokens = runtime.block_on(round(&engine, net.shape(), what, 1))?;
    let rate = Rate { tokens, seconds: begun.elapsed().as_secs_f64() };
    Ok(Generated {
        rate,
        stats: engine.stats(),
        graphs_disabled_reason: engine.graphs_disabled_reason(),
        kernels_disabled_reason: engine.kernels_disabled_reason().map(str::to_owned),
        memory,
    })
}

/// Measures a training step given by the caller, after a few to warm up.
pub fn training<E>(
    device: Device,
    steps: u32,
    tokens_per_step: u64,
    mut step: impl FnMut() -> Result<(), E>,
) -> Result<Rate, E> {
    const WARM_UP: u32 = 3;
    for _ in 0..WARM_UP {
        step()?;
    }
    settle(device);
    let begun = Instant::now();
    for _ in 0..steps {
        step()?;
    }
    settle(device);
    Ok(Rate { tokens: tokens_per_step * u64::from(steps), seconds: begun.elapsed().as_secs_f64() })
}

/// The element type of measurements on this device.
pub fn usual_kind(device: Device) -> Kind {
    match device {
        Device::Cuda(_) => Kind::BFloat16,
        _ => Kind::Float,
    }
}

/// Samples all responses concurrently, and returns the number of tokens.
async fn round(
    engine: &Engine,
    shape: &Shape,
    what: &Generation,
    round: u64,
) -> Result<u64, SampleError> {
    let vocabulary = u64::try_from(shape.vocabulary).unwrap_or(1);
    let requests: Vec<_> = (0..what.batch as u64)
        .map(|row| {
            let conversation = round * what.batch as u64 + row;
            // Arbitrary tokens that differ.
            let token = |place: u64| ((conversation * 7919 + place * 104_729) % vocabulary) as u32;
            engine.sample(SampleRequest {
                conversation,
                tokens: (0..what.prompt as u64).map(token).collect(),
                max_tokens: what.response,
                params: SamplingParams {
                    temperature: 1.0,
                    top_p: 1.0,
                    top_k: None,
                    seed: conversation,
                },
                stop_tokens: Vec::new(),
                until: None,
            })
        })
        .collect();
    let mut tokens = 0;
    for response in requests {
        tokens += response.await?.tokens.len() as u64;
    }
    Ok(tokens)
}

fn settle(device: Device) {
    if let Device::Cuda(index) = device {
        tch::Cuda::synchronize(i64::try_from(index).unwrap_or_default());
    }
}
