//! The reinforcement-learning loop. Each step draws problems, plays groups of episodes, computes advantages, trains, and
//! gives the new weights to the sampler.
//!
//! All random choices follow from the seed and the step, so that a killed run resumes as if it had not been. Start
//! reading at [`Run::train`]; what a run consists of is set up in `rl/setup.rs`. Knows neither flags nor terminals.

mod learner;
mod setup;

use std::{collections::HashSet, sync::Arc};

use policy::{Engine, Network};
use problems::Problem;
use rollout::{Group, OpenGroups, PlayProgress, RolloutEngine, RolloutError, RolloutRequest};
use sandbox::Runtime;

use crate::{
    checkpoint::{Position, Progress},
    config::{RlConfig, RolloutSettings},
    draw::ProblemDraw,
    episodes,
    events::RunEvent,
    file_error::FileError,
    metrics::{Metrics, MetricsWriter},
    objective::Objective,
    remote,
    run::RunDirectory,
    scores::ScoreWriter,
    services::{RunOutcome, Services, Stopwatch, TrainError},
    trainer::{Gradients, ImportanceSampling, LossKind, StepStats, Trainer},
    validation::{Occasion, Validation},
};

use learner::{EarlyGradients, Learner};

/// Why a step without rows has nothing to train on.
const NO_SPREAD: &str =
    "no group has rewards that differ; a warm start or easier problems would help";

/// Runs reinforcement learning, from the last checkpoint of the run if there is one.
pub fn rl<R: Runtime>(
    config: &RlConfig,
    services: &Services<'_, R>,
) -> Result<RunOutcome, TrainError> {
    let _span = tracing::info_span!("rl", output = %config.output.display()).entered();
    if let Some(sampler) = &config.sampler {
        return remote::validate(config, sampler, services);
    }
    let mut run = Run::start(config, services)?;
    let trained = run.train();
    run.close();
    match trained {
        Ok(()) => Ok(RunOutcome::Complete),
        Err(TrainError::Play(RolloutError::Cancelled)) => {
            run.save()?;
            Ok(RunOutcome::Stopped(run.progress.position.step))
        }
        Err(error) => {
            if run.has_intact_weights(&error) {
                run.progress.save_after_error(&run.trainer, services);
            }
            Err(error)
        }
    }
}

/// Why no episode of a step has a response; `None` where one has.
fn why_no_responses(metrics: &Metrics, settings: &RolloutSettings) -> Option<String> {
    if metrics.get("turns_mean") != Some(0.0) {
        return None;
    }
    Some(match metrics.get("end/timeout") {
        Some(share) if share > 0.0 => {
            format!("no episode has a response within `rollout.timeout` ({} s)", settings.timeout)
        }
        _ => format!(
            "no prompt leaves room for a response in `rollout.tokens` ({})",
            settings.tokens
        ),
    })
}

/// A run in progress.
struct Run<'a, R: Runtime> {
    config: &'a RlConfig,
    services: &'a Services<'a, R>,
    directory: RunDirectory,
    progress: Progress,
    metrics: MetricsWriter,
    objective: Box<dyn Objective>,
    problems: Vec<Arc<Problem>>,
    validation: Validation<R>,
    draw: ProblemDraw,
    trainer: Trainer,
    /// The initial model, where the algorithm has a KL term.
    reference: Option<Network>,
    engine: Arc<Engine>,
    rollouts: Option<RolloutEngine<R>>,
    /// Groups that are played beyond the step that began them.
    open: OpenGroups,
    /// The gradients of the step that is being played, where they are computed meanwhile.
    early: Option<EarlyGradients>,
}

