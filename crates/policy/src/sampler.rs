//! The batched sampler. One thread owns the key-value cache and continues all sequences together (continuous batching);
//! a conversation's next request evaluates only what was added since the last one.
//!
//! Start reading at [`Engine`], then `thread.rs` (the loop), `slot.rs` (a conversation), `plan.rs` (what a step evaluates) and
//! `step.rs` (the two ways to compute it). With libtorch's operations: `evaluator.rs` and `pick.rs`. With our own kernels:
//! `fused.rs` and `forward.rs`, over the pages of `store.rs` and `pages.rs`, which `reserve.rs` distributes. Both:
//! `weights.rs`, `share.rs` (common prefixes) and `cuda_graphs.rs`. Knows tokens and a network, no text, no rewards and no
//! files.

mod buckets;
mod cuda_graphs;
mod evaluator;
mod forward;
mod fused;
mod pages;
mod pick;
mod plan;
mod reserve;
mod settings;
mod share;
mod slot;
mod step;
mod store;
mod thread;
mod weights;

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use sampling::{OnToken, SampleError, SampleRequest, Sampled, Sampler, SamplingParams};
use tch::{Device, Kind, TchError, Tensor};
use tokio::sync::oneshot;

use crate::{
    graph::Cuda,
    kernels::{self, Kernels},
    lora::LoraConfig,
    merged,
    net::Network,
    shape::Shape,
};

pub use settings::{CudaGraphs, EngineError, EngineSettings, PrefixSharing};
pub use weights::AdapterPath;

use thread::{Message, Pause, Request};
pub(crate) use weights::logit_kind;
use weights::{AdapterWeights, Weights};

/// The maximum number of slots.
const MAX_SLOTS: usize = 4096;

/// An adapter is merged where room is left for this part of the conversations at full length. With less, waiting for
/// memory would cost more than the products with its factors.
const WITH_MERGED: usize = 4;

/// The valid temperatures besides 0.
const TEMPERATURES: std::ops::RangeInclusive<f64> = 0.001..=100.0;

/// What an engine has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineStats {
    /// Evaluated prompt tokens, without those that were cached, each once even where it was evaluated again.
    pub prompt_tokens: u64,
    /// Sampled tokens.
    pub sampled_tokens: u64,
    /// Decode steps.
    pub steps: u64,
    /// Decode steps that replayed a CUDA graph.
    pub replayed_steps: u64,
    /// Conversations that hold a slot now.
    pub cached_conversations: u64,
    /// How often a response lost its part of the cache to an older one, and was evaluated again. Only with our own
    /// kernels, where memory is short.
    pub evictions: u64,
}

/// The handle of the sampler, usable from any thread. Dropping it ends the sampler's thread and frees the cache; responses
/// in progress fail.
pub struct Engine {
    messages: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    source: Mutex<Source>,
    shape: Shape,
    /// The element type of logits.
    logits: Kind,
    context: usize,
    kernels_disabled_reason: Option<String>,
}

/// The network that is sampled from.
struct Source {
    /// A weight whose address identifies the network.
    norm: Tensor,
    adapter: Option<LoraConfig>,
    /// The adapter of each layer, as it is or merged; the thread shares these tensors.
    lora: Vec<AdapterWeights>,
    /// With which an adapter is merged; `None` where it is not.
    kernels: Option<Arc<Kernels>>,
}

/// State that the thread publishes.
#[derive(Default)]
struct Shared {
    prompt_tokens: AtomicU64,
    sampled_tokens: AtomicU64,
    steps: AtomicU64,
    replayed_steps: AtomicU64,
    cached_conversations: AtomicU64,
    evictions: AtomicU64,
    /// Updates of the weights so far.
    version: AtomicU32,
    /// Why CUDA graphs are not used.
    graphs_disabled_reason: Mutex<Option<String>>,
}

