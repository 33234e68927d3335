//! The network as a whole: its tensors, what they are called, and its forward pass.
//! Refuses to know files, optimisers and text.

use tch::{Device, Kind, Tensor};

use crate::convert;
use crate::error::Fallible;
use crate::layer::{Layer, norm};
use crate::lora::Lora;
use crate::noise::Noise;
use crate::rope::Tables;
use crate::shape::{Architecture, Output, Shape, ShapeError};

/// A causal language model on one device, in one kind of numbers.
///
/// Every method that computes answers with libtorch's error instead of panicking, so that a caller short of memory
/// can try with less. Weights may be changed in place through the tensors given out, under `tch::no_grad`.
pub struct Net {
    pub(crate) shape: Shape,
    /// `[vocabulary, hidden]`.
    pub(crate) embedding: Tensor,
    pub(crate) layers: Vec<Layer>,
    /// Weight of the last norm, `[hidden]`.
    pub(crate) norm: Tensor,
    /// `[vocabulary, hidden]`; none where the embedding serves.
    pub(crate) head: Option<Tensor>,
    pub(crate) lora: Option<Lora>,
    /// The configuration the weights came with, whose other entries an export carries on.
    pub(crate) origin: serde_json::Map<String, serde_json::Value>,
}

impl Net {
    /// A network of random weights, the same for the same seed on every device.
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

    /// The sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Where the weights lie.
    pub fn device(&self) -> Device {
        self.embedding.device()
    }

    /// What the weights are made of, and what is computed in.
    pub fn kind(&self) -> Kind {
        self.embedding.kind()
    }

    /// The adapter, if there is one.
    pub fn lora(&self) -> Option<&Lora> {
        self.lora.as_ref()
    }

    /// The base weights under the names of the Hugging Face layout, in a fixed order. They are views without gradients:
    /// a change in place changes the net. What an adapter adds is not in them.
    pub fn parameters(&self) -> Fallible<Vec<(String, Tensor)>> {
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

    /// What an optimiser moves: the leaves whose gradients [`Net::accumulate`] adds to, in a fixed order. With an
    /// adapter its factors alone, else every base weight as it lies in memory: queries, keys and values are one
    /// tensor (`qkv_proj`), gate and up another (`gate_up_proj`).
    pub fn trainable(&self) -> Vec<(String, Tensor)> {
        match self.lora {
            Some(_) => self.factors(),
            None => self.base(),
        }
    }

    /// The residual stream after the last norm, `[batch, length, hidden]`, of tokens `[batch, length]` (64-bit
    /// integers, padded on the right). Gradients are tracked unless the caller turned that off.
    pub fn hidden(&self, tokens: &Tensor) -> Fallible<Tensor> {
        let rope = self.tables(tokens)?;
        let mut x = self.embed(tokens)?;
        for layer in &self.layers {
            x = layer.forward(&x, &self.shape, &rope)?;
        }
        self.finish(&x)
    }

    /// The scores of the whole vocabulary at every position, `[batch, length, vocabulary]`: for short sequences.
    pub fn logits(&self, tokens: &Tensor) -> Fallible<Tensor> {
        self.hidden(tokens)?.f_linear(self.output_weight(), None::<&Tensor>)
    }

    /// The matrix that scores the vocabulary.
    pub(crate) fn output_weight(&self) -> &Tensor {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// The residual stream before the first layer.
    pub(crate) fn embed(&self, tokens: &Tensor) -> Fallible<Tensor> {
        Tensor::f_embedding(&self.embedding, tokens, -1, false, false)
    }

    /// The last norm.
    pub(crate) fn finish(&self, x: &Tensor) -> Fallible<Tensor> {
        norm(x, &self.norm, self.shape.norm_eps)
    }

    /// The rotary tables of the positions of `tokens`.
    pub(crate) fn tables(&self, tokens: &Tensor) -> Fallible<Tables> {
        let (_, length) = tokens.size2()?;
        Tables::new(&self.shape, length, self.kind(), self.device())
    }

    /// The base weights as they lie in memory.
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

    /// Lets gradients gather at what is trainable, and nowhere else.
    pub(crate) fn require_gradients(&self) -> Fallible<()> {
        for (_, tensor) in self.base() {
            let _ = tensor.f_set_requires_grad(self.lora.is_none())?;
        }
        for (_, factor) in self.factors() {
            let _ = factor.f_set_requires_grad(true)?;
        }
        Ok(())
    }
}

/// Why a network of random weights could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RandomError {
    /// No network has this shape.
    #[error("no network has this shape")]
    Shape(#[from] ShapeError),
    /// libtorch refused.
    #[error("its tensors cannot be made")]
    Torch(#[from] tch::TchError),
}
