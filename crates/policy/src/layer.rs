//! One transformer layer: norms, attention with rotary positions, and the gated feed-forward part. Queries, keys and
//! values are one fused projection; gate and up are stored as one tensor. Knows no caches.

use tch::{Kind, Tensor};

use crate::attention::{Heads, Packing};
use crate::error::TchResult;
use crate::lora::LayerAdapter;
use crate::rope::Tables;
use crate::shape::Shape;

/// The weights of one layer, as stored.
pub(crate) struct Layer {
    /// Weight of the norm before attention, `[hidden]`.
    pub(crate) input_norm: Tensor,
    /// Queries, keys and values, concatenated: `[query_rows + 2 * key_rows, hidden]`.
    pub(crate) qkv: Tensor,
    /// Bias of `qkv` (Qwen2).
    pub(crate) qkv_bias: Option<Tensor>,
    /// Weight of the norm on each head of the queries, `[head_dim]` (Qwen3).
    pub(crate) query_norm: Option<Tensor>,
    /// Weight of the norm on each head of the keys, `[head_dim]` (Qwen3).
    pub(crate) key_norm: Option<Tensor>,
    /// Attention output projection, `[hidden, query_rows]`.
    pub(crate) output: Tensor,
    /// Weight of the norm before the feed-forward part, `[hidden]`.
    pub(crate) post_norm: Tensor,
    /// Gate and up, concatenated: `[2 * intermediate, hidden]`.
    pub(crate) gate_up: Tensor,
    /// Feed-forward output projection, `[hidden, intermediate]`.
    pub(crate) down: Tensor,
    /// The adapter of the projections.
    pub(crate) adapted: LayerAdapter,
}

impl Layer {
    /// The layer over packed sequences: `[tokens, hidden]` in and out. `rope` has the tables of the tokens' positions.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        shape: &Shape,
        rope: &Tables,
        packing: &Packing,
    ) -> TchResult<Tensor> {
        let attended = packing.attend(&self.heads(x, shape, rope)?)?;
        self.finish(x, &attended, shape)
    }

    /// Queries, keys and values of the residual stream `x`, the first two rotated.
    fn heads(&self, x: &Tensor, shape: &Shape, rope: &Tables) -> TchResult<Heads> {
        let normed = norm(x, &self.input_norm, shape.norm_eps)?;
        let fused = normed.f_linear(&self.qkv, self.qkv_bias.as_ref())?;
        self.split_heads(&self.adapted.add_qkv(fused, &normed, shape)?, shape, rope)
    }

    /// Queries, keys and values of their fused projection, the first two normed where the network does so, and rotated.
    pub(crate) fn split_heads(
        &self,
        fused: &Tensor,
        shape: &Shape,
        rope: &Tables,
    ) -> TchResult<Heads> {
        let rotated_rows = shape.query_rows() + shape.key_rows();
        let [rotated, values] = split(fused, [rotated_rows, shape.key_rows()], -1)?;
        let values = values.f_unflatten(-1, [shape.kv_heads, shape.head_dim])?;
        let rotated = rotated.f_unflatten(-1, [shape.heads + shape.kv_heads, shape.head_dim])?;
        let [queries, keys] = match (&self.query_norm, &self.key_norm) {
            (Some(query_norm), Some(key_norm)) => {
                let [queries, keys] = split(&rotated, [shape.heads, shape.kv_heads], 1)?;
                let queries = norm(&queries, query_norm, shape.norm_eps)?;
                let keys = norm(&keys, key_norm, shape.norm_eps)?;
                [rope.rotate(&queries)?, rope.rotate(&keys)?]
            }
            _ => split(&rope.rotate(&rotated)?, [shape.heads, shape.kv_heads], 1)?,
        };
        Ok(Heads { queries, keys, values })
    }

    /// Output projection and feed-forward part; `attended` is `[tokens, query_rows]`.
    fn finish(&self, x: &Tensor, attended: &Tensor, shape: &Shape) -> TchResult<Tensor> {
        let projected = attended.f_linear(&self.output, None::<&Tensor>)?;
        let x = x.f_add(&self.adapted.add_output(projected, attended)?)?;
        let normed = norm(&x, &self.post_norm, shape.norm_eps)?;
        // Two products, not one that is split: operations on halves of rows are slow, and joining the gradients of the
        // halves would write the widest tensor of a layer once more.
        let [gate, up] = split(&self.gate_up, [shape.intermediate, shape.intermediate], 0)?;
        let gate = normed.f_linear(&gate, None::<&Tensor>)?;
        let gate = self.adapted.add_gate(gate, &normed)?;
        let up = normed.f_linear(&up, None::<&Tensor>)?;
        let up = self.adapted.add_up(up, &normed)?;
        let inner = gate.f_silu()?.f_mul(&up)?;
        let projected = inner.f_linear(&self.down, None::<&Tensor>)?;
        x.f_add(&self.adapted.add_down(projected, &inner)?)
    }

    /// The base weights with the suffix of their names, in a fixed order.
    pub(crate) fn base(&self) -> Vec<(&'static str, &Tensor)> {
        let all = [
            ("input_layernorm.weight", Some(&self.input_norm)),
            ("self_attn.qkv_proj.weight", Some(&self.qkv)),
            ("self_attn.qkv_proj.bias", self.qkv_bias.as_ref()),
            ("self_attn.q_norm.weight", self.query_norm.as_ref()),
            ("self_attn.k_norm.weight", self.key_norm.as_ref()),
            ("self_attn.o_proj.weight", Some(&self.output)),
            ("post_attention_layernorm.weight", Some(&self.post_norm)),
            ("mlp.gate_up_proj.weight", Some(&self.gate_up)),
            ("mlp.down_proj.weight", Some(&self.down)),
        ];
        all.into_iter().filter_map(|(name, tensor)| tensor.map(|tensor| (name, tensor))).collect()
    }
}

/// RMSNorm over the last dimension, computed in at least single precision.
pub(crate) fn norm(x: &Tensor, weight: &Tensor, eps: f64) -> TchResult<Tensor> {
    x.f_rms_norm(weight.size(), Some(weight), eps)
}

/// The type for sums and exponentials: single precision, or double where the network is double.
pub(crate) fn wide(kind: Kind) -> Kind {
    if kind == Kind::Double { Kind::Double } else { Kind::Float }
}

/// Splits a tensor in two. Unlike narrowing, this joins the gradients of the parts in one operation.
pub(crate) fn split(x: &Tensor, sizes: [i64; 2], dim: i64) -> TchResult<[Tensor; 2]> {
    let parts = x.f_split_with_sizes(sizes, dim)?;
    <[Tensor; 2]>::try_from(parts)
        .map_err(|parts| tch::TchError::Shape(format!("split gave {} parts", parts.len())))
}
