//! Copies of the weights that an adapter adapts, with the adapter merged. In 16 bits merging rounds with dither: rounded
//! to nearest, the small changes of a few training steps would be lost.

use tch::{Kind, Tensor};

use crate::{
    error::TchResult,
    kernels::Kernels,
    layer::Layer,
    lora::{LoraConfig, Target},
    shape::Shape,
};

/// Copies of the adapted projections of a layer with the adapter merged, `[out, in]`; `None` where nothing is adapted.
pub(crate) struct MergedWeights {
    projections: [Option<Tensor>; 4],
}

/// The fused projections of a layer, and their parts that can be adapted.
pub(crate) const PROJECTIONS: [&[Target]; 4] = [
    &[Target::Query, Target::Key, Target::Value],
    &[Target::Output],
    &[Target::Gate, Target::Up],
    &[Target::Down],
];

/// The bytes that copies of what an adapter adapts take, where it is merged.
pub(crate) fn merged_memory(shape: &Shape, kind: Kind, lora: Option<&LoraConfig>) -> u64 {
    let adapted = |target: &Target| lora.is_some_and(|lora| lora.targets.contains(target));
    let numbers = |targets: &&[Target]| -> i64 {
        targets.iter().map(|target| target.sides(shape)).map(|(columns, rows)| columns * rows).sum()
    };
    let layer: i64 =
        PROJECTIONS.iter().filter(|targets| targets.iter().any(adapted)).map(numbers).sum();
    u64::try_from(shape.layers * layer).unwrap_or_default() * kind.elt_size_in_bytes() as u64
}

impl MergedWeights {
    /// Copies of a layer's weights. Without kernels, which merge with dither, the weights must have at least 32 bits.
    pub(crate) fn of(layer: &Layer, shape: &Shape, kernels: Option<&Kernels>) -> TchResult<Self> {
        let _guard = tch::no_grad_guard();
        let mut projections = [const { None }; 4];
        for ((merged, base), targets) in projections.iter_mut().zip(bases(layer)).zip(PROJECTIONS) {
            if targets.iter().any(|target| layer.adapted.get(*target).is_some()) {
                // Parts that are not adapted stay as copied: with an adapter, the base is not trained.
                let mut copy = base.f_detach()?.f_empty_like()?;
                copy.f_copy_(base)?;
                *merged = Some(copy);
            }
        }
        let merged = Self { projections };
        merged.refresh(layer, shape, kernels)?;
        Ok(merged)
    }

    /// Merges the current values of the adapter, in place.
    pub(crate) fn refresh(
        &self,
        layer: &Layer,
        shape: &Shape,
        kernels: Option<&Kernels>,
    ) -> TchResult<()> {
        let _guard = tch::no_grad_guard();
        for ((merged, base), targets) in self.projections.iter().zip(bases(layer)).zip(PROJECTIONS)
        {
            let Some(merged) = merged else { continue };
            for target in targets {
                let Some(factors) = layer.adapted.get(*target) else { continue };
                let rows = |tensor: &Tensor| {
                    tensor.f_narrow(0, target.first_row(shape), target.sides(shape).1)
                };
                let (base, mut merged) = (rows(base)?, rows(merged)?);
                match kernels {
                    Some(kernels) => {
                        kernels.merge(&base, factors, &merged, layer.adapted.scale())?;
                    }
                    None => merged.f_copy_(&layer.adapted.added(&base, *target)?)?,
                }
            }
        }
        Ok(())
    }

    /// The weights of the fused projections, merged where they are adapted.
    pub(crate) fn all<'a>(&'a self, layer: &'a Layer) -> [&'a Tensor; 4] {
        let mut all = bases(layer);
        for (weight, merged) in all.iter_mut().zip(&self.projections) {
            *weight = merged.as_ref().unwrap_or(weight);
        }
        all
    }

    /// The copies.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &Tensor> {
        self.projections.iter().flatten()
    }

    /// A second handle to the same tensors.
    pub(crate) fn shared(&self) -> Self {
        let shared = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::shallow_clone);
        Self { projections: self.projections.each_ref().map(shared) }
    }
}

/// The weights of the fused projections.
pub(crate) fn bases(layer: &Layer) -> [&Tensor; 4] {
    [&layer.qkv, &layer.output, &layer.gate_up, &layer.down]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Architecture, Output, Scaling};

    /// A tiny network of one layer.
    pub(crate) fn shape() -> Shape {
        Shape {
            architecture: Architecture::Llama,
            hidden: 32,
            layers: 1,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            intermediate: 48,
            vocabulary: 11,
            rope_theta: 10_000.0,
            rope_scaling: Scaling::None,
            norm_eps: 1e-5,
            output: Output::Tied,
            positions: 64,
        }
    }

    #[test]
    fn what_is_merged_is_counted() {
        let config = |targets: &[Target]| LoraConfig {
            rank: 2,
            alpha: 6.0,
            targets: targets.to_vec(),
            seed: 1,
        };
        let shape = Shape { layers: 3, ..shape() };
        let bytes = |lora: Option<&LoraConfig>| merged_memory(&shape, Kind::BFloat16, lora);
        assert_eq!(bytes(None), 0);
        // Queries, keys and values are one tensor, of which all is copied.
        assert_eq!(bytes(Some(&config(&[Target::Key]))), 3 * (32 + 2 * 16) * 32 * 2);
        let all = (32 + 2 * 16) * 32 + 32 * 32 + 3 * 48 * 32;
        assert_eq!(bytes(Some(&config(&crate::TARGETS))), 3 * all * 2);
    }
}
