//! Adapters of low rank: next to a frozen projection, a product of two thin matrices that alone is trained. They can be
//! added for training and merged for export. Refuses to know files and optimisers.

use tch::Tensor;

use crate::error::Fallible;
use crate::layer::{Layer, wide};
use crate::net::Net;
use crate::noise::Noise;
use crate::shape::Shape;

/// A projection that can be adapted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Queries.
    Query,
    /// Keys.
    Key,
    /// Values.
    Value,
    /// From the heads back.
    Output,
    /// The gate of the feed-forward part.
    Gate,
    /// What is gated.
    Up,
    /// From the feed-forward part back.
    Down,
}

/// What an adapter is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Lora {
    /// Width of the products.
    pub rank: i64,
    /// The products are scaled by `alpha / rank`.
    pub alpha: f64,
    /// The projections that get one, in every layer.
    pub targets: Vec<Target>,
    /// Seed of the first factors.
    pub seed: u64,
}

/// An adapter that cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum LoraError {
    /// The rank is none.
    #[error("a rank of {rank} does not lie between 1 and {most}")]
    Rank {
        /// What was asked.
        rank: i64,
        /// The narrowest side of the projections.
        most: i64,
    },
    /// The scale is none.
    #[error("an alpha of {0} is not positive and finite")]
    Alpha(f64),
    /// Nothing is adapted.
    #[error("no projection is adapted")]
    NoTargets,
    /// There is one already.
    #[error("the net has an adapter already")]
    Already,
    /// libtorch refused.
    #[error("its tensors cannot be made")]
    Torch(#[from] tch::TchError),
}

/// Every projection, in the order of a layer.
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

    /// Its columns and rows.
    pub(crate) fn sides(self, shape: &Shape) -> (i64, i64) {
        match self {
            Self::Query => (shape.hidden, shape.query_rows()),
            Self::Key | Self::Value => (shape.hidden, shape.key_rows()),
            Self::Output => (shape.query_rows(), shape.hidden),
            Self::Gate | Self::Up => (shape.hidden, shape.intermediate),
            Self::Down => (shape.intermediate, shape.hidden),
        }
    }

    /// Its first row in the tensor that holds it.
    fn first_row(self, shape: &Shape) -> i64 {
        match self {
            Self::Query | Self::Output | Self::Gate | Self::Down => 0,
            Self::Key => shape.query_rows(),
            Self::Value => shape.query_rows() + shape.key_rows(),
            Self::Up => shape.intermediate,
        }
    }
}

/// The two thin matrices of one projection.
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

/// What an adapter adds to one layer.
#[derive(Debug, Default)]
pub(crate) struct Adapted {
    scale: f64,
    factors: [Option<Factors>; 7],
}

impl Adapted {
    pub(crate) fn get(&self, target: Target) -> Option<&Factors> {
        self.factors[target as usize].as_ref()
    }

    /// What products of factors are multiplied with.
    pub(crate) fn scale(&self) -> f64 {
        self.scale
    }

    pub(crate) fn add_qkv(&self, fused: Tensor, x: &Tensor, shape: &Shape) -> Fallible<Tensor> {
        self.add(fused, x, &[Target::Query, Target::Key, Target::Value], shape)
    }

    pub(crate) fn add_gate_up(&self, fused: Tensor, x: &Tensor, shape: &Shape) -> Fallible<Tensor> {
        self.add(fused, x, &[Target::Gate, Target::Up], shape)
    }

    pub(crate) fn add_output(&self, projected: Tensor, x: &Tensor) -> Fallible<Tensor> {
        self.add_one(projected, x, Target::Output)
    }

    pub(crate) fn add_down(&self, projected: Tensor, x: &Tensor) -> Fallible<Tensor> {
        self.add_one(projected, x, Target::Down)
    }

    /// Adds to the parts of a joined product.
    fn add(
        &self,
        fused: Tensor,
        x: &Tensor,
        targets: &[Target],
        shape: &Shape,
    ) -> Fallible<Tensor> {
        if targets.iter().all(|target| self.get(*target).is_none()) {
            return Ok(fused);
        }
        let sizes: Vec<i64> = targets.iter().map(|target| target.sides(shape).1).collect();
        let parts = fused.f_split_with_sizes(sizes, -1)?;
        let added =
            parts.into_iter().zip(targets).map(|(part, target)| self.add_one(part, x, *target));
        Tensor::f_cat(&added.collect::<Fallible<Vec<_>>>()?, -1)
    }

