//! Both passes at once: log-probabilities of a batch, a loss of them that the caller gives, and its gradient added to
//! what is trainable. Between the passes either everything is kept or only the input of each layer, whose inside is
//! then computed a second time. Refuses to know what the loss is and what becomes of the gradient.

use tch::Tensor;

use crate::batch::Tokens;
use crate::error::Fallible;
use crate::head::{Head, Room, Scored, push_back};
use crate::net::Net;

/// What is kept between the forward and the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpointing {
    /// Everything: fastest.
    Off,
    /// The input of each layer: a third more work, a small part of the memory.
    Layers,
}

/// What one batch gave.
#[derive(Debug)]
pub struct Accumulated {
    /// The loss, a tensor of no dimension on the net's device.
    pub loss: Tensor,
    /// The log-probabilities it was computed from, without gradients.
    pub scored: Scored,
}

impl Net {
    /// Log-probabilities of the marked tokens of a batch under the distribution at a temperature. Tracks no gradients.
    pub fn logprobs(&self, batch: &Tokens, temperature: f64) -> Fallible<Scored> {
        let _guard = tch::no_grad_guard();
        let hidden = self.hidden(&batch.tokens)?;
        let room = Room { kept: 0, ..Room::default() };
        Ok(Head::forward(self.output_weight(), &hidden, batch, temperature, room)?.1)
    }

    /// Computes the log-probabilities of a batch and `loss` of them (a tensor with one number), and adds the gradient
    /// to that of every tensor of [`Net::trainable`].
    pub fn accumulate(
        &self,
        batch: &Tokens,
        temperature: f64,
        checkpointing: Checkpointing,
        loss: impl FnOnce(&Scored) -> Fallible<Tensor>,
    ) -> Fallible<Accumulated> {
        self.accumulate_within(Room::default(), batch, temperature, checkpointing, loss)
    }

    fn accumulate_within(
        &self,
        room: Room,
        batch: &Tokens,
        temperature: f64,
        checkpointing: Checkpointing,
        loss: impl FnOnce(&Scored) -> Fallible<Tensor>,
    ) -> Fallible<Accumulated> {
        let body = match checkpointing {
            Checkpointing::Off => Body::Whole(self.hidden(&batch.tokens)?),
            Checkpointing::Layers => self.kept_inputs(&batch.tokens)?,
        };
        let (head, scored) =
            Head::forward(self.output_weight(), body.output(), batch, temperature, room)?;
        let scored =
            Scored { logprob: scored.logprob.f_set_requires_grad(true)?, entropy: scored.entropy };
        let loss = loss(&scored)?;
        if loss.requires_grad() {
            loss.f_backward()?;
        }
        let gradient = scored.logprob.f_grad()?;
        if gradient.defined() {
            self.back(body, &batch.tokens, head.backward(&gradient)?)?;
        }
        let scored = Scored { logprob: scored.logprob.f_detach()?, entropy: scored.entropy };
        Ok(Accumulated { loss: loss.f_detach()?, scored })
    }

    /// The forward pass, keeping the input of each layer only.
    fn kept_inputs(&self, tokens: &Tensor) -> Fallible<Body> {
        let _guard = tch::no_grad_guard();
        let rope = self.tables(tokens)?;
        let mut inputs = vec![self.embed(tokens)?];
        for layer in &self.layers {
            let output = layer.forward(&inputs[inputs.len() - 1], &self.shape, &rope)?;
            inputs.push(output);
        }
        let output = self.finish(&inputs[inputs.len() - 1])?;
        Ok(Body::Inputs { inputs, output })
    }

    /// The backward pass from the gradient by the residual stream after the last norm.
    fn back(&self, body: Body, tokens: &Tensor, gradient: Tensor) -> Fallible<()> {
        let mut inputs = match body {
            Body::Whole(output) => return push_back(&output, &gradient),
            Body::Inputs { inputs, .. } => inputs,
        };
        let rope = self.tables(tokens)?;
        let mut gradient = gradient;
        let last = inputs.pop().map(|input| again(&input, &gradient, |input| self.finish(input)));
        if let Some(last) = last {
            gradient = last?;
        }
        for (layer, input) in self.layers.iter().zip(inputs).rev() {
            gradient = again(&input, &gradient, |input| layer.forward(input, &self.shape, &rope))?;
        }
        if self.embedding.requires_grad() {
            push_back(&self.embed(tokens)?, &gradient)
        } else {
            Ok(())
        }
    }
}

/// What the forward pass left.
enum Body {
    /// The output, with the graph of everything behind it.
    Whole(Tensor),
    /// The input of each layer and of the last norm, and the output; no graph.
    Inputs { inputs: Vec<Tensor>, output: Tensor },
}

impl Body {
    fn output(&self) -> &Tensor {
        match self {
            Self::Whole(output) | Self::Inputs { output, .. } => output,
        }
    }
}

/// Computes a step a second time, now with its graph, and sends the gradient of its output back through it.
fn again(
    input: &Tensor,
    gradient: &Tensor,
    step: impl Fn(&Tensor) -> Fallible<Tensor>,
) -> Fallible<Tensor> {
    let input = input.f_detach()?.f_set_requires_grad(true)?;
    push_back(&step(&input)?, gradient)?;
    input.f_grad()
}

#[cfg(test)]
#[path = "backward_tests.rs"]
mod tests;
