//! The batched sampler: sequences come in from many callers, tokens go out. One thread owns the cache of keys and values
//! and continues every sequence at once; a conversation's next call costs only what was added to it since.
//!
//! Knows tokens and a net. It knows no text, no rewards and no files.

mod ask;
mod buckets;
mod pick;
mod plan;
mod recorded;
mod seat;
mod share;
mod steps;
mod thread;
mod weights;

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use tch::{Device, Kind, TchError, Tensor};
use tokio::sync::oneshot;

use crate::{lora::Lora, net::Net, shape::Shape};

pub use ask::{
    Ask, Choice, EngineError, Flow, Recording, SampleEnd, SampleError, Sampled, Settings, Sharing,
    Until,
};

use thread::Message;
use weights::{Added, Weights};

/// The most conversations at once.
const MOST_SLOTS: usize = 4096;

/// The temperatures that are no 0 and still make sense.
const TEMPERATURES: std::ops::RangeInclusive<f64> = 0.001..=100.0;

/// What an engine did so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Tokens of questions that were evaluated, without what was remembered.
    pub read: u64,
    /// Tokens that were added.
    pub sampled: u64,
    /// Steps that continued every reply by one token.
    pub steps: u64,
    /// Those of them that were replayed from a recording.
    pub replayed: u64,
    /// Conversations that hold a slot just now.
    pub remembered: u64,
}

/// The sampler's handle: it may be asked from any thread. Dropping it ends the thread and frees the cache; what is being
/// written then is lost.
pub struct Engine {
    messages: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    source: Mutex<Source>,
    shape: Shape,
    length: usize,
}

/// What is sampled from.
struct Source {
    /// A weight that no other net has at its place.
    norm: Tensor,
    adapter: Option<Lora>,
    /// The adapter's numbers, layer by layer, as the thread has them too.
    added: Vec<Added>,
}

/// What the thread tells about itself.
#[derive(Default)]
struct Shared {
    read: AtomicU64,
    sampled: AtomicU64,
    steps: AtomicU64,
    replayed: AtomicU64,
    remembered: AtomicU64,
    /// Why steps are not recorded.
    unrecorded: Mutex<Option<String>>,
}

impl Engine {
    /// Starts an engine over the weights of a net. They are shared, not copied; an adapter's thin matrices are copied.
    pub fn start(net: &Net, settings: Settings) -> Result<Self, EngineError> {
        let shape = net.shape().clone();
        check(&shape, &settings)?;
        let weights = Weights::of(net)?;
        let source = Source::of(net, &weights);
        wait_for(net.device());
        let (messages, inbox) = mpsc::channel();
        let (ready, started) = mpsc::channel();
        let shared = Arc::<Shared>::default();
        let length = settings.length;
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn({
                let (shape, shared) = (shape.clone(), Arc::clone(&shared));
                move || thread::run(&shape, weights, &settings, &inbox, &ready, &shared)
            })
            .map_err(EngineError::Thread)?;
        let source = Mutex::new(source);
        let engine =
            Self { messages: Some(messages), thread: Some(thread), shared, source, shape, length };
        started.recv().map_err(|_| EngineError::Stopped)??;
        Ok(engine)
    }

    /// Bytes of the device that an engine of these settings takes besides the net: the cache exactly, and what its
    /// steps need on the way by estimate.
    pub fn memory(shape: &Shape, kind: Kind, settings: &Settings) -> u64 {
        steps::memory(shape, kind, settings.slots, settings.length)
    }

    /// The most tokens of a sequence, reply included.
    pub fn context(&self) -> usize {
        self.length
    }

    /// The continuation of a sequence. A caller that drops the future wants it no more.
    pub fn sample(
        &self,
        ask: Ask,
    ) -> impl Future<Output = Result<Sampled, SampleError>> + Send + use<> {
        let (to, answer) = oneshot::channel();
        let asked = self
            .valid(&ask)
            .and_then(|()| self.send(Message::Ask(ask, to)).ok_or(SampleError::Stopped));
        async move {
            asked?;
            answer.await.unwrap_or(Err(SampleError::Stopped))
        }
    }

    /// Nobody asks about this conversation again: its slot is free for others.
    pub fn forget(&self, conversation: u64) {
        // An engine that has stopped remembers nothing.
        let _ = self.send(Message::Forget(conversation));
    }

