//! One evaluation of the net over the cache of keys and values: a token of every sequence, or many tokens of some.
//! Everything it writes to stays where it is, so that a step can be recorded. Refuses to know who asks and why.

use tch::{Device, Kind, Tensor};

use crate::{error::Fallible, layer::norm, rope::Tables, shape::Shape};

use super::{
    buckets::bucket,
    pick::pick,
    share::Part,
    weights::{LayerWeights, Weights},
};

/// Numbers that travel to the device for each sequence of a step: token, position, where its keys go, and its draw.
pub(super) const FIELDS: i64 = 6;

/// Tokens of one evaluation of new text, over all its sequences.
pub(super) const READ_AT_ONCE: usize = 4096;

/// Entries of the mask of one evaluation of new text.
const MASK: usize = 1 << 28;

/// The net, its cache, and what steps read and write.
pub(super) struct Steps {
    shape: Shape,
    pub(super) weights: Weights,
    /// Per layer `[slots, 2 * kv_heads, places, head_dim]`: keys, then values.
    cache: Vec<Tensor>,
    rope: Tables,
    /// `0..slots` and `0..places`.
    slots: Tensor,
    places: Tensor,
    /// `[FIELDS, slots]` in double precision, which holds tokens and positions exactly.
    pub(super) input: Tensor,
    /// `[2, slots]`: tokens and log-probabilities.
    pub(super) output: Tensor,
    /// `[slots, vocabulary]`.
    pub(super) scores: Tensor,
    /// Where keys go that nobody shall see: a place behind all that are looked at.
    pub(super) nowhere: i64,
}

/// Sequences that get many tokens at once.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Their slots.
    pub(super) slots: Vec<i64>,
    /// Tokens of each, padded to `width`.
    pub(super) tokens: Vec<i64>,
    /// Positions of those tokens.
    pub(super) positions: Vec<i64>,
    /// Where their keys go; padding goes nowhere.
    pub(super) places: Vec<i64>,
    /// Of each sequence, the index of its last token among all.
    pub(super) last: Vec<i64>,
    /// Tokens of a sequence, padding included.
    pub(super) width: i64,
    /// How much of the cache is looked at.
    pub(super) looked: usize,
}

/// Tokens that the layers see, and what of the cache they see.
struct Pass<'a> {
    /// One entry per token.
    slots: &'a Tensor,
    places: &'a Tensor,
    rope: Tables,
    /// `[sequences, kv_heads, width * group, looked]`.
    mask: Tensor,
    seen: Seen<'a>,
    sequences: i64,
    width: i64,
    looked: i64,
}

/// Whose keys are seen.
#[derive(Clone, Copy)]
enum Seen<'a> {
    /// Those of all slots, where they lie.
    All,
    /// Those of some, copied.
    Chosen(&'a Tensor),
}

impl Steps {
    /// Allocates the cache, which is most of what [`memory`] counts.
    pub(super) fn new(
        shape: &Shape,
        weights: Weights,
        slots: usize,
        length: usize,
    ) -> Fallible<Self> {
        let (device, kind) = (weights.embedding.device(), weights.embedding.kind());
        let (count, places) = (slots as i64, bucket(length) as i64 + 1);
        let sizes = [count, 2 * shape.kv_heads, places, shape.head_dim];
        let cache = (0..shape.layers)
            .map(|_| Tensor::f_zeros(sizes, (kind, device)))
            .collect::<Fallible<_>>()?;
        Ok(Self {
            shape: shape.clone(),
            cache,
            rope: Tables::new(shape, places, kind, device)?,
            slots: Tensor::f_arange(count, (Kind::Int64, device))?,
            places: Tensor::f_arange(places, (Kind::Int64, device))?,
            input: Tensor::f_zeros([FIELDS, count], (Kind::Double, device))?,
            output: Tensor::f_zeros([2, count], (Kind::Double, device))?,
            scores: Tensor::f_zeros([count, shape.vocabulary], (kind, device))?,
            nowhere: places - 1,
            weights,
        })
    }

