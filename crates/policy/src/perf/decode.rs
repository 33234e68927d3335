//! Measures decode steps alone: conversations that are long already, all continued at once.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use sampling::{Flow, SampleError, SampleRequest, SamplingParams, Until};

use crate::{
    net::Network,
    sampler::{AdapterPath, CudaGraphs, Engine, EngineSettings, PrefixSharing},
};

use super::{PerfError, Rate};

/// Tokens of each conversation before time is taken, in which steps are recorded.
const WARM_UP: usize = 8;

/// Tokens by which the first conversation may be ahead of the last.
const SLACK: usize = 512;

/// The work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoding {
    /// Conversations that are continued concurrently.
    pub slots: usize,
    /// The mean length of a conversation during the measurement, in tokens.
    pub context: usize,
    /// Measured decode steps.
    pub tokens: usize,
    /// Whether to use CUDA graphs.
    pub cuda_graphs: CudaGraphs,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Tokens sampled while all conversations were continued.
    pub rate: Rate,
    /// Decode steps in that time.
    pub steps: u64,
    /// Evaluated tokens of prompts.
    pub prefill: Rate,
    /// The time in seconds that a refresh after an update takes.
    pub refresh: f64,
    /// Why CUDA graphs were not used; `None` where they were.
    pub graphs_disabled_reason: Option<String>,
    /// Why our own kernels were not used; `None` where they were.
    pub kernels_disabled_reason: Option<String>,
    /// How the adapter was applied.
    pub adapter: AdapterPath,
}

impl Decoded {
    /// The time of a decode step in milliseconds.
    pub fn step_ms(&self) -> f64 {
        self.rate.seconds * 1e3 / self.steps.max(1) as f64
    }
}

/// Fills all slots with conversations that have nothing in common, then measures decode steps of all of them.
pub fn decoding(net: &Network, what: &Decoding) -> Result<Decoded, PerfError> {
    let prompt = what.context.saturating_sub(what.tokens / 2).max(1);
    let positions = usize::try_from(net.shape().positions).unwrap_or(usize::MAX);
    let settings = EngineSettings {
        slots: what.slots,
        context: (prompt + WARM_UP + what.tokens + 3 * SLACK + 2).min(positions),
        cuda_graphs: what.cuda_graphs,
        memory_limit: None,
        prefix_sharing: PrefixSharing::Off,
    };
    let engine = Engine::start(net, settings)?;
    let begun = Instant::now();
    engine.refresh(net)?;
    let refresh = begun.elapsed().as_secs_f64();
    let vocabulary = u64::try_from(net.shape().vocabulary).unwrap_or(1);
    let token = |row: u64, place: u64| ((row * 7919 + place * 104_729 + 1) % vocabulary) as u32;
    let mut conversations: Vec<Vec<u32>> = (0..what.slots as u64)
        .map(|row| (0..prompt as u64).map(|place| token(row, place)).collect())
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let begun = Instant::now();
    runtime.block_on(extend(&engine, &mut conversations, None))?;
    let evaluated = engine.stats().prompt_tokens;
    let prefill = Rate { tokens: evaluated, seconds: begun.elapsed().as_secs_f64() };
    let warm_up = Window::new(what.slots, WARM_UP);
    runtime.block_on(extend(&engine, &mut conversations, Some(&warm_up)))?;
    let window = Window::new(what.slots, what.tokens);
    runtime.block_on(extend(&engine, &mut conversations, Some(&window)))?;
    let (steps, seconds) = window.result();
    Ok(Decoded {
        rate: Rate { tokens: steps * what.slots as u64, seconds },
        steps,
        prefill,
        refresh,
        graphs_disabled_reason: engine.graphs_disabled_reason(),
        kernels_disabled_reason: engine.kernels_disabled_reason().map(str::to_owned),
        adapter: engine.adapter_path(),
    })
}

/// The time in which all conversations are continued: from when the last one has its first token, for some steps.
struct Window {
    conversations: usize,
    steps: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Conversations that have begun.
    begun: usize,
    opened: Option<Instant>,
    /// Steps since.
    steps: usize,
    closed: Option<Instant>,
}

impl Window {
    fn new(conversations: usize, steps: usize) -> Arc<Self> {
        Arc::new(Self { conversations, steps, state: Mutex::default() })
    }

    /// What ends a response: that all have been continued together for long enough.
    fn until(window: &Arc<Self>) -> Until {
        let (window, mut begun, mut counts) = (Arc::clone(window), false, false);
        Box::new(move |_| {
            let mut state = window.state.lock().unwrap_or_else(PoisonError::into_inner);
            if !begun {
                begun = true;
                state.begun += 1;
                if state.begun == window.conversations {
                    // The last one to begin counts the steps.
                    counts = true;
                    state.opened = Some(Instant::now());
                }
            } else if counts && state.closed.is_none() {
                state.steps += 1;
            }
            if counts && state.closed.is_none() && state.steps >= window.steps {
                state.closed = Some(Instant::now());
            }
            if state.closed.is_some() { Flow::Stop } else { Flow::Continue }
        })
    }

    /// Steps and seconds.
    fn result(&self) -> (u64, f64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = state.opened.zip(state.closed).map(|(from, to)| (to - from).as_secs_f64());
        (state.steps as u64, seconds.unwrap_or(f64::NAN))
    }
}

/// Continues all conversations until the window closes, or, without one, by one token.
async fn extend(
    engine: &Engine,
    conversations: &mut [Vec<u32>],
    window: Option<&Arc<Window>>,
) -> Result<(), SampleError> {
    let requests: Vec<_> = (0..)
        .zip(&*conversations)
        .map(|(conversation, tokens)| SampleRequest {
            conversation,
            tokens: tokens.as_slice().into(),
            max_tokens: window.map_or(1, |window| window.steps + SLACK),
            params: SamplingParams {
                temperature: 1.0,
                top_p: 1.0,
                top_k: None,
                seed: conversation,
            },
            stop_tokens: Vec::new(),
            until: window.map(Window::until),
        })
        .collect();
    let responses: Vec<_> = requests.into_iter().map(|request| engine.sample(request)).collect();
    for (response, tokens) in responses.into_iter().zip(conversations) {
        tokens.extend(response.await?.tokens);
    }
    Ok(())
}