    /// Takes note that the weights of the net have changed, or that another net of the same shape shall be sampled: what
    /// was remembered is evaluated anew. Call it after every update; it waits for the step that is being made. Weights
    /// that change while replies are being written give replies of neither.
    pub fn refresh(&self, net: &Net) -> Result<(), EngineError> {
        if *net.shape() != self.shape {
            return Err(EngineError::OtherShape);
        }
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let weights = match source.is_of(net) {
            true => {
                source.refresh(net)?;
                None
            }
            false => {
                let weights = Weights::of(net)?;
                *source = Source::of(net, &weights);
                Some(weights)
            }
        };
        wait_for(net.device());
        let (done, answer) = mpsc::channel();
        self.send(Message::Refresh(weights, done)).ok_or(EngineError::Stopped)?;
        Ok(answer.recv().map_err(|_| EngineError::Stopped)??)
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            read: value(&self.shared.read),
            sampled: value(&self.shared.sampled),
            steps: value(&self.shared.steps),
            replayed: value(&self.shared.replayed),
            remembered: value(&self.shared.remembered),
        }
    }

    /// Why steps are not recorded as CUDA graphs; none where they are.
    pub fn unrecorded(&self) -> Option<String> {
        self.shared.unrecorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn send(&self, message: Message) -> Option<()> {
        self.messages.as_ref()?.send(message).ok()
    }

    /// What the device would fail at, or worse, is refused before it gets there.
    fn valid(&self, ask: &Ask) -> Result<(), SampleError> {
        let (tokens, context) = (ask.tokens.len(), self.length);
        if tokens == 0 {
            return Err(SampleError::Empty);
        }
        if tokens >= context {
            return Err(SampleError::TooLong { tokens, context });
        }
        let vocabulary = self.shape.vocabulary;
        if let Some(&token) = ask.tokens.iter().find(|&&token| i64::from(token) >= vocabulary) {
            return Err(SampleError::NoSuchToken { token, vocabulary });
        }
        let Choice { temperature, top_p, top_k, .. } = ask.choice;
        let choices = [
            (
                "the temperature",
                temperature,
                temperature == 0.0 || TEMPERATURES.contains(&temperature),
            ),
            ("top_p", top_p, top_p > 0.0 && top_p <= 1.0),
            ("top_k", 0.0, top_k != Some(0)),
            ("the number of tokens to add", 0.0, ask.most > 0),
        ];
        match choices.into_iter().find(|(.., fine)| !fine) {
            Some((name, value, _)) => Err(SampleError::Choice { name, value }),
            None => Ok(()),
        }
    }
}

impl Source {
    fn of(net: &Net, weights: &Weights) -> Self {
        Self {
            norm: net.norm.shallow_clone(),
            adapter: net.lora().cloned(),
            added: weights.layers.iter().map(|layer| layer.added.shared()).collect(),
        }
    }

    /// Whether it shares the tensors of this net, so that only its adapter needs to be brought up to date.
    fn is_of(&self, net: &Net) -> bool {
        self.norm.data_ptr() == net.norm.data_ptr() && self.adapter.as_ref() == net.lora()
    }

    fn refresh(&self, net: &Net) -> Result<(), TchError> {
        let mut layers = net.layers.iter().zip(&self.added);
        layers.try_for_each(|(layer, added)| added.refresh(&layer.adapted, &net.shape))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to free.
            let _ = thread.join();
        }
    }
}

/// The engine has a stream of its own, which does not wait for the one the weights were written on.
fn wait_for(device: Device) {
    if let Device::Cuda(index) = device {
        tch::Cuda::synchronize(i64::try_from(index).unwrap_or_default());
    }
}

fn check(shape: &Shape, settings: &Settings) -> Result<(), EngineError> {
    let positions = usize::try_from(shape.positions).unwrap_or(usize::MAX);
    let bounds = [
        ("the number of conversations", settings.slots, MOST_SLOTS),
        ("the length of a sequence", settings.length, positions),
    ];
    match bounds.into_iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
        Some((name, value, most)) => Err(EngineError::Setting { name, value, most }),
        None => Ok(()),
    }
}
