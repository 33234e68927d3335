//! The weights as the sampler wants them: the tensors of a net, seen from the side on which they are multiplied. Shared,
//! so that a change in place is seen; only an adapter is laid out anew, and stays an addition: merged into weights of 16
//! bits, what a few steps have taught it would be rounded away. Refuses to know the cache and the steps.

use tch::Tensor;

use crate::{
    error::Fallible,
    layer::Layer,
    lora::{Adapted, Target},
    net::Net,
    shape::Shape,
};

/// All weights of a net.
pub(super) struct Weights {
    /// `[vocabulary, hidden]`.
    pub(super) embedding: Tensor,
    pub(super) layers: Vec<LayerWeights>,
    /// `[hidden]`.
    pub(super) norm: Tensor,
    /// `[hidden, vocabulary]`.
    pub(super) head: Tensor,
}

/// The weights of a layer; matrices are `[in, out]`.
pub(super) struct LayerWeights {
    pub(super) input_norm: Tensor,
    pub(super) qkv: Tensor,
    pub(super) qkv_bias: Option<Tensor>,
    /// Of the heads of queries and of keys.
    pub(super) head_norms: Option<(Tensor, Tensor)>,
    pub(super) output: Tensor,
    pub(super) post_norm: Tensor,
    pub(super) gate_up: Tensor,
    pub(super) down: Tensor,
    pub(super) added: Added,
}

/// What an adapter adds to the products of a layer.
pub(super) struct Added {
    pub(super) qkv: Option<Thin>,
    pub(super) output: Option<Thin>,
    pub(super) gate_up: Option<Thin>,
    pub(super) down: Option<Thin>,
}

/// What an adapter adds to one product. Where that joins several projections, their ranks lie side by side. There are
/// zeros up to a multiple of [`WIDTH`] ranks.
pub(super) struct Thin {
    targets: &'static [Target],
    /// `[ranks, in]`: neighbours in memory are neighbours in the sum, as in the weights it is added to.
    a: Tensor,
    /// `[ranks, out]`, scaled.
    b: Tensor,
}

/// Numbers of 16 bits that a GPU reads at once. Its fast kernels want rows that begin at such places.
const WIDTH: i64 = 8;

impl Weights {
    /// Those of a net.
    pub(super) fn of(net: &Net) -> Fallible<Self> {
        Ok(Self {
            embedding: net.embedding.f_detach()?,
            layers: net
                .layers
                .iter()
                .map(|layer| LayerWeights::of(layer, &net.shape))
                .collect::<Fallible<_>>()?,
            norm: net.norm.f_detach()?,
            head: net.output_weight().f_detach()?.f_tr()?,
        })
    }
}

impl LayerWeights {
    fn of(layer: &Layer, shape: &Shape) -> Fallible<Self> {
        let turned = |tensor: &Tensor| tensor.f_detach()?.f_tr();
        let head_norms = match (&layer.query_norm, &layer.key_norm) {
            (Some(queries), Some(keys)) => Some((queries.f_detach()?, keys.f_detach()?)),
            _ => None,
        };
        Ok(Self {
            input_norm: layer.input_norm.f_detach()?,
            qkv: turned(&layer.qkv)?,
            qkv_bias: layer.qkv_bias.as_ref().map(Tensor::f_detach).transpose()?,
            head_norms,
            output: turned(&layer.output)?,
            post_norm: layer.post_norm.f_detach()?,
            gate_up: turned(&layer.gate_up)?,
            down: turned(&layer.down)?,
            added: Added::of(&layer.adapted, shape)?,
        })
    }
}

impl Added {
    fn of(adapted: &Adapted, shape: &Shape) -> Fallible<Self> {
        let thin = |targets| Thin::of(adapted, targets, shape);
        Ok(Self {
            qkv: thin(&[Target::Query, Target::Key, Target::Value])?,
            output: thin(&[Target::Output])?,
            gate_up: thin(&[Target::Gate, Target::Up])?,
            down: thin(&[Target::Down])?,
        })
    }

    /// Takes over an adapter's numbers, in place.
    pub(super) fn refresh(&self, adapted: &Adapted, shape: &Shape) -> Fallible<()> {
        let all = [&self.qkv, &self.output, &self.gate_up, &self.down];
        all.into_iter().flatten().try_for_each(|thin| thin.refresh(adapted, shape))
    }

