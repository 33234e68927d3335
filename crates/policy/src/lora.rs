//! LoRA: next to a frozen projection W, the product B A of two low-rank matrices, which alone are trained. The layer
//! computes `x W^T + (alpha / rank) x A^T B^T`. Adapters can be added for training and merged for export.
//!
//! Reference: Hu et al., "LoRA: low-rank adaptation of large language models", 2021. A is
//! initialised from a normal distribution with the variance of PEFT's default (1 / (3 inputs)), B with zeros.

use tch::Tensor;

use crate::error::TchResult;
use crate::layer::{Layer, wide};
use crate::net::Network;
use crate::noise::Noise;
use crate::shape::Shape;

/// A projection that can be adapted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Query.
    Query,
    /// Key.
    Key,
    /// Value.
    Value,
    /// Attention output.
    Output,
    /// Feed-forward gate.
    Gate,
    /// Feed-forward up.
    Up,
    /// Feed-forward down.
    Down,
}

/// The settings of an adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraConfig {
    /// The rank of the product.
    pub rank: i64,
    /// The product is scaled by `alpha / rank`.
    pub alpha: f64,
    /// The adapted projections, in every layer.
    pub targets: Vec<Target>,
    /// Seed of the random initialisation.
    pub seed: u64,
}

/// An adapter cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum LoraError {
    /// The rank is out of range.
    #[error("rank {rank} is not between 1 and {max}")]
    Rank {
        /// The rank.
        rank: i64,
        /// The smallest dimension of the adapted projections.
        max: i64,
    },
    /// The scale is not positive and finite.
    #[error("alpha {0} is not positive and finite")]
    Alpha(f64),
    /// There are no targets.
    #[error("no projection is adapted")]
    NoTargets,
    /// The network has an adapter already.
    #[error("the network already has an adapter")]
    AlreadyAdapted,
    /// libtorch failed.
    #[error("cannot create tensors")]
    Torch(#[from] tch::TchError),
}

/// All projections, in the order of a layer.
pub const TARGETS: [Target; 7] = [
    Target::Query,
    Target::Key,
    Target::Value,
    Target::Output,
    Target::Gate,
    Target::Up,
    Target::Down,
];

impl Target {
    /// The projection with this name in the Hugging Face layout.
    pub fn from_name(name: &str) -> Option<Self> {
        TARGETS.into_iter().find(|target| target.name() == name)
    }

    /// Its name in the Hugging Face layout.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "q_proj",
            Self::Key => "k_proj",
            Self::Value => "v_proj",
            Self::Output => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }

    /// The part of a layer it belongs to in the Hugging Face layout.
    pub(crate) fn part(self) -> &'static str {
        match self {
            Self::Query | Self::Key | Self::Value | Self::Output => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
        }
    }

    /// Its input and output dimensions.
    pub(crate) fn sides(self, shape: &Shape) -> (i64, i64) {
        match self {
            Self::Query => (shape.hidden, shape.query_rows()),
            Self::Key | Self::Value => (shape.hidden, shape.key_rows()),
            Self::Output => (shape.query_rows(), shape.hidden),
            Self::Gate | Self::Up => (shape.hidden, shape.intermediate),
            Self::Down => (shape.intermediate, shape.hidden),
        }
    }

    /// Its first row in the fused tensor.
    pub(crate) fn first_row(self, shape: &Shape) -> i64 {
        match self {
            Self::Query | Self::Output | Self::Gate | Self::Down => 0,
            Self::Key => shape.query_rows(),
            Self::Value => shape.query_rows() + shape.key_rows(),
            Self::Up => shape.intermediate,
        }
    }
}

/// The two low-rank matrices of one projection.
#[derive(Debug)]
pub(crate) struct Factors {
    /// `[rank, columns]`.
    pub(crate) a: Tensor,
    /// `[rows, rank]`.
    pub(crate) b: Tensor,
}

impl Factors {
    pub(crate) fn rank(&self) -> i64 {
        self.a.size()[0]
    }
}

/// The adapter of one layer.
#[derive(Debug, Default)]
pub(crate) struct LayerAdapter {
    scale: f64,
    factors: [Option<Factors>; 7],
}

impl LayerAdapter {
    pub(crate) fn get(&self, target: Target) -> Option<&Factors> {
        self.factors[target as usize].as_ref()
    }

