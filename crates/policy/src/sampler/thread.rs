//! The thread that owns the key-value cache: receives requests, and computes steps as long as there are any. New text of
//! several conversations is prefilled together, and not after every decode step, since responses wait meanwhile. Knows
//! nothing of how a step is computed.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender},
    },
};

use sampling::{OnToken, SampleError, SampleRequest};
use tch::{Device, Kind, TchError, Tensor};

use crate::{
    error::TchResult,
    graph::{Cuda, CudaError},
    kernels::Kernels,
    shape::Shape,
};

use super::{
    EngineError, EngineSettings, PrefixSharing, Shared,
    cuda_graphs::{GraphCache, StepKind},
    evaluator, free_memory,
    fused::{self, Fused, Sizes},
    pick::{TruncatedRow, sample_truncated},
    plan::{self, Row},
    share,
    slot::{self, Assignment, ReplyTo, Slot},
    step::{Backend, Evaluated, Plain},
    weights::Weights,
};

/// A queued request.
pub(super) struct Request {
    pub(super) sample: SampleRequest,
    pub(super) on_token: Option<OnToken>,
    pub(super) to: ReplyTo,
}

/// A message to the thread.
pub(super) enum Message {
    /// Samples a response.
    Sample(Request),
    /// Frees the slot of a conversation.
    Release(u64),
    /// Pauses something until the next refresh, after the current step.
    Pause(Pause, Sender<Result<(), TchError>>),
    /// The weights have changed; `Some` where they are other tensors.
    Refresh(Option<Weights>, Sender<Result<(), TchError>>),
}

/// What is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// The recording of CUDA graphs; memory that is not needed is returned.
    Recording,
    /// All steps.
    Sampling,
}

/// Serves requests until all senders are gone. First reports whether it could start.
pub(super) fn run(
    shape: &Shape,
    weights: Weights,
    kernels: Option<Arc<Kernels>>,
    settings: &EngineSettings,
    inbox: &Receiver<Message>,
    ready: &Sender<Result<(), EngineError>>,
    shared: &Arc<Shared>,
) {
    let _no_gradients = tch::no_grad_guard();
    let worker = Worker::new(shape, weights, kernels, settings, shared);
    // The starting thread waits for this.
    match worker {
        Ok(mut worker) => {
            let _ = ready.send(Ok(()));
            worker.work(inbox);
        }
        Err(error) => drop(ready.send(Err(error))),
    }
}

struct Worker<'a> {
    backend: Backend,
    slots: Vec<Slot>,
    waiting: VecDeque<Request>,
    shared: &'a Shared,
    shape: Shape,
    context: usize,
    prefix_sharing: PrefixSharing,
    clock: u64,
    /// Decode steps since the last prefill.
    since_prefill: usize,
    /// Updates of the weights so far.
    version: u32,
    /// Whether there are no steps until the next refresh.
    is_held: bool,
}

impl<'a> Worker<'a> {
    fn new(
        shape: &Shape,
        weights: Weights,
        kernels: Option<Arc<Kernels>>,
        settings: &EngineSettings,
        shared: &'a Shared,
    ) -> Result<Self, EngineError> {
        let (device, kind) = (weights.embedding.device(), weights.embedding.kind());
        let cuda = match device {
            Device::Cuda(index) => {
                Cuda::load().and_then(|cuda| cuda.own_stream(index).map(|()| cuda))
            }
            _ => Err(CudaError::NotOnDevice),
        };
        // What is merged is allocated already.
        let limit = settings.memory_limit.unwrap_or(u64::MAX);
        let available = free_memory(device).min(limit.saturating_sub(weights.merged_memory()));
        let EngineSettings { slots, context, .. } = *settings;
        let graph_cache = GraphCache::new(cuda, settings.cuda_graphs);
        let backend = match kernels {
            Some(kernels) => {
                let pages = page_limit(shape, kind, settings, available)?;
                let sizes = Sizes { slots, context, pages };
                let fused = Fused::new(shape, weights, kernels, graph_cache, sizes)?;
                Backend::Fused(Box::new(fused))
            }
            None => {
                let needed = evaluator::memory(shape, kind, slots, context);
                if needed > available {
                    return Err(EngineError::OutOfMemory { slots, context, needed, available });
                }
                let plain = Plain::new(shape, weights, graph_cache, slots, context)?;
                Backend::Plain(Box::new(plain))
            }
        };
        let worker = Self {
            backend,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            waiting: VecDeque::new(),
            shared,
            shape: shape.clone(),
            context,
            prefix_sharing: settings.prefix_sharing,
            clock: 0,
            since_prefill: 0,
            version: 0,
            is_held: false,
        };
        worker.publish_graph_state();
        Ok(worker)
    }

