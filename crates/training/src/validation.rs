//! Validation: plays the held-out sets that are due, all at once, and stores what became of every episode.
//!
//! Sets share the sampler's slots and the sandboxes, so that the last episodes of one overlap with the first of the next.
//! A set that is complete is not played again when an interrupted validation is repeated. Knows no trainer: any sampler
//! will do.

mod results;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use problems::{Problem, Task};
use rollout::{
    ChatCodec, EngineParts, Mode, Overlong, Reward, Rollout, RolloutEngine, RolloutError,
    RolloutRequest, Sampler,
};
use sandbox::Runtime;

use crate::{
    config::{AlgorithmName, ResolvedSet, RlConfig, RolloutSettings},
    data::{self, DataError},
    events::RunEvent,
    file_error::FileError,
    metrics::Metrics,
    services::{Services, TrainError},
};

pub(crate) use results::remove_after;

/// A set with its task and problems, before there is anything to play them with.
pub(crate) struct LoadedSet {
    settings: ResolvedSet,
    task: Task,
    problems: Vec<Arc<Problem>>,
}

impl LoadedSet {
    /// The number of episodes.
    pub(crate) fn episodes(&self) -> usize {
        self.problems.len() * self.settings.settings.members
    }

    /// The maximum number of tokens of an episode.
    pub(crate) fn tokens(&self) -> usize {
        self.settings.rollout.tokens
    }
}

/// Loads the tasks and problems of the sets that a run measures.
pub(crate) fn load<R: Runtime>(
    config: &RlConfig,
    services: &Services<'_, R>,
) -> Result<Vec<LoadedSet>, DataError> {
    let load = |settings: ResolvedSet| {
        let task = data::task(&settings.task)?;
        let own = task.data.clone().filter(|_| settings.data.is_empty());
        let files = match own {
            Some(file) => vec![file],
            None => settings.data.clone(),
        };
        let key = settings.data_key();
        let (problems, notes) = data::problems(&task, &files, &key, 0)?;
        notes.iter().for_each(|note| services.note(note));
        let most = match settings.settings.problems {
            0 => usize::MAX,
            most => most,
        };
        let problems = problems.into_iter().take(most).map(Arc::new).collect();
        Ok(LoadedSet { settings, task, problems })
    };
    config.validation_sets().into_iter().map(load).collect()
}

/// The rollout engines of a run: for training where there are steps, and for every set. They share sandboxes and the limit
/// on concurrent episodes.
pub(crate) fn engines<R: Runtime>(
    codec: Arc<ChatCodec>,
    task: Task,
    sets: Vec<LoadedSet>,
    config: &RlConfig,
    services: &Services<'_, R>,
) -> Result<(RolloutEngine<R>, Validation<R>), RolloutError> {
    let _guard = services.tokio.enter();
    let overlong = match config.algorithm.name {
        AlgorithmName::GrpoPlusPlus => Overlong::Mask,
        AlgorithmName::Rloo | AlgorithmName::Grpo => Overlong::Zero,
    };
    let episodes = episodes_at_once(config, &sets);
    let settings_of = |rollout: &RolloutSettings| {
        let settings = rollout.engine_settings(overlong);
        rollout::RolloutSettings { episodes, ..settings }
    };
    // What all engines share: it has sandboxes created ahead if any of them plays in sandboxes.
    let mode = if config.plays_in_sandboxes() { Mode::Sandbox } else { Mode::Llm };
    let base = RolloutEngine::new(EngineParts {
        codec,
        task: sets.first().filter(|_| config.steps == 0).map_or(&task, |set| &set.task).clone(),
        settings: rollout::RolloutSettings { mode, ..settings_of(&config.rollout) },
        reward: Reward::Grader,
        runtime: services.runtime.clone(),
    })?;
    let sets = sets.into_iter().map(|LoadedSet { settings, task, problems }| {
        let engine = base.for_task(task, settings_of(&settings.rollout))?;
        Ok(ValidationSet { engine, settings, problems })
    });
    let sets = sets.collect::<Result<_, RolloutError>>()?;
    let training = match config.steps {
        0 => base,
        _ => {
            // Only what is trained on is shaped: held-out rewards are scores.
            let shaping = config.reward.shaping();
            let settings = settings_of(&config.rollout);
            base.for_task(task, rollout::RolloutSettings { shaping, ..settings })?
        }
    };
    Ok((training, Validation { sets, seed: config.seed, steps: config.steps }))
}

/// Episodes of a whole validation.
pub(crate) fn episodes(sets: &[LoadedSet]) -> usize {
    sets.iter().map(LoadedSet::episodes).sum()
}

fn episodes_at_once(config: &RlConfig, sets: &[LoadedSet]) -> usize {
    let (training, validation) = (config.training_episodes(), episodes(sets));
    let at_once = config.rollout.episodes_at_once(training, validation);
    at_once.max(config.rollout.slots(training, validation))
}

/// A set that can be played.
struct ValidationSet<R: Runtime> {
    settings: ResolvedSet,
    problems: Vec<Arc<Problem>>,
    engine: RolloutEngine<R>,
}

