//! Forward and backward pass of a network whose adapter alone is trained, without autograd. The adapter is
//! merged into a copy of the weights, as in the sampler, so that the passes are those of the plain network; the gradients
//! of its factors follow from the inputs and output gradients of each projection. Nothing is computed for frozen weights,
//! and little is written between the matrix products.
//!
//! The gradients are those of [`Network::accumulate`] up to rounding (`adapter_gradients_tests.rs`).

mod factors;
mod layer;
mod operations;

use tch::Tensor;

use crate::{
    backward::{Accumulated, Checkpointing, from_hidden},
    batch::TokenBatch,
    error::TchResult,
    graph::CudaError,
    head::{Head, LogitLimits, Scored},
    kernels::Kernels,
    layer::wide,
    merged::MergedWeights,
    net::Network,
};

use factors::FactorGradients;
use layer::{Kept, LayerPass};
use operations::Operations;

/// Computes gradients of a network's adapter, for which it has a copy of the adapted weights.
pub struct AdapterGradients {
    merged: Vec<MergedWeights>,
    operations: Operations,
}

/// Gradients of an adapter cannot be computed this way.
#[derive(Debug, thiserror::Error)]
pub enum AdapterGradientsError {
    /// The network has no adapter.
    #[error("the network has no adapter")]
    NoAdapter,
    /// Our own kernels cannot be used; the weights are in 16 bits, and without them merging would lose small changes.
    #[error("the kernels cannot be used")]
    Kernels(#[source] CudaError),
    /// libtorch failed, for example for lack of memory.
    #[error("libtorch failed")]
    Torch(#[from] tch::TchError),
}

impl AdapterGradients {
    /// Merges the adapter of a network into a copy of its weights.
    pub fn new(net: &Network) -> Result<Self, AdapterGradientsError> {
        if net.lora().is_none() {
            return Err(AdapterGradientsError::NoAdapter);
        }
        let operations = match Kernels::new(net) {
            Ok(kernels) => Operations::Kernels(Box::new(kernels)),
            Err(_) if wide(net.kind()) == net.kind() => Operations::Tensors,
            Err(error) => return Err(AdapterGradientsError::Kernels(error)),
        };
        let merge = |layer| MergedWeights::of(layer, &net.shape, operations.kernels());
        let merged = net.layers.iter().map(merge).collect::<TchResult<_>>()?;
        Ok(Self { merged, operations })
    }

    /// Merges the current values of the adapter. To be called whenever they have changed.
    pub fn refresh(&self, net: &Network) -> TchResult<()> {
        let mut layers = self.merged.iter().zip(&net.layers);
        layers.try_for_each(|(merged, layer)| {
            merged.refresh(layer, &net.shape, self.operations.kernels())
        })
    }

    /// As [`Network::logprobs`].
    pub fn logprobs(
        &self,
        net: &Network,
        batch: &TokenBatch,
        temperature: f64,
    ) -> TchResult<Scored> {
        let _guard = tch::no_grad_guard();
        let pass = Pass::new(self, net, batch)?;
        let mut x = net.embed(&batch.tokens)?;
        for number in 0..net.layers.len() {
            x = pass.layer(number).forward(x)?.0;
        }
        let hidden = self.operations.norm(&x, &net.norm, net.shape.norm_eps)?;
        let limits = LogitLimits { stored: 0, ..LogitLimits::default() };
        Ok(Head::forward(net.projection(), &hidden, batch, temperature, limits)?.1)
    }

    /// As [`Network::accumulate`].
    pub fn accumulate(
        &self,
        net: &Network,
        batch: &TokenBatch,
        temperature: f64,
        checkpointing: Checkpointing,
        loss: impl FnOnce(&Scored) -> TchResult<Tensor>,
    ) -> TchResult<Accumulated> {
        let pass = Pass::new(self, net, batch)?;
        let (last, kept) = pass.forward(checkpointing)?;
        let hidden = {
            let _guard = tch::no_grad_guard();
            self.operations.norm(&last, &net.norm, net.shape.norm_eps)?
        };
        let limits = LogitLimits::default();
        let (accumulated, by_hidden) =
            from_hidden(net.projection(), &hidden, batch, temperature, limits, loss)?;
        if let Some(by_hidden) = by_hidden {
            pass.backward(&last, kept, &by_hidden)?.add()?;
        }
        Ok(accumulated)
    }
}

/// A batch on its way through a network.
struct Pass<'a> {
    gradients: &'a AdapterGradients,
    net: &'a Network,
    batch: &'a TokenBatch,
    rope: crate::rope::Tables,
}

/// What is stored of a layer between the passes.
enum Stored {
    Kept(Kept),
    /// Its input alone.
    Input(Tensor),
}

impl<'a> Pass<'a> {
    fn new(
        gradients: &'a AdapterGradients,
        net: &'a Network,
        batch: &'a TokenBatch,
    ) -> TchResult<Self> {
        let rope = net.tables(batch.longest, &batch.positions)?;
        Ok(Self { gradients, net, batch, rope })
    }

    fn layer(&self, number: usize) -> LayerPass<'_> {
        let layer = &self.net.layers[number];
        LayerPass {
            layer,
            weights: self.gradients.merged[number].all(layer),
            shape: &self.net.shape,
            packing: &self.batch.packing,
            rope: &self.rope,
            operations: &self.gradients.operations,
        }
    }

    /// The output of the last layer, and what is stored of all layers.
    fn forward(&self, checkpointing: Checkpointing) -> TchResult<(Tensor, Vec<Stored>)> {
        let _guard = tch::no_grad_guard();
        let mut x = self.net.embed(&self.batch.tokens)?;
        let mut stored = Vec::with_capacity(self.net.layers.len());
        for number in 0..self.net.layers.len() {
            let input = x.shallow_clone();
            let (output, kept) = self.layer(number).forward(x)?;
            stored.push(match checkpointing {
                Checkpointing::Off => Stored::Kept(kept),
                Checkpointing::Layers => Stored::Input(input),
            });
            x = output;
        }
        Ok((x, stored))
    }

    /// The gradients of the factors from that by the hidden states after the final norm.
    fn backward(
        &self,
        last: &Tensor,
        mut stored: Vec<Stored>,
        by_hidden: &Tensor,
    ) -> TchResult<FactorGradients> {
        let _guard = tch::no_grad_guard();
        let (net, operations) = (self.net, &self.gradients.operations);
        let eps = net.shape.norm_eps;
        let mut by_output = operations.norm_backward(last, &net.norm, eps, by_hidden, None)?;
        let mut gradients = FactorGradients::default();
        while let Some(kept) = stored.pop() {
            let layer = self.layer(stored.len());
            let kept = match kept {
                Stored::Kept(kept) => kept,
                Stored::Input(input) => layer.forward(input)?.1,
            };
            by_output = layer.backward(kept, &by_output, &mut gradients)?;
        }
        Ok(gradients)
    }
}

#[cfg(test)]
#[path = "adapter_gradients_tests.rs"]
mod tests;