impl<R: Runtime> Run<'_, R> {
    /// Takes all remaining steps.
    fn train(&mut self) -> Result<(), TrainError> {
        // Also where a former process was stopped during the validation, or this is the last step only now.
        let step = self.progress.position.step;
        if self.validation.is_missing(step, self.metrics.validated(step)) {
            let metrics = self.validate()?;
            self.log(step, &metrics)?;
        }
        while self.progress.position.step < self.config.steps {
            self.step()?;
            let step = self.progress.position.step;
            if step == self.config.steps || step.is_multiple_of(self.config.checkpoints.every) {
                self.save()?;
            }
        }
        Ok(())
    }

    /// One step: rollout, training, validation where it is due.
    fn step(&mut self) -> Result<(), TrainError> {
        let step = self.progress.position.step + 1;
        let _span = tracing::info_span!("step", step).entered();
        let mut metrics = Metrics::default();
        let mut stopwatch = Stopwatch::start();
        let before = self.engine.stats().sampled_tokens;
        self.early = self.begin_early();
        let (groups, position) = self.roll_out(&mut metrics)?;
        let seconds = stopwatch.lap();
        let tokens = match self.config.rollout.carries_groups() {
            // Some episodes began earlier, others have not ended.
            true => (self.engine.stats().sampled_tokens - before) as f64,
            false => {
                metrics.get("response_tokens_mean").unwrap_or(0.0)
                    * metrics.get("episodes").unwrap_or(0.0)
            }
        };
        metrics.add("tokens_per_s", tokens / seconds.max(1e-9));
        metrics.add("seconds/play", seconds);
        self.train_on(step, &groups, &mut metrics)?;
        metrics.add("seconds/learn", stopwatch.lap());
        self.progress.position = position;
        let refreshed = self.engine.refresh(self.trainer.net());
        metrics.add("seconds/refresh", stopwatch.lap());
        let validated = match refreshed {
            Ok(()) if self.is_validation_due() => self.validate(),
            refreshed => refreshed.map(|()| Metrics::default()).map_err(TrainError::from),
        };
        if let Ok(validated) = &validated {
            metrics.extend(validated);
        }
        metrics.add("seconds/validate", stopwatch.lap());
        // A completed step is logged even where the validation failed or was stopped.
        self.log(step, &metrics)?;
        validated.map(drop)
    }

    /// Whether to validate after the current step.
    fn is_validation_due(&self) -> bool {
        self.validation.is_due(self.progress.position.step)
    }

    /// Whether the weights are those of the last completed step after this error.
    fn has_intact_weights(&self, error: &TrainError) -> bool {
        match error {
            TrainError::Play(_) | TrainError::Engine(_) => true,
            TrainError::Step(error) => {
                error.leaves_weights_unchanged() && self.config.algorithm.steps_per_batch() == 1
            }
            _ => false,
        }
    }

    /// The groups of the next step, and the position after it.
    fn roll_out(&mut self, metrics: &mut Metrics) -> Result<(Vec<Group>, Position), TrainError> {
        let wanted = self.config.rollout.problems;
        let mut position = self.progress.position.clone();
        position.step += 1;
        let mut taken: HashSet<usize> = self.open_problems().collect();
        let in_play = taken.len();
        // What was in play when a former process ended begins again.
        let mut drawn: Vec<usize> = std::mem::take(&mut position.carried);
        drawn.retain(|at| *at < self.problems.len() && taken.insert(*at));
        drawn.truncate(wanted.saturating_sub(in_play));
        let mut groups: Vec<Group> = Vec::new();
        for round in 0..=self.config.algorithm.resample {
            let with_spread = groups.iter().filter(|group| group.has_spread()).count();
            let missing = wanted.saturating_sub(with_spread + in_play + drawn.len());
            let new = self.draw.draw(missing, self.problems.len(), &mut taken, &mut position);
            drawn.extend(new);
            if drawn.is_empty() && self.open.is_empty() {
                break;
            }
            match self.play(&std::mem::take(&mut drawn), position.step, round) {
                // A few bad problems must not end a step that has others.
                Err(TrainError::Play(error @ RolloutError::AllFailed { .. })) if round > 0 => {
                    self.services.note(&format!(
                        "step {}: {}",
                        position.step,
                        error_text::one_line(&error)
                    ));
                }
                more => groups.extend(more?),
            }
        }
        metrics.extend(&episodes::metrics(&groups));
        self.carry(&groups, &mut position, metrics);
        self.draw.record(&groups, &mut position);
        metrics.extend(&self.draw.metrics(&position));
        if let Some(why) = why_no_responses(metrics, &self.config.rollout) {
            self.services.note(&format!("step {}: {why}", position.step));
        }
        Ok((select(groups, wanted), position))
    }

    /// Plays groups of these problems beside those that are open, until the step closes, and reports progress.
    fn play(&mut self, drawn: &[usize], step: u64, round: usize) -> Result<Vec<Group>, TrainError> {
        let Some(rollouts) = &self.rollouts else { return Ok(Vec::new()) };
        let settings = &self.config.rollout;
        let (members, what) = (settings.members, "training");
        let all = self.open.missing() + drawn.len() * members;
        let _span = tracing::info_span!("rollout", what, episodes = all).entered();
        let name = format!("step-{step:06}-{round}");
        let events = self.directory.path().join("episodes").join(name);
        let request = RolloutRequest {
            problems: drawn.iter().map(|at| Arc::clone(&self.problems[*at])).collect(),
            members: u32::try_from(members).unwrap_or(u32::MAX),
            step,
            params: settings.sampling.params(self.config.seed),
            events: Some(events.clone()),
            cancel: self.services.cancel.clone(),
        };
        let enough = match settings.carries_groups() {
            true => settings.groups_to_close(),
            false => usize::MAX,
        };
        let mut scores = ScoreWriter::create(&events);
        let (mut done, observer) = (0, self.services.observer);
        let (early, reference) = (&mut self.early, self.reference.as_ref());
        let (config, objective, trainer) = (self.config, &*self.objective, &mut self.trainer);
        let mut learner = Learner { config, objective, trainer, reference };
        let on_progress = |progress: PlayProgress<'_>| match (progress, early.as_mut()) {
            (PlayProgress::Rollout(played), _) => {
                scores.add(played);
                done += 1;
                observer.on_event(RunEvent::Rollout { done, all, what });
            }
            (PlayProgress::Group(members), Some(early)) => {
                early.add(members, &mut learner, &self.engine);
            }
            (PlayProgress::Group(_), None) => {}
        };
        let open = &mut self.open;
        let playing = rollouts.run_beside(&self.engine, &request, open, enough, on_progress);
        let played = self.services.tokio.block_on(playing).map_err(TrainError::Play)?;
        scores.finish()?;
        Ok(played)
    }

    /// The indices of the problems whose groups are open.
    fn open_problems(&self) -> impl Iterator<Item = usize> {
        let index =
            |open: &Arc<Problem>| self.problems.iter().position(|all| Arc::ptr_eq(all, open));
        self.open.problems().filter_map(index)
    }

    /// Carries the groups that are open when a step closes into the next, but for those that have been carried before:
    /// they would be trained on two updates after their first tokens.
    fn carry(&mut self, groups: &[Group], position: &mut Position, metrics: &mut Metrics) {
        if !self.config.rollout.carries_groups() {
            return;
        }
        let dropped = self.open.drop_before(position.step);
        if dropped > 0 {
            self.services.note(&format!(
                "step {}: {dropped} groups of the step before are not complete yet and are dropped; a higher \
                 `rollout.close_at` or a lower `rollout.timeout` keeps them",
                position.step
            ));
        }
        position.carried = self.open_problems().collect();
        metrics.add("carried_groups", self.open.len() as f64);
        metrics.add("dropped_groups", dropped as f64);
        let share = episodes::off_policy_share(groups, self.engine.version());
        metrics.add("off_policy_tokens", share);
    }

    /// Trains on groups, in one optimizer step or in several.
    fn train_on(
        &mut self,
        step: u64,
        groups: &[Group],
        metrics: &mut Metrics,
    ) -> Result<(), TrainError> {
        let learning_rate = self.config.optimizer.learning_rate_at(step, self.config.steps);
        let all = match self.early.take() {
            Some(early) => vec![self.finish_early(early, groups, learning_rate, metrics)?],
            None => self.train_in_steps(groups, learning_rate)?,
        };
        let notes = episodes::notes(groups).0;
        notes.iter().for_each(|note| self.services.note(&format!("step {step}: {note}")));
        for why in all.iter().filter_map(|stats| stats.skipped) {
            self.services.note(&format!("step {step}: the weights are unchanged: {why}"));
        }
        metrics.add("lr", learning_rate);
        add_stats(&all, metrics);
        Ok(())
    }

    /// Takes one or several optimizer steps with the rows of groups.
    fn train_in_steps(
        &mut self,
        groups: &[Group],
        learning_rate: f64,
    ) -> Result<Vec<StepStats>, TrainError> {
        let settings = &self.config.algorithm;
        // The sampler has its own copy of an adapter; all other weights are the trainer's.
        let holds = self.open.is_playing() && self.config.lora.is_none();
        if self.open.is_playing() {
            self.engine.prepare_update()?;
        }
        let mut learner = self.learner();
        let mut batches = Vec::new();
        for part in split(groups, settings.mini_batches()) {
            let (members, keep) = (learner.config.rollout.members, learner.keep());
            let mut rows = episodes::rows(part, members, learner.objective, keep);
            learner.score(&mut rows)?;
            batches.push(rows);
        }
        let mut all = Vec::new();
        for rows in (0..settings.epochs()).flat_map(|_| &batches) {
            let mut gradients = Gradients::default();
            self.learner().add(&mut gradients, rows.clone())?;
            if holds {
                // A sampler that has stopped reads nothing; the refresh reports it.
                let _ = self.engine.hold();
            }
            all.push(self.optimizer_step(&gradients, 1.0, learning_rate)?);
        }
        Ok(all)
    }

    /// Takes the optimizer step whose gradients were computed while episodes were played.
    fn finish_early(
        &mut self,
        early: EarlyGradients,
        groups: &[Group],
        learning_rate: f64,
        metrics: &mut Metrics,
    ) -> Result<StepStats, TrainError> {
        metrics.add("seconds/learn_beside", early.seconds());
        let (gradients, scale) = early.finish(groups, &mut self.learner())?;
        self.optimizer_step(&gradients, scale, learning_rate)
    }

    fn optimizer_step(
        &mut self,
        gradients: &Gradients,
        scale: f64,
        learning_rate: f64,
    ) -> Result<StepStats, TrainError> {
        let mut stats = self.trainer.step_with(gradients, scale, learning_rate)?;
        if gradients.is_empty() {
            stats.skipped = Some(NO_SPREAD);
        }
        Ok(stats)
    }

    /// Where gradients are computed while episodes are played, those of the step that is about to begin. The first step of
    /// a process is played alone: the sampler records its CUDA graphs then.
    fn begin_early(&self) -> Option<EarlyGradients> {
        let episodes = self.config.rollout.episodes();
        (self.config.rollout.overlap && self.engine.version() > 0)
            .then(|| EarlyGradients::new(episodes))
    }

    fn learner(&mut self) -> Learner<'_> {
        Learner {
            config: self.config,
            objective: &*self.objective,
            trainer: &mut self.trainer,
            reference: self.reference.as_ref(),
        }
    }

    /// The metrics of the held-out sets that are due.
    fn validate(&self) -> Result<Metrics, TrainError> {
        let (run, step) = (self.directory.path(), self.progress.position.step);
        self.validation.run(&self.engine, &Occasion { run, step, services: self.services })
    }

    fn log(&mut self, step: u64, metrics: &Metrics) -> Result<(), TrainError> {
        self.metrics.add(step, metrics).map_err(FileError::new("write", self.directory.path()))?;
        let steps = self.config.steps;
        self.services.observer.on_event(RunEvent::Step { step, steps, metrics });
        Ok(())
    }

    fn save(&mut self) -> Result<(), TrainError> {
        self.progress.save(&self.trainer, self.services)
    }

    /// Ends open groups, and removes the sandboxes that were created in advance.
    fn close(&mut self) {
        self.services.tokio.block_on(self.open.close());
        if let Some(rollouts) = self.rollouts.take()
            && let Err(error) = self.services.tokio.block_on(rollouts.close())
        {
            self.services.note(&format!("sandboxes may be left behind: {error}"));
        }
    }
}

