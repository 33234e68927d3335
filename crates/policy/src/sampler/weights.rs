//! The weights as the sampler wants them: the tensors of a net without an adapter, seen from the side on which they are
//! multiplied. Shared, so that a change in place is seen. Refuses to know the cache and the steps.

use tch::Tensor;

use crate::{error::Fallible, layer::Layer, net::Net};

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
}

impl Weights {
    /// Those of a net that has no adapter, or whose adapter is merged.
    pub(super) fn of(net: &Net) -> Fallible<Self> {
        Ok(Self {
            embedding: net.embedding.f_detach()?,
            layers: net.layers.iter().map(LayerWeights::of).collect::<Fallible<_>>()?,
            norm: net.norm.f_detach()?,
            head: net.output_weight().f_detach()?.f_tr()?,
        })
    }
}

impl LayerWeights {
    fn of(layer: &Layer) -> Fallible<Self> {
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
        })
    }
}
