//! From the rows of a step to gradients, all at once or while the step is still being played: its longest episodes leave
//! most of the device idle, and gradients of groups that are complete can be computed meanwhile. Takes no optimizer steps.

use std::time::{Duration, Instant};

use policy::{Engine, Network};
use rollout::{Group, Rollout};

use super::loss_kind;
use crate::{
    batch::Row,
    config::{OldLogprobs, RlConfig},
    episodes::{self, Keep},
    objective::{Objective, Totals},
    services::TrainError,
    trainer::{Gradients, StepError, Trainer},
};

/// What gradients are computed with.
pub(super) struct Learner<'a> {
    pub(super) config: &'a RlConfig,
    pub(super) objective: &'a dyn Objective,
    pub(super) trainer: &'a mut Trainer,
    /// The initial model, where the algorithm has a KL term.
    pub(super) reference: Option<&'a Network>,
}

impl Learner<'_> {
    /// Which episodes become rows.
    pub(super) fn keep(&self) -> Keep {
        if self.reference.is_some() { Keep::All } else { Keep::WithAdvantage }
    }

    /// Adds the log-probabilities under `pi_old` and the reference to rows, where the algorithm needs them.
    pub(super) fn score(&mut self, rows: &mut [Row]) -> Result<(), StepError> {
        let settings = &self.config.algorithm;
        if settings.old == OldLogprobs::Recomputed || settings.steps_per_batch() > 1 {
            let scores = self.trainer.score(rows)?;
            rows.iter_mut().zip(scores).for_each(|(row, old)| row.old = old);
        }
        if let Some(reference) = self.reference {
            let scores = self.trainer.score_with(reference, rows)?;
            rows.iter_mut().zip(scores).for_each(|(row, found)| row.reference = found);
        }
        Ok(())
    }

    /// Adds the gradients of rows that have their log-probabilities.
    pub(super) fn add(
        &mut self,
        gradients: &mut Gradients,
        rows: Vec<Row>,
    ) -> Result<(), StepError> {
        self.trainer.accumulate(gradients, rows, loss_kind(self.config, self.objective))
    }

    fn score_and_add(
        &mut self,
        gradients: &mut Gradients,
        mut rows: Vec<Row>,
    ) -> Result<(), StepError> {
        self.score(&mut rows)?;
        self.add(gradients, rows)
    }
}

/// The gradients of a step that is being played.
pub(super) struct EarlyGradients {
    /// The size of the batch that rows are weighted for: the real one is known in the end.
    assumed: Totals,
    /// Rows of complete groups that do not fill a pass yet.
    waiting: Vec<Row>,
    gradients: Gradients,
    is_announced: bool,
    /// Whether memory did not suffice beside the sampler's: then all rows wait until the episodes have ended.
    is_deferred: bool,
    took: Duration,
    failed: Option<TrainError>,
}

impl EarlyGradients {
    /// Of a step with this many episodes.
    pub(super) fn new(episodes: usize) -> Self {
        Self {
            assumed: Totals { episodes, tokens: episodes },
            waiting: Vec::new(),
            gradients: Gradients::default(),
            is_announced: false,
            is_deferred: false,
            took: Duration::ZERO,
            failed: None,
        }
    }

    /// Takes in a complete group. The gradients of those before it are computed once they fill a pass.
    pub(super) fn add(&mut self, members: &[Rollout], learner: &mut Learner<'_>, engine: &Engine) {
        if self.is_deferred || self.failed.is_some() {
            return;
        }
        let begun = Instant::now();
        let before = self.waiting.len();
        let rows = episodes::group_rows(members, self.assumed, learner.objective, learner.keep());
        self.waiting.extend(rows);
        if before > 0 && !learner.trainer.fits_one_pass(&self.waiting) {
            let later = self.waiting.split_off(before);
            let full = std::mem::replace(&mut self.waiting, later);
            self.failed = self.compute(full, learner, engine).err();
        }
        self.took += begun.elapsed();
    }

    fn compute(
        &mut self,
        rows: Vec<Row>,
        learner: &mut Learner<'_>,
        engine: &Engine,
    ) -> Result<(), TrainError> {
        if !self.is_announced {
            engine.prepare_update()?;
            self.is_announced = true;
        }
        match learner.score_and_add(&mut self.gradients, rows) {
            Err(StepError::OutOfMemory { .. }) => self.is_deferred = true,
            computed => computed?,
        }
        Ok(())
    }

    /// The time that computing beside the episodes took.
    pub(super) fn seconds(&self) -> f64 {
        self.took.as_secs_f64()
    }

    /// All gradients of the step, and the factor that makes them those of its groups.
    pub(super) fn finish(
        self,
        groups: &[Group],
        learner: &mut Learner<'_>,
    ) -> Result<(Gradients, f64), TrainError> {
        let Self { assumed, mut waiting, mut gradients, is_deferred, failed, .. } = self;
        failed.map_or(Ok(()), Err)?;
        if is_deferred {
            gradients = Gradients::default();
            let of_group = |group: &Group| {
                episodes::group_rows(&group.members, assumed, learner.objective, learner.keep())
            };
            waiting = groups.iter().flat_map(of_group).collect();
        }
        if !waiting.is_empty() {
            learner.score_and_add(&mut gradients, waiting)?;
        }
        let totals = episodes::totals(groups, learner.config.rollout.members);
        let scale = learner.objective.surrogate().aggregation.rescale(assumed, totals);
        Ok((gradients, scale))
    }
}
