//! Gradients of the two low-rank factors of projections. With `y = x (W + s B A)^T` they are `s G^T (x A^T)` for B and
//! `s (G B)^T x` for A, where G is the gradient by `y`.

use tch::Tensor;

use super::layer::LayerPass;
use crate::{
    error::TchResult,
    lora::{Factors, Target},
};

/// Factors and their gradients.
#[derive(Default)]
pub(super) struct FactorGradients {
    factors: Vec<Tensor>,
    gradients: Vec<Tensor>,
}

impl FactorGradients {
    /// Computes the gradients of the adapted parts of a fused projection from its input `x` and the gradient by its
    /// output. All parts read `x` at once.
    pub(super) fn of(
        &mut self,
        pass: &LayerPass<'_>,
        targets: &[Target],
        x: &Tensor,
        by_out: &Tensor,
    ) -> TchResult<()> {
        let (adapter, shape) = (&pass.layer.adapted, pass.shape);
        let adapted = targets.iter().filter_map(|target| Some((*target, adapter.get(*target)?)));
        let adapted: Vec<(Target, &Factors)> = adapted.collect();
        if adapted.is_empty() {
            return Ok(());
        }
        let all_a: Vec<&Tensor> = adapted.iter().map(|(_, factors)| &factors.a).collect();
        let thin = x.f_mm(&Tensor::f_cat(&all_a, 0)?.f_tr()?)?.f_mul_scalar(adapter.scale())?;
        let (mut by_thin, mut first) = (Vec::new(), 0);
        for (target, factors) in &adapted {
            let part = by_out.f_narrow(1, target.first_row(shape), target.sides(shape).1)?;
            let own = thin.f_narrow(1, first, factors.rank())?;
            self.push(&factors.b, part.f_tr()?.f_mm(&own)?);
            by_thin.push(part.f_mm(&factors.b)?);
            first += factors.rank();
        }
        let by_thin = Tensor::f_cat(&by_thin, 1)?.f_mul_scalar(adapter.scale())?;
        let by_a = by_thin.f_tr()?.f_mm(x)?;
        let ranks: Vec<i64> = adapted.iter().map(|(_, factors)| factors.rank()).collect();
        for ((_, factors), gradient) in adapted.iter().zip(by_a.f_split_with_sizes(ranks, 0)?) {
            self.push(&factors.a, gradient);
        }
        Ok(())
    }

    fn push(&mut self, factor: &Tensor, gradient: Tensor) {
        self.factors.push(factor.shallow_clone());
        self.gradients.push(gradient);
    }

    /// Adds the gradients to those of the factors. The bindings cannot set a gradient, so it is that of a product with a
    /// constant.
    pub(super) fn add(self) -> TchResult<()> {
        let flat = |all: &[Tensor]| -> TchResult<Tensor> {
            let flat = all.iter().map(|tensor| tensor.f_reshape([-1]));
            Tensor::f_cat(&flat.collect::<TchResult<Vec<_>>>()?, 0)
        };
        if self.factors.is_empty() {
            return Ok(());
        }
        let product = flat(&self.factors)?.f_mul(&flat(&self.gradients)?)?;
        product.f_sum(product.kind())?.f_backward()
    }
}