/// All sets of a run.
pub(crate) struct Validation<R: Runtime> {
    sets: Vec<ValidationSet<R>>,
    seed: u64,
    /// The steps of the run.
    steps: u64,
}

/// Where and when a validation takes place.
pub(crate) struct Occasion<'a, R: Runtime> {
    /// The run directory.
    pub(crate) run: &'a Path,
    /// The last completed step.
    pub(crate) step: u64,
    pub(crate) services: &'a Services<'a, R>,
}

impl<R: Runtime> Validation<R> {
    /// Whether a set is due after a step: before the first, every few, and after the last.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        self.due(step).next().is_some()
    }

    /// Whether a set that is due after a step was not measured then, given the names of the metrics logged for it. Sets
    /// become due later where a resumed run has fewer steps than before.
    pub(crate) fn is_missing(&self, step: u64, logged: &[String]) -> bool {
        self.due(step).any(|set| {
            let prefix = format!("{}/", set.metric_prefix());
            !logged.iter().any(|name| name.starts_with(&prefix))
        })
    }

    fn due(&self, step: u64) -> impl Iterator<Item = &ValidationSet<R>> {
        let is_due = move |set: &&ValidationSet<R>| {
            step == 0 || set.settings.settings.is_due(step, self.steps)
        };
        self.sets.iter().filter(is_due)
    }

    /// Plays the sets that are due, except those that an interrupted validation of this step has completed, and returns
    /// the metrics of all of them. All are played to their end, even where one fails.
    pub(crate) fn run<S: Sampler>(
        &self,
        sampler: &Arc<S>,
        at: &Occasion<'_, R>,
    ) -> Result<Metrics, TrainError> {
        let _span = tracing::info_span!("validation", step = at.step).entered();
        let due: Vec<&ValidationSet<R>> = self.due(at.step).collect();
        let stored = due.iter().map(|set| results::completed(at.run, at.step, self.settings(set)));
        let stored: Vec<Option<Metrics>> = stored.collect();
        let missing = || due.iter().zip(&stored).filter(|(_, stored)| stored.is_none());
        let progress = Progress {
            done: AtomicUsize::new(0),
            all: missing().map(|(set, _)| set.episodes()).sum(),
        };
        let playing = missing().map(|(set, _)| self.play(set, sampler, at, &progress));
        let mut played =
            at.services.tokio.block_on(futures_util::future::join_all(playing)).into_iter();
        let mut metrics = Metrics::default();
        for (set, stored) in due.iter().zip(stored) {
            let of_set = match stored {
                Some(stored) => stored,
                None => played.next().unwrap_or_else(|| Ok(Metrics::default()))?,
            };
            metrics.extend(&of_set.with_prefix(&set.metric_prefix()));
        }
        Ok(metrics)
    }

    fn settings<'a>(&self, set: &'a ValidationSet<R>) -> results::Settings<'a> {
        results::Settings { set: &set.settings, seed: self.seed }
    }

    /// Plays a set, always with the same seeds, and stores its results.
    async fn play<S: Sampler>(
        &self,
        set: &ValidationSet<R>,
        sampler: &Arc<S>,
        at: &Occasion<'_, R>,
        progress: &Progress,
    ) -> Result<Metrics, TrainError> {
        let Occasion { run, step, services } = at;
        let settings = &set.settings.settings;
        let mut events = run.join("episodes").join(format!("validation-{step:06}"));
        events.extend(&set.settings.name);
        let request = RolloutRequest {
            problems: set.problems.clone(),
            members: u32::try_from(settings.members).unwrap_or(u32::MAX),
            step: 0,
            params: settings.sampling.params(self.seed ^ 1),
            events: Some(events),
            cancel: services.cancel.clone(),
        };
        let observer = services.observer;
        let on_episode = |_: &Rollout| {
            let (done, all) = (1 + progress.done.fetch_add(1, Ordering::Relaxed), progress.all);
            observer.on_event(RunEvent::Rollout { done, all, what: "validation" });
        };
        let groups = set.engine.run(sampler, &request, on_episode).await;
        let groups = groups.map_err(TrainError::Play)?;
        let metrics = results::metrics(&groups);
        let stored =
            results::Results { problems: &set.problems, groups: &groups, metrics: &metrics };
        let written = stored.write(run, *step, self.settings(set));
        written.map_err(FileError::new("write", run))?;
        let name = set.settings.name.as_deref();
        observer.on_event(RunEvent::Validated { step: *step, set: name, metrics: &metrics });
        Ok(metrics)
    }
}

/// How far the sets of a validation are, together.
struct Progress {
    done: AtomicUsize,
    all: usize,
}

impl<R: Runtime> ValidationSet<R> {
    fn episodes(&self) -> usize {
        self.problems.len() * self.settings.settings.members
    }

    /// The prefix of its metrics.
    fn metric_prefix(&self) -> String {
        match &self.settings.name {
            None => "validation".to_owned(),
            Some(name) => format!("validation/{name}"),
        }
    }
}
