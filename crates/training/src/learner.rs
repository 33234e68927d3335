//! A network that learns: rows in, one step of the optimiser out, in as many passes as memory wants.
//!
//! Adding up over passes gives what one pass over everything would. Where memory does not suffice, less is done at
//! once. Knows losses and tokens, not where they come from.

use policy::{BatchError, Checkpointing, Net, Tokens, out_of_memory};
use tch::{Kind, TchError, Tensor, no_grad};

use crate::{
    adamw::{AdamW, Memory, MemoryError, Optimiser, Stepped},
    batch::{Packed, Row, plan},
    objective::{Objective, Scores, difference, distance},
};

/// What is to be learnt from rows.
#[derive(Clone, Copy)]
pub enum Lesson<'a> {
    /// Their tokens, as they are.
    Imitate,
    /// To do more of what was good, and less of what was not.
    Improve {
        /// By which algorithm.
        objective: &'a dyn Objective,
        /// Whether and how far the sampler's log-probs are believed to differ.
        importance: Option<Importance>,
    },
}

/// Weighs tokens by `min(pi_old / pi_sampler, most)`: corrects for a sampler whose numbers differ from the trainer's, as
/// a quantised one's do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Importance {
    /// No token weighs more.
    pub most: f64,
}

/// A network and its optimiser.
pub struct Learner {
    net: Net,
    optimiser: Optimiser,
    /// Tokens computed at once.
    at_once: usize,
    checkpointing: Checkpointing,
    /// Logits are divided by it, as the sampler's are.
    temperature: f64,
}

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learnt {
    /// The loss.
    pub loss: f64,
    /// The mean entropy of the tokens learnt.
    pub entropy: f64,
    /// The share of ratios beyond the clip.
    pub clipped: f64,
    /// How far the trainer's policy is from the sampler's, in nats per token; 0 where nobody sampled.
    pub divergence: f64,
    /// The length of the gradient before it was cut.
    pub gradient: f64,
    /// Tokens learnt.
    pub learnt: usize,
    /// Tokens computed, padding included.
    pub computed: usize,
    /// Why no step was taken, where none was.
    pub skipped: Option<&'static str>,
}