/// At most `wanted` groups: those with spread before those without, otherwise in their order.
fn select(groups: Vec<Group>, wanted: usize) -> Vec<Group> {
    let mut groups: Vec<(usize, Group)> = groups.into_iter().enumerate().collect();
    groups.sort_by_key(|(at, group)| (!group.has_spread(), *at));
    groups.truncate(wanted);
    groups.sort_by_key(|(at, _)| *at);
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Splits items into `count` parts whose sizes differ by at most one; fewer parts where there are fewer items.
fn split<T>(items: &[T], count: usize) -> impl Iterator<Item = &[T]> {
    let count = count.clamp(1, items.len().max(1));
    let bound = move |part: usize| items.len() * part / count;
    (0..count).map(move |part| &items[bound(part)..bound(part + 1)])
}

fn loss_kind<'a>(config: &RlConfig, objective: &'a dyn Objective) -> LossKind<'a> {
    let importance = config.algorithm.importance.map(|cap| ImportanceSampling { cap });
    LossKind::Policy { objective, importance }
}

/// Adds the statistics of one or several optimizer steps, weighted by their trained tokens.
fn add_stats(all: &[StepStats], metrics: &mut Metrics) {
    let tokens: usize = all.iter().map(|stats| stats.trained_tokens).sum();
    // Without tokens the means are undefined.
    let mean = |of: fn(&StepStats) -> f64| match tokens {
        0 => f64::NAN,
        _ => {
            let weighted = all.iter().map(|stats| of(stats) * stats.trained_tokens as f64);
            weighted.sum::<f64>() / tokens as f64
        }
    };
    let sum = |of: fn(&StepStats) -> f64| all.iter().map(of).sum::<f64>();
    metrics.add("loss", sum(|stats| stats.loss) / all.len().max(1) as f64);
    metrics.add("entropy", mean(|stats| stats.entropy));
    metrics.add("kl_to_sampler", mean(|stats| stats.kl_to_sampler));
    metrics.add("clip_fraction", mean(|stats| stats.clip_fraction));
    metrics.add("grad_norm", sum(|stats| stats.grad_norm) / all.len().max(1) as f64);
    metrics.add("learnt_tokens", tokens as f64);
    metrics.add("computed_tokens", sum(|stats| stats.computed_tokens as f64));
    metrics.add("skipped_steps", sum(|stats| f64::from(u8::from(stats.skipped.is_some()))));
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[path = "rl/rl_tests.rs"]
mod tests;
