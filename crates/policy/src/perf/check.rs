//! Checks on the device at hand that the sampler gives tokens the probabilities that training gives them: many
//! conversations of different lengths at once, in several turns, some with a common beginning.

use sampling::{SampleRequest, SamplingParams};
use tch::{Kind, Tensor};

use crate::{
    adapter_gradients::AdapterGradients,
    batch::Row,
    error::TchResult,
    layer::Layer,
    net::Network,
    sampler::{AdapterPath, CudaGraphs, Engine, EngineSettings, PrefixSharing},
};

use super::PerfError;

/// The size of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// Conversations.
    pub conversations: usize,
    /// Slots they share.
    pub slots: usize,
    /// The maximum length of a conversation, in tokens.
    pub context: usize,
    /// The maximum length of the first prompt of a conversation, in tokens.
    pub prompt: usize,
    /// Turns of each.
    pub turns: usize,
    /// Tokens per response.
    pub tokens: usize,
    /// Whether to use CUDA graphs.
    pub cuda_graphs: CudaGraphs,
    /// Whether common prefixes are evaluated once.
    pub prefix_sharing: PrefixSharing,
    /// How much memory there is. Scarce memory makes a difference only to our own kernels.
    pub memory: Memory,
}

impl CheckSettings {
    /// The maximum length of a response: all of them take at most half of the context.
    fn response_tokens(&self) -> usize {
        self.tokens.min(self.context / (2 * self.turns).max(1)).max(1)
    }

    /// The maximum length of what follows a response: all of it takes at most a quarter of the context.
    fn new_tokens(&self) -> usize {
        (self.context / (4 * self.turns).max(1)).clamp(1, 40)
    }

    /// The length of the first prompt of a conversation, which differs from those of others.
    pub(crate) fn prompt_length(&self, row: usize) -> usize {
        let reserved = self.turns * (self.response_tokens() + self.new_tokens());
        let most = self.context.saturating_sub(reserved).max(2).min(self.prompt.max(1));
        1 + (row * row * 37 + row * 11) % most
    }

    /// The length of a response of a conversation.
    pub(crate) fn response_length(&self, row: usize, turn: usize) -> usize {
        let tokens = self.response_tokens();
        1 + (tokens * (row + turn) / 3) % tokens
    }
}

/// The memory of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// All that is free.
    Free,
    /// Enough for about two conversations of full length besides a merged adapter, so that others are evicted and
    /// evaluated again.
    Scarce,
    /// The least with which our own kernels start: room for one conversation, and none to merge an adapter.
    Least,
}

/// How the log-probabilities of sampled tokens differ from those of training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Agreement {
    /// The root mean square of the sampler's errors: of its differences to single precision.
    pub sampler_error: f64,
    /// That of training's errors.
    pub training_error: f64,
    /// Compared tokens.
    pub tokens: u64,
    /// The mean absolute difference.
    pub mean: f64,
    /// The largest absolute difference.
    pub worst: f64,
    /// The mean log-probability by training.
    pub logprob: f64,
    /// The mean of `ratio - 1 - ln(ratio)`, an estimate of the divergence from the sampler to training.
    pub kl: f64,
    /// How often a response was evicted.
    pub evictions: u64,
    /// How the sampler computed; `None` before anything was checked.
    pub path: Option<SamplerPath>,
}

/// How a sampler computed its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerPath {
    /// Whether with our own kernels.
    pub own_kernels: bool,
    /// How it applied the network's adapter.
    pub adapter: AdapterPath,
}

