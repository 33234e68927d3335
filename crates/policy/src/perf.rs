//! How fast sampling and training are: the same work for us and for a plain PyTorch loop (`crates/train/perf/eager.py`),
//! so that the two can be set side by side. Refuses to know the optimiser and what is printed.

use std::time::Instant;

use tch::{Device, Kind};

use crate::{
    net::Net,
    sampler::{
        Ask, Choice, Counts, Engine, EngineError, Recording, SampleError, Settings, Sharing,
    },
    shape::{Architecture, Output, Scaling, Shape},
};

/// Tokens over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How many.
    pub tokens: u64,
    /// How long they took.
    pub seconds: f64,
}

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Replies at once.
    pub batch: usize,
    /// Tokens of each question.
    pub prompt: usize,
    /// Tokens of each reply.
    pub reply: usize,
    /// Whether steps may be recorded as CUDA graphs.
    pub recording: Recording,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Tokens of replies; the time includes reading the questions.
    pub rate: Rate,
    /// What the engine did, warming up included.
    pub counts: Counts,
    /// Why steps were not recorded, if they were not.
    pub unrecorded: Option<String>,
    /// Bytes the engine took besides the net, by its own count.
    pub memory: u64,
}

/// Nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The engine does not start.
    #[error("the engine does not start")]
    Engine(#[from] EngineError),
    /// A reply failed.
    #[error("a reply failed")]
    Sample(#[from] SampleError),
    /// There is nothing to wait with.
    #[error("no runtime to wait in")]
    Runtime(#[from] std::io::Error),
}

impl Rate {
    /// Tokens per second.
    pub fn per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }
}

/// The shape of the 135-million-parameter model that the figures are of (SmolLM2's).
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

/// Samples at temperature 1 with an engine of its own: once to warm up, so that every step is recorded, and once for
/// the figures.
pub fn generation(net: &Net, what: &Generation) -> Result<Generated, PerfError> {
    let settings = Settings {
        slots: what.batch,
        length: what.prompt + what.reply,
        recording: what.recording,
        most_memory: None,
        sharing: Sharing::Off,
    };
    let memory = Engine::memory(net.shape(), net.kind(), &settings);
    let engine = Engine::start(net, settings)?;
    let waiting = tokio::runtime::Builder::new_current_thread().build()?;
    waiting.block_on(round(&engine, net.shape(), what, 0))?;
    let begun = Instant::now();
    let tokens = waiting.block_on(round(&engine, net.shape(), what, 1))?;
    let rate = Rate { tokens, seconds: begun.elapsed().as_secs_f64() };
    Ok(Generated { rate, counts: engine.counts(), unrecorded: engine.unrecorded(), memory })
}

/// Times a step of training that the caller gives, after a few to warm up.
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

/// What the figures are measured in on this device.
pub fn usual_kind(device: Device) -> Kind {
    match device {
        Device::Cuda(_) => Kind::BFloat16,
        _ => Kind::Float,
    }
}

/// Asks all questions at once and returns how many tokens came.
async fn round(
    engine: &Engine,
    shape: &Shape,
    what: &Generation,
    round: u64,
) -> Result<u64, SampleError> {
    let vocabulary = u64::try_from(shape.vocabulary).unwrap_or(1);
    let asked: Vec<_> = (0..what.batch as u64)
        .map(|row| {
            let conversation = round * what.batch as u64 + row;
            // Any tokens do, as long as they differ.
            let token = |place: u64| ((conversation * 7919 + place * 104_729) % vocabulary) as u32;
            engine.sample(Ask {
                conversation,
                tokens: (0..what.prompt as u64).map(token).collect(),
                most: what.reply,
                choice: Choice { temperature: 1.0, top_p: 1.0, top_k: None, seed: conversation },
                ends: Vec::new(),
                until: None,
            })
        })
        .collect();
    let mut tokens = 0;
    for reply in asked {
        tokens += reply.await?.tokens.len() as u64;
    }
    Ok(tokens)
}

fn settle(device: Device) {
    if let Device::Cuda(index) = device {
        tch::Cuda::synchronize(i64::try_from(index).unwrap_or_default());
    }
}