    /// Adds one token to every sequence: from `input` to `scores` and `output`. Always the same operations, idle slots
    /// included, so that they can be recorded, and that a sequence's numbers do not depend on who else is served.
    pub(super) fn write(&mut self, looked: usize) -> Fallible<()> {
        let numbers = self.input.f_narrow(0, 0, 3)?.f_to_kind(Kind::Int64)?;
        let [tokens, positions, places] =
            [numbers.f_select(0, 0)?, numbers.f_select(0, 1)?, numbers.f_select(0, 2)?];
        let slots = self.slots.shallow_clone();
        let (count, looked) = (slots.size1()?, looked as i64);
        let pass = Pass {
            slots: &slots,
            places: &places,
            rope: self.turns(&positions)?,
            mask: self.mask(&positions, count, 1, looked)?,
            seen: Seen::All,
            sequences: count,
            width: 1,
            looked,
        };
        let x = self.layers(&tokens, &pass)?;
        let _ = norm(&x, &self.weights.norm, self.shape.norm_eps)?
            .f_mm_out(&self.scores, &self.weights.head)?;
        let picked = pick(&self.scores, &self.input.f_narrow(0, 3, 3)?)?;
        self.output.f_copy_(&picked)
    }

    /// Evaluates many tokens of some sequences: the scores after the last of each, `[sequences, vocabulary]`.
    pub(super) fn read(&mut self, reading: &Reading) -> Fallible<Tensor> {
        let device = self.device();
        let list = |numbers: &[i64]| Tensor::f_from_slice(numbers)?.f_to_device(device);
        let sequences = reading.slots.len() as i64;
        let owners = list(&reading.slots)?;
        let slots =
            owners.f_unsqueeze(1)?.f_expand([sequences, reading.width], false)?.f_reshape([-1])?;
        let (positions, places) = (list(&reading.positions)?, list(&reading.places)?);
        let looked = reading.looked as i64;
        let pass = Pass {
            slots: &slots,
            places: &places,
            rope: self.turns(&positions)?,
            mask: self.mask(&positions, sequences, reading.width, looked)?,
            seen: Seen::Chosen(&owners),
            sequences,
            width: reading.width,
            looked,
        };
        let x = self
            .layers(&list(&reading.tokens)?, &pass)?
            .f_index_select(0, &list(&reading.last)?)?;
        norm(&x, &self.weights.norm, self.shape.norm_eps)?.f_mm(&self.weights.head)
    }

    /// Copies keys and values of one slot to others.
    pub(super) fn copy(&mut self, part: &Part, to: &[usize]) -> Fallible<()> {
        let [from, begin, end] = [part.from, part.begin, part.end].map(|place| place as i64);
        let to: Vec<i64> = to.iter().map(|slot| *slot as i64).collect();
        let slots = Tensor::f_from_slice(&to)?.f_to_device(self.device())?;
        for cache in &self.cache {
            let mut places = cache.f_narrow(2, begin, end - begin)?;
            let held = places.f_narrow(0, from, 1)?;
            let mut sizes = held.size();
            sizes[0] = to.len() as i64;
            // In memory of its own: what is written to must not be what is read.
            let held = held.f_expand(sizes, false)?.f_contiguous()?;
            let _ = places.f_index_copy_(0, &slots, &held)?;
        }
        Ok(())
    }

    /// Clears the cache. What is no number would be seen even where nobody looks: it times 0 is no number either.
    pub(super) fn clear(&mut self) -> Fallible<()> {
        self.cache.iter_mut().try_for_each(|cache| cache.f_zero_().map(drop))
    }

    /// Where everything lies.
    pub(super) fn device(&self) -> Device {
        self.input.device()
    }

