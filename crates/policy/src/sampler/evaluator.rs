//! The forward pass over a key-value cache of fixed size with libtorch's operations, on every device and in every
//! precision: one token of every sequence (decode), or many tokens of some (prefill). Output tensors keep their addresses, so that a decode step can be recorded as a CUDA graph.

use tch::{Device, Kind, Tensor};

use crate::{error::TchResult, layer::norm, rope::Tables, shape::Shape};

use super::{
    buckets::bucket,
    pick::sample_tokens,
    share::Span,
    weights::{LayerWeights, Weights},
};

/// The inputs of a decode step per sequence: token, position, cache cell of its keys, and the three fields of its draw.
pub(super) const FIELDS: i64 = 6;

/// The maximum number of tokens of a prefill, over all its sequences.
pub(super) const PREFILL_TOKENS: usize = 4096;

/// The maximum number of entries of the attention mask of a prefill.
const MAX_MASK: usize = 1 << 28;

/// The network, its cache, and the input and output of steps.
pub(super) struct Evaluator {
    shape: Shape,
    pub(super) weights: Weights,
    /// Per layer `[slots, 2 * kv_heads, cells, head_dim]`: keys, then values.
    cache: Vec<Tensor>,
    rope: Tables,
    /// `0..slots` and `0..cells`.
    slots: Tensor,
    cells: Tensor,
    /// `[FIELDS, slots]` in double precision, which holds tokens and positions exactly.
    pub(super) input: Tensor,
    /// `[2, slots]`: tokens and log-probabilities.
    pub(super) output: Tensor,
    /// `[slots, vocabulary]`.
    pub(super) logits: Tensor,
    /// The cell for keys of idle slots and padding: the last one, which attention never reads.
    pub(super) scratch: i64,
}

/// A prefill: many tokens of some sequences.
#[derive(Debug, Default)]
pub(super) struct PrefillBatch {
    /// Their slots.
    pub(super) slots: Vec<i64>,
    /// Tokens of each, padded to `width`.
    pub(super) tokens: Vec<i64>,
    /// Positions of those tokens.
    pub(super) positions: Vec<i64>,
    /// The cache cells of their keys; padding goes to the scratch cell.
    pub(super) cells: Vec<i64>,
    /// The index of the last token of each sequence in `tokens`.
    pub(super) last: Vec<i64>,
    /// Tokens per sequence, padding included.
    pub(super) width: i64,
    /// The number of cache positions that attention reads.
    pub(super) view: usize,
}

/// The tokens of a pass, and the part of the cache they attend to.
struct Pass<'a> {
    /// One entry per token.
    slots: &'a Tensor,
    cells: &'a Tensor,
    rope: Tables,
    /// `[sequences, kv_heads, width * group, view]`.
    mask: Tensor,
    rows: CacheRows<'a>,
    sequences: i64,
    width: i64,
    view: i64,
}

/// The cache rows that are attended to.
#[derive(Clone, Copy)]
enum CacheRows<'a> {
    /// All slots, in place.
    All,
    /// Some slots, copied.
    Selected(&'a Tensor),
}

impl Evaluator {
    /// Allocates the cache, the larger part of [`memory`].
    pub(super) fn new(
        shape: &Shape,
        weights: Weights,
        slots: usize,
        context: usize,
    ) -> TchResult<Self> {
        let (device, kind) = (weights.embedding.device(), weights.embedding.kind());
        let (count, cells) = (slots as i64, bucket(context) as i64 + 1);
        let sizes = [count, 2 * shape.kv_heads, cells, shape.head_dim];
        let cache = (0..shape.layers)
            .map(|_| Tensor::f_zeros(sizes, (kind, device)))
            .collect::<TchResult<_>>()?;
        Ok(Self {
            shape: shape.clone(),
            cache,
            rope: Tables::new(shape, cells, kind, device)?,
            slots: Tensor::f_arange(count, (Kind::Int64, device))?,
            cells: Tensor::f_arange(cells, (Kind::Int64, device))?,
            input: Tensor::f_zeros([FIELDS, count], (Kind::Double, device))?,
            output: Tensor::f_zeros([2, count], (Kind::Double, device))?,
            logits: Tensor::f_zeros([count, shape.vocabulary], (weights.logits, device))?,
            scratch: cells - 1,
            weights,
        })
    }