    /// The same tensors once more.
    pub(super) fn shared(&self) -> Self {
        let shared = |thin: &Option<Thin>| thin.as_ref().map(Thin::shared);
        Self {
            qkv: shared(&self.qkv),
            output: shared(&self.output),
            gate_up: shared(&self.gate_up),
            down: shared(&self.down),
        }
    }
}

impl Thin {
    fn of(adapted: &Adapted, targets: &'static [Target], shape: &Shape) -> Fallible<Option<Self>> {
        let factors: Vec<_> = targets.iter().filter_map(|target| adapted.get(*target)).collect();
        let Some(first) = factors.first() else { return Ok(None) };
        let ranks: i64 = factors.iter().map(|factors| factors.rank()).sum();
        let ranks = (ranks + WIDTH - 1) / WIDTH * WIDTH;
        let columns = targets[0].sides(shape).0;
        let rows: i64 = targets.iter().map(|target| target.sides(shape).1).sum();
        let zeros = |sizes: [i64; 2]| Tensor::f_zeros(sizes, (first.a.kind(), first.a.device()));
        let thin = Self { targets, a: zeros([ranks, columns])?, b: zeros([ranks, rows])? };
        thin.refresh(adapted, shape)?;
        Ok(Some(thin))
    }

    fn refresh(&self, adapted: &Adapted, shape: &Shape) -> Fallible<()> {
        let _guard = tch::no_grad_guard();
        let (mut rank, mut row) = (0, 0);
        for target in self.targets {
            let rows = target.sides(shape).1;
            if let Some(factors) = adapted.get(*target) {
                let b = factors.b.f_tr()?.f_mul_scalar(adapted.scale())?;
                self.a.f_narrow(0, rank, factors.rank())?.f_copy_(&factors.a)?;
                self.b.f_narrow(0, rank, factors.rank())?.f_narrow(1, row, rows)?.f_copy_(&b)?;
                rank += factors.rank();
            }
            row += rows;
        }
        Ok(())
    }

    fn shared(&self) -> Self {
        Self { targets: self.targets, a: self.a.shallow_clone(), b: self.b.shallow_clone() }
    }

    /// Adds its product with `x` to `out`, in place.
    pub(super) fn add(&self, out: &mut Tensor, x: &Tensor) -> Fallible<()> {
        let _ = out.f_addmm_(&x.f_mm(&self.a.f_tr()?)?, &self.b)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;
    use crate::{Architecture, Lora, Output, Scaling};

    fn shape() -> Shape {
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
    fn changes_that_weights_of_16_bits_would_swallow_are_added() {
        let mut net = Net::random(shape(), 3, Device::Cpu, Kind::BFloat16).unwrap();
        let targets = vec![Target::Query, Target::Value];
        net.add_lora(&Lora { rank: 2, alpha: 6.0, targets, seed: 1 }).unwrap();
        let adapted = &net.layers[0].adapted;
        let thin = Added::of(adapted, &net.shape).unwrap().qkv.unwrap();
        tch::no_grad(|| {
            for target in [Target::Query, Target::Value] {
                let _ = adapted.get(target).unwrap().b.shallow_clone().fill_(1e-7);
            }
        });
        thin.refresh(adapted, &net.shape).unwrap();
        let x = Tensor::arange(64, (Kind::Float, Device::Cpu)).sin().view([2, 32]);
        let mut found = Tensor::zeros([2, 64], (Kind::BFloat16, Device::Cpu));
        tch::no_grad(|| thin.add(&mut found, &x.to_kind(Kind::BFloat16))).unwrap();
        let part = |target| {
            let factors = adapted.get(target).unwrap();
            let wide = |tensor: &Tensor| tensor.detach().to_kind(Kind::Float);
            x.matmul(&wide(&factors.a).tr()).matmul(&wide(&factors.b).tr()) * 3.0
        };
        let nothing = Tensor::zeros([2, 16], (Kind::Float, Device::Cpu));
        let wanted = Tensor::cat(&[part(Target::Query), nothing, part(Target::Value)], 1);
        let off = (found.to_kind(Kind::Float) - &wanted).abs().max().double_value(&[]);
        let largest = wanted.abs().max().double_value(&[]);
        assert!(largest > 1e-8 && off < largest * 0.03, "{off} of {largest}");
    }
}
