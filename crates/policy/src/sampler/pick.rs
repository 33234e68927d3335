//! Sampling tokens from logits, on the device, for many sequences at once. One random number per sequence decides
//! (inverse transform sampling), so that a sequence's tokens do not depend on the others.

use sampling::SamplingParams;
use tch::{Kind, Tensor};

use crate::error::TchResult;

/// The block size of the cumulative sum over the vocabulary. One over the whole vocabulary is slow on a GPU; one over
/// block sums and one within a block are fast.
const BLOCK: i64 = 128;

/// How a token is drawn from a row of logits: one column of the input of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// The random number, from 0 (included) to 1 (excluded).
    pub(super) uniform: f64,
    /// The factor of the logits: 1 / temperature.
    pub(super) inverse_temperature: f64,
    /// 1 to take the most likely token, else 0.
    pub(super) greedy: f64,
}

impl Draw {
    /// For an unused row.
    pub(super) const IDLE: Self = Self { uniform: 0.0, inverse_temperature: 1.0, greedy: 1.0 };

    /// Its fields, in order.
    pub(super) fn fields(&self) -> [f64; 3] {
        [self.uniform, self.inverse_temperature, self.greedy]
    }

    /// For the token at this position of a sequence.
    pub(super) fn new(params: &SamplingParams, position: usize) -> Self {
        let greedy = params.temperature == 0.0;
        Self {
            uniform: uniform(params.seed, position as u64),
            inverse_temperature: if greedy { 1.0 } else { 1.0 / params.temperature },
            greedy: f64::from(u8::from(greedy)),
        }
    }
}

/// A row with `top_k` or `top_p`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TruncatedRow {
    /// Its index in the logits.
    pub(super) row: i64,
    /// Its draw.
    pub(super) draw: Draw,
    /// The maximum number of tokens.
    pub(super) top_k: i64,
    /// Their maximum cumulative probability.
    pub(super) top_p: f64,
}

/// Samples from logits `[rows, vocabulary]`: tokens and their log-probabilities, `[2, rows]` in double precision. The
/// draws are `[3, rows]`: the fields of [`Draw`] in order. Does not wait for the device.
pub(super) fn sample_tokens(logits: &Tensor, draws: &Tensor) -> TchResult<Tensor> {
    let (rows, vocabulary) = logits.size2()?;
    let [uniform, inverse_temperature, greedy] =
        [draws.f_select(0, 0)?, draws.f_select(0, 1)?, draws.f_select(0, 2)?];
    let logprobs = logprobs(logits, &inverse_temperature)?;
    let padding = (BLOCK - vocabulary % BLOCK) % BLOCK;
    let mut probs = logprobs.f_exp()?;
    if padding > 0 {
        probs = probs.f_constant_pad_nd([0, padding])?;
    }
    let blocks = (vocabulary + padding) / BLOCK;
    let probs = probs.f_view([rows, blocks, BLOCK])?;
    let sums = probs.f_sum_dim_intlist([-1i64].as_slice(), false, Kind::Double)?;
    let cumulative = sums.f_cumsum(1, Kind::Double)?;
    let target = cumulative.f_narrow(1, blocks - 1, 1)?.f_mul(&uniform.f_unsqueeze(1)?)?;
    let block = first_above(&cumulative, &target, blocks)?;
    let before = cumulative.f_gather(1, &block, false)?.f_sub(&sums.f_gather(1, &block, false)?)?;
    let inside =
        probs.f_gather(1, &block.f_unsqueeze(2)?.f_expand([rows, 1, BLOCK], false)?, false)?;
    let cumulative = inside.f_squeeze_dim(1)?.f_cumsum(1, Kind::Double)?.f_add(&before)?;
    let drawn = block
        .f_mul_scalar(BLOCK)?
        .f_add(&first_above(&cumulative, &target, BLOCK)?)?
        .f_clamp_max(vocabulary - 1)?;
    let greedy_token = logprobs.f_argmax(1, true)?;
    let token = greedy_token.f_where_self(&greedy.f_gt(0.5)?.f_unsqueeze(1)?, &drawn)?;
    pair(&logprobs, &token)
}

