//! The network: its tensors, their names, and its forward pass. Knows no files, optimizers or text.

use tch::{Device, Kind, Tensor};

use crate::attention::Packing;
use crate::convert;
use crate::error::TchResult;
use crate::head::{HeadPrecision, Projection};
use crate::layer::{Layer, norm};
use crate::lora::LoraConfig;
use crate::noise::Noise;
use crate::rope::Tables;
use crate::shape::{Architecture, Output, Shape, ShapeError};

/// A causal language model on one device, in one element type.
///
/// Methods return libtorch's errors instead of panicking, so that a caller can retry with less memory. Weights may be
/// changed in place through the returned tensors, under `tch::no_grad`.
pub struct Network {
    pub(crate) shape: Shape,
    /// `[vocabulary, hidden]`.
    pub(crate) embedding: Tensor,
    pub(crate) layers: Vec<Layer>,
    /// Weight of the final norm, `[hidden]`.
    pub(crate) norm: Tensor,
    /// `[vocabulary, hidden]`; `None` where it is tied to the embedding.
    pub(crate) head: Option<Tensor>,
    pub(crate) head_precision: HeadPrecision,
    pub(crate) lora: Option<LoraConfig>,
    /// The configuration the weights were loaded with; an export keeps its other entries.
    pub(crate) origin: serde_json::Map<String, serde_json::Value>,
}

impl Network {
    /// A network with random weights, the same for the same seed on every device.
    pub fn random(
        shape: Shape,
        seed: u64,
        device: Device,
        kind: Kind,
    ) -> Result<Self, RandomError> {
        let mut noise = Noise::new(seed);
        Self::filled(shape, device, kind, |rows, columns| {
            noise.normal(&[rows, columns], 0.02, device, kind)
        })
    }

    /// A network whose matrices are made by the caller, `[rows, columns]`; norms are 1 and biases 0.
    pub(crate) fn filled(
        shape: Shape,
        device: Device,
        kind: Kind,
        mut matrix: impl FnMut(i64, i64) -> TchResult<Tensor>,
    ) -> Result<Self, RandomError> {
        shape.check()?;
        let ones = |width: i64| Tensor::f_ones([width], (kind, device));
        let rows = shape.query_rows() + 2 * shape.key_rows();
        let embedding = matrix(shape.vocabulary, shape.hidden)?;
        let mut layers = Vec::new();
        for _ in 0..shape.layers {
            let head_norm = || {
                (shape.architecture == Architecture::Qwen3)
                    .then(|| ones(shape.head_dim))
                    .transpose()
            };
            let bias = shape.architecture == Architecture::Qwen2;
            layers.push(Layer {
                input_norm: ones(shape.hidden)?,
                qkv: matrix(rows, shape.hidden)?,
                qkv_bias: bias.then(|| Tensor::f_zeros([rows], (kind, device))).transpose()?,
                query_norm: head_norm()?,
                key_norm: head_norm()?,
                output: matrix(shape.hidden, shape.query_rows())?,
                post_norm: ones(shape.hidden)?,
                gate_up: matrix(2 * shape.intermediate, shape.hidden)?,
                down: matrix(shape.hidden, shape.intermediate)?,
                adapted: Default::default(),
            });
        }
        let head = match shape.output {
            Output::Tied => None,
            Output::Own => Some(matrix(shape.vocabulary, shape.hidden)?),
        };
        let norm = ones(shape.hidden)?;
        let net = Self {
            shape,
            embedding,
            layers,
            norm,
            head,
            head_precision: HeadPrecision::default(),
            lora: None,
            origin: Default::default(),
        };
        net.require_gradients()?;
        Ok(net)
    }

    /// Its architecture and sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The device of the weights.
    pub fn device(&self) -> Device {
        self.embedding.device()
    }

    /// The element type of weights and activations.
    pub fn kind(&self) -> Kind {
        self.embedding.kind()
    }

    /// The precision of logits, in scoring and in sampling.
    pub fn head_precision(&self) -> HeadPrecision {
        self.head_precision
    }

    /// Sets the precision of logits; 32 bits by default.
    #[must_use]
    pub fn with_head_precision(self, head_precision: HeadPrecision) -> Self {
        Self { head_precision, ..self }
    }

    /// The adapter, if there is one.
    pub fn lora(&self) -> Option<&LoraConfig> {
        self.lora.as_ref()
    }

