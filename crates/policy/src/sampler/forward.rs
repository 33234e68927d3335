//! The forward pass with our own kernels: matrix products by libtorch, everything between them in one kernel each. Tokens
//! of all sequences are rows side by side, without padding. An adapter that is not merged is added to the products.

use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use crate::{
    error::TchResult,
    kernels::{Attention, Joined, Kernels, Pages},
    rope::Tables,
    shape::Shape,
};

use super::{
    store::PageStore,
    weights::{LayerWeights, LowRank, Weights},
};

/// The network, and the memory of its passes.
pub(super) struct Forward {
    pub(super) weights: Weights,
    kernels: Arc<Kernels>,
    rope: Tables,
    joined: Joined,
    shape: Shape,
}

/// How the tokens of a pass attend.
#[derive(Clone, Copy)]
pub(super) enum Attend<'a> {
    /// Each is the only one of its sequence.
    One,
    /// Tiles of consecutive tokens.
    Many(&'a Tensor),
}

/// The intermediate results of a pass, `[tokens, ...]`.
pub(super) struct Buffers {
    pub(super) x: Tensor,
    normed: Tensor,
    qkv: Tensor,
    attended: Tensor,
    fused: Tensor,
    inner: Tensor,
}

/// The logits of some rows, and what is sampled from them.
pub(super) struct SampleBuffers {
    /// `[rows, vocabulary]`.
    pub(super) logits: Tensor,
    parts: Tensor,
    /// `[2 * rows]`: tokens, then log-probabilities.
    output: Tensor,
}

impl Forward {
    /// For up to `rows` sequences of `context` tokens.
    pub(super) fn new(
        shape: &Shape,
        weights: Weights,
        kernels: Arc<Kernels>,
        rows: usize,
        context: usize,
    ) -> TchResult<Self> {
        let (device, kind) = (weights.embedding.device(), weights.embedding.kind());
        let joined = kernels.joined(rows as i64, device)?;
        let rope = Tables::new(shape, context as i64, kind, device)?;
        Ok(Self { weights, kernels, rope, joined, shape: shape.clone() })
    }

    /// The device of all tensors.
    pub(super) fn device(&self) -> Device {
        self.weights.embedding.device()
    }

    /// Consecutive tokens of a tile.
    pub(super) fn tile_tokens(&self) -> usize {
        self.kernels.tile_tokens()
    }

    /// Memory for a pass over this many tokens.
    pub(super) fn buffers(&self, tokens: i64) -> TchResult<Buffers> {
        let Shape { hidden, intermediate, .. } = self.shape;
        let (queries, keys) = (self.shape.query_rows(), self.shape.key_rows());
        let options = (self.weights.embedding.kind(), self.device());
        let empty = |width: i64| Tensor::f_empty([tokens, width], options);
        Ok(Buffers {
            x: empty(hidden)?,
            normed: empty(hidden)?,
            qkv: empty(queries + 2 * keys)?,
            attended: empty(queries)?,
            fused: empty(2 * intermediate)?,
            inner: empty(intermediate)?,
        })
    }

    /// Memory for sampling from this many rows.
    pub(super) fn sample_buffers(&self, rows: i64) -> TchResult<SampleBuffers> {
        let (device, kind) = (self.device(), self.weights.logits);
        Ok(SampleBuffers {
            logits: Tensor::f_empty([rows, self.shape.vocabulary], (kind, device))?,
            parts: self.kernels.parts(rows, device)?,
            output: Tensor::f_zeros([2 * rows], (Kind::Double, device))?,
        })
    }

