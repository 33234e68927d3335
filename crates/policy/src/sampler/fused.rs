//! The sampler on a GPU with our own kernels: a paged cache, steps over the active sequences only, and prefill without
//! padding.

use std::sync::Arc;

use tch::{Kind, Tensor};

use crate::{
    error::TchResult,
    kernels::{Kernels, ROW},
    shape::Shape,
};

use super::{
    cuda_graphs::{GraphCache, StepKind},
    forward::{Attend, Buffers, Forward, SampleBuffers},
    pages::pages_of,
    pick::Draw,
    plan::{self, Row},
    reserve, share,
    slot::Slot,
    step::Evaluated,
    store::{PageStore, page_memory},
    weights::Weights,
};

/// The maximum number of tokens of a prefill, over all its sequences.
const PREFILL_TOKENS: usize = 8192;

/// Network, cache, and the input and output of steps.
pub(super) struct Fused {
    forward: Forward,
    store: PageStore,
    graph_cache: GraphCache,
    /// `[rows, ROW]`.
    input: Tensor,
    buffers: Buffers,
    sampled: SampleBuffers,
    /// Responses that lost their pages to older ones so far.
    evictions: u64,
}

/// The sizes of an engine.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) slots: usize,
    pub(super) context: usize,
    /// The maximum number of pages.
    pub(super) pages: usize,
}

impl Fused {
    /// Allocates everything but pages.
    pub(super) fn new(
        shape: &Shape,
        weights: Weights,
        kernels: Arc<Kernels>,
        graph_cache: GraphCache,
        sizes: Sizes,
    ) -> TchResult<Self> {
        let (device, kind) = (weights.embedding.device(), weights.embedding.kind());
        let Sizes { slots, context, pages } = sizes;
        let rows = step_rows(slots);
        let store = PageStore::new(shape, (kind, device), slots, context, pages)?;
        let forward = Forward::new(shape, weights, kernels, rows, context)?;
        Ok(Self {
            store,
            graph_cache,
            input: Tensor::f_zeros([rows as i64, ROW as i64], (Kind::Int64, device))?,
            buffers: forward.buffers(rows as i64)?,
            sampled: forward.sample_buffers(rows as i64)?,
            forward,
            evictions: 0,
        })
    }

    /// One decode step: one token of every sequence that has only a few pending and gets a page for it; `None` where none
    /// does.
    pub(super) fn decode(&mut self, slots: &mut [Slot]) -> TchResult<Option<Evaluated>> {
        let reserved = reserve::decode(&mut self.store, slots)?;
        self.evictions += reserved.evictions;
        let active = reserved.chosen;
        if active.is_empty() {
            return Ok(None);
        }
        let mut numbers = Vec::with_capacity(step_rows(active.len()) * ROW);
        let mut rows = Vec::new();
        for (index, page) in active {
            let Some(slot) = slots.get_mut(index) else { continue };
            let position = slot.tokens.len();
            let token = slot.take_pending(1).first().copied().unwrap_or_default();
            let row = plan::row(rows.len(), index, slot);
            let draw = row.as_ref().map_or(Draw::IDLE, |row| row.draw);
            numbers.extend(fields(token, position, index, page, draw));
            rows.extend(row);
        }
        let count = step_rows(rows.len());
        numbers.resize_with(count * ROW, || 0);
        // Rows beyond the active ones are idle.
        numbers.chunks_exact_mut(ROW).skip(rows.len()).for_each(|row| row[2] = -1);
        let rows_count = count as i64;
        let mut input = self.input.f_narrow(0, 0, rows_count)?;
        input.f_copy_(&Tensor::f_from_slice(&numbers)?.f_view([rows_count, ROW as i64])?)?;
        let (forward, store) = (&self.forward, &self.store);
        let mut buffers = self.buffers.first(rows_count)?;
        let sampled = self.sampled.first(rows_count)?;
        let kind = self.graph_cache.step(count, || {
            forward.layers(&input, Attend::One, &mut buffers, store)?;
            forward.sample(&input, &buffers.x, &sampled)
        })?;
        let (output, logits) = (sampled.output()?, sampled.logits);
        Ok(Some(Evaluated { output, logits, rows, kind }))
    }

