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
    /// `[scored]`: of each scored token, given all before it; sequence after sequence.
    pub logprob: Tensor,
    /// `[scored]`: the entropy of the distribution it was drawn from, in nats; no gradient flows through it.
    pub entropy: Tensor,
}

/// The precision of logits where the network computes in 16 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HeadPrecision {
    /// 32 bits: products of 16-bit numbers, added and kept in 32. In 16 bits a logit of 20 is off by up to 0.06, and
    /// the probabilities of sampler and trainer differ accordingly.
    #[default]
    F32,
    /// That of the network.
    Model,
}

/// The output projection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Projection<'a> {
    /// `[vocabulary, hidden]`.
    pub(crate) weight: &'a Tensor,
    pub(crate) precision: HeadPrecision,
}

impl Projection<'_> {
    /// The logits of hidden states `[tokens, hidden]`. In 32 bits this has no gradient.
    pub(crate) fn logits(self, hidden: &Tensor) -> TchResult<Tensor> {
        let narrow = matches!(self.weight.kind(), Kind::BFloat16 | Kind::Half);
        match (self.precision, narrow, hidden.device().is_cuda()) {
            (HeadPrecision::F32, true, true) => {
                hidden.f_mm_dtype(&self.weight.f_transpose(0, 1)?, Kind::Float)
            }
            (HeadPrecision::F32, true, false) => hidden
                .f_to_kind(Kind::Float)?
                .f_linear(&self.weight.f_to_kind(Kind::Float)?, None::<&Tensor>),
            _ => hidden.f_linear(self.weight, None::<&Tensor>),
        }
    }
}

/// Limits on the logits in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogitLimits {
    /// Logits in single precision per chunk.
    pub(crate) chunk: i64,
    /// Probabilities that may be stored until the backward pass; those beyond are recomputed.
    pub(crate) stored: i64,
}

impl Default for LogitLimits {
    fn default() -> Self {
        Self { chunk: 1 << 27, stored: 1 << 30 }
    }
}

/// The scored positions of a batch between the two passes.
pub(crate) struct Head<'a> {
    projection: Projection<'a>,
    batch: &'a TokenBatch,
    temperature: f64,
    /// `[scored, hidden]`.
    hidden: Tensor,
    chunks: Vec<Chunk>,
}

struct Chunk {
    start: i64,
    rows: i64,
    /// The probabilities of all tokens, `[rows, vocabulary]`, where stored.
    stored: Option<Tensor>,
}

impl<'a> Head<'a> {
    /// Scores the tokens of a batch from hidden states `[computed, hidden]`. Tracks no gradients.
    pub(crate) fn forward(
        projection: Projection<'a>,
        hidden: &Tensor,
        batch: &'a TokenBatch,
        temperature: f64,
        limits: LogitLimits,
    ) -> TchResult<(Self, Scored)> {
        let _guard = tch::no_grad_guard();
        let (vocabulary, _) = projection.weight.size2()?;
        let hidden = hidden.f_index_select(0, &batch.from)?;
        let mut head = Self { projection, batch, temperature, hidden, chunks: Vec::new() };
        let count = head.hidden.size2()?.0;
        let step = (limits.chunk / vocabulary).max(1);
        let mut left = limits.stored;
        let (mut logprobs, mut entropies) = (Vec::new(), Vec::new());
        for start in (0..count).step_by(step as usize) {
            let rows = step.min(count - start);
            // One fused kernel; a sum of exponentials would write all logits twice.
            let mut all = head.scores(start, rows)?.f_log_softmax(-1, None::<Kind>)?;
            let targets = batch.targets.f_narrow(0, start, rows)?.f_unsqueeze(1)?;
            logprobs.push(all.f_gather(1, &targets, false)?.f_squeeze_dim(1)?);
            // Every pass over the vocabulary counts: the entropy follows from the probabilities alone, and so does the
            // gradient.
            let probabilities = all.f_exp_()?;
            let terms = probabilities.f_special_entr()?;
            entropies.push(terms.f_sum_dim_intlist([1i64].as_slice(), false, None::<Kind>)?);
            left -= rows * vocabulary;
            head.chunks.push(Chunk { start, rows, stored: (left >= 0).then_some(probabilities) });
        }
        let scored = Scored { logprob: head.joined(&logprobs)?, entropy: head.joined(&entropies)? };
        Ok((head, scored))
    }

