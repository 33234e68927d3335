//! The two ways to compute steps: with our own kernels over a paged cache, or with libtorch's operations over one cache of
//! fixed size, which work on every device and in every precision.

use tch::{Device, Tensor};

use crate::{error::TchResult, shape::Shape};

use super::{
    cuda_graphs::{GraphCache, StepKind},
    evaluator::{Evaluator, prefill_sequences},
    fused::Fused,
    pick::sample_tokens,
    plan::{self, Row},
    share,
    slot::Slot,
    weights::Weights,
};

/// What a step has computed.
pub(super) struct Evaluated {
    /// `[2, ...]` in double precision: tokens and log-probabilities.
    pub(super) output: Tensor,
    /// `[..., vocabulary]`.
    pub(super) logits: Tensor,
    /// The rows of both that belong to sequences.
    pub(super) rows: Vec<Row>,
    pub(super) kind: StepKind,
}

/// How steps are computed.
pub(super) enum Backend {
    /// With libtorch's operations.
    Plain(Box<Plain>),
    /// With our own kernels.
    Fused(Box<Fused>),
}

/// The network and its cache, for libtorch's operations.
pub(super) struct Plain {
    evaluator: Evaluator,
    graph_cache: GraphCache,
    shape: Shape,
}

impl Backend {
    /// One decode step: one token of every sequence that has only a few pending; `None` where none has room for it.
    pub(super) fn decode(&mut self, slots: &mut [Slot]) -> TchResult<Option<Evaluated>> {
        match self {
            Self::Plain(plain) => plain.decode(slots).map(Some),
            Self::Fused(fused) => fused.decode(slots),
        }
    }

    /// One prefill of slots that are not `waiting`; `None` where nothing is sampled after it.
    pub(super) fn prefill(
        &mut self,
        slots: &mut [Slot],
        waiting: &[bool],
    ) -> TchResult<Option<Evaluated>> {
        match self {
            Self::Plain(plain) => plain.prefill(slots, waiting),
            Self::Fused(fused) => fused.prefill(slots, waiting),
        }
    }

    /// Shares common prefixes, which then need not be evaluated.
    pub(super) fn share(&mut self, slots: &mut [Slot]) -> TchResult<()> {
        match self {
            Self::Plain(plain) => plain.share(slots),
            Self::Fused(fused) => fused.share(slots),
        }
    }

    /// Waits for what was launched.
    pub(super) fn wait(&self) -> TchResult<()> {
        match self {
            Self::Plain(plain) => plain.graph_cache.wait(),
            Self::Fused(fused) => fused.wait(),
        }
    }

    /// Leaves memory to the training of the network: records no graphs until the next refresh, and returns pages where
    /// most are unused.
    pub(super) fn prepare_update(&mut self, slots: &mut [Slot]) {
        match self {
            Self::Plain(plain) => plain.graph_cache.pause_recording(),
            Self::Fused(fused) => fused.prepare_update(slots),
        }
    }

    /// Takes over new weights, or changes of those there are, and drops everything cached.
    pub(super) fn refresh(&mut self, weights: Option<Weights>) -> TchResult<()> {
        match self {
            Self::Plain(plain) => plain.refresh(weights),
            Self::Fused(fused) => fused.refresh(weights),
        }
    }

    /// Whether to prefill now: `waiting` slots have new text, `decoding` ones have a response, and this many decode steps
    /// were computed since the last prefill.
    pub(super) fn prefills_now(
        &self,
        waiting: usize,
        decoding: usize,
        since: usize,
        slots: usize,
    ) -> bool {
        // Without padding, and without masks to prepare, a prefill of little costs little.
        let (steps, share) = match self {
            Self::Plain(_) => (8, 4),
            Self::Fused(_) => (4, 16),
        };
        waiting > 0 && (decoding == 0 || since >= steps || waiting * share >= slots)
    }

    /// Returns memory while no conversation is cached. The tokens of all slots are dropped where that clears the cache.
    pub(super) fn rest(&mut self, slots: &mut [Slot]) {
        if let Self::Fused(fused) = self {
            slots.iter_mut().for_each(|slot| slot.tokens.clear());
            fused.clear();
        }
    }

    /// Responses that lost their part of the cache to older ones so far.
    pub(super) fn evictions(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Fused(fused) => fused.evictions(),
        }
    }

    /// Why CUDA graphs are not used; `None` where they are.
    pub(super) fn graphs_disabled_reason(&self) -> Option<&str> {
        match self {
            Self::Plain(plain) => plain.graph_cache.reason(),
            Self::Fused(fused) => fused.graphs_disabled_reason(),
        }
    }
}

impl Plain {
    /// Allocates the whole cache.
    pub(super) fn new(
        shape: &Shape,
        weights: Weights,
        graph_cache: GraphCache,
        slots: usize,
        context: usize,
    ) -> TchResult<Self> {
        let evaluator = Evaluator::new(shape, weights, slots, context)?;
        Ok(Self { evaluator, graph_cache, shape: shape.clone() })
    }

    fn decode(&mut self, slots: &mut [Slot]) -> TchResult<Evaluated> {
        let decode = plan::decode(slots, self.evaluator.scratch);
        let numbers = Tensor::f_from_slice(&decode.numbers)?;
        self.evaluator.input.f_copy_(&numbers.f_view_as(&self.evaluator.input)?)?;
        let (evaluator, view) = (&mut self.evaluator, decode.view);
        let kind = self.graph_cache.step(view, || evaluator.decode(view))?;
        let (output, logits) =
            (self.evaluator.output.shallow_clone(), self.evaluator.logits.shallow_clone());
        Ok(Evaluated { output, logits, rows: decode.rows, kind })
    }

    fn prefill(&mut self, slots: &mut [Slot], waiting: &[bool]) -> TchResult<Option<Evaluated>> {
        let device = self.evaluator.device();
        let limit = |width, view| prefill_sequences(device, &self.shape, width, view);
        let (prefill, rows) = plan::prefill(slots, waiting, self.evaluator.scratch, limit);
        if rows.is_empty() {
            return Ok(None);
        }
        let logits = self.evaluator.prefill(&prefill)?;
        if rows.iter().all(|row| !row.sampled) {
            return Ok(None);
        }
        let output = sample_tokens(&logits, &draws(&rows, device)?)?;
        Ok(Some(Evaluated { output, logits, rows, kind: StepKind::Eager }))
    }

    fn share(&mut self, slots: &mut [Slot]) -> TchResult<()> {
        share::share(slots).iter().try_for_each(|(span, to)| self.evaluator.copy(span, to))
    }

    fn refresh(&mut self, weights: Option<Weights>) -> TchResult<()> {
        self.graph_cache.resume_recording();
        if let Some(weights) = weights {
            self.graph_cache.clear();
            self.evaluator.weights = weights;
        }
        self.evaluator.clear().and_then(|()| self.graph_cache.wait())
    }
}

/// The draws of rows, `[3, rows]`.
fn draws(rows: &[Row], device: Device) -> TchResult<Tensor> {
    let draws: Vec<f64> =
        (0..3).flat_map(|field| rows.iter().map(move |row| row.draw.fields()[field])).collect();
    Tensor::f_from_slice(&draws)?.f_view([3, rows.len() as i64])?.f_to_device(device)
}
