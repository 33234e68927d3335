//! What is between the matrix products: with our own kernels, or with libtorch's operations, which work everywhere.

use tch::Tensor;

use super::layer::LayerPass;
use crate::{
    error::TchResult,
    graph::Attended,
    head::push_back,
    kernels::Kernels,
    layer::{norm, wide},
    shape::Shape,
};

/// How everything but matrix products is computed.
pub(super) enum Operations {
    /// With our own kernels.
    Kernels(Box<Kernels>),
    /// With libtorch's operations.
    Tensors,
}

/// What attention's gradient needs.
pub(super) enum KeptHeads {
    /// The fused queries, keys and values, and the graph from there to the result, `[tokens, query_rows]`.
    Graph { fused: Tensor, attended: Tensor },
    /// Queries, keys and values as they were attended to, and the results, the second as `[tokens, query_rows]`.
    Packed { heads: [Tensor; 3], found: Attended, attended: Tensor },
}

impl KeptHeads {
    /// The result, `[tokens, query_rows]`.
    pub(super) fn attended(&self) -> &Tensor {
        match self {
            Self::Graph { attended, .. } | Self::Packed { attended, .. } => attended,
        }
    }
}

impl Operations {
    /// The kernels, if they are used.
    pub(super) fn kernels(&self) -> Option<&Kernels> {
        match self {
            Self::Kernels(kernels) => Some(kernels),
            Self::Tensors => None,
        }
    }

    /// RMSNorm.
    pub(super) fn norm(&self, x: &Tensor, weight: &Tensor, eps: f64) -> TchResult<Tensor> {
        let Self::Kernels(kernels) = self else { return norm(x, weight, eps) };
        let out = x.f_empty_like()?;
        kernels.rms_norm(x, weight, &out)?;
        Ok(out)
    }

    /// The gradient of RMSNorm by its input, plus `other`.
    pub(super) fn norm_backward(
        &self,
        x: &Tensor,
        weight: &Tensor,
        eps: f64,
        by_out: &Tensor,
        other: Option<&Tensor>,
    ) -> TchResult<Tensor> {
        if let Self::Kernels(kernels) = self {
            return kernels.rms_norm_backward(x, weight, by_out, other);
        }
        let mean = |tensor: Tensor| tensor.f_mean_dim([-1i64].as_slice(), true, wide(x.kind()));
        let factor = mean(x.f_square()?)?.f_add_scalar(eps)?.f_rsqrt()?;
        let scaled = by_out.f_mul(weight)?;
        let slope = mean(scaled.f_mul(x)?)?.f_mul(&factor.f_pow_tensor_scalar(3)?)?;
        let found = scaled.f_mul(&factor)?.f_sub(&x.f_mul(&slope)?)?;
        other.map_or(Ok(found.shallow_clone()), |other| found.f_add(other))
    }

    /// `silu(gate) * up` of `[tokens, 2 * intermediate]`.
    pub(super) fn gate(&self, gate_up: &Tensor, shape: &Shape) -> TchResult<Tensor> {
        match self {
            Self::Kernels(kernels) => {
                let (tokens, _) = gate_up.size2()?;
                let kind = (gate_up.kind(), gate_up.device());
                let out = Tensor::f_empty([tokens, shape.intermediate], kind)?;
                kernels.gate(gate_up, &out)?;
                Ok(out)
            }
            Self::Tensors => {
                let [gate, up] = halves(gate_up, shape)?;
                gate.f_silu()?.f_mul(&up)
            }
        }
    }

    /// From the gradient by the result of [`Self::gate`] to that by its input, and the result once more, which is cheaper
    /// to compute again than to keep. Both may be in the memory of the arguments.
    pub(super) fn gate_backward(
        &self,
        gate_up: Tensor,
        by_inner: Tensor,
        shape: &Shape,
    ) -> TchResult<(Tensor, Tensor)> {
        if let Self::Kernels(kernels) = self {
            kernels.gate_backward(&gate_up, &by_inner)?;
            return Ok((gate_up, by_inner));
        }
        let [gate, up] = halves(&gate_up, shape)?;
        let (share, silu) = (gate.f_sigmoid()?, gate.f_silu()?);
        let slope = share.f_add(&silu.f_mul(&share.f_neg()?.f_add_scalar(1.0)?)?)?;
        let by_gate = by_inner.f_mul(&up)?.f_mul(&slope)?;
        let by_up = by_inner.f_mul(&silu)?;
        Ok((Tensor::f_cat(&[by_gate, by_up], 1)?, silu.f_mul(&up)?))
    }

    /// From fused queries, keys and values to attention's result.
    pub(super) fn attend(&self, pass: &LayerPass<'_>, fused: Tensor) -> TchResult<KeptHeads> {
        let (packing, rope) = (pass.packing, pass.rope);
        let kernels = self.kernels().filter(|kernels| kernels.spreads_heads());
        if let (Some(kernels), Some(attention)) = (kernels, packing.fused()) {
            let heads = kernels.spread_heads(&fused, rope, attention.uses()?)?;
            let found = attention.forward(heads.each_ref())?;
            let attended = found.result().f_flatten(1, -1)?;
            return Ok(KeptHeads::Packed { heads, found, attended });
        }
        let fused = fused.f_set_requires_grad(true)?;
        let attended =
            tch::with_grad(|| packing.attend(&pass.layer.split_heads(&fused, pass.shape, rope)?))?;
        Ok(KeptHeads::Graph { fused, attended })
    }

    /// From the gradient by attention's result to that by the fused queries, keys and values.
    pub(super) fn attend_backward(
        &self,
        pass: &LayerPass<'_>,
        kept: KeptHeads,
        by_attended: &Tensor,
    ) -> TchResult<Tensor> {
        match (kept, self.kernels(), pass.packing.fused()) {
            (KeptHeads::Packed { heads, found, .. }, Some(kernels), Some(attention)) => {
                let by_attended = by_attended.f_view_as(found.result())?;
                let by_heads = attention.backward(heads.each_ref(), &found, &by_attended)?;
                kernels.collect_heads(&by_heads, pass.rope, attention.uses()?)
            }
            (KeptHeads::Graph { fused, attended }, ..) => {
                tch::with_grad(|| push_back(&attended, by_attended))?;
                fused.f_grad()
            }
            (KeptHeads::Packed { .. }, ..) => {
                Err(tch::TchError::Shape("packed attention has no kernels".to_owned()))
            }
        }
    }
}

/// Gate and up.
fn halves(gate_up: &Tensor, shape: &Shape) -> TchResult<[Tensor; 2]> {
    let width = shape.intermediate;
    Ok([gate_up.f_narrow(1, 0, width)?, gate_up.f_narrow(1, width, width)?])
}