    /// From the gradient by the log-probabilities to the gradient by the hidden states. The gradient by the weights is
    /// accumulated where they require one.
    pub(crate) fn backward(self, by_logprob: &Tensor) -> TchResult<Tensor> {
        let weight = self.projection.weight;
        let (kind, wide) = (weight.kind(), wide(weight.kind()));
        let guard = tch::no_grad_guard();
        let by_logprob = by_logprob.f_div_scalar(self.temperature)?.f_unsqueeze(1)?;
        let mut by_weight =
            weight.requires_grad().then(|| weight.f_zeros_like()?.f_to_kind(wide)).transpose()?;
        // Several scored tokens may follow one shared token; their gradients are added, in single precision.
        let sizes = [self.batch.computed as i64, weight.size2()?.1];
        let mut by_hidden = Tensor::f_zeros(sizes, (wide, weight.device()))?;
        for chunk in &self.chunks {
            let probabilities = match &chunk.stored {
                Some(probabilities) => probabilities.shallow_clone(),
                None => self.scores(chunk.start, chunk.rows)?.f_softmax(-1, None::<Kind>)?,
            };
            let rows = |tensor: &Tensor| tensor.f_narrow(0, chunk.start, chunk.rows);
            let outer = rows(&by_logprob)?;
            let targets = rows(&self.batch.targets)?.f_unsqueeze(1)?;
            // Multiplied and rounded in one pass. The target's is `1 - p`, which has to be rounded once as well.
            let sizes = probabilities.size();
            let mut by_scores = Tensor::f_empty(sizes, (kind, weight.device()))?;
            let _ = probabilities.f_mul_out(&by_scores, &outer.f_neg()?)?;
            let certain = probabilities.f_gather(1, &targets, false)?;
            let of_targets = certain.f_neg()?.f_add_scalar(1.0)?.f_mul(&outer)?.f_to_kind(kind)?;
            let by_scores = by_scores.f_scatter_(1, &targets, &of_targets)?;
            let part = by_scores.f_matmul(weight)?.f_to_kind(wide)?;
            let _ = by_hidden.f_index_add_(0, &rows(&self.batch.from)?, &part)?;
            if let Some(by_weight) = &mut by_weight {
                let hidden = rows(&self.hidden)?;
                let _ = by_weight.f_add_(&by_scores.f_transpose(0, 1)?.f_matmul(&hidden)?)?;
            }
        }
        let by_hidden = by_hidden.f_to_kind(kind)?;
        drop(guard);
        if let Some(by_weight) = by_weight {
            push_back(weight, &by_weight.f_to_kind(kind)?)?;
        }
        Ok(by_hidden)
    }

    /// The logits of some scored tokens, divided by the temperature, in at least single precision.
    fn scores(&self, start: i64, rows: i64) -> TchResult<Tensor> {
        let raw = self.projection.logits(&self.hidden.f_narrow(0, start, rows)?)?;
        let mut scores = raw.f_to_kind(wide(raw.kind()))?;
        if self.temperature == 1.0 { Ok(scores) } else { scores.f_div_scalar_(self.temperature) }
    }

    /// The values of all chunks, `[scored]`.
    fn joined(&self, values: &[Tensor]) -> TchResult<Tensor> {
        let weight = self.projection.weight;
        match values.is_empty() {
            true => Tensor::f_zeros([0], (wide(weight.kind()), weight.device())),
            false => Tensor::f_cat(values, 0),
        }
    }
}

/// Runs the backward pass of `output` from a given gradient, as the gradient of its product with that constant.
/// (libtorch accepts an initial gradient, but the bindings do not expose it.)
pub(crate) fn push_back(output: &Tensor, gradient: &Tensor) -> TchResult<()> {
    output.f_mul(gradient)?.f_sum(output.kind())?.f_backward()
}