    /// The residual stream of the tokens after all layers, `[tokens, hidden]`.
    fn layers(&mut self, tokens: &Tensor, pass: &Pass) -> Fallible<Tensor> {
        let mut x = self.weights.embedding.f_index_select(0, tokens)?;
        for (layer, cache) in self.weights.layers.iter().zip(&mut self.cache) {
            let heads = layer.heads(&x, &self.shape, &pass.rope)?;
            let kept = heads.f_narrow(1, self.shape.heads, 2 * self.shape.kv_heads)?;
            let _ =
                cache.f_index_put_(&[Some(pass.slots), None, Some(pass.places)], &kept, false)?;
            let queries = heads.f_narrow(1, 0, self.shape.heads)?;
            let attended = attend(&queries, cache, pass, &self.shape)?;
            layer.conclude(&mut x, &attended, &self.shape)?;
        }
        Ok(x)
    }

    /// The rotary tables of each token, `[tokens, heads + 2 * kv_heads, head_dim]`. Values are turned by nothing, so
    /// that one operation serves all heads.
    fn turns(&self, positions: &Tensor) -> Fallible<Tables> {
        let Shape { heads, kv_heads, head_dim, .. } = self.shape;
        let tokens = positions.size1()?;
        let of = |table: &Tensor, still: f64| {
            let turned = table
                .f_index_select(0, positions)?
                .f_expand([tokens, heads + kv_heads, head_dim], false)?;
            let kept = Tensor::f_full(
                [tokens, kv_heads, head_dim],
                still,
                (table.kind(), table.device()),
            )?;
            Tensor::f_cat(&[turned, kept], 1)
        };
        Ok(Tables { cos: of(&self.rope.cos, 1.0)?, sin: of(&self.rope.sin, 0.0)? })
    }

    /// What is added to the scores of attention: nothing up to a token's own position, minus infinity after it. The
    /// queries that share a head of keys are neighbours, as if they were further tokens.
    fn mask(
        &self,
        positions: &Tensor,
        sequences: i64,
        width: i64,
        looked: i64,
    ) -> Fallible<Tensor> {
        let group = self.shape.heads / self.shape.kv_heads;
        let later = self
            .places
            .f_narrow(0, 0, looked)?
            .f_unsqueeze(0)?
            .f_gt_tensor(&positions.f_unsqueeze(1)?)?;
        let kind = self.weights.embedding.kind();
        let mask = Tensor::f_zeros([sequences * width, looked], (kind, self.device()))?
            .f_masked_fill(&later, f64::NEG_INFINITY)?;
        let mask = match width {
            1 => mask.f_view([sequences, 1, 1, looked])?,
            _ => mask
                .f_unsqueeze(1)?
                .f_expand([sequences * width, group, looked], false)?
                .f_reshape([sequences, 1, width * group, looked])?,
        };
        mask.f_expand([sequences, self.shape.kv_heads, width * group, looked], false)
    }
}

impl LayerWeights {
    /// Heads of queries, keys and values of the residual stream, turned: `[tokens, heads + 2 * kv_heads, head_dim]`.
    fn heads(&self, x: &Tensor, shape: &Shape, rope: &Tables) -> Fallible<Tensor> {
        let normed = norm(x, &self.input_norm, shape.norm_eps)?;
        let mut fused = match &self.qkv_bias {
            Some(bias) => bias.f_addmm(&normed, &self.qkv)?,
            None => normed.f_mm(&self.qkv)?,
        };
        if let Some(thin) = &self.added.qkv {
            thin.add(&mut fused, &normed)?;
        }
        let heads = fused.f_view([-1, shape.heads + 2 * shape.kv_heads, shape.head_dim])?;
        let heads = match &self.head_norms {
            Some((of_queries, of_keys)) => {
                let part = |first, count| heads.f_narrow(1, first, count);
                let queries = norm(&part(0, shape.heads)?, of_queries, shape.norm_eps)?;
                let keys = norm(&part(shape.heads, shape.kv_heads)?, of_keys, shape.norm_eps)?;
                Tensor::f_cat(
                    &[queries, keys, part(shape.heads + shape.kv_heads, shape.kv_heads)?],
                    1,
                )?
            }
            None => heads,
        };
        rope.turn(&heads)
    }