impl Engine {
    /// Starts an engine for a network. Its weights are shared. An adapter is copied, or, for our own kernels where memory
    /// allows it, merged into a copy of what it adapts.
    pub fn start(net: &Network, settings: EngineSettings) -> Result<Self, EngineError> {
        let shape = net.shape().clone();
        check(&shape, &settings)?;
        let kernels = Kernels::new(net).map(Arc::new);
        let kernels_disabled_reason = kernels.as_ref().err().map(ToString::to_string);
        let kernels = kernels.ok();
        let merging = kernels.clone().filter(|_| merges(net, &settings));
        let weights = Weights::of(net, merging.as_deref())?;
        let source = Source::of(net, &weights, merging);
        synchronize(net.device());
        let (messages, inbox) = mpsc::channel();
        let (ready, started) = mpsc::channel();
        let shared = Arc::<Shared>::default();
        let context = settings.context;
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn({
                let (shape, shared) = (shape.clone(), Arc::clone(&shared));
                move || thread::run(&shape, weights, kernels, &settings, &inbox, &ready, &shared)
            })
            .map_err(EngineError::Thread)?;
        let source = Mutex::new(source);
        let engine = Self {
            messages: Some(messages),
            thread: Some(thread),
            shared,
            source,
            shape,
            logits: logit_kind(net),
            context,
            kernels_disabled_reason,
        };
        started.recv().map_err(|_| EngineError::Stopped)??;
        Ok(engine)
    }

    /// The device memory in bytes that an engine needs at most besides the network: the whole cache exactly, a copy with
    /// the adapter merged where our own kernels may be used, and temporary tensors by estimate. With our own kernels,
    /// memory follows the conversations there are.
    pub fn memory(net: &Network, settings: &EngineSettings) -> u64 {
        evaluator::memory(net.shape(), net.kind(), settings.slots, settings.context)
            .saturating_add(merged_memory(net))
    }

    /// The memory in bytes with which our own kernels can cache this many sequences of full length, with the adapter
    /// merged.
    pub(crate) fn paged_memory(net: &Network, settings: &EngineSettings, sequences: u64) -> u64 {
        let (shape, kind) = (net.shape(), net.kind());
        let one = fused::sequence_memory(shape, kind, settings.context);
        fused::fixed_memory(shape, kind, settings.slots)
            .saturating_add(one.saturating_mul(sequences))
            .saturating_add(merged_memory(net))
    }

    /// The least memory in bytes with which our own kernels start: room for one sequence, and the adapter not merged.
    pub(crate) fn least_memory(net: &Network, settings: &EngineSettings) -> u64 {
        Self::paged_memory(net, settings, 1).saturating_sub(merged_memory(net))
    }

    /// The maximum number of tokens of a sequence, prompt and response together.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Samples a continuation of a sequence. The request is queued at once; dropping the future cancels it.
    pub fn sample(
        &self,
        request: SampleRequest,
    ) -> impl Future<Output = Result<Sampled, SampleError>> + Send + use<> {
        self.queue(request, None)
    }

    fn queue(
        &self,
        sample: SampleRequest,
        on_token: Option<OnToken>,
    ) -> impl Future<Output = Result<Sampled, SampleError>> + Send + use<> {
        let (to, response) = oneshot::channel();
        let queued = self.check_request(&sample).and_then(|()| {
            let request = Request { sample, on_token, to };
            self.send(Message::Sample(request)).ok_or(SampleError::Stopped)
        });
        async move {
            queued?;
            response.await.unwrap_or(Err(SampleError::Stopped))
        }
    }

    /// Frees the slot of a conversation for others.
    pub fn release(&self, conversation: u64) {
        // An engine that has stopped holds nothing.
        let _ = self.send(Message::Release(conversation));
    }