/// Samples with an engine and evaluates the same tokens as training does.
pub fn check(net: &Network, settings: &CheckSettings) -> Result<Agreement, PerfError> {
    let mut engine_settings = EngineSettings {
        slots: settings.slots,
        context: settings.context,
        cuda_graphs: settings.cuda_graphs,
        memory_limit: None,
        prefix_sharing: settings.prefix_sharing,
    };
    engine_settings.memory_limit = match settings.memory {
        Memory::Free => None,
        Memory::Scarce => Some(Engine::paged_memory(net, &engine_settings, 2)),
        Memory::Least => Some(Engine::least_memory(net, &engine_settings)),
    };
    let engine = Engine::start(net, engine_settings)?;
    let mut conversations: Vec<Conversation> =
        (0..settings.conversations).map(|row| Conversation::new(net, row, settings)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for turn in 0..settings.turns {
        runtime.block_on(play(&engine, net, &mut conversations, turn, settings))?;
    }
    let path = SamplerPath {
        own_kernels: engine.kernels_disabled_reason().is_none(),
        adapter: engine.adapter_path(),
    };
    let evictions = engine.stats().evictions;
    drop(engine);
    let reference = in_kind(net, Kind::Float)?;
    // As the trainer computes it, with an adapter on a GPU.
    let merged = net.device().is_cuda().then(|| AdapterGradients::new(net).ok()).flatten();
    let mut agreement = Agreement { evictions, path: Some(path), ..Agreement::default() };
    for conversation in &conversations {
        let (trained, exact) =
            (conversation.trained(net, merged.as_ref())?, conversation.trained(&reference, None)?);
        agreement.add(&conversation.logprobs, &trained);
        agreement.sampler_error += squares(&conversation.logprobs, &exact);
        agreement.training_error += squares(&trained, &exact);
    }
    let tokens = agreement.tokens.max(1) as f64;
    agreement.sampler_error = (agreement.sampler_error / tokens).sqrt();
    agreement.training_error = (agreement.training_error / tokens).sqrt();
    agreement.mean /= tokens;
    agreement.logprob /= tokens;
    agreement.kl /= tokens;
    Ok(agreement)
}

/// The sum of squared differences.
fn squares(ours: &[f32], theirs: &[f32]) -> f64 {
    ours.iter().zip(theirs).map(|(ours, theirs)| f64::from(ours - theirs).powi(2)).sum()
}

/// A copy of a network in another element type.
fn in_kind(net: &Network, kind: Kind) -> TchResult<Network> {
    let convert = |tensor: &Tensor| tensor.f_detach()?.f_to_kind(kind);
    let optional = |tensor: &Option<Tensor>| tensor.as_ref().map(convert).transpose();
    let layer = |layer: &Layer| -> TchResult<Layer> {
        Ok(Layer {
            input_norm: convert(&layer.input_norm)?,
            qkv: convert(&layer.qkv)?,
            qkv_bias: optional(&layer.qkv_bias)?,
            query_norm: optional(&layer.query_norm)?,
            key_norm: optional(&layer.key_norm)?,
            output: convert(&layer.output)?,
            post_norm: convert(&layer.post_norm)?,
            gate_up: convert(&layer.gate_up)?,
            down: convert(&layer.down)?,
            adapted: layer.adapted.in_kind(kind)?,
        })
    };
    Ok(Network {
        shape: net.shape.clone(),
        embedding: convert(&net.embedding)?,
        layers: net.layers.iter().map(layer).collect::<TchResult<_>>()?,
        norm: convert(&net.norm)?,
        head: optional(&net.head)?,
        head_precision: net.head_precision,
        lora: net.lora.clone(),
        origin: net.origin.clone(),
    })
}

/// A conversation so far.
struct Conversation {
    tokens: Vec<u32>,
    /// Which tokens were sampled.
    sampled: Vec<bool>,
    /// Their log-probabilities.
    logprobs: Vec<f32>,
}

impl Conversation {
    /// Of a length that differs from others; every second one begins as the first.
    fn new(net: &Network, row: usize, settings: &CheckSettings) -> Self {
        let length = settings.prompt_length(row);
        let common = if row.is_multiple_of(2) { length * 3 / 4 } else { 0 };
        let mut tokens = text(net, 0, common);
        tokens.extend(text(net, row + 1, length - common));
        Self { sampled: vec![false; tokens.len()], tokens, logprobs: Vec::new() }
    }

    fn push(&mut self, tokens: &[u32], sampled: bool) {
        self.tokens.extend(tokens);
        self.sampled.resize(self.tokens.len(), sampled);
    }

    /// The log-probabilities of the sampled tokens by training, with a merged adapter where there is one.
    fn trained(
        &self,
        net: &Network,
        merged: Option<&AdapterGradients>,
    ) -> Result<Vec<f32>, PerfError> {
        let row = Row { tokens: &self.tokens, scored: &self.sampled, shared: 0 };
        let batch = net.batch(&[row])?;
        let scored = match merged {
            Some(merged) => merged.logprobs(net, &batch, 1.0)?,
            None => net.logprobs(&batch, 1.0)?,
        };
        let all = scored.logprob.f_to_kind(Kind::Float)?;
        Ok(Vec::<f32>::try_from(&all)?)
    }
}

impl Agreement {
    fn add(&mut self, ours: &[f32], theirs: &[f32]) {
        for (ours, theirs) in ours.iter().zip(theirs) {
            let difference = f64::from(theirs - ours);
            self.tokens += 1;
            self.mean += difference.abs();
            // A difference that is not a number must not be lost.
            self.worst = match difference.is_nan() {
                true => f64::INFINITY,
                false => self.worst.max(difference.abs()),
            };
            self.logprob += f64::from(*theirs);
            self.kl += difference.exp() - 1.0 - difference;
        }
    }
}

/// One turn of all conversations: something new for some, then a response to each.
async fn play(
    engine: &Engine,
    net: &Network,
    conversations: &mut [Conversation],
    turn: usize,
    settings: &CheckSettings,
) -> Result<(), PerfError> {
    let mut responses = Vec::new();
    for (row, conversation) in conversations.iter_mut().enumerate() {
        if turn > 0 {
            conversation
                .push(&text(net, row + turn * 1000, 1 + (row * 7) % settings.new_tokens()), false);
        }
        responses.push(engine.sample(SampleRequest {
            conversation: row as u64,
            tokens: conversation.tokens.as_slice().into(),
            max_tokens: settings.response_length(row, turn),
            params: SamplingParams { temperature: 1.0, top_p: 1.0, top_k: None, seed: row as u64 },
            stop_tokens: Vec::new(),
            until: None,
        }));
    }
    for (response, conversation) in responses.into_iter().zip(conversations) {
        let response = response.await?;
        conversation.push(&response.tokens, true);
        conversation.logprobs.extend(response.logprobs);
    }
    Ok(())
}

/// Arbitrary tokens.
fn text(net: &Network, seed: usize, length: usize) -> Vec<u32> {
    let vocabulary = usize::try_from(net.shape().vocabulary).unwrap_or(1);
    let token = |place: usize| (seed * 7919 + place * place * 31 + place * 17) % vocabulary;
    (0..length).map(|place| token(place) as u32).collect()
}