    /// A copy in another element type.
    pub(crate) fn in_kind(&self, kind: tch::Kind) -> TchResult<Self> {
        let mut copy = Self { scale: self.scale, ..Self::default() };
        for (to, from) in copy.factors.iter_mut().zip(&self.factors) {
            let Some(from) = from else { continue };
            let converted = |factor: &Tensor| factor.f_detach()?.f_to_kind(kind);
            *to = Some(Factors { a: converted(&from.a)?, b: converted(&from.b)? });
        }
        Ok(copy)
    }

    /// The scale of the product.
    pub(crate) fn scale(&self) -> f64 {
        self.scale
    }

    /// Adds to the parts of a fused projection, all in one product: `x` is read once, and the sum is written once. The
    /// second factor has the parts' blocks on its diagonal, with no columns for a part without an adapter.
    pub(crate) fn add_qkv(
        &self,
        mut fused: Tensor,
        x: &Tensor,
        shape: &Shape,
    ) -> TchResult<Tensor> {
        const PARTS: [Target; 3] = [Target::Query, Target::Key, Target::Value];
        let factors: Vec<&Factors> = PARTS.iter().filter_map(|target| self.get(*target)).collect();
        let Some(first) = factors.first() else { return Ok(fused) };
        let a: Vec<&Tensor> = factors.iter().map(|factors| &factors.a).collect();
        let block = |target: &Target| match self.get(*target) {
            Some(factors) => Ok(factors.b.shallow_clone()),
            None => {
                let options = (first.b.kind(), first.b.device());
                Tensor::f_empty([target.sides(shape).1, 0], options)
            }
        };
        let blocks = PARTS.iter().map(block).collect::<TchResult<Vec<_>>>()?;
        let b = Tensor::f_block_diag(&blocks)?;
        self.add_product(&mut fused, x, &Tensor::f_cat(&a, 0)?, &b)?;
        Ok(fused)
    }

    pub(crate) fn add_output(&self, projected: Tensor, x: &Tensor) -> TchResult<Tensor> {
        self.add_one(projected, x, Target::Output)
    }

    pub(crate) fn add_gate(&self, projected: Tensor, x: &Tensor) -> TchResult<Tensor> {
        self.add_one(projected, x, Target::Gate)
    }

    pub(crate) fn add_up(&self, projected: Tensor, x: &Tensor) -> TchResult<Tensor> {
        self.add_one(projected, x, Target::Up)
    }

    pub(crate) fn add_down(&self, projected: Tensor, x: &Tensor) -> TchResult<Tensor> {
        self.add_one(projected, x, Target::Down)
    }

    fn add_one(&self, mut projected: Tensor, x: &Tensor, target: Target) -> TchResult<Tensor> {
        if let Some(Factors { a, b }) = self.get(target) {
            self.add_product(&mut projected, x, a, b)?;
        }
        Ok(projected)
    }

    /// Adds `scale x a^T b^T` in place.
    fn add_product(&self, sum: &mut Tensor, x: &Tensor, a: &Tensor, b: &Tensor) -> TchResult<()> {
        let thin = x.f_linear(a, None::<&Tensor>)?.f_mul_scalar(self.scale)?;
        let _ = sum.f_addmm_(&thin, &b.f_transpose(0, 1)?)?;
        Ok(())
    }

    /// The rows of a projection with the scaled product of its factors added, in at least single precision.
    pub(crate) fn added(&self, rows: &Tensor, target: Target) -> TchResult<Tensor> {
        let kind = wide(rows.kind());
        let Some(factors) = self.get(target) else { return rows.f_to_kind(kind) };
        let product = factors
            .b
            .f_to_kind(kind)?
            .f_matmul(&factors.a.f_to_kind(kind)?)?
            .f_mul_scalar(self.scale)?;
        rows.f_to_kind(kind)?.f_add(&product)
    }

    /// Adds the scaled product of the factors to the weights of a projection, in place.
    fn merge(&self, weight: &Tensor, target: Target, shape: &Shape) -> TchResult<()> {
        let mut rows = weight.f_narrow(0, target.first_row(shape), target.sides(shape).1)?;
        rows.f_copy_(&self.added(&rows, target)?)
    }
}