    /// What follows attention, added to the residual stream in place.
    fn conclude(&self, x: &mut Tensor, attended: &Tensor, shape: &Shape) -> Fallible<()> {
        let _ = x.f_addmm_(attended, &self.output)?;
        if let Some(thin) = &self.added.output {
            thin.add(x, attended)?;
        }
        let normed = norm(x, &self.post_norm, shape.norm_eps)?;
        let mut fused = normed.f_mm(&self.gate_up)?;
        if let Some(thin) = &self.added.gate_up {
            thin.add(&mut fused, &normed)?;
        }
        let gate = fused.f_narrow(1, 0, shape.intermediate)?.f_silu()?;
        let inner = gate.f_mul(&fused.f_narrow(1, shape.intermediate, shape.intermediate)?)?;
        let _ = x.f_addmm_(&inner, &self.down)?;
        match &self.added.down {
            Some(thin) => thin.add(x, &inner),
            None => Ok(()),
        }
    }
}

/// Attention of queries `[tokens, heads, head_dim]` over the cache: `[tokens, heads * head_dim]`.
fn attend(queries: &Tensor, cache: &Tensor, pass: &Pass, shape: &Shape) -> Fallible<Tensor> {
    let Shape { heads, kv_heads, head_dim, .. } = *shape;
    let group = heads / kv_heads;
    let seen = cache.f_narrow(2, 0, pass.looked)?;
    let seen = match pass.seen {
        Seen::All => seen,
        Seen::Chosen(owners) => seen.f_index_select(0, owners)?,
    };
    let (keys, values) = (seen.f_narrow(1, 0, kv_heads)?, seen.f_narrow(1, kv_heads, kv_heads)?);
    let queries = queries
        .f_reshape([pass.sequences, pass.width, kv_heads, group, head_dim])?
        .f_permute([0, 2, 1, 3, 4])?
        .f_reshape([pass.sequences, kv_heads, pass.width * group, head_dim])?;
    let mask = Some(&pass.mask);
    let attended = match queries.device() {
        // The one fused kernel that takes a mask, asked for by name: which kernel libtorch prefers differs by version.
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

/// How many sequences of so many tokens each can be read at once. A processor gains nothing by reading several, and
/// reading each alone keeps its numbers the same whoever else is served.
pub(super) fn readable(device: Device, shape: &Shape, width: usize, looked: usize) -> usize {
    if !device.is_cuda() {
        return 1;
    }
    let group = usize::try_from(shape.heads / shape.kv_heads).unwrap_or(1);
    let by_mask = MASK / (width * group * looked).max(1);
    (READ_AT_ONCE / width.max(1)).min(by_mask).max(1)
}

/// Bytes of the cache, and of what a step needs on the way.
pub(super) fn memory(shape: &Shape, kind: Kind, slots: usize, length: usize) -> u64 {
    let number = |value: i64| u64::try_from(value).unwrap_or_default();
    let wide = kind.elt_size_in_bytes() as u64;
    let (slots, places) = (slots as u64, bucket(length) as u64 + 1);
    let cache = [
        number(shape.layers),
        slots,
        2 * number(shape.kv_heads),
        places,
        number(shape.head_dim),
        wide,
    ];
    let scores = slots.saturating_mul(number(shape.vocabulary)).saturating_mul(wide + 16);
    // The widest results of a layer over the tokens of a reading, a few of them alive at once, and its mask.
    let widest = number(
        shape.intermediate * 3
            + shape.hidden * 3
            + (shape.heads + 2 * shape.kv_heads) * shape.head_dim * 5,
    );
    let read = (READ_AT_ONCE as u64).saturating_mul(widest).saturating_mul(wide);
    let group = number(shape.heads / shape.kv_heads.max(1));
    let mask = (READ_AT_ONCE as u64 * group)
        .saturating_mul(places)
        .min(MASK as u64)
        .saturating_mul(wide + 1);
    let cache = cache.into_iter().fold(1, u64::saturating_mul);
    [scores, read, mask].into_iter().fold(cache, u64::saturating_add)
}