    fn work(&mut self, inbox: &Receiver<Message>) {
        loop {
            if self.is_idle() {
                self.rest();
            }
            if self.is_held || self.is_idle() {
                let Ok(message) = inbox.recv() else { return };
                self.handle(message);
            }
            loop {
                match inbox.try_recv() {
                    Ok(message) => self.handle(message),
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                }
            }
            if self.is_held {
                continue;
            }
            self.slots.iter_mut().for_each(Slot::cancel_if_dropped);
            self.waiting.retain(|request| !request.to.is_closed());
            self.admit();
            if let Err(error) = self.step() {
                self.fail(&error);
            }
        }
    }

    /// Returns memory where nothing is cached that may be used again: training needs it meanwhile.
    fn rest(&mut self) {
        if self.slots.iter().all(|slot| slot.conversation.is_none()) {
            self.backend.rest(&mut self.slots);
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|slot| slot.running.is_none())
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Sample(request) => self.waiting.push_back(request),
            Message::Release(conversation) => {
                let owned =
                    self.slots.iter_mut().filter(|slot| slot.conversation == Some(conversation));
                owned.for_each(Slot::release);
            }
            // The sending thread waits for the answers to these.
            Message::Pause(pause, done) => {
                match pause {
                    Pause::Recording => self.backend.prepare_update(&mut self.slots),
                    Pause::Sampling => self.is_held = true,
                }
                let _ = done.send(self.backend.wait());
            }
            Message::Refresh(weights, done) => {
                self.slots.iter_mut().for_each(Slot::invalidate);
                self.version += 1;
                self.shared.version.store(self.version, Ordering::Relaxed);
                self.is_held = false;
                let _ = done.send(self.backend.refresh(weights));
            }
        }
    }

    /// Assigns slots to waiting requests, in order. One that has to wait for its own slot does not block others.
    fn admit(&mut self) {
        let mut later = VecDeque::new();
        while let Some(request) = self.waiting.pop_front() {
            let conversation = request.sample.conversation;
            let Assignment::Slot(index) = slot::assign(conversation, &self.slots) else {
                later.push_back(request);
                continue;
            };
            let Request { sample, on_token, to } = request;
            self.clock += 1;
            let Some(slot) = self.slots.get_mut(index) else { continue };
            slot.last_used = self.clock;
            slot.begun = self.clock;
            slot.begin(sample, to, self.context, self.prefix_sharing == PrefixSharing::On);
            slot.report_to(on_token);
        }
        self.waiting = later;
        let cached = self.slots.iter().filter(|slot| slot.conversation.is_some()).count();
        self.shared.cached_conversations.store(cached as u64, Ordering::Relaxed);
    }

    fn step(&mut self) -> TchResult<()> {
        let prefill = self.slots.iter().filter(|slot| plan::is_prefilling(slot)).count();
        let decode = self.slots.iter().filter(|slot| plan::is_decoding(slot)).count();
        let (since, slots) = (self.since_prefill, self.slots.len());
        if self.backend.prefills_now(prefill, decode, since, slots) {
            self.prefill()?;
            self.since_prefill = 0;
        }
        if self.slots.iter().any(plan::is_decoding) {
            self.decode()?;
            self.since_prefill += 1;
        }
        Ok(())
    }

    /// One decode step: evaluates one token of every sequence that has only a few pending.
    fn decode(&mut self) -> TchResult<()> {
        let evaluated = self.backend.decode(&mut self.slots)?;
        self.publish_counts();
        let Some(evaluated) = evaluated else { return Ok(()) };
        let replayed = u64::from(evaluated.kind == StepKind::Replayed);
        self.shared.replayed_steps.fetch_add(replayed, Ordering::Relaxed);
        self.shared.steps.fetch_add(1, Ordering::Relaxed);
        self.publish_graph_state();
        self.deliver(&evaluated)
    }

    /// One prefill: shares common prefixes, then evaluates new text of some sequences.
    fn prefill(&mut self) -> TchResult<()> {
        let sharing = self.prefix_sharing == PrefixSharing::On;
        if sharing {
            self.backend.share(&mut self.slots)?;
        }
        let should_wait = |to| sharing && share::should_wait(&self.slots, to);
        let waiting: Vec<bool> = (0..self.slots.len()).map(should_wait).collect();
        let evaluated = self.backend.prefill(&mut self.slots, &waiting)?;
        self.publish_counts();
        match evaluated {
            Some(evaluated) => self.deliver(&evaluated),
            None => Ok(()),
        }
    }

    /// Called before responses are delivered: their receivers may read the statistics.
    fn publish_counts(&mut self) {
        let evaluated: u64 = self.slots.iter_mut().map(Slot::take_evaluated).sum();
        self.shared.prompt_tokens.fetch_add(evaluated, Ordering::Relaxed);
        self.shared.evictions.store(self.backend.evictions(), Ordering::Relaxed);
    }

    /// Delivers sampled tokens to the responses that wait for one.
    fn deliver(&mut self, evaluated: &Evaluated) -> TchResult<()> {
        let Evaluated { output, logits, rows, .. } = evaluated;
        let mut truncated = Vec::new();
        for row in rows.iter().filter(|row| row.sampled) {
            let Some(running) = self.slots.get(row.slot).and_then(|slot| slot.running.as_ref())
            else {
                continue;
            };
            truncated.extend(truncation(running, row, self.shape.vocabulary));
        }
        let mut sampled = SampledTokens::read(output)?;
        if !truncated.is_empty() {
            let replaced = SampledTokens::read(&sample_truncated(logits, &truncated)?)?;
            for (from, truncated) in truncated.iter().enumerate() {
                sampled.replace(
                    usize::try_from(truncated.row).unwrap_or_default(),
                    &replaced,
                    from,
                );
            }
        }
        for row in rows.iter().filter(|row| row.sampled) {
            let (token, logprob) = sampled.get(row.index);
            self.clock += 1;
            let Some(slot) = self.slots.get_mut(row.slot) else { continue };
            slot.last_used = self.clock;
            // Counted first: the receiver of the response may read the statistics.
            self.shared.sampled_tokens.fetch_add(1, Ordering::Relaxed);
            slot.push_token(token, logprob, self.version);
        }
        Ok(())
    }

    /// Fails all responses in progress.
    fn fail(&mut self, error: &TchError) {
        let text = error.to_string();
        let text = format!("libtorch failed: {}", text.lines().next().unwrap_or_default());
        for slot in &mut self.slots {
            slot.fail(SampleError::Failed(text.as_str().into()));
        }
    }

    fn publish_graph_state(&self) {
        if let Ok(mut published) = self.shared.graphs_disabled_reason.lock()
            && published.as_deref() != self.backend.graphs_disabled_reason()
        {
            *published = self.backend.graphs_disabled_reason().map(str::to_owned);
        }
    }
}