/// A step cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LearnError {
    /// Not even one sequence fits.
    #[error(
        "a sequence of {tokens} tokens does not fit into the memory of the device; set `optimiser.checkpointing = true` or \
         leave the sampler less (`rollout.slots`) and start the run again; or, in another `output`, train an adapter \
         (`[lora]`) or shorten episodes (`rollout.tokens`)"
    )]
    Memory {
        /// How long it is.
        tokens: usize,
        /// What the device said.
        #[source]
        source: TchError,
    },
    /// Not even the optimiser fits.
    #[error(
        "the optimiser of {size} parameters wants {} MiB that the device does not have; train an adapter (`[lora]`)",
        (size * 16) >> 20
    )]
    Optimiser {
        /// How many numbers are trained.
        size: usize,
        /// What the device said.
        #[source]
        source: TchError,
    },
    /// The rows are none of this model's.
    #[error("sequences do not fit the model")]
    Batch(#[from] BatchError),
    /// libtorch failed.
    #[error("libtorch failed")]
    Torch(#[source] TchError),
}

impl LearnError {
    /// Whether it comes before anything was changed.
    pub(crate) fn is_before_a_step(&self) -> bool {
        matches!(self, Self::Memory { .. } | Self::Batch(_))
    }
}

/// Sums over the tokens of passes, kept on the device until the step is over.
struct Sums(Tensor);

impl Learner {
    /// Begins with a network as it is.
    pub fn new(
        net: Net,
        settings: AdamW,
        at_once: usize,
        checkpointing: Checkpointing,
    ) -> Result<Self, LearnError> {
        let optimiser = Optimiser::new(net.trainable(), settings).map_err(|error| {
            let size = net.trainable().iter().map(|(_, tensor)| tensor.numel()).sum();
            match out_of_memory(&error) {
                true => LearnError::Optimiser { size, source: error },
                false => LearnError::Torch(error),
            }
        })?;
        Ok(Self { net, optimiser, at_once: at_once.max(1), checkpointing, temperature: 1.0 })
    }

    /// Divides logits by what the sampler divides them by.
    #[must_use]
    pub fn at(self, temperature: f64) -> Self {
        Self { temperature: if temperature > 0.0 { temperature } else { 1.0 }, ..self }
    }

    /// The network.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// How many numbers are trained.
    pub fn numbers(&self) -> i64 {
        self.optimiser.numbers()
    }

    /// All that has to be kept to go on from here.
    pub fn memory(&self) -> Result<Memory, LearnError> {
        self.optimiser.memory().map_err(LearnError::Torch)
    }

    /// Goes on from what was kept.
    pub fn recall(&mut self, memory: &Memory) -> Result<(), MemoryError> {
        self.optimiser.recall(memory)
    }

    /// Begins anew with these weights.
    pub fn adopt(&mut self, weights: &[(String, Tensor)]) -> Result<(), MemoryError> {
        self.optimiser.adopt(weights)
    }

    /// Computes a sequence of so many tokens as a step would and learns nothing: shows whether memory suffices.
    pub fn rehearse(&mut self, tokens: usize, lesson: Lesson<'_>) -> Result<(), LearnError> {
        let row = Row { tokens: vec![0; tokens], trained: vec![true; tokens], ..Row::default() };
        let rows = [row];
        self.with_less(&rows, |learner, at_once| learner.passes(&rows, at_once, lesson))?;
        self.optimiser.forget();
        Ok(())
    }

    /// Learns from rows in one step.
    pub fn step(
        &mut self,
        rows: &[Row],
        rate: f64,
        lesson: Lesson<'_>,
    ) -> Result<Learnt, LearnError> {
        let (sums, computed) = self.with_less(rows, |learner, at_once| {
            learner.optimiser.forget();
            learner.passes(rows, at_once, lesson)
        })?;
        let learnt = rows.iter().map(Row::learnt).sum::<usize>();
        let [loss, entropy, clipped, divergence] = sums.read().map_err(LearnError::Torch)?;
        let tokens = learnt.max(1) as f64;
        let mut report = Learnt {
            loss,
            entropy: entropy / tokens,
            clipped: clipped / tokens,
            divergence: divergence / tokens,
            learnt,
            computed,
            ..Learnt::default()
        };
        if learnt == 0 {
            report.skipped = Some("there was nothing to learn from");
            return Ok(report);
        }
        if !loss.is_finite() {
            self.optimiser.forget();
            report.skipped = Some("the loss is no number");
            return Ok(report);
        }
        match self.optimiser.step(rate).map_err(LearnError::Torch)? {
            Stepped::Taken(norm) => report.gradient = norm,
            Stepped::Skipped => report.skipped = Some("the gradient is no number"),
        }
        Ok(report)
    }

    /// The log-probs of rows' learnt tokens under the weights as they are; 0 for other tokens.
    pub fn score(&mut self, rows: &[Row]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.with_less(rows, |learner, at_once| {
            score(&learner.net, rows, at_once, learner.temperature)
        })
    }

    /// The same under another network on the same device.
    pub fn score_by(&mut self, net: &Net, rows: &[Row]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.with_less(rows, |learner, at_once| score(net, rows, at_once, learner.temperature))
    }

    /// Does something with fewer and fewer tokens at once until it fits.
    fn with_less<T>(
        &mut self,
        rows: &[Row],
        mut attempt: impl FnMut(&mut Self, usize) -> Result<T, LearnError>,
    ) -> Result<T, LearnError> {
        let longest = rows.iter().map(Row::needed).max().unwrap_or(0);
        loop {
            let at_once = self.at_once;
            match attempt(self, at_once) {
                Err(LearnError::Torch(error)) if out_of_memory(&error) => {
                    self.optimiser.forget();
                    if self.at_once <= longest {
                        return Err(LearnError::Memory { tokens: longest, source: error });
                    }
                    self.at_once = (self.at_once / 2).max(longest);
                }
                done => return done,
            }
        }
    }

    fn passes(
        &mut self,
        rows: &[Row],
        at_once: usize,
        lesson: Lesson<'_>,
    ) -> Result<(Sums, usize), LearnError> {
        let mut sums = Sums::new(self.net.device()).map_err(LearnError::Torch)?;
        let mut computed = 0;
        for indices in plan(rows, at_once) {
            let together: Vec<&Row> = indices.iter().map(|at| &rows[*at]).collect();
            let batch = lay_out(&self.net, &together)?;
            let packed = Packed::new(&together, self.net.device()).map_err(LearnError::Torch)?;
            let mut part = None;
            let loss = |scored: &policy::Scored| {
                let (loss, sums) =
                    losses(&scored.logprob, &scored.entropy, &batch, &packed, lesson)?;
                part = Some(sums);
                Ok(loss)
            };
            self.net
                .accumulate(&batch, self.temperature, self.checkpointing, loss)
                .map_err(LearnError::Torch)?;
            if let Some(part) = part {
                sums.add(&part).map_err(LearnError::Torch)?;
            }
            self.optimiser.absorb();
            computed += (batch.batch * batch.length) as usize;
        }
        Ok((sums, computed))
    }
}

/// The log-probs of rows' learnt tokens under a network, so many tokens at once.
fn score(
    net: &Net,
    rows: &[Row],
    at_once: usize,
    temperature: f64,
) -> Result<Vec<Vec<f32>>, LearnError> {
    let mut scores: Vec<Vec<f32>> = rows.iter().map(|row| vec![0.0; row.tokens.len()]).collect();
    for indices in plan(rows, at_once) {
        let together: Vec<&Row> = indices.iter().map(|at| &rows[*at]).collect();
        let batch = lay_out(net, &together)?;
        let width = (batch.length - 1) as usize;
        let mut numbers = vec![0f32; width * indices.len()];
        logprobs(net, &batch, temperature, &mut numbers).map_err(LearnError::Torch)?;
        for (at, numbers) in indices.iter().zip(numbers.chunks(width.max(1))) {
            for (out, number) in scores[*at].iter_mut().skip(1).zip(numbers) {
                *out = *number;
            }
        }
    }
    Ok(scores)
}

/// The log-probs of a batch, as numbers.
fn logprobs(
    net: &Net,
    batch: &Tokens,
    temperature: f64,
    numbers: &mut [f32],
) -> Result<(), TchError> {
    let found = net.logprobs(batch, temperature)?.logprob.f_to_kind(Kind::Float)?;
    let count = numbers.len();
    found.f_to_device(tch::Device::Cpu)?.f_contiguous()?.f_copy_data(numbers, count)
}

fn lay_out(net: &Net, rows: &[&Row]) -> Result<Tokens, LearnError> {
    let rows: Vec<policy::Row<'_>> = rows
        .iter()
        .map(|row| {
            let needed = row.needed();
            policy::Row { tokens: &row.tokens[..needed], scored: &row.trained[..needed] }
        })
        .collect();
    net.batch(&rows).map_err(|error| match error {
        BatchError::Torch(error) => LearnError::Torch(error),
        error => LearnError::Batch(error),
    })
}

/// The loss of a pass, and the sums it contributes.
fn losses(
    new: &Tensor,
    entropy: &Tensor,
    batch: &Tokens,
    packed: &Packed,
    lesson: Lesson<'_>,
) -> Result<(Tensor, Tensor), TchError> {
    let mask = batch.mask.f_to_kind(Kind::Float)?;
    let current = new.f_detach()?;
    let old = packed.old.as_ref().unwrap_or(&current);
    let (tokens, clipped) = match lesson {
        Lesson::Imitate => (new.f_neg()?, mask.f_zeros_like()?),
        Lesson::Improve { objective, importance } => {
            let scores = Scores { new, old, reference: packed.reference.as_ref() };
            let tokens = objective.loss(&scores, &packed.advantage)?;
            let tokens = match (importance, &packed.sampler) {
                (Some(Importance { most }), Some(sampler)) => {
                    tokens.f_mul(&difference(old, sampler)?.f_exp()?.f_clamp_max(most)?)?
                }
                _ => tokens,
            };
            let now = Scores { new: &current, old, reference: None };
            (tokens, objective.clip().beyond(&now.ratio()?)?)
        }
    };
    let loss = tokens.f_mul(&mask)?.f_mul(&packed.weight)?.f_sum(Kind::Float)?;
    let sums = no_grad(|| {
        let divergence = match &packed.sampler {
            Some(sampler) => distance(old, sampler)?,
            None => mask.f_zeros_like()?,
        };
        let sum = |values: &Tensor| values.f_mul(&mask)?.f_sum(Kind::Double);
        let whole = loss.f_detach()?.f_to_kind(Kind::Double)?;
        Tensor::f_stack(&[whole, sum(entropy)?, sum(&clipped)?, sum(&divergence)?], 0)
    })?;
    Ok((loss, sums))
}

impl Sums {
    fn new(device: tch::Device) -> Result<Self, TchError> {
        Ok(Self(Tensor::f_zeros([4], (Kind::Double, device))?))
    }

    fn add(&mut self, part: &Tensor) -> Result<(), TchError> {
        self.0 = no_grad(|| self.0.f_add(part))?;
        Ok(())
    }

    fn read(&self) -> Result<[f64; 4], TchError> {
        let mut numbers = [0.0; 4];
        self.0.f_to_device(tch::Device::Cpu)?.f_copy_data(&mut numbers, 4)?;
        Ok(numbers)
    }
}

#[cfg(test)]
#[path = "learner_tests.rs"]
mod tests;
