//! From scores to tokens, on the device, for many sequences at once: one random number each decides, so that the same
//! numbers give the same tokens whoever else is sampled. Refuses to know where scores come from.

use tch::{Kind, Tensor};

use crate::error::Fallible;

use super::Choice;

/// Entries of the vocabulary that are summed at once. A running sum over a whole vocabulary is slow on a GPU; one over
/// sums of blocks and one over a single block are fast.
const BLOCK: i64 = 128;

/// How a row of scores is turned into a token: one column of what travels to the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// Decides, from 0 up to 1.
    pub(super) uniform: f64,
    /// What scores are multiplied by: one over the temperature.
    pub(super) sharpness: f64,
    /// 1 where the likeliest token is taken.
    pub(super) greedy: f64,
}

impl Draw {
    /// For a row whose outcome nobody uses.
    pub(super) const IDLE: Self = Self { uniform: 0.0, sharpness: 1.0, greedy: 1.0 };

    /// Its fields in order.
    pub(super) fn fields(&self) -> [f64; 3] {
        [self.uniform, self.sharpness, self.greedy]
    }

    /// For the token at this place of a sequence.
    pub(super) fn new(choice: &Choice, place: usize) -> Self {
        let greedy = choice.temperature == 0.0;
        Self {
            uniform: uniform(choice.seed, place as u64),
            sharpness: if greedy { 1.0 } else { 1.0 / choice.temperature },
            greedy: f64::from(u8::from(greedy)),
        }
    }
}

/// A row whose choice is among the likeliest tokens only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrowed {
    /// Which row of the scores.
    pub(super) row: i64,
    /// Its draw.
    pub(super) draw: Draw,
    /// How many tokens at most.
    pub(super) top_k: i64,
    /// Their share of the probability.
    pub(super) top_p: f64,
}

/// Tokens and their log-probabilities, `[2, rows]` in double precision, of scores `[rows, vocabulary]`. The draws are
/// `[3, rows]`: the fields of [`Draw`] in order. Nothing in here waits for the device.
pub(super) fn pick(scores: &Tensor, draws: &Tensor) -> Fallible<Tensor> {
    let (rows, vocabulary) = scores.size2()?;
    let [uniform, sharpness, greedy] =
        [draws.f_select(0, 0)?, draws.f_select(0, 1)?, draws.f_select(0, 2)?];
    let logprobs = logprobs(scores, &sharpness)?;
    let padding = (BLOCK - vocabulary % BLOCK) % BLOCK;
    let mut shares = logprobs.f_exp()?;
    if padding > 0 {
        shares = shares.f_constant_pad_nd([0, padding])?;
    }
    let blocks = (vocabulary + padding) / BLOCK;
    let shares = shares.f_view([rows, blocks, BLOCK])?;
    let sums = shares.f_sum_dim_intlist([-1i64].as_slice(), false, Kind::Double)?;
    let running = sums.f_cumsum(1, Kind::Double)?;
    let aim = running.f_narrow(1, blocks - 1, 1)?.f_mul(&uniform.f_unsqueeze(1)?)?;
    let block = passed(&running, &aim, blocks)?;
    let before = running.f_gather(1, &block, false)?.f_sub(&sums.f_gather(1, &block, false)?)?;
    let inside =
        shares.f_gather(1, &block.f_unsqueeze(2)?.f_expand([rows, 1, BLOCK], false)?, false)?;
    let running = inside.f_squeeze_dim(1)?.f_cumsum(1, Kind::Double)?.f_add(&before)?;
    let drawn = block
        .f_mul_scalar(BLOCK)?
        .f_add(&passed(&running, &aim, BLOCK)?)?
        .f_clamp_max(vocabulary - 1)?;
    let likeliest = logprobs.f_argmax(1, true)?;
    let token = likeliest.f_where_self(&greedy.f_gt(0.5)?.f_unsqueeze(1)?, &drawn)?;
    paired(&logprobs, &token)
}