    /// One decode step: from `input` to `logits` and `output`. Always the same operations, idle slots included, so that
    /// they can be recorded, and so that a sequence's numbers do not depend on the others.
    pub(super) fn decode(&mut self, view: usize) -> TchResult<()> {
        let numbers = self.input.f_narrow(0, 0, 3)?.f_to_kind(Kind::Int64)?;
        let [tokens, positions, cells] =
            [numbers.f_select(0, 0)?, numbers.f_select(0, 1)?, numbers.f_select(0, 2)?];
        let slots = self.slots.shallow_clone();
        let (count, view) = (slots.size1()?, view as i64);
        let pass = Pass {
            slots: &slots,
            cells: &cells,
            rope: self.rope_tables(&positions)?,
            mask: self.mask(&positions, count, 1, view)?,
            rows: CacheRows::All,
            sequences: count,
            width: 1,
            view,
        };
        let x = self.layers(&tokens, &pass)?;
        let normed = norm(&x, &self.weights.norm, self.shape.norm_eps)?;
        self.weights.write_logits(&normed, &self.logits)?;
        let sampled = sample_tokens(&self.logits, &self.input.f_narrow(0, 3, 3)?)?;
        self.output.f_copy_(&sampled)
    }

    /// One prefill: returns the logits after the last token of each sequence, `[sequences, vocabulary]`.
    pub(super) fn prefill(&mut self, prefill: &PrefillBatch) -> TchResult<Tensor> {
        let device = self.device();
        let list = |numbers: &[i64]| Tensor::f_from_slice(numbers)?.f_to_device(device);
        let sequences = prefill.slots.len() as i64;
        let selected = list(&prefill.slots)?;
        let slots = selected
            .f_unsqueeze(1)?
            .f_expand([sequences, prefill.width], false)?
            .f_reshape([-1])?;
        let (positions, cells) = (list(&prefill.positions)?, list(&prefill.cells)?);
        let view = prefill.view as i64;
        let pass = Pass {
            slots: &slots,
            cells: &cells,
            rope: self.rope_tables(&positions)?,
            mask: self.mask(&positions, sequences, prefill.width, view)?,
            rows: CacheRows::Selected(&selected),
            sequences,
            width: prefill.width,
            view,
        };
        let x = self
            .layers(&list(&prefill.tokens)?, &pass)?
            .f_index_select(0, &list(&prefill.last)?)?;
        let normed = norm(&x, &self.weights.norm, self.shape.norm_eps)?;
        let sizes = [sequences, self.shape.vocabulary];
        let logits = Tensor::f_empty(sizes, (self.weights.logits, device))?;
        self.weights.write_logits(&normed, &logits)?;
        Ok(logits)
    }

    /// Copies keys and values of one slot to others.
    pub(super) fn copy(&mut self, span: &Span, to: &[usize]) -> TchResult<()> {
        let [from, begin, end] = [span.from, span.begin, span.end].map(|index| index as i64);
        let to: Vec<i64> = to.iter().map(|slot| *slot as i64).collect();
        let slots = Tensor::f_from_slice(&to)?.f_to_device(self.device())?;
        for cache in &self.cache {
            let mut cells = cache.f_narrow(2, begin, end - begin)?;
            let source = cells.f_narrow(0, from, 1)?;
            let mut sizes = source.size();
            sizes[0] = to.len() as i64;
            // In its own memory: source and target must not overlap.
            let source = source.f_expand(sizes, false)?.f_contiguous()?;
            let _ = cells.f_index_copy_(0, &slots, &source)?;
        }
        Ok(())
    }

    /// Zeroes the cache: NaN x 0 is NaN, so even masked cells must be finite.
    pub(super) fn clear(&mut self) -> TchResult<()> {
        self.cache.iter_mut().try_for_each(|cache| cache.f_zero_().map(drop))
    }

    /// The device of all tensors.
    pub(super) fn device(&self) -> Device {
        self.input.device()
    }

    /// The hidden states of the tokens after all layers, `[tokens, hidden]`.
    fn layers(&mut self, tokens: &Tensor, pass: &Pass) -> TchResult<Tensor> {
        let mut x = self.weights.embedding.f_index_select(0, tokens)?;
        for (layer, cache) in self.weights.layers.iter().zip(&mut self.cache) {
            let heads = layer.heads(&x, &self.shape, &pass.rope)?;
            let keys_values = heads.f_narrow(1, self.shape.heads, 2 * self.shape.kv_heads)?;
            let _ = cache.f_index_put_(
                &[Some(pass.slots), None, Some(pass.cells)],
                &keys_values,
                false,
            )?;
            let queries = heads.f_narrow(1, 0, self.shape.heads)?;
            let attended = attend(&queries, cache, pass, &self.shape)?;
            layer.finish(&mut x, &attended, &self.shape)?;
        }
        Ok(x)
    }