impl Network {
    /// Freezes the base weights and adds an adapter to the target projections of every layer. A is random and B zero, so
    /// that the output is unchanged at first.
    pub fn add_lora(&mut self, lora: &LoraConfig) -> Result<(), LoraError> {
        if self.lora.is_some() {
            return Err(LoraError::AlreadyAdapted);
        }
        let mut targets = lora.targets.clone();
        targets.sort();
        targets.dedup();
        let sides = targets.iter().map(|target| target.sides(&self.shape));
        let Some(max) = sides.map(|(columns, rows)| columns.min(rows)).min() else {
            return Err(LoraError::NoTargets);
        };
        if !(1..=max).contains(&lora.rank) {
            return Err(LoraError::Rank { rank: lora.rank, max });
        }
        if !(lora.alpha.is_finite() && lora.alpha > 0.0) {
            return Err(LoraError::Alpha(lora.alpha));
        }
        let (kind, device) = (self.kind(), self.device());
        let mut noise = Noise::new(lora.seed);
        let mut adapted = Vec::new();
        for _ in &self.layers {
            let mut layer_adapter =
                LayerAdapter { scale: lora.alpha / lora.rank as f64, ..Default::default() };
            for target in &targets {
                let (columns, rows) = target.sides(&self.shape);
                let deviation = (3.0 * columns as f32).sqrt().recip();
                let a = noise.normal(&[lora.rank, columns], deviation, device, kind)?;
                let b = Tensor::f_zeros([rows, lora.rank], (kind, device))?;
                layer_adapter.factors[*target as usize] = Some(Factors { a, b });
            }
            adapted.push(layer_adapter);
        }
        for (layer, adapted) in self.layers.iter_mut().zip(adapted) {
            layer.adapted = adapted;
        }
        self.lora = Some(LoraConfig { targets, ..lora.clone() });
        Ok(self.require_gradients()?)
    }

    /// The network with its adapter merged into the weights. Equal up to rounding: in 16 bits, changes that are small
    /// relative to the weight are lost. Tensors that are not adapted are shared.
    pub fn merged(&self) -> TchResult<Self> {
        let _guard = tch::no_grad_guard();
        let mut layers = Vec::new();
        for layer in &self.layers {
            let merge = |tensor: &Tensor, targets: &[Target]| -> TchResult<Tensor> {
                if targets.iter().all(|target| layer.adapted.get(*target).is_none()) {
                    return Ok(tensor.shallow_clone());
                }
                let mut merged = tensor.f_detach()?.f_zeros_like()?;
                merged.f_copy_(tensor)?;
                for target in targets {
                    layer.adapted.merge(&merged, *target, &self.shape)?;
                }
                Ok(merged)
            };
            let shared = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::shallow_clone);
            layers.push(Layer {
                input_norm: layer.input_norm.shallow_clone(),
                qkv: merge(&layer.qkv, &[Target::Query, Target::Key, Target::Value])?,
                qkv_bias: shared(&layer.qkv_bias),
                query_norm: shared(&layer.query_norm),
                key_norm: shared(&layer.key_norm),
                output: merge(&layer.output, &[Target::Output])?,
                post_norm: layer.post_norm.shallow_clone(),
                gate_up: merge(&layer.gate_up, &[Target::Gate, Target::Up])?,
                down: merge(&layer.down, &[Target::Down])?,
                adapted: LayerAdapter::default(),
            });
        }
        Ok(Self {
            shape: self.shape.clone(),
            embedding: self.embedding.shallow_clone(),
            layers,
            norm: self.norm.shallow_clone(),
            head: self.head.as_ref().map(Tensor::shallow_clone),
            head_precision: self.head_precision,
            lora: None,
            origin: self.origin.clone(),
        })
    }

    /// The factors of the adapter by their names in the Hugging Face layout, in a fixed order.
    pub(crate) fn factors(&self) -> Vec<(String, Tensor)> {
        let mut all = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            for target in TARGETS {
                let Some(factors) = layer.adapted.get(target) else { continue };
                let name = format!("model.layers.{number}.{}.{}", target.part(), target.name());
                all.push((format!("{name}.lora_A.weight"), factors.a.shallow_clone()));
                all.push((format!("{name}.lora_B.weight"), factors.b.shallow_clone()));
            }
        }
        all
    }
}
