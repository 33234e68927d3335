//! One layer, forward and backward, with the adapter merged into its weights.

use tch::Tensor;

use super::{
    factors::FactorGradients,
    operations::{KeptHeads, Operations},
};
use crate::{
    attention::Packing,
    error::TchResult,
    layer::Layer,
    lora::Target::{Down, Gate, Key, Output, Query, Up, Value},
    rope::Tables,
    shape::Shape,
};

/// A layer, and the batch that passes through it.
pub(super) struct LayerPass<'a> {
    pub(super) layer: &'a Layer,
    /// The fused projections: queries, keys and values; attention's output; gate and up; down.
    pub(super) weights: [&'a Tensor; 4],
    pub(super) shape: &'a Shape,
    pub(super) packing: &'a Packing,
    pub(super) rope: &'a Tables,
    pub(super) operations: &'a Operations,
}

/// What the backward pass needs of the forward pass: `[tokens, ...]` each.
pub(super) struct Kept {
    input: Tensor,
    /// After the norm before attention.
    normed: Tensor,
    heads: KeptHeads,
    /// The residual stream between attention and the feed-forward part.
    middle: Tensor,
    /// After the norm before the feed-forward part.
    post_normed: Tensor,
    gate_up: Tensor,
}

impl LayerPass<'_> {
    /// The output of the layer. Called without gradients.
    pub(super) fn forward(&self, x: Tensor) -> TchResult<(Tensor, Kept)> {
        let ([qkv, output, gate_up, down], eps) = (self.weights, self.shape.norm_eps);
        let normed = self.operations.norm(&x, &self.layer.input_norm, eps)?;
        let fused = normed.f_linear(qkv, self.layer.qkv_bias.as_ref())?;
        let heads = self.operations.attend(self, fused)?;
        let middle = x.f_addmm(heads.attended(), &output.f_tr()?)?;
        let post_normed = self.operations.norm(&middle, &self.layer.post_norm, eps)?;
        let gate_up = post_normed.f_linear(gate_up, None::<&Tensor>)?;
        let inner = self.operations.gate(&gate_up, self.shape)?;
        let out = middle.f_addmm(&inner, &down.f_tr()?)?;
        Ok((out, Kept { input: x, normed, heads, middle, post_normed, gate_up }))
    }

    /// The gradient by the input from that by the output. Called without gradients.
    pub(super) fn backward(
        &self,
        kept: Kept,
        by_out: &Tensor,
        gradients: &mut FactorGradients,
    ) -> TchResult<Tensor> {
        let ([qkv, output, gate_up, down], eps) = (self.weights, self.shape.norm_eps);
        let Kept { input, normed, heads, middle, post_normed, gate_up: fused } = kept;
        let mut adapted =
            |targets: &[_], x: &Tensor, by: &Tensor| gradients.of(self, targets, x, by);

        let (by_gate_up, inner) =
            self.operations.gate_backward(fused, by_out.f_mm(down)?, self.shape)?;
        adapted(&[Down], &inner, by_out)?;
        drop(inner);
        adapted(&[Gate, Up], &post_normed, &by_gate_up)?;
        let by_normed = by_gate_up.f_mm(gate_up)?;
        drop(by_gate_up);
        let post_norm = &self.layer.post_norm;
        let by_middle =
            self.operations.norm_backward(&middle, post_norm, eps, &by_normed, Some(by_out))?;

        adapted(&[Output], heads.attended(), &by_middle)?;
        let by_fused = self.operations.attend_backward(self, heads, &by_middle.f_mm(output)?)?;
        adapted(&[Query, Key, Value], &normed, &by_fused)?;
        let by_normed = by_fused.f_mm(qkv)?;
        let input_norm = &self.layer.input_norm;
        self.operations.norm_backward(&input, input_norm, eps, &by_normed, Some(&by_middle))
    }
}