    /// Announces that the weights of the network have changed, or replaces it by another one of the same shape. Call
    /// this after every update.
    ///
    /// Waits for the current step, and counts one more [version](Self::version). Everything cached is stale from then
    /// on: the next token of a response in progress follows from all its tokens, evaluated again with the new weights.
    /// Weights that are shared must not change while responses are being sampled: see [`Self::hold`].
    pub fn refresh(&self, net: &Network) -> Result<(), EngineError> {
        if *net.shape() != self.shape || logit_kind(net) != self.logits {
            return Err(EngineError::OtherShape);
        }
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread must not read an adapter that is being written, and the device cannot be waited for while a graph
        // is recorded.
        self.hold()?;
        let updated = source.update(net);
        synchronize(net.device());
        let (weights, failed) = match updated {
            Ok(weights) => (weights, None),
            // Sampling continues: a caller that ignores the error must not wait for responses forever.
            Err(error) => (None, Some(error)),
        };
        let (done, answer) = mpsc::channel();
        self.send(Message::Refresh(weights, done)).ok_or(EngineError::Stopped)?;
        answer.recv().map_err(|_| EngineError::Stopped)??;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Announces that the network is about to be trained while responses are being sampled: memory that they do not
    /// need is returned, and no CUDA graphs are recorded until the next [`Self::refresh`], since libtorch cannot free
    /// memory meanwhile.
    pub fn prepare_update(&self) -> Result<(), EngineError> {
        self.pause(Pause::Recording)
    }

    /// Stops sampling after the current step, until the next [`Self::refresh`]. Requests wait. Call this before weights
    /// that the engine shares are changed: those of a network without an adapter.
    pub fn hold(&self) -> Result<(), EngineError> {
        self.pause(Pause::Sampling)
    }

    /// The number of refreshes so far: the version of the weights that the next token is sampled with.
    pub fn version(&self) -> u32 {
        self.shared.version.load(Ordering::Relaxed)
    }

    fn pause(&self, pause: Pause) -> Result<(), EngineError> {
        let (done, answer) = mpsc::channel();
        self.send(Message::Pause(pause, done)).ok_or(EngineError::Stopped)?;
        Ok(answer.recv().map_err(|_| EngineError::Stopped)??)
    }

    /// What it has done so far.
    pub fn stats(&self) -> EngineStats {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EngineStats {
            prompt_tokens: value(&self.shared.prompt_tokens),
            sampled_tokens: value(&self.shared.sampled_tokens),
            steps: value(&self.shared.steps),
            replayed_steps: value(&self.shared.replayed_steps),
            cached_conversations: value(&self.shared.cached_conversations),
            evictions: value(&self.shared.evictions),
        }
    }

    /// Why CUDA graphs are not used; `None` where they are.
    pub fn graphs_disabled_reason(&self) -> Option<String> {
        self.shared.graphs_disabled_reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why steps are computed with libtorch's operations instead of our own kernels; `None` where they are not.
    pub fn kernels_disabled_reason(&self) -> Option<&str> {
        self.kernels_disabled_reason.as_deref()
    }

    /// How the adapter of the network is applied.
    pub fn adapter_path(&self) -> AdapterPath {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        source.lora.first().map_or(AdapterPath::None, AdapterWeights::path)
    }

    fn send(&self, message: Message) -> Option<()> {
        self.messages.as_ref()?.send(message).ok()
    }

    /// Rejects requests that would fail on the device, or abort the process.
    fn check_request(&self, request: &SampleRequest) -> Result<(), SampleError> {
        let (tokens, context) = (request.tokens.len(), self.context);
        if tokens == 0 {
            return Err(SampleError::Empty);
        }
        if tokens >= context {
            return Err(SampleError::TooLong { tokens, context });
        }
        let vocabulary = self.shape.vocabulary;
        if let Some(&token) = request.tokens.iter().find(|&&token| i64::from(token) >= vocabulary) {
            return Err(SampleError::UnknownToken { token, vocabulary });
        }
        let SamplingParams { temperature, top_p, top_k, .. } = request.params;
        let checks = [
            (
                "the temperature",
                temperature,
                temperature == 0.0 || TEMPERATURES.contains(&temperature),
            ),
            ("top_p", top_p, top_p > 0.0 && top_p <= 1.0),
            ("top_k", 0.0, top_k != Some(0)),
            ("the number of tokens to add", 0.0, request.max_tokens > 0),
        ];
        match checks.into_iter().find(|(.., valid)| !valid) {
            Some((name, value, _)) => Err(SampleError::InvalidParameter { name, value }),
            None => Ok(()),
        }
    }
}

impl Sampler for Engine {
    fn context(&self) -> usize {
        Engine::context(self)
    }

    fn sample(
        &self,
        request: SampleRequest,
    ) -> impl Future<Output = Result<Sampled, SampleError>> + Send {
        Engine::sample(self, request)
    }

    fn sample_with(
        &self,
        request: SampleRequest,
        on_token: OnToken,
    ) -> impl Future<Output = Result<Sampled, SampleError>> + Send {
        self.queue(request, Some(on_token))
    }

    fn release(&self, conversation: u64) {
        Engine::release(self, conversation);
    }
}

impl Source {
    fn of(net: &Network, weights: &Weights, kernels: Option<Arc<Kernels>>) -> Self {
        Self {
            norm: net.norm.shallow_clone(),
            adapter: net.lora().cloned(),
            lora: weights.layers.iter().map(|layer| layer.adapter.shared()).collect(),
            kernels,
        }
    }

    /// Whether it shares the tensors of this network, so that only the adapter has to be updated.
    fn is_of(&self, net: &Network) -> bool {
        self.norm.data_ptr() == net.norm.data_ptr() && self.adapter.as_ref() == net.lora()
    }

    /// Takes over the weights of a network: those the thread has to use instead, or `None` where it shares them.
    fn update(&mut self, net: &Network) -> Result<Option<Weights>, TchError> {
        if self.is_of(net) {
            let mut layers = net.layers.iter().zip(&self.lora);
            let kernels = self.kernels.as_deref();
            layers.try_for_each(|(layer, adapter)| adapter.refresh(layer, &net.shape, kernels))?;
            return Ok(None);
        }
        let kernels = self.kernels.clone();
        let weights = Weights::of(net, kernels.as_deref())?;
        *self = Self::of(net, &weights, kernels);
        Ok(Some(weights))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            // A panicked thread has freed everything.
            let _ = thread.join();
        }
    }
}

/// The bytes of the copies with the adapter of a network merged, where our own kernels may be used.
fn merged_memory(net: &Network) -> u64 {
    match net.device().is_cuda() && kernels::suitable(net.shape(), net.kind()).is_ok() {
        true => merged::merged_memory(net.shape(), net.kind(), net.lora()),
        false => 0,
    }
}

/// Whether there is memory to merge the adapter of a network.
fn merges(net: &Network, settings: &EngineSettings) -> bool {
    let limit = settings.memory_limit.unwrap_or(u64::MAX);
    let sequences = settings.slots.div_ceil(WITH_MERGED) as u64;
    Engine::paged_memory(net, settings, sequences) <= free_memory(net.device()).min(limit)
}

/// The free memory of a device in bytes. Where it is unknown, allocation is attempted.
fn free_memory(device: Device) -> u64 {
    match device {
        Device::Cuda(index) => {
            Cuda::load().and_then(|cuda| cuda.free_memory(index)).unwrap_or(u64::MAX)
        }
        _ => u64::MAX,
    }
}

/// Waits for pending writes to the weights: the engine's own CUDA stream does not.
fn synchronize(device: Device) {
    if let Device::Cuda(index) = device {
        tch::Cuda::synchronize(i64::try_from(index).unwrap_or_default());
    }
}

fn check(shape: &Shape, settings: &EngineSettings) -> Result<(), EngineError> {
    let positions = usize::try_from(shape.positions).unwrap_or(usize::MAX);
    let bounds = [
        ("the number of conversations", settings.slots, MAX_SLOTS),
        ("the context length", settings.context, positions),
    ];
    match bounds.into_iter().find(|(_, value, max)| !(1..=*max).contains(value)) {
        Some((name, value, max)) => Err(EngineError::Setting { name, value, max }),
        None => Ok(()),
    }
}
