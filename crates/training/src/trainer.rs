//! A network in training: rows in, one optimizer step out, in as many passes as memory requires.
//!
//! Gradients are accumulated over passes, which gives the same step as one pass over all rows. Where the device runs
//! out of memory, the passes become smaller. Knows losses and tokens, not where they come from.

use policy::{BatchError, Checkpointing, Network, Scored, TokenBatch, out_of_memory};
use tch::{Kind, TchError, Tensor, no_grad};

use crate::{
    adamw::{AdamW, Optimizer, OptimizerState, OptimizerStateError, StepOutcome},
    backward::{Backward, Role},
    batch::{Packed, Row},
    objective::{Logprobs, Objective, kl_estimate, log_ratio},
    plan::{PassBudget, PlannedRow, plan},
};

/// What is minimised over the trained tokens of rows.
#[derive(Clone, Copy)]
pub enum LossKind<'a> {
    /// Cross-entropy: the negative log-likelihood of the tokens.
    Supervised,
    /// The policy-gradient loss of an algorithm, weighted by advantages.
    Policy {
        /// The algorithm.
        objective: &'a dyn Objective,
        /// Correction for the difference between sampler and trainer; `None` disables it.
        importance: Option<ImportanceSampling>,
    },
}

/// Truncated importance sampling: weights tokens by `min(pi_old / pi_sampler, cap)`. Corrects for a sampler whose
/// log-probabilities differ from the trainer's, as a quantised one's do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImportanceSampling {
    /// The largest weight of a token.
    pub cap: f64,
}

/// A network and its optimizer.
pub struct Trainer {
    net: Network,
    backward: Backward,
    optimizer: Optimizer,
    /// The maximum number of computed tokens in one pass, copies of shared ones counted by their memory.
    tokens_per_pass: usize,
    checkpointing: Checkpointing,
    /// Divides the logits, as the sampler does.
    temperature: f64,
}

/// Rows whose gradients a [`Trainer`] has accumulated for its next step.
#[derive(Debug, Default)]
pub struct Gradients {
    rows: Vec<Row>,
    /// Sums over tokens and computed tokens, of one part of the rows each.
    parts: Vec<(Sums, usize)>,
}

impl Gradients {
    /// Whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// The statistics of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepStats {
    /// The loss.
    pub loss: f64,
    /// The mean entropy at the trained tokens, in nats.
    pub entropy: f64,
    /// The share of probability ratios outside the clip range.
    pub clip_fraction: f64,
    /// The estimated KL divergence between trainer and sampler, in nats per token; 0 for rows that were not sampled.
    pub kl_to_sampler: f64,
    /// The gradient norm before clipping.
    pub grad_norm: f64,
    /// Trained tokens.
    pub trained_tokens: usize,
    /// Computed tokens: fewer than those of the rows where rows begin with the same ones.
    pub computed_tokens: usize,
    /// Why no step was taken; `None` where one was.
    pub skipped: Option<&'static str>,
}

/// A step cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A single sequence does not fit into memory.
    #[error(
        "out of memory: a sequence of {tokens} tokens does not fit the device; set `optimiser.checkpointing = true` or \
         leave the sampler less (`rollout.slots`) and start the run again; or, in another `output`, train an adapter \
         (`[lora]`) or shorten episodes (`rollout.tokens`)"
    )]
    OutOfMemory {
        /// The length of the sequence.
        tokens: usize,
        /// The error of the device.
        #[source]
        source: TchError,
    },
    /// The optimizer does not fit into memory.
    #[error(
        "out of memory: the optimizer of {size} parameters needs {} MiB, which the device does not have; train an adapter \
         (`[lora]`)",
        (size * 16) >> 20
    )]
    OptimizerOutOfMemory {
        /// The number of trained parameters.
        size: usize,
        /// The error of the device.
        #[source]
        source: TchError,
    },
    /// The rows do not fit this model.
    #[error("sequences do not fit the model")]
    Batch(#[from] BatchError),
    /// libtorch failed.
    #[error("libtorch failed")]
    Torch(#[source] TchError),
}

impl StepError {
    /// Whether the weights are unchanged after this error.
    pub(crate) fn leaves_weights_unchanged(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::Batch(_))
    }
}