    /// The rotary tables of each token, `[tokens, heads + 2 * kv_heads, head_dim]`. Values are rotated by 0, so that one
    /// operation serves all heads.
    fn rope_tables(&self, positions: &Tensor) -> TchResult<Tables> {
        let Shape { heads, kv_heads, head_dim, .. } = self.shape;
        let tokens = positions.size1()?;
        let extend = |table: &Tensor, identity: f64| {
            let rotated = table
                .f_index_select(0, positions)?
                .f_expand([tokens, heads + kv_heads, head_dim], false)?;
            let fixed = Tensor::f_full(
                [tokens, kv_heads, head_dim],
                identity,
                (table.kind(), table.device()),
            )?;
            Tensor::f_cat(&[rotated, fixed], 1)
        };
        Ok(Tables { cos: extend(&self.rope.cos, 1.0)?, sin: extend(&self.rope.sin, 0.0)? })
    }

    /// What is added to the scores of attention: nothing up to a token's own position, minus infinity after it. The
    /// queries that share a head of keys are neighbours, as if they were further tokens.
    fn mask(&self, positions: &Tensor, sequences: i64, width: i64, view: i64) -> TchResult<Tensor> {
        let group = self.shape.heads / self.shape.kv_heads;
        let later = self
            .cells
            .f_narrow(0, 0, view)?
            .f_unsqueeze(0)?
            .f_gt_tensor(&positions.f_unsqueeze(1)?)?;
        let kind = self.weights.embedding.kind();
        let mask = Tensor::f_zeros([sequences * width, view], (kind, self.device()))?
            .f_masked_fill(&later, f64::NEG_INFINITY)?;
        let mask = match width {
            1 => mask.f_view([sequences, 1, 1, view])?,
            _ => mask
                .f_unsqueeze(1)?
                .f_expand([sequences * width, group, view], false)?
                .f_reshape([sequences, 1, width * group, view])?,
        };
        mask.f_expand([sequences, self.shape.kv_heads, width * group, view], false)
    }
}

impl LayerWeights {
    /// The rotated heads of queries, keys and values: `[tokens, heads + 2 * kv_heads, head_dim]`.
    fn heads(&self, x: &Tensor, shape: &Shape, rope: &Tables) -> TchResult<Tensor> {
        let normed = norm(x, &self.input_norm, shape.norm_eps)?;
        let mut fused = match &self.qkv_bias {
            Some(bias) => bias.f_addmm(&normed, &self.qkv)?,
            None => normed.f_mm(&self.qkv)?,
        };
        if let Some(low_rank) = self.factors().and_then(|lora| lora.qkv.as_ref()) {
            low_rank.add(&mut fused, &normed)?;
        }
        let heads = fused.f_view([-1, shape.heads + 2 * shape.kv_heads, shape.head_dim])?;
        let heads = match &self.head_norms {
            Some((query_norm, key_norm)) => {
                let part = |first, count| heads.f_narrow(1, first, count);
                let queries = norm(&part(0, shape.heads)?, query_norm, shape.norm_eps)?;
                let keys = norm(&part(shape.heads, shape.kv_heads)?, key_norm, shape.norm_eps)?;
                Tensor::f_cat(
                    &[queries, keys, part(shape.heads + shape.kv_heads, shape.kv_heads)?],
                    1,
                )?
            }
            None => heads,
        };
        rope.rotate(&heads)
    }

