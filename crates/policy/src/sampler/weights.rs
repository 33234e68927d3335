//! The weights in the layout of the sampler: transposed views of the network's tensors, so that changes in place are
//! visible. An adapter is either copied as it is, or, for our own kernels where memory allows it, merged into a copy of the
//! weights it adapts.

use tch::{Kind, Tensor};

use crate::{
    error::{TchResult, out_of_memory},
    head::HeadPrecision,
    kernels::Kernels,
    layer::Layer,
    lora::{LayerAdapter, Target},
    merged::{MergedWeights, PROJECTIONS, bases},
    net::Network,
    shape::Shape,
};

/// All weights of a network.
pub(super) struct Weights {
    /// `[vocabulary, hidden]`.
    pub(super) embedding: Tensor,
    pub(super) layers: Vec<LayerWeights>,
    /// `[hidden]`.
    pub(super) norm: Tensor,
    /// `[hidden, vocabulary]`.
    pub(super) head: Tensor,
    /// The element type of logits.
    pub(super) logits: Kind,
}

/// The weights of a layer; matrices are `[in, out]`.
pub(super) struct LayerWeights {
    pub(super) input_norm: Tensor,
    pub(super) qkv: Tensor,
    pub(super) qkv_bias: Option<Tensor>,
    /// The head norms of queries and keys (Qwen3).
    pub(super) head_norms: Option<(Tensor, Tensor)>,
    pub(super) output: Tensor,
    pub(super) post_norm: Tensor,
    pub(super) gate_up: Tensor,
    pub(super) down: Tensor,
    pub(super) adapter: AdapterWeights,
}

/// The adapter of a layer.
pub(super) enum AdapterWeights {
    /// Its factors. Their product is added to that of the weights.
    Factors(LoraWeights),
    /// Merged.
    Merged(MergedWeights),
}

/// The adapter of a layer.
pub(super) struct LoraWeights {
    pub(super) qkv: Option<LowRank>,
    pub(super) output: Option<LowRank>,
    pub(super) gate_up: Option<LowRank>,
    pub(super) down: Option<LowRank>,
}

/// The adapter of one fused projection: the ranks of its targets are concatenated, and padded with zeros to a multiple of
/// [`WIDTH`].
pub(super) struct LowRank {
    targets: &'static [Target],
    /// `[ranks, in]`, contiguous along the summed dimension, as the weights.
    a: Tensor,
    /// `[ranks, out]`, scaled.
    b: Tensor,
}

/// How an engine applies the adapter of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterPath {
    /// The network has none.
    None,
    /// Merged into a copy of the weights: fast, and takes the memory of what is adapted.
    Merged,
    /// Its two factors are multiplied in every step.
    Factors,
}

/// The alignment of rows, in 16-bit elements, that fast GPU kernels need.
const WIDTH: i64 = 8;

impl Weights {
    /// The weights of a network. With kernels, an adapter is merged, unless there is no memory for it.
    pub(super) fn of(net: &Network, kernels: Option<&Kernels>) -> TchResult<Self> {
        let layers = |kernels: Option<&Kernels>| {
            let layers = net.layers.iter();
            layers
                .map(|layer| LayerWeights::of(layer, &net.shape, kernels))
                .collect::<TchResult<_>>()
        };
        let layers = match layers(kernels) {
            Err(error) if kernels.is_some() && out_of_memory(&error) => layers(None)?,
            layers => layers?,
        };
        Ok(Self {
            embedding: net.embedding.f_detach()?,
            layers,
            norm: net.norm.f_detach()?,
            head: net.output_weight().f_detach()?.f_tr()?,
            logits: logit_kind(net),
        })
    }

    /// The bytes of the copies with the adapter merged.
    pub(super) fn merged_memory(&self) -> u64 {
        let bytes = |tensor: &Tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64;
        let layers = self.layers.iter();
        layers.flat_map(|layer| layer.adapter.merged()).map(bytes).sum()
    }
}

