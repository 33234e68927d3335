//! How a trainer computes log-probabilities and gradients: with libtorch's autograd, or, for an adapter on a GPU, with a
//! manual backward pass over a copy of the weights with the adapter merged. Knows no losses and no memory limits.

use policy::{
    Accumulated, AdapterGradients, AdapterGradientsError, Checkpointing, Network, Scored,
    TchResult, TokenBatch, out_of_memory,
};
use tch::{TchError, Tensor};

/// One of the two ways.
#[derive(Default)]
pub(crate) struct Backward {
    /// `None` for autograd.
    manual: Option<Manual>,
}

/// The copies with merged adapters, made when they are first needed: the sampler has its memory by then.
#[derive(Default)]
struct Manual {
    policy: Option<AdapterGradients>,
    /// Whether `policy` has the current weights.
    is_current: bool,
    reference: Option<AdapterGradients>,
}

/// Which network is computed.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    /// The trained one.
    Policy,
    /// One that never changes.
    Reference,
}

impl Backward {
    /// For a network.
    pub(crate) fn new(net: &Network) -> Self {
        let is_manual = net.device().is_cuda() && net.lora().is_some();
        Self { manual: is_manual.then(Manual::default) }
    }

    /// To be called whenever the trained weights have changed.
    pub(crate) fn weights_changed(&mut self) {
        if let Some(manual) = &mut self.manual {
            manual.is_current = false;
        }
    }

    /// Merges the adapter of a network, where that has to be done. Falls back to autograd where the kernels cannot be used,
    /// or the memory does not suffice for the copy.
    pub(crate) fn prepare(&mut self, net: &Network, role: Role) -> Result<(), TchError> {
        let Some(manual) = &mut self.manual else { return Ok(()) };
        let (merged, is_current) = match role {
            Role::Policy => (&mut manual.policy, manual.is_current),
            Role::Reference => (&mut manual.reference, true),
        };
        match merged {
            Some(_) if is_current => {}
            Some(merged) => merged.refresh(net)?,
            None => match AdapterGradients::new(net) {
                Ok(new) => *merged = Some(new),
                Err(AdapterGradientsError::NoAdapter) => {}
                Err(AdapterGradientsError::Torch(error)) if !out_of_memory(&error) => {
                    return Err(error);
                }
                Err(error) => {
                    self.use_autograd(&error_text::one_line(&error));
                    return Ok(());
                }
            },
        }
        if let Role::Policy = role {
            manual.is_current = true;
        }
        Ok(())
    }

    /// Frees the copies and uses autograd from now on. Returns whether there were any.
    pub(crate) fn use_autograd(&mut self, why: &str) -> bool {
        let Some(Manual { policy, reference, .. }) = self.manual.take() else { return false };
        tracing::warn!("gradients of the adapter are computed by autograd: {why}");
        policy.is_some() || reference.is_some()
    }

    /// The log-probabilities of a batch.
    pub(crate) fn logprobs(
        &self,
        net: &Network,
        role: Role,
        batch: &TokenBatch,
        temperature: f64,
    ) -> TchResult<Scored> {
        let merged = self.manual.as_ref().and_then(|manual| match role {
            Role::Policy => manual.policy.as_ref(),
            Role::Reference => manual.reference.as_ref(),
        });
        match merged {
            Some(merged) => merged.logprobs(net, batch, temperature),
            None => net.logprobs(batch, temperature),
        }
    }

    /// Adds the gradients of a batch to those of the trained parameters.
    pub(crate) fn accumulate(
        &self,
        net: &Network,
        batch: &TokenBatch,
        temperature: f64,
        checkpointing: Checkpointing,
        loss: impl FnOnce(&Scored) -> TchResult<Tensor>,
    ) -> TchResult<Accumulated> {
        match self.manual.as_ref().and_then(|manual| manual.policy.as_ref()) {
            Some(merged) => merged.accumulate(net, batch, temperature, checkpointing, loss),
            None => net.accumulate(batch, temperature, checkpointing, loss),
        }
    }
}