    /// All layers over the tokens of `rows`; the result is in `buffers.x`.
    pub(super) fn layers(
        &self,
        rows: &Tensor,
        attend: Attend<'_>,
        buffers: &mut Buffers,
        store: &PageStore,
    ) -> TchResult<()> {
        self.kernels.embed(rows, &self.weights.embedding, &buffers.x, store.layer(0))?;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.attention(layer, rows, attend, buffers, store.layer(index))?;
            self.feed_forward(layer, buffers)?;
        }
        Ok(())
    }

    /// From hidden states to logits, sampled tokens and their log-probabilities.
    pub(super) fn sample(&self, rows: &Tensor, x: &Tensor, out: &SampleBuffers) -> TchResult<()> {
        let normed = x.f_empty_like()?;
        self.kernels.rms_norm(x, &self.weights.norm, &normed)?;
        self.weights.write_logits(&normed, &out.logits)?;
        self.kernels.sample(rows, &out.logits, &out.parts, &out.output)
    }

    fn attention(
        &self,
        layer: &LayerWeights,
        rows: &Tensor,
        attend: Attend<'_>,
        buffers: &mut Buffers,
        pages: Pages<'_>,
    ) -> TchResult<()> {
        let Buffers { x, normed, qkv, attended, .. } = buffers;
        self.kernels.rms_norm(x, &layer.input_norm, normed)?;
        let _ = match &layer.qkv_bias {
            Some(bias) => bias.f_addmm_out(qkv, normed, &layer.qkv)?,
            None => normed.f_mm_out(qkv, &layer.qkv)?,
        };
        let lora = layer.factors();
        add(lora.and_then(|lora| lora.qkv.as_ref()), qkv, normed)?;
        let norms = layer.head_norms.as_ref().map(|(queries, keys)| (queries, keys));
        self.kernels.rotate(rows, qkv, [&self.rope.cos, &self.rope.sin], norms, pages)?;
        let attention = Attention { rows, qkv, pages, out: attended };
        match attend {
            Attend::One => self.kernels.attend_one(&attention, &self.joined)?,
            Attend::Many(tiles) => self.kernels.attend_many(&attention, tiles)?,
        }
        let _ = x.f_addmm_(attended, &layer.output)?;
        add(lora.and_then(|lora| lora.output.as_ref()), x, attended)
    }

    fn feed_forward(&self, layer: &LayerWeights, buffers: &mut Buffers) -> TchResult<()> {
        let Buffers { x, normed, fused, inner, .. } = buffers;
        self.kernels.rms_norm(x, &layer.post_norm, normed)?;
        let lora = layer.factors();
        let _ = normed.f_mm_out(fused, &layer.gate_up)?;
        add(lora.and_then(|lora| lora.gate_up.as_ref()), fused, normed)?;
        self.kernels.gate(fused, inner)?;
        let _ = x.f_addmm_(inner, &layer.down)?;
        add(lora.and_then(|lora| lora.down.as_ref()), x, inner)
    }
}

/// Adds what an adapter makes of `x`, in place.
fn add(low_rank: Option<&LowRank>, out: &mut Tensor, x: &Tensor) -> TchResult<()> {
    low_rank.map_or(Ok(()), |low_rank| low_rank.add(out, x))
}

impl Buffers {
    /// The first rows.
    pub(super) fn first(&self, rows: i64) -> TchResult<Self> {
        let first = |tensor: &Tensor| tensor.f_narrow(0, 0, rows);
        Ok(Self {
            x: first(&self.x)?,
            normed: first(&self.normed)?,
            qkv: first(&self.qkv)?,
            attended: first(&self.attended)?,
            fused: first(&self.fused)?,
            inner: first(&self.inner)?,
        })
    }
}

impl SampleBuffers {
    /// The first rows. Its output is in the same memory, and has another layout.
    pub(super) fn first(&self, rows: i64) -> TchResult<Self> {
        Ok(Self {
            logits: self.logits.f_narrow(0, 0, rows)?,
            parts: self.parts.shallow_clone(),
            output: self.output.f_narrow(0, 0, 2 * rows)?,
        })
    }

    /// Tokens and log-probabilities, `[2, rows]`.
    pub(super) fn output(&self) -> TchResult<Tensor> {
        self.output.f_view([2, -1])
    }
}