impl Weights {
    /// Writes the logits of hidden states `[rows, hidden]` to `out`.
    pub(super) fn write_logits(&self, hidden: &Tensor, out: &Tensor) -> TchResult<()> {
        let same = self.logits == hidden.kind();
        let _ = match (same, hidden.device().is_cuda()) {
            (true, _) => hidden.f_mm_out(out, &self.head)?,
            (false, true) => hidden.f_mm_dtype_out(out, &self.head, self.logits)?,
            (false, false) => {
                hidden.f_to_kind(self.logits)?.f_mm_out(out, &self.head.f_to_kind(self.logits)?)?
            }
        };
        Ok(())
    }
}

/// The element type of a network's logits.
pub(crate) fn logit_kind(net: &Network) -> Kind {
    match (net.head_precision(), net.kind()) {
        (HeadPrecision::F32, Kind::BFloat16 | Kind::Half) => Kind::Float,
        (_, kind) => kind,
    }
}

impl LayerWeights {
    fn of(layer: &Layer, shape: &Shape, kernels: Option<&Kernels>) -> TchResult<Self> {
        let adapter = match kernels {
            Some(_) => AdapterWeights::Merged(MergedWeights::of(layer, shape, kernels)?),
            None => AdapterWeights::Factors(LoraWeights::of(&layer.adapted, shape)?),
        };
        let [qkv, output, gate_up, down] = match &adapter {
            AdapterWeights::Factors(_) => bases(layer),
            AdapterWeights::Merged(merged) => merged.all(layer),
        };
        let transposed = |weight: &Tensor| weight.f_detach()?.f_tr();
        let head_norms = match (&layer.query_norm, &layer.key_norm) {
            (Some(queries), Some(keys)) => Some((queries.f_detach()?, keys.f_detach()?)),
            _ => None,
        };
        Ok(Self {
            input_norm: layer.input_norm.f_detach()?,
            qkv: transposed(qkv)?,
            qkv_bias: layer.qkv_bias.as_ref().map(Tensor::f_detach).transpose()?,
            head_norms,
            output: transposed(output)?,
            post_norm: layer.post_norm.f_detach()?,
            gate_up: transposed(gate_up)?,
            down: transposed(down)?,
            adapter,
        })
    }

    /// The factors that are added to the products; none where they are merged.
    pub(super) fn factors(&self) -> Option<&LoraWeights> {
        match &self.adapter {
            AdapterWeights::Factors(lora) => Some(lora),
            AdapterWeights::Merged(_) => None,
        }
    }
}

impl AdapterWeights {
    /// Copies or merges the current values of an adapter, in place.
    pub(super) fn refresh(
        &self,
        layer: &Layer,
        shape: &Shape,
        kernels: Option<&Kernels>,
    ) -> TchResult<()> {
        match self {
            Self::Factors(lora) => lora.refresh(&layer.adapted, shape),
            Self::Merged(merged) => merged.refresh(layer, shape, kernels),
        }
    }

    /// How it is applied.
    pub(super) fn path(&self) -> AdapterPath {
        match self {
            Self::Merged(_) if self.merged().next().is_some() => AdapterPath::Merged,
            Self::Factors(lora) if lora.all().into_iter().flatten().next().is_some() => {
                AdapterPath::Factors
            }
            _ => AdapterPath::None,
        }
    }

    /// The copies with the adapter merged.
    fn merged(&self) -> impl Iterator<Item = &Tensor> {
        let merged = match self {
            Self::Factors(_) => None,
            Self::Merged(merged) => Some(merged.copies()),
        };
        merged.into_iter().flatten()
    }

    /// A second handle to the same tensors.
    pub(super) fn shared(&self) -> Self {
        match self {
            Self::Factors(lora) => Self::Factors(lora.shared()),
            Self::Merged(merged) => Self::Merged(merged.shared()),
        }
    }
}

impl LoraWeights {
    fn of(adapted: &LayerAdapter, shape: &Shape) -> TchResult<Self> {
        let low_rank = |targets| LowRank::of(adapted, targets, shape);
        let [qkv, output, gate_up, down] = PROJECTIONS;
        Ok(Self {
            qkv: low_rank(qkv)?,
            output: low_rank(output)?,
            gate_up: low_rank(gate_up)?,
            down: low_rank(down)?,
        })
    }

