//! The network: its tensors, their names, and its forward pass. Knows no files, optimizers or text.

use tch::{Device, Kind, Tensor};

use crate::convert;
use crate::error::TchResult;
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
        shape.check()?;
        let mut noise = Noise::new(seed);
        let mut matrix =
            |rows: i64, columns: i64| noise.normal(&[rows, columns], 0.02, device, kind);
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
        let net =
            Self { shape, embedding, layers, norm, head, lora: None, origin: Default::default() };
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

    /// The hidden states after the final norm, `[batch, length, hidden]`, of tokens `[batch, length]` (64-bit
    /// integers, padded on the right). Tracks gradients unless disabled by the caller.
    pub fn hidden(&self, tokens: &Tensor) -> TchResult<Tensor> {
        let rope = self.tables(tokens)?;
        let mut x = self.embed(tokens)?;
        for layer in &self.layers {
            x = layer.forward(&x, &self.shape, &rope)?;
        }
        self.finish(&x)
    }

    /// The logits at every position, `[batch, length, vocabulary]`; for short sequences.
    pub fn logits(&self, tokens: &Tensor) -> TchResult<Tensor> {
        self.hidden(tokens)?.f_linear(self.output_weight(), None::<&Tensor>)
    }

    /// The output projection to logits.
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

    /// The rotary tables of the positions of `tokens`.
    pub(crate) fn tables(&self, tokens: &Tensor) -> TchResult<Tables> {
        let (_, length) = tokens.size2()?;
        Tables::new(&self.shape, length, self.kind(), self.device())
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