impl Trainer {
    /// Starts training a network with its current weights.
    pub fn new(
        net: Network,
        settings: AdamW,
        tokens_per_pass: usize,
        checkpointing: Checkpointing,
    ) -> Result<Self, StepError> {
        let optimizer = Optimizer::new(net.trainable(), settings).map_err(|error| {
            let size = net.trainable().iter().map(|(_, tensor)| tensor.numel()).sum();
            match out_of_memory(&error) {
                true => StepError::OptimizerOutOfMemory { size, source: error },
                false => StepError::Torch(error),
            }
        })?;
        let tokens_per_pass = tokens_per_pass.max(1);
        let backward = Backward::new(&net);
        Ok(Self { net, backward, optimizer, tokens_per_pass, checkpointing, temperature: 1.0 })
    }

    /// Computes the gradients of an adapter with autograd, to compare.
    #[must_use]
    pub fn with_autograd(self) -> Self {
        Self { backward: Backward::default(), ..self }
    }

    /// Divides logits by the sampler's temperature; 0 counts as 1.
    #[must_use]
    pub fn with_temperature(self, temperature: f64) -> Self {
        Self { temperature: if temperature > 0.0 { temperature } else { 1.0 }, ..self }
    }

    /// The network.
    pub fn net(&self) -> &Network {
        &self.net
    }

    /// The number of trained parameters (scalars).
    pub fn parameter_count(&self) -> i64 {
        self.optimizer.parameter_count()
    }

    /// A copy of the optimizer's state, master weights included, for a checkpoint.
    pub fn state(&self) -> Result<OptimizerState, StepError> {
        self.optimizer.state().map_err(StepError::Torch)
    }

    /// Restores a state, and with it the weights.
    pub fn load_state(&mut self, state: &OptimizerState) -> Result<(), OptimizerStateError> {
        self.backward.weights_changed();
        self.optimizer.load_state(state)
    }

    /// Starts over from these weights, with a fresh optimizer.
    pub fn reset_to(&mut self, weights: &[(String, Tensor)]) -> Result<(), OptimizerStateError> {
        self.backward.weights_changed();
        self.optimizer.reset_to(weights)
    }

    /// Computes a sequence of this length as a step would, without a step: fails where memory does not suffice.
    pub fn check_memory(&mut self, tokens: usize, loss: LossKind<'_>) -> Result<(), StepError> {
        let row = Row { tokens: vec![0; tokens], trained: vec![true; tokens], ..Row::default() };
        let rows = [row];
        self.with_smaller_passes(&rows, |trainer, budget| trainer.passes(&rows, budget, loss))?;
        self.optimizer.zero_grad();
        Ok(())
    }

    /// Trains on rows in one optimizer step.
    pub fn step(
        &mut self,
        rows: &[Row],
        learning_rate: f64,
        loss: LossKind<'_>,
    ) -> Result<StepStats, StepError> {
        let mut gradients = Gradients::default();
        self.accumulate(&mut gradients, rows.to_vec(), loss)?;
        self.step_with(&gradients, 1.0, learning_rate)
    }

    /// Whether the gradients of rows are computed in one pass.
    pub(crate) fn fits_one_pass(&self, rows: &[Row]) -> bool {
        plan(rows, pass_budget(&self.net, self.tokens_per_pass)).len() <= 1
    }

    /// Adds the gradients of more rows to those of the next step. The first ones of a step replace what an abandoned one
    /// has left.
    pub fn accumulate(
        &mut self,
        gradients: &mut Gradients,
        rows: Vec<Row>,
        loss: LossKind<'_>,
    ) -> Result<(), StepError> {
        let Gradients { rows: all, parts } = gradients;
        let earlier = all.len();
        all.extend(rows);
        // What earlier rows gave is lost where memory runs out.
        let mut intact = earlier > 0;
        self.with_smaller_passes(all, |trainer, budget| {
            let from = if std::mem::take(&mut intact) { earlier } else { 0 };
            if from == 0 {
                parts.clear();
                trainer.optimizer.zero_grad();
            }
            parts.push(trainer.passes(all.get(from..).unwrap_or_default(), budget, loss)?);
            Ok(())
        })
    }