    /// Copies the current values of an adapter, in place.
    pub(super) fn refresh(&self, adapted: &LayerAdapter, shape: &Shape) -> TchResult<()> {
        let mut all = self.all().into_iter().flatten();
        all.try_for_each(|low_rank| low_rank.refresh(adapted, shape))
    }

    fn all(&self) -> [Option<&LowRank>; 4] {
        [&self.qkv, &self.output, &self.gate_up, &self.down].map(Option::as_ref)
    }

    /// A second handle to the same tensors.
    pub(super) fn shared(&self) -> Self {
        let shared = |low_rank: &Option<LowRank>| low_rank.as_ref().map(LowRank::shared);
        Self {
            qkv: shared(&self.qkv),
            output: shared(&self.output),
            gate_up: shared(&self.gate_up),
            down: shared(&self.down),
        }
    }
}

impl LowRank {
    fn of(
        adapted: &LayerAdapter,
        targets: &'static [Target],
        shape: &Shape,
    ) -> TchResult<Option<Self>> {
        let factors: Vec<_> = targets.iter().filter_map(|target| adapted.get(*target)).collect();
        let Some(first) = factors.first() else { return Ok(None) };
        let ranks: i64 = factors.iter().map(|factors| factors.rank()).sum();
        let ranks = (ranks + WIDTH - 1) / WIDTH * WIDTH;
        let columns = targets[0].sides(shape).0;
        let rows: i64 = targets.iter().map(|target| target.sides(shape).1).sum();
        let zeros = |sizes: [i64; 2]| Tensor::f_zeros(sizes, (first.a.kind(), first.a.device()));
        let low_rank = Self { targets, a: zeros([ranks, columns])?, b: zeros([ranks, rows])? };
        low_rank.refresh(adapted, shape)?;
        Ok(Some(low_rank))
    }

    fn refresh(&self, adapted: &LayerAdapter, shape: &Shape) -> TchResult<()> {
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

    /// Adds `x A^T B` to `out`, in place.
    pub(super) fn add(&self, out: &mut Tensor, x: &Tensor) -> TchResult<()> {
        let _ = out.f_addmm_(&x.f_mm(&self.a.f_tr()?)?, &self.b)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::{LoraConfig, merged::tests::shape};

    #[test]
    fn without_kernels_the_factors_are_used() {
        let mut net = Network::random(shape(), 3, Device::Cpu, Kind::Float).unwrap();
        let path = |net: &Network| Weights::of(net, None).unwrap().layers[0].adapter.path();
        assert_eq!(path(&net), AdapterPath::None);
        let targets = vec![Target::Down];
        net.add_lora(&LoraConfig { rank: 2, alpha: 6.0, targets, seed: 1 }).unwrap();
        assert_eq!(path(&net), AdapterPath::Factors);
        assert_eq!(Weights::of(&net, None).unwrap().merged_memory(), 0);
    }

    #[test]
    fn changes_that_weights_of_16_bits_would_swallow_are_added() {
        let mut net = Network::random(shape(), 3, Device::Cpu, Kind::BFloat16).unwrap();
        let targets = vec![Target::Query, Target::Value];
        net.add_lora(&LoraConfig { rank: 2, alpha: 6.0, targets, seed: 1 }).unwrap();
        let adapted = &net.layers[0].adapted;
        let low_rank = LoraWeights::of(adapted, &net.shape).unwrap().qkv.unwrap();
        tch::no_grad(|| {
            for target in [Target::Query, Target::Value] {
                let _ = adapted.get(target).unwrap().b.shallow_clone().fill_(1e-7);
            }
        });
        low_rank.refresh(adapted, &net.shape).unwrap();
        let x = Tensor::arange(64, (Kind::Float, Device::Cpu)).sin().view([2, 32]);
        let mut found = Tensor::zeros([2, 64], (Kind::BFloat16, Device::Cpu));
        tch::no_grad(|| low_rank.add(&mut found, &x.to_kind(Kind::BFloat16))).unwrap();
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