/// The same for rows that choose among their likeliest tokens: first so many, then of those a share of the probability.
/// Log-probabilities are those of the whole vocabulary.
pub(super) fn pick_narrowed(scores: &Tensor, rows: &[Narrowed]) -> Fallible<Tensor> {
    let device = scores.device();
    let (_, vocabulary) = scores.size2()?;
    let column = |value: &dyn Fn(&Narrowed) -> f64| -> Fallible<Tensor> {
        let values: Vec<f64> = rows.iter().map(value).collect();
        Tensor::f_from_slice(&values)?.f_to_device(device)?.f_unsqueeze(1)
    };
    let indices: Vec<i64> = rows.iter().map(|narrowed| narrowed.row).collect();
    let chosen = scores.f_index_select(0, &Tensor::f_from_slice(&indices)?.f_to_device(device)?)?;
    let sharpness = column(&|narrowed| narrowed.draw.sharpness)?.f_squeeze_dim(1)?;
    let logprobs = logprobs(&chosen, &sharpness)?;
    let most =
        rows.iter().map(|narrowed| narrowed.top_k).max().unwrap_or(vocabulary).clamp(1, vocabulary);
    let (best, tokens) = logprobs.f_topk(most, 1, true, true)?;
    let ranks = Tensor::f_arange(most, (Kind::Double, device))?.f_unsqueeze(0)?;
    let too_many = ranks.f_ge_tensor(&column(&|narrowed| narrowed.top_k as f64)?)?;
    let shares = best.f_masked_fill(&too_many, f64::NEG_INFINITY)?.f_softmax(1, Kind::Double)?;
    let before = shares.f_cumsum(1, Kind::Double)?.f_sub(&shares)?;
    let beyond = before.f_ge_tensor(&column(&|narrowed| narrowed.top_p)?)?;
    let running = shares.f_masked_fill(&beyond, 0.0)?.f_cumsum(1, Kind::Double)?;
    let uniform = column(&|narrowed| narrowed.draw.uniform)?;
    let aim = running.f_narrow(1, most - 1, 1)?.f_mul(&uniform)?;
    let token = tokens.f_gather(1, &passed(&running, &aim, most)?, false)?;
    paired(&logprobs, &token)
}

/// A number from 0 up to 1 that depends on nothing but the seed and the place.
fn uniform(seed: u64, place: u64) -> f64 {
    let bits = mixed(mixed(seed) ^ mixed(place.wrapping_add(0x51_7c_c1_b7_27_22_0a_95)));
    (bits >> 11) as f64 * (-53f64).exp2()
}

/// A bijection of 64 bits whose outcome looks random (the finisher of splitmix64).
fn mixed(value: u64) -> u64 {
    let mut bits = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn logprobs(scores: &Tensor, sharpness: &Tensor) -> Fallible<Tensor> {
    let sharpness = sharpness.f_to_kind(Kind::Float)?.f_unsqueeze(1)?;
    scores.f_to_kind(Kind::Float)?.f_mul(&sharpness)?.f_log_softmax(1, Kind::Float)
}

/// How many running sums the aim has passed: the index of the first it has not. Rounding must not carry it beyond.
fn passed(running: &Tensor, aim: &Tensor, entries: i64) -> Fallible<Tensor> {
    let passed =
        running.f_le_tensor(aim)?.f_sum_dim_intlist([1i64].as_slice(), true, Kind::Int64)?;
    passed.f_clamp_max(entries - 1)
}

fn paired(logprobs: &Tensor, token: &Tensor) -> Fallible<Tensor> {
    let logprob = logprobs.f_gather(1, token, false)?.f_to_kind(Kind::Double)?;
    Tensor::f_cat(&[token.f_to_kind(Kind::Double)?, logprob], 1)?.f_tr()
}

#[cfg(test)]
#[path = "pick_tests.rs"]
mod tests;