    /// The base weights by their names in the Hugging Face layout, in a fixed order and without the adapter. They are
    /// views without gradients: a change in place changes the network.
    pub fn parameters(&self) -> TchResult<Vec<(String, Tensor)>> {
        let mut all = vec![("model.embed_tokens.weight".to_owned(), self.embedding.f_detach()?)];
        for (number, layer) in self.layers.iter().enumerate() {
            for (name, tensor) in layer.base() {
                for (name, part) in convert::parts(name, tensor, &self.shape)? {
                    all.push((format!("model.layers.{number}.{name}"), part));
                }
            }
        }
        all.push(("model.norm.weight".to_owned(), self.norm.f_detach()?));
        if let Some(head) = &self.head {
            all.push(("lm_head.weight".to_owned(), head.f_detach()?));
        }
        Ok(all)
    }

    /// The trained parameters, to whose gradients [`Network::accumulate`] adds, in a fixed order. With an adapter only
    /// its factors, else every base weight as stored: queries, keys and values are one tensor (`qkv_proj`), gate and up
    /// another (`gate_up_proj`).
    pub fn trainable(&self) -> Vec<(String, Tensor)> {
        match self.lora {
            Some(_) => self.factors(),
            None => self.base(),
        }
    }

    /// The logits at every position, `[batch, length, vocabulary]`, of tokens `[batch, length]` (64-bit integers); for
    /// short sequences. Tracks gradients unless disabled by the caller.
    pub fn logits(&self, tokens: &Tensor) -> TchResult<Tensor> {
        let (batch, length) = tokens.size2()?;
        let sequences = Packing::regular(batch, length);
        let packing = Packing::new(sequences, self.shape.head_dim, self.kind(), self.device())?;
        let positions = Tensor::f_arange(length, (Kind::Int64, self.device()))?;
        let rope = self.tables(length, &positions.f_repeat([batch])?)?;
        let hidden = self.hidden(&tokens.f_flatten(0, 1)?, &rope, &packing)?;
        let logits = hidden.f_linear(self.output_weight(), None::<&Tensor>)?;
        logits.f_unflatten(0, [batch, length])
    }

    /// The hidden states after the final norm of packed tokens, `[tokens, hidden]`.
    pub(crate) fn hidden(
        &self,
        tokens: &Tensor,
        rope: &Tables,
        packing: &Packing,
    ) -> TchResult<Tensor> {
        let mut x = self.embed(tokens)?;
        for layer in &self.layers {
            x = layer.forward(&x, &self.shape, rope, packing)?;
        }
        self.finish(&x)
    }

    /// The output projection to logits, and its precision.
    pub(crate) fn projection(&self) -> Projection<'_> {
        Projection { weight: self.output_weight(), precision: self.head_precision }
    }

    /// The weight of the output projection.
    pub(crate) fn output_weight(&self) -> &Tensor {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// The embeddings of tokens.
    pub(crate) fn embed(&self, tokens: &Tensor) -> TchResult<Tensor> {
        Tensor::f_embedding(&self.embedding, tokens, -1, false, false)
    }

    /// The final norm.
    pub(crate) fn finish(&self, x: &Tensor) -> TchResult<Tensor> {
        norm(x, &self.norm, self.shape.norm_eps)
    }

    /// The rotary tables of positions, all below `length`.
    pub(crate) fn tables(&self, length: i64, positions: &Tensor) -> TchResult<Tables> {
        Tables::new(&self.shape, length, self.kind(), self.device())?.at(positions)
    }

    /// The base weights as stored.
    pub(crate) fn base(&self) -> Vec<(String, Tensor)> {
        let mut all =
            vec![("model.embed_tokens.weight".to_owned(), self.embedding.shallow_clone())];
        for (number, layer) in self.layers.iter().enumerate() {
            let named = |(name, tensor): (&str, &Tensor)| {
                (format!("model.layers.{number}.{name}"), tensor.shallow_clone())
            };
            all.extend(layer.base().into_iter().map(named));
        }
        all.push(("model.norm.weight".to_owned(), self.norm.shallow_clone()));
        all.extend(
            self.head.iter().map(|head| ("lm_head.weight".to_owned(), head.shallow_clone())),
        );
        all
    }

    /// Enables gradients for the trained parameters only.
    pub(crate) fn require_gradients(&self) -> TchResult<()> {
        for (_, tensor) in self.base() {
            let _ = tensor.f_set_requires_grad(self.lora.is_none())?;
        }
        for (_, factor) in self.factors() {
            let _ = factor.f_set_requires_grad(true)?;
        }
        Ok(())
    }
}

/// A network with random weights cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum RandomError {
    /// The shape is invalid.
    #[error("invalid shape")]
    Shape(#[from] ShapeError),
    /// libtorch failed.
    #[error("cannot create tensors")]
    Torch(#[from] tch::TchError),
}