/// The same for rows with `top_k`, then `top_p`. Log-probabilities are those of the whole vocabulary.
pub(super) fn sample_truncated(logits: &Tensor, rows: &[TruncatedRow]) -> TchResult<Tensor> {
    let device = logits.device();
    let (_, vocabulary) = logits.size2()?;
    let column = |value: &dyn Fn(&TruncatedRow) -> f64| -> TchResult<Tensor> {
        let values: Vec<f64> = rows.iter().map(value).collect();
        Tensor::f_from_slice(&values)?.f_to_device(device)?.f_unsqueeze(1)
    };
    let indices: Vec<i64> = rows.iter().map(|truncated| truncated.row).collect();
    let rows_logits =
        logits.f_index_select(0, &Tensor::f_from_slice(&indices)?.f_to_device(device)?)?;
    let inverse_temperature =
        column(&|truncated| truncated.draw.inverse_temperature)?.f_squeeze_dim(1)?;
    let logprobs = logprobs(&rows_logits, &inverse_temperature)?;
    let width = rows
        .iter()
        .map(|truncated| truncated.top_k)
        .max()
        .unwrap_or(vocabulary)
        .clamp(1, vocabulary);
    let (best, tokens) = logprobs.f_topk(width, 1, true, true)?;
    let ranks = Tensor::f_arange(width, (Kind::Double, device))?.f_unsqueeze(0)?;
    let beyond_k = ranks.f_ge_tensor(&column(&|truncated| truncated.top_k as f64)?)?;
    let probs = best.f_masked_fill(&beyond_k, f64::NEG_INFINITY)?.f_softmax(1, Kind::Double)?;
    let before = probs.f_cumsum(1, Kind::Double)?.f_sub(&probs)?;
    let beyond_p = before.f_ge_tensor(&column(&|truncated| truncated.top_p)?)?;
    let cumulative = probs.f_masked_fill(&beyond_p, 0.0)?.f_cumsum(1, Kind::Double)?;
    let uniform = column(&|truncated| truncated.draw.uniform)?;
    let target = cumulative.f_narrow(1, width - 1, 1)?.f_mul(&uniform)?;
    let token = tokens.f_gather(1, &first_above(&cumulative, &target, width)?, false)?;
    pair(&logprobs, &token)
}

/// A number from 0 (included) to 1 (excluded) that depends only on the seed and the position.
fn uniform(seed: u64, position: u64) -> f64 {
    // Offset so that a seed and a position that are the same small number do not cancel out.
    seeded::unit_f64(seeded::derive(seed, &[position.wrapping_add(0x51_7c_c1_b7_27_22_0a_95)]))
}

fn logprobs(logits: &Tensor, inverse_temperature: &Tensor) -> TchResult<Tensor> {
    let inverse_temperature = inverse_temperature.f_to_kind(Kind::Float)?.f_unsqueeze(1)?;
    logits.f_to_kind(Kind::Float)?.f_mul(&inverse_temperature)?.f_log_softmax(1, Kind::Float)
}

/// The index of the first cumulative sum above the target; the last one where rounding leaves none.
fn first_above(cumulative: &Tensor, target: &Tensor, entries: i64) -> TchResult<Tensor> {
    let index =
        cumulative.f_le_tensor(target)?.f_sum_dim_intlist([1i64].as_slice(), true, Kind::Int64)?;
    index.f_clamp_max(entries - 1)
}

fn pair(logprobs: &Tensor, token: &Tensor) -> TchResult<Tensor> {
    let logprob = logprobs.f_gather(1, token, false)?.f_to_kind(Kind::Double)?;
    Tensor::f_cat(&[token.f_to_kind(Kind::Double)?, logprob], 1)?.f_tr()
}

#[cfg(test)]
#[path = "pick_tests.rs"]
mod tests;