    fn add_one(&self, projected: Tensor, x: &Tensor, target: Target) -> Fallible<Tensor> {
        let Some(factors) = self.get(target) else { return Ok(projected) };
        let thin = x.f_linear(&factors.a, None::<&Tensor>)?.f_mul_scalar(self.scale)?;
        projected.f_add(&thin.f_linear(&factors.b, None::<&Tensor>)?)
    }

    /// Adds the product of the factors to the weights of a projection, in place.
    fn merge(&self, weight: &Tensor, target: Target, shape: &Shape) -> Fallible<()> {
        let Some(factors) = self.get(target) else { return Ok(()) };
        let kind = wide(weight.kind());
        let product = factors
            .b
            .f_to_kind(kind)?
            .f_matmul(&factors.a.f_to_kind(kind)?)?
            .f_mul_scalar(self.scale)?;
        let mut rows = weight.f_narrow(0, target.first_row(shape), target.sides(shape).1)?;
        let sum = rows.f_to_kind(kind)?.f_add(&product)?;
        rows.f_copy_(&sum)
    }
}

impl Net {
    /// Freezes the base weights and puts an adapter next to the chosen projections of every layer. The first factor is
    /// random, the second zero, so that the net computes what it did before.
    pub fn add_lora(&mut self, lora: &Lora) -> Result<(), LoraError> {
        if self.lora.is_some() {
            return Err(LoraError::Already);
        }
        let mut targets = lora.targets.clone();
        targets.sort();
        targets.dedup();
        let sides = targets.iter().map(|target| target.sides(&self.shape));
        let Some(most) = sides.map(|(columns, rows)| columns.min(rows)).min() else {
            return Err(LoraError::NoTargets);
        };
        if !(1..=most).contains(&lora.rank) {
            return Err(LoraError::Rank { rank: lora.rank, most });
        }
        if !(lora.alpha.is_finite() && lora.alpha > 0.0) {
            return Err(LoraError::Alpha(lora.alpha));
        }
        let (kind, device) = (self.kind(), self.device());
        let mut noise = Noise::new(lora.seed);
        let mut adapted = Vec::new();
        for _ in &self.layers {
            let mut of_layer =
                Adapted { scale: lora.alpha / lora.rank as f64, ..Default::default() };
            for target in &targets {
                let (columns, rows) = target.sides(&self.shape);
                let deviation = (3.0 * columns as f32).sqrt().recip();
                let a = noise.normal(&[lora.rank, columns], deviation, device, kind)?;
                let b = Tensor::f_zeros([rows, lora.rank], (kind, device))?;
                of_layer.factors[*target as usize] = Some(Factors { a, b });
            }
            adapted.push(of_layer);
        }
        for (layer, adapted) in self.layers.iter_mut().zip(adapted) {
            layer.adapted = adapted;
        }
        self.lora = Some(Lora { targets, ..lora.clone() });
        Ok(self.require_gradients()?)
    }

    /// A net that computes the same without an adapter, but for rounding: in 16 bits, changes that are small beside the
    /// weight they are added to are lost. What is not adapted is shared.
    pub fn merged(&self) -> Fallible<Self> {
        let _guard = tch::no_grad_guard();
        let mut layers = Vec::new();
        for layer in &self.layers {
            let merge = |tensor: &Tensor, targets: &[Target]| -> Fallible<Tensor> {
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
                adapted: Adapted::default(),
            });
        }
        Ok(Self {
            shape: self.shape.clone(),
            embedding: self.embedding.shallow_clone(),
            layers,
            norm: self.norm.shallow_clone(),
            head: self.head.as_ref().map(Tensor::shallow_clone),
            lora: None,
            origin: self.origin.clone(),
        })
    }

    /// The factors of the adapter, in a fixed order, under the names of the Hugging Face layout.
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
