//! From hidden states to the log-probabilities of the actual next tokens, in chunks of positions, so that logits of the
//! whole vocabulary exist for few positions at a time. The gradient is computed by hand for the same reason: that of a
//! token's log-probability by its logits is `(one_hot(token) - probabilities) / temperature`.
//!
//! Knows no layers and no losses.

use tch::{Kind, Tensor};

use crate::batch::TokenBatch;
use crate::error::TchResult;
use crate::layer::wide;

/// Log-probabilities and entropies of tokens.
#[derive(Debug)]
pub struct Scored {
    /// `[batch, length - 1]`: of each token after the first, given all before it; zero where it is not scored.
    pub logprob: Tensor,
    /// `[batch, length - 1]`: the entropy of the distribution it was drawn from, in nats; no gradient flows through it.
    pub entropy: Tensor,
}

/// Limits on the logits in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogitLimits {
    /// Logits in single precision per chunk.
    pub(crate) chunk: i64,
    /// Logits that may be stored until the backward pass; those beyond are recomputed.
    pub(crate) stored: i64,
}

impl Default for LogitLimits {
    fn default() -> Self {
        Self { chunk: 1 << 27, stored: 1 << 30 }
    }
}

/// The scored positions of a batch between the two passes.
pub(crate) struct Head<'a> {
    weight: &'a Tensor,
    batch: &'a TokenBatch,
    temperature: f64,
    /// `[scored, hidden]`.
    hidden: Tensor,
    chunks: Vec<Chunk>,
}

struct Chunk {
    start: i64,
    rows: i64,
    /// Log-sum-exp of the logits, `[rows, 1]`.
    sums: Tensor,
    /// Logits before the temperature, `[rows, vocabulary]`, where stored.
    stored: Option<Tensor>,
}

impl<'a> Head<'a> {
    /// Scores the tokens of a batch from hidden states `[batch, length, hidden]`. Tracks no gradients.
    pub(crate) fn forward(
        weight: &'a Tensor,
        hidden: &Tensor,
        batch: &'a TokenBatch,
        temperature: f64,
        limits: LogitLimits,
    ) -> TchResult<(Self, Scored)> {
        let _guard = tch::no_grad_guard();
        let (vocabulary, width) = weight.size2()?;
        let hidden = hidden.f_reshape([-1, width])?.f_index_select(0, &batch.from)?;
        let mut head = Self { weight, batch, temperature, hidden, chunks: Vec::new() };
        let count = head.hidden.size2()?.0;
        let step = (limits.chunk / vocabulary).max(1);
        let mut left = limits.stored;
        let (mut logprobs, mut entropies) = (Vec::new(), Vec::new());
        for start in (0..count).step_by(step as usize) {
            let rows = step.min(count - start);
            let raw = head.product(start, rows)?;
            let scores = head.scores(&raw)?;
            let sums = scores.f_logsumexp([-1], true)?;
            let targets = batch.targets.f_narrow(0, start, rows)?.f_unsqueeze(1)?;
            logprobs.push(scores.f_gather(1, &targets, false)?.f_sub(&sums)?.f_squeeze_dim(1)?);
            let mean = scores.f_sub(&sums)?.f_exp_()?.f_mul_(&scores)?.f_sum_dim_intlist(
                [1i64].as_slice(),
                true,
                None::<Kind>,
            )?;
            entropies.push(sums.f_sub(&mean)?.f_squeeze_dim(1)?);
            left -= rows * vocabulary;
            head.chunks.push(Chunk { start, rows, sums, stored: (left >= 0).then_some(raw) });
        }
        let scored =
            Scored { logprob: head.scatter(&logprobs)?, entropy: head.scatter(&entropies)? };
        Ok((head, scored))
    }

    /// From the gradient by the log-probabilities to the gradient by the hidden states. The gradient by the weights is
    /// accumulated where they require one.
    pub(crate) fn backward(self, by_logprob: &Tensor) -> TchResult<Tensor> {
        let kind = self.weight.kind();
        let (_, width) = self.weight.size2()?;
        let trained = self.weight.requires_grad();
        let guard = tch::no_grad_guard();
        let by_logprob = by_logprob.f_reshape([-1])?.f_index_select(0, &self.batch.to)?;
        let by_logprob = by_logprob.f_div_scalar(self.temperature)?.f_unsqueeze(1)?;
        let mut by_hidden = Vec::new();
        let mut by_weight =
            trained.then(|| self.weight.f_zeros_like()?.f_to_kind(wide(kind))).transpose()?;
        for chunk in &self.chunks {
            let raw = match &chunk.stored {
                Some(raw) => raw.shallow_clone(),
                None => self.product(chunk.start, chunk.rows)?,
            };
            let outer = by_logprob.f_narrow(0, chunk.start, chunk.rows)?;
            let targets =
                self.batch.targets.f_narrow(0, chunk.start, chunk.rows)?.f_unsqueeze(1)?;
            let mut by_scores =
                self.scores(&raw)?.f_sub(&chunk.sums)?.f_exp_()?.f_mul_(&outer.f_neg()?)?;
            let by_scores = by_scores.f_scatter_add_(1, &targets, &outer)?.f_to_kind(kind)?;
            by_hidden.push(by_scores.f_matmul(self.weight)?);
            if let Some(by_weight) = &mut by_weight {
                let rows = self.hidden.f_narrow(0, chunk.start, chunk.rows)?;
                let _ = by_weight.f_add_(&by_scores.f_transpose(0, 1)?.f_matmul(&rows)?)?;
            }
        }
        let (batch, length) = (self.batch.batch, self.batch.length);
        let mut whole = Tensor::f_zeros([batch * length, width], (kind, self.weight.device()))?;
        if !by_hidden.is_empty() {
            let _ = whole.f_index_copy_(0, &self.batch.from, &Tensor::f_cat(&by_hidden, 0)?)?;
        }
        drop(guard);
        if let Some(by_weight) = by_weight {
            push_back(self.weight, &by_weight.f_to_kind(kind)?)?;
        }
        whole.f_view([batch, length, width])
    }

    fn product(&self, start: i64, rows: i64) -> TchResult<Tensor> {
        self.hidden.f_narrow(0, start, rows)?.f_linear(self.weight, None::<&Tensor>)
    }

    /// Logits divided by the temperature, in at least single precision.
    fn scores(&self, raw: &Tensor) -> TchResult<Tensor> {
        let scores = raw.f_to_kind(wide(raw.kind()))?;
        if self.temperature == 1.0 { Ok(scores) } else { scores.f_div_scalar(self.temperature) }
    }

    /// Scatters the values of scored tokens to `[batch, length - 1]`.
    fn scatter(&self, values: &[Tensor]) -> TchResult<Tensor> {
        let (batch, length) = (self.batch.batch, self.batch.length);
        let kind: Kind = wide(self.weight.kind());
        let mut whole = Tensor::f_zeros([batch * (length - 1)], (kind, self.weight.device()))?;
        if !values.is_empty() {
            let _ = whole.f_index_copy_(0, &self.batch.to, &Tensor::f_cat(values, 0)?)?;
        }
        whole.f_view([batch, length - 1])
    }
}

/// Runs the backward pass of `output` from a given gradient, as the gradient of its product with that constant.
/// (libtorch accepts an initial gradient, but the bindings do not expose it.)
pub(crate) fn push_back(output: &Tensor, gradient: &Tensor) -> TchResult<()> {
    output.f_mul(gradient)?.f_sum(output.kind())?.f_backward()
}