    /// Output projection and feed-forward part, added to the hidden states in place.
    fn finish(&self, x: &mut Tensor, attended: &Tensor, shape: &Shape) -> TchResult<()> {
        let _ = x.f_addmm_(attended, &self.output)?;
        if let Some(low_rank) = self.factors().and_then(|lora| lora.output.as_ref()) {
            low_rank.add(x, attended)?;
        }
        let normed = norm(x, &self.post_norm, shape.norm_eps)?;
        let mut fused = normed.f_mm(&self.gate_up)?;
        if let Some(low_rank) = self.factors().and_then(|lora| lora.gate_up.as_ref()) {
            low_rank.add(&mut fused, &normed)?;
        }
        let gate = fused.f_narrow(1, 0, shape.intermediate)?.f_silu()?;
        let inner = gate.f_mul(&fused.f_narrow(1, shape.intermediate, shape.intermediate)?)?;
        let _ = x.f_addmm_(&inner, &self.down)?;
        match self.factors().and_then(|lora| lora.down.as_ref()) {
            Some(low_rank) => low_rank.add(x, &inner),
            None => Ok(()),
        }
    }
}

/// Attention of queries `[tokens, heads, head_dim]` over the cache: `[tokens, heads * head_dim]`.
fn attend(queries: &Tensor, cache: &Tensor, pass: &Pass, shape: &Shape) -> TchResult<Tensor> {
    let Shape { heads, kv_heads, head_dim, .. } = *shape;
    let group = heads / kv_heads;
    let rows = cache.f_narrow(2, 0, pass.view)?;
    let rows = match pass.rows {
        CacheRows::All => rows,
        CacheRows::Selected(owners) => rows.f_index_select(0, owners)?,
    };
    let (keys, values) = (rows.f_narrow(1, 0, kv_heads)?, rows.f_narrow(1, kv_heads, kv_heads)?);
    let queries = queries
        .f_reshape([pass.sequences, pass.width, kv_heads, group, head_dim])?
        .f_permute([0, 2, 1, 3, 4])?
        .f_reshape([pass.sequences, kv_heads, pass.width * group, head_dim])?;
    let mask = Some(&pass.mask);
    let attended = match queries.device() {
        // The only fused kernel that takes a mask, called directly: libtorch's own choice differs by version.
        Device::Cuda(_) => {
            Tensor::f_internal_scaled_dot_product_efficient_attention(
                &queries,
                &keys,
                &values,
                mask,
                false,
                0.0,
                false,
                None::<f64>,
            )?
            .0
        }
        _ => {
            let none = None::<f64>;
            Tensor::f_scaled_dot_product_attention(
                &queries, &keys, &values, mask, 0.0, false, none, false,
            )?
        }
    };
    attended
        .f_reshape([pass.sequences, kv_heads, pass.width, group, head_dim])?
        .f_permute([0, 2, 1, 3, 4])?
        .f_reshape([pass.sequences * pass.width, heads * head_dim])
}

/// The number of sequences of this width that are prefilled together. A CPU gains nothing from several, and one at a time
/// keeps its numbers independent of the others.
pub(super) fn prefill_sequences(device: Device, shape: &Shape, width: usize, view: usize) -> usize {
    if !device.is_cuda() {
        return 1;
    }
    let group = usize::try_from(shape.heads / shape.kv_heads).unwrap_or(1);
    let by_mask = MAX_MASK / (width * group * view).max(1);
    (PREFILL_TOKENS / width.max(1)).min(by_mask).max(1)
}

/// The bytes of the cache and of the temporary tensors of a step.
pub(super) fn memory(shape: &Shape, kind: Kind, slots: usize, context: usize) -> u64 {
    let number = |value: i64| u64::try_from(value).unwrap_or_default();
    let wide = kind.elt_size_in_bytes() as u64;
    let (slots, cells) = (slots as u64, bucket(context) as u64 + 1);
    let cache = [
        number(shape.layers),
        slots,
        2 * number(shape.kv_heads),
        cells,
        number(shape.head_dim),
        wide,
    ];
    let logits = slots.saturating_mul(number(shape.vocabulary)).saturating_mul(wide + 16);
    // The widest tensors of a layer over the tokens of a prefill, a few of them alive at once, and its mask.
    let widest = number(
        shape.intermediate * 3
            + shape.hidden * 3
            + (shape.heads + 2 * shape.kv_heads) * shape.head_dim * 5,
    );
    let prefill = (PREFILL_TOKENS as u64).saturating_mul(widest).saturating_mul(wide);
    let group = number(shape.heads / shape.kv_heads.max(1));
    let mask = (PREFILL_TOKENS as u64 * group)
        .saturating_mul(cells)
        .min(MAX_MASK as u64)
        .saturating_mul(wide + 1);
    let cache = cache.into_iter().fold(1, u64::saturating_mul);
    [logits, prefill, mask].into_iter().fold(cache, u64::saturating_add)
}