/// The number of pages that fit into the available memory, which must have room for one sequence.
fn page_limit(
    shape: &Shape,
    kind: Kind,
    settings: &EngineSettings,
    available: u64,
) -> Result<usize, EngineError> {
    let EngineSettings { slots, context, .. } = *settings;
    let fixed = fused::fixed_memory(shape, kind, slots);
    let left = available.saturating_sub(fixed);
    fused::fitting_pages(shape, kind, context, left).ok_or_else(|| {
        let needed = fixed.saturating_add(fused::sequence_memory(shape, kind, context));
        EngineError::OutOfMemory { slots, context, needed, available }
    })
}

/// Tokens and log-probabilities read from the device.
struct SampledTokens {
    tokens: Vec<f64>,
    logprobs: Vec<f64>,
}

impl SampledTokens {
    fn read(output: &Tensor) -> TchResult<Self> {
        let mut numbers = Vec::<f64>::try_from(&output.f_reshape([-1])?)?;
        let logprobs = numbers.split_off(numbers.len() / 2);
        Ok(Self { tokens: numbers, logprobs })
    }

    fn get(&self, row: usize) -> (u32, f32) {
        let token = self.tokens.get(row).copied().unwrap_or_default();
        (token as u32, self.logprobs.get(row).copied().unwrap_or(f64::NAN) as f32)
    }

    fn replace(&mut self, row: usize, other: &Self, from: usize) {
        let pairs = [(&mut self.tokens, &other.tokens), (&mut self.logprobs, &other.logprobs)];
        for (mine, others) in pairs {
            if let (Some(slot), Some(&value)) = (mine.get_mut(row), others.get(from)) {
                *slot = value;
            }
        }
    }
}

/// The truncation of a row by `top_k` or `top_p`; `None` where neither applies.
fn truncation(running: &slot::Running, row: &Row, vocabulary: i64) -> Option<TruncatedRow> {
    let params = &running.params;
    let top_k = params
        .top_k
        .and_then(|top_k| i64::try_from(top_k).ok())
        .unwrap_or(vocabulary)
        .min(vocabulary);
    let truncates = params.temperature > 0.0 && (params.top_p < 1.0 || top_k < vocabulary);
    truncates.then_some(TruncatedRow {
        row: row.index as i64,
        draw: row.draw,
        top_k,
        top_p: params.top_p,
    })
}
