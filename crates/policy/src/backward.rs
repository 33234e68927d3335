//! Forward and backward pass: log-probabilities of a batch, a loss of them given by the caller, and its gradient
//! accumulated at the trained parameters. Between the passes either all activations are stored, or only the input of
//! each layer, whose activations are then recomputed (activation checkpointing).

use tch::Tensor;

use crate::batch::TokenBatch;
use crate::error::TchResult;
use crate::head::{Head, LogitLimits, Projection, Scored, push_back};
use crate::net::Network;
use crate::rope::Tables;

/// What is stored between the forward and the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpointing {
    /// All activations: fastest.
    Off,
    /// The input of each layer: a third more work, a fraction of the memory.
    Layers,
}

/// The result of one batch.
#[derive(Debug)]
pub struct Accumulated {
    /// The loss, a scalar tensor on the network's device.
    pub loss: Tensor,
    /// The log-probabilities it was computed from, without gradients.
    pub scored: Scored,
}

impl Network {
    /// The log-probabilities of the scored tokens of a batch at a temperature. Tracks no gradients.
    pub fn logprobs(&self, batch: &TokenBatch, temperature: f64) -> TchResult<Scored> {
        let _guard = tch::no_grad_guard();
        let rope = self.tables(batch.longest, &batch.positions)?;
        let hidden = self.hidden(&batch.tokens, &rope, &batch.packing)?;
        let limits = LogitLimits { stored: 0, ..LogitLimits::default() };
        Ok(Head::forward(self.projection(), &hidden, batch, temperature, limits)?.1)
    }

    /// Computes the log-probabilities of a batch and `loss` of them (a scalar tensor), and adds its gradient to those
    /// of [`Network::trainable`].
    pub fn accumulate(
        &self,
        batch: &TokenBatch,
        temperature: f64,
        checkpointing: Checkpointing,
        loss: impl FnOnce(&Scored) -> TchResult<Tensor>,
    ) -> TchResult<Accumulated> {
        self.accumulate_within(LogitLimits::default(), batch, temperature, checkpointing, loss)
    }

    fn accumulate_within(
        &self,
        limits: LogitLimits,
        batch: &TokenBatch,
        temperature: f64,
        checkpointing: Checkpointing,
        loss: impl FnOnce(&Scored) -> TchResult<Tensor>,
    ) -> TchResult<Accumulated> {
        let rope = self.tables(batch.longest, &batch.positions)?;
        let body = match checkpointing {
            Checkpointing::Off => Body::Whole(self.hidden(&batch.tokens, &rope, &batch.packing)?),
            Checkpointing::Layers => self.layer_inputs(batch, &rope)?,
        };
        let (accumulated, by_hidden) =
            from_hidden(self.projection(), body.output(), batch, temperature, limits, loss)?;
        if let Some(by_hidden) = by_hidden {
            self.back(body, batch, &rope, by_hidden)?;
        }
        Ok(accumulated)
    }

    /// The forward pass, storing only the input of each layer.
    fn layer_inputs(&self, batch: &TokenBatch, rope: &Tables) -> TchResult<Body> {
        let _guard = tch::no_grad_guard();
        let mut inputs = vec![self.embed(&batch.tokens)?];
        for layer in &self.layers {
            let input = &inputs[inputs.len() - 1];
            let output = layer.forward(input, &self.shape, rope, &batch.packing)?;
            inputs.push(output);
        }
        let output = self.finish(&inputs[inputs.len() - 1])?;
        Ok(Body::Inputs { inputs, output })
    }

    /// The backward pass from the gradient by the hidden states after the final norm.
    fn back(
        &self,
        body: Body,
        batch: &TokenBatch,
        rope: &Tables,
        gradient: Tensor,
    ) -> TchResult<()> {
        let mut inputs = match body {
            Body::Whole(output) => return push_back(&output, &gradient),
            Body::Inputs { inputs, .. } => inputs,
        };
        let mut gradient = gradient;
        let last =
            inputs.pop().map(|input| recompute(&input, &gradient, |input| self.finish(input)));
        if let Some(last) = last {
            gradient = last?;
        }
        for (layer, input) in self.layers.iter().zip(inputs).rev() {
            gradient = recompute(&input, &gradient, |input| {
                layer.forward(input, &self.shape, rope, &batch.packing)
            })?;
        }
        if self.embedding.requires_grad() {
            push_back(&self.embed(&batch.tokens)?, &gradient)
        } else {
            Ok(())
        }
    }
}

/// Log-probabilities of a batch from its hidden states, the loss of them, and the gradient by the hidden states, unless it
/// is nothing.
pub(crate) fn from_hidden(
    projection: Projection<'_>,
    hidden: &Tensor,
    batch: &TokenBatch,
    temperature: f64,
    limits: LogitLimits,
    loss: impl FnOnce(&Scored) -> TchResult<Tensor>,
) -> TchResult<(Accumulated, Option<Tensor>)> {
    let (head, scored) = Head::forward(projection, hidden, batch, temperature, limits)?;
    let scored =
        Scored { logprob: scored.logprob.f_set_requires_grad(true)?, entropy: scored.entropy };
    let loss = loss(&scored)?;
    if loss.requires_grad() {
        loss.f_backward()?;
    }
    let gradient = scored.logprob.f_grad()?;
    let by_hidden = gradient.defined().then(|| head.backward(&gradient)).transpose()?;
    let scored = Scored { logprob: scored.logprob.f_detach()?, entropy: scored.entropy };
    Ok((Accumulated { loss: loss.f_detach()?, scored }, by_hidden))
}

/// The result of the forward pass.
enum Body {
    /// The output, with its whole graph.
    Whole(Tensor),
    /// The inputs of each layer and of the final norm, and the output; no graph.
    Inputs { inputs: Vec<Tensor>, output: Tensor },
}

impl Body {
    fn output(&self) -> &Tensor {
        match self {
            Self::Whole(output) | Self::Inputs { output, .. } => output,
        }
    }
}

/// Recomputes a step with its graph, and returns the gradient by its input.
fn recompute(
    input: &Tensor,
    gradient: &Tensor,
    step: impl Fn(&Tensor) -> TchResult<Tensor>,
) -> TchResult<Tensor> {
    let input = input.f_detach()?.f_set_requires_grad(true)?;
    push_back(&step(&input)?, gradient)?;
    input.f_grad()
}

#[cfg(test)]
#[path = "backward_tests.rs"]
pub(crate) mod tests;