    /// Takes an optimizer step with accumulated gradients, multiplied by `scale`, as is the loss that is reported.
    pub fn step_with(
        &mut self,
        gradients: &Gradients,
        scale: f64,
        learning_rate: f64,
    ) -> Result<StepStats, StepError> {
        let trained_tokens = gradients.rows.iter().map(Row::trained_tokens).sum::<usize>();
        let mut sums = [0.0; 4];
        for (part, _) in &gradients.parts {
            let part = part.read().map_err(StepError::Torch)?;
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        let [loss, entropy, clipped, kl] = sums;
        let (loss, tokens) = (loss * scale, trained_tokens.max(1) as f64);
        let mut stats = StepStats {
            loss,
            entropy: entropy / tokens,
            clip_fraction: clipped / tokens,
            kl_to_sampler: kl / tokens,
            trained_tokens,
            computed_tokens: gradients.parts.iter().map(|(_, computed)| computed).sum(),
            ..StepStats::default()
        };
        if trained_tokens == 0 {
            stats.skipped = Some("there are no tokens to train on");
            return Ok(stats);
        }
        if !loss.is_finite() {
            self.optimizer.zero_grad();
            stats.skipped = Some("the loss is not finite");
            return Ok(stats);
        }
        self.optimizer.scale_gradients(scale);
        self.backward.weights_changed();
        match self.optimizer.step(learning_rate).map_err(StepError::Torch)? {
            StepOutcome::Taken(norm) => stats.grad_norm = norm,
            StepOutcome::Skipped => stats.skipped = Some("the gradient is not finite"),
        }
        Ok(stats)
    }

    /// The log-probabilities of the trained tokens of rows under the current weights; 0 for other tokens.
    pub fn score(&mut self, rows: &[Row]) -> Result<Vec<Vec<f32>>, StepError> {
        self.with_smaller_passes(rows, |trainer, budget| {
            let Trainer { net, backward, temperature, .. } = trainer;
            score(net, (backward, Role::Policy), rows, budget, *temperature)
        })
    }

    /// The same under another network on the same device, always the same one, which does not change.
    pub fn score_with(&mut self, net: &Network, rows: &[Row]) -> Result<Vec<Vec<f32>>, StepError> {
        self.with_smaller_passes(rows, |trainer, budget| {
            let Trainer { backward, temperature, .. } = trainer;
            score(net, (backward, Role::Reference), rows, budget, *temperature)
        })
    }

    /// Calls `attempt` with half the tokens per pass after each out-of-memory error, down to the longest row, then without a
    /// copy of merged weights. If that does not help either, the number of tokens stays what it was: another time there may
    /// be more memory.
    fn with_smaller_passes<T>(
        &mut self,
        rows: &[Row],
        mut attempt: impl FnMut(&mut Self, usize) -> Result<T, StepError>,
    ) -> Result<T, StepError> {
        let longest = rows.iter().map(Row::needed).max().unwrap_or(0);
        let tokens_per_pass = self.tokens_per_pass;
        loop {
            let budget = self.tokens_per_pass;
            match attempt(self, budget) {
                Err(StepError::Torch(error)) if out_of_memory(&error) => {
                    if self.tokens_per_pass <= longest {
                        self.tokens_per_pass = tokens_per_pass;
                        if self.backward.use_autograd("out of memory") {
                            continue;
                        }
                        return Err(StepError::OutOfMemory { tokens: longest, source: error });
                    }
                    self.tokens_per_pass = (self.tokens_per_pass / 2).max(longest);
                    tracing::warn!(
                        tokens = self.tokens_per_pass,
                        "out of memory; retrying with smaller passes"
                    );
                }
                result => return result,
            }
        }
    }

    /// Accumulates the gradients of all rows; returns the sums over tokens and the number of computed tokens.
    fn passes(
        &mut self,
        rows: &[Row],
        budget: usize,
        loss: LossKind<'_>,
    ) -> Result<(Sums, usize), StepError> {
        self.backward.prepare(&self.net, Role::Policy).map_err(StepError::Torch)?;
        let mut sums = Sums::new(self.net.device()).map_err(StepError::Torch)?;
        let mut computed = 0;
        for pass in plan(rows, pass_budget(&self.net, budget)) {
            let batch = to_batch(&self.net, rows, &pass)?;
            let together: Vec<&Row> = pass.iter().map(|planned| &rows[planned.row]).collect();
            let packed = Packed::new(&together, self.net.device()).map_err(StepError::Torch)?;
            let mut part = None;
            let loss = |scored: &Scored| {
                let (loss, sums) = losses(scored, &packed, loss)?;
                part = Some(sums);
                Ok(loss)
            };
            let (net, temperature, checkpointing) =
                (&self.net, self.temperature, self.checkpointing);
            self.backward
                .accumulate(net, &batch, temperature, checkpointing, loss)
                .map_err(StepError::Torch)?;
            if let Some(part) = part {
                sums.add(&part).map_err(StepError::Torch)?;
            }
            self.optimizer.accumulate_gradients();
            computed += batch.computed;
        }
        Ok((sums, computed))
    }
}

/// The log-probabilities of the trained tokens of rows under a network.
fn score(
    net: &Network,
    (backward, role): (&mut Backward, Role),
    rows: &[Row],
    budget: usize,
    temperature: f64,
) -> Result<Vec<Vec<f32>>, StepError> {
    backward.prepare(net, role).map_err(StepError::Torch)?;
    let mut scores: Vec<Vec<f32>> = rows.iter().map(|row| vec![0.0; row.tokens.len()]).collect();
    for pass in plan(rows, pass_budget(net, budget)) {
        let batch = to_batch(net, rows, &pass)?;
        let scored = backward.logprobs(net, role, &batch, temperature);
        let numbers =
            scored.and_then(|scored| to_host(&scored.logprob)).map_err(StepError::Torch)?;
        let places = pass.iter().flat_map(|planned| {
            let positions = rows[planned.row].trained_positions();
            positions.map(move |position| (planned.row, position))
        });
        for ((row, position), number) in places.zip(numbers) {
            scores[row][position] = number;
        }
    }
    Ok(scores)
}

/// The budget of a pass of a network.
fn pass_budget(net: &Network, tokens: usize) -> PassBudget {
    PassBudget { tokens, copy_cost: net.shape().copy_cost() }
}

/// Copies log-probabilities to the host.
fn to_host(logprobs: &Tensor) -> Result<Vec<f32>, TchError> {
    let mut numbers = vec![0f32; logprobs.numel()];
    let found = logprobs.f_to_kind(Kind::Float)?.f_to_device(tch::Device::Cpu)?;
    found.f_copy_data(&mut numbers, logprobs.numel())?;
    Ok(numbers)
}

/// The batch of a pass. Its scored tokens are in the order of the pass.
fn to_batch(net: &Network, rows: &[Row], pass: &[PlannedRow]) -> Result<TokenBatch, StepError> {
    let row = |planned: &PlannedRow| {
        let row = &rows[planned.row];
        let (tokens, scored) = (&row.tokens[..row.needed()], &row.trained[..row.needed()]);
        policy::Row { tokens, scored, shared: planned.shared }
    };
    let rows: Vec<policy::Row<'_>> = pass.iter().map(row).collect();
    net.batch(&rows).map_err(|error| match error {
        BatchError::Torch(error) => StepError::Torch(error),
        error => StepError::Batch(error),
    })
}

/// The loss of a pass, and its contribution to [`Sums`].
fn losses(
    scored: &Scored,
    packed: &Packed,
    kind: LossKind<'_>,
) -> Result<(Tensor, Tensor), TchError> {
    let new = &scored.logprob;
    let current = new.f_detach()?;
    let old = packed.old.as_ref().unwrap_or(&current);
    let (per_token, clipped) = match kind {
        LossKind::Supervised => (new.f_neg()?, current.f_zeros_like()?),
        LossKind::Policy { objective, importance } => {
            let logprobs = Logprobs { new, old, reference: packed.reference.as_ref() };
            let loss = objective.loss(&logprobs, &packed.advantage)?;
            let loss = match (importance, &packed.sampler) {
                (Some(ImportanceSampling { cap }), Some(sampler)) => {
                    loss.f_mul(&log_ratio(old, sampler)?.f_exp()?.f_clamp_max(cap)?)?
                }
                _ => loss,
            };
            let loss = match objective.penalty(&logprobs)? {
                Some(penalty) => loss.f_add(&penalty)?,
                None => loss,
            };
            let detached = Logprobs { new: &current, old, reference: None };
            (loss, objective.surrogate().clip.is_outside(&detached.ratio()?)?)
        }
    };
    let loss = per_token.f_mul(&packed.weight)?.f_sum(Kind::Float)?;
    let sums = no_grad(|| {
        let kl = match &packed.sampler {
            Some(sampler) => kl_estimate(old, sampler)?,
            None => current.f_zeros_like()?,
        };
        let sum = |values: &Tensor| values.f_sum(Kind::Double);
        let total = loss.f_detach()?.f_to_kind(Kind::Double)?;
        Tensor::f_stack(&[total, sum(&scored.entropy)?, sum(&clipped)?, sum(&kl)?], 0)
    })?;
    Ok((loss, sums))
}

/// Sums over tokens: loss, entropy, clipped ratios, KL. They stay on the device until the step is complete.
#[derive(Debug)]
struct Sums(Tensor);

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
#[path = "trainer_tests.rs"]
mod tests;