    /// One prefill: new text of some sequences; `None` where none can be evaluated now.
    pub(super) fn prefill(
        &mut self,
        slots: &mut [Slot],
        waiting: &[bool],
    ) -> TchResult<Option<Evaluated>> {
        let reserved = reserve::prefill(&mut self.store, slots, waiting, PREFILL_TOKENS)?;
        self.evictions += reserved.evictions;
        let chosen = reserved.chosen;
        if chosen.is_empty() {
            return Ok(None);
        }
        let (mut numbers, mut tiles, mut last) = (Vec::new(), Vec::<i32>::new(), Vec::new());
        let mut rows = Vec::new();
        for (index, part) in chosen {
            let Some(slot) = slots.get_mut(index) else { continue };
            let begin = slot.tokens.len();
            let first = numbers.len() / ROW;
            for (position, token) in (begin..).zip(slot.take_pending(part)) {
                let page = self.store.page(index, position)?.ok_or_else(not_reserved)?;
                numbers.extend(fields(token, position, index, page, Draw::IDLE));
            }
            let (end, tile) = (numbers.len() / ROW, self.forward.tile_tokens());
            tiles.extend(
                (first..end).step_by(tile).flat_map(|at| [at as i32, tile.min(end - at) as i32]),
            );
            last.push(end as i64 - 1);
            rows.extend(plan::row(rows.len(), index, slot));
        }
        let x = self.evaluate(&numbers, &tiles)?;
        if rows.iter().all(|row: &Row| !row.sampled) {
            return Ok(None);
        }
        let device = self.forward.device();
        let x = x.f_index_select(0, &Tensor::f_from_slice(&last)?.f_to_device(device)?)?;
        let draws: Vec<i64> =
            rows.iter().flat_map(|row| fields(0, 0, row.slot, 0, row.draw)).collect();
        let draws = Tensor::f_from_slice(&draws)?.f_view([-1, ROW as i64])?.f_to_device(device)?;
        let sampled = self.forward.sample_buffers(rows.len() as i64)?;
        self.forward.sample(&draws, &x, &sampled)?;
        let (output, logits) = (sampled.output()?, sampled.logits);
        Ok(Some(Evaluated { output, logits, rows, kind: StepKind::Eager }))
    }

    /// Has slots share what others have evaluated already.
    pub(super) fn share(&mut self, slots: &mut [Slot]) -> TchResult<()> {
        for (span, to) in share::share(slots) {
            to.iter().try_for_each(|to| self.store.share(span.from, *to, span.end))?;
        }
        Ok(())
    }

    /// Takes over new weights, or changes of those there are. Everything cached is dropped.
    pub(super) fn refresh(&mut self, weights: Option<Weights>) -> TchResult<()> {
        self.graph_cache.resume_recording();
        if let Some(weights) = weights {
            self.graph_cache.clear();
            self.forward.weights = weights;
        }
        self.store.clear();
        self.graph_cache.wait()
    }

    /// Waits for what was launched.
    pub(super) fn wait(&self) -> TchResult<()> {
        self.graph_cache.wait()
    }

    /// Leaves memory to the training of the network.
    pub(super) fn prepare_update(&mut self, slots: &mut [Slot]) {
        self.graph_cache.pause_recording();
        reserve::give_back(&mut self.store, slots);
    }

    /// Drops the memory of all pages.
    pub(super) fn clear(&mut self) {
        self.store.clear();
    }

    /// Responses that lost their pages to older ones so far.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Why CUDA graphs are not used.
    pub(super) fn graphs_disabled_reason(&self) -> Option<&str> {
        self.graph_cache.reason()
    }

    /// The hidden states of new tokens.
    fn evaluate(&mut self, numbers: &[i64], tiles: &[i32]) -> TchResult<Tensor> {
        let device = self.forward.device();
        let input = Tensor::f_from_slice(numbers)?.f_view([-1, ROW as i64])?.f_to_device(device)?;
        let tiles = Tensor::f_from_slice(tiles)?.f_view([-1, 2])?.f_to_device(device)?;
        let mut buffers = self.forward.buffers((numbers.len() / ROW) as i64)?;
        self.forward.layers(&input, Attend::Many(&tiles), &mut buffers, &self.store)?;
        Ok(buffers.x)
    }
}

/// The rows of a step with room for this many sequences: few different numbers, each of which is recorded once.
fn step_rows(sequences: usize) -> usize {
    match sequences {
        0..=8 => 8,
        9..=64 => sequences.next_power_of_two(),
        _ => sequences.next_multiple_of(64),
    }
}

/// A row, as the kernels read it.
fn fields(token: u32, position: usize, slot: usize, page: i64, draw: Draw) -> [i64; ROW] {
    let [uniform, inverse_temperature, greedy] =
        draw.fields().map(|field| field.to_bits().cast_signed());
    [i64::from(token), position as i64, slot as i64, page, uniform, inverse_temperature, greedy, 0]
}

fn not_reserved() -> tch::TchError {
    tch::TchError::Shape("a token has no page".to_owned())
}

/// The device memory in bytes that is needed besides pages and weights.
pub(super) fn fixed_memory(shape: &Shape, kind: Kind, slots: usize) -> u64 {
    let number = |value: i64| u64::try_from(value).unwrap_or_default();
    let wide = kind.elt_size_in_bytes() as u64;
    let (query, key) = (number(shape.query_rows()), number(shape.key_rows()));
    let widths = 2 * number(shape.hidden) + 2 * query + 2 * key + 3 * number(shape.intermediate);
    let rows = step_rows(slots) as u64;
    // Decode steps keep their memory, and a prefill has its own.
    let passes = (rows + PREFILL_TOKENS as u64).saturating_mul(widths).saturating_mul(wide);
    // Logits may be in single precision.
    passes.saturating_add(2 * rows.saturating_mul(number(shape.vocabulary)) * 4)
}

/// The number of pages that fit into this many bytes; `None` where one sequence does not.
pub(super) fn fitting_pages(
    shape: &Shape,
    kind: Kind,
    context: usize,
    bytes: u64,
) -> Option<usize> {
    let pages = usize::try_from(bytes / page_memory(shape, kind).max(1)).unwrap_or(usize::MAX);
    // One more, to copy a shared one to.
    (pages > pages_of(context)).then_some(pages)
}

/// The bytes of a sequence's pages.
pub(super) fn sequence_memory(shape: &Shape, kind: Kind, context: usize) -> u64 {
    page_memory(shape, kind).saturating_mul(pages_of(context) as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::PAGE;

    #[test]
    fn there_are_few_kinds_of_steps_and_little_is_wasted() {
        let mut all: Vec<usize> = (0..=256).map(step_rows).collect();
        all.dedup();
        assert_eq!(all, [8, 16, 32, 64, 128, 192, 256]);
        assert!((1..=4096).all(|count| step_rows(count) >= count));
    }

    #[test]
    fn rows_hold_numbers_exactly() {
        let draw = Draw { uniform: 0.1, inverse_temperature: 1.25, greedy: 0.0 };
        let row = fields(7, PAGE, 3, i64::MAX, draw);
        assert_eq!(row[..4], [7, PAGE as i64, 3, i64::MAX]);
        assert_eq!(f64::from_bits(row[4].cast_unsigned()), 0.1);
        assert_eq!(f64::from_bits(row[5].cast_unsigned()), 1.25);
    }
}
