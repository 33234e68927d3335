//! The loop of reinforcement learning: problems are drawn, groups of episodes played, advantages learnt from, and the
//! sampler takes over what was learnt.
//!
//! Everything that is chance follows from the seed and the step, so that a run that was killed goes on as if it had not
//! been. Knows neither flags nor terminals.

use std::{collections::HashSet, sync::Arc};

use policy::{Engine, Net, Sharing};
use problems::{Problem, Task};
use rollout::{Group, Order, Overlong, PlayError, Played, Reward, Scene, Speech, Stage};
use sandbox::Runtime;

use crate::{
    batch::Row,
    chance::Deck,
    checkpoint::{Checkpoints, Position},
    config::{AlgorithmName, Old, RlConfig},
    data,
    episodes::{self, Keep},
    learner::{Importance, Learner, Learnt, Lesson},
    metrics::{Figures, Metrics},
    news::News,
    objective::Objective,
    origin::Start,
    outside::{Clock, Ending, Outside, TrainError, chain},
    run::RunDirectory,
    sampler::EngineSampler,
};

/// Why there is nothing to learn from.
const NO_SPREAD: &str =
    "no group has rewards that differ; a warm start, easier problems or `resample` would help";

/// Trains as the configuration says, from where the run stands.
pub fn rl<R: Runtime>(config: &RlConfig, outside: &Outside<'_, R>) -> Result<Ending, TrainError> {
    let mut run = Run::begin(config, outside)?;
    let trained = run.train();
    run.close();
    match trained {
        Err(TrainError::Play(PlayError::Stopped)) => {
            run.save()?;
            Ok(Ending::Stopped(run.position.step))
        }
        // The step before stays learnt.
        Err(error) if run.is_whole_after(&error) => {
            if let Err(unsaved) = run.save() {
                outside.note(&format!("what was learnt cannot be saved: {}", chain(&unsaved)));
            }
            Err(error)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(Ending::Complete),
    }
}

/// A run under way.
struct Run<'a, R: Runtime> {
    config: &'a RlConfig,
    outside: &'a Outside<'a, R>,
    directory: RunDirectory,
    checkpoints: Checkpoints,
    /// The step that was saved last.
    saved: Option<u64>,
    metrics: Metrics,
    objective: Box<dyn Objective>,
    problems: Vec<Arc<Problem>>,
    validation: Vec<Arc<Problem>>,
    deck: Deck,
    learner: Learner,
    /// The model as it was, where the algorithm holds on to it.
    reference: Option<Net>,
    sampler: Arc<EngineSampler>,
    stage: Option<Stage<R>>,
    position: Position,
}

impl<R: Runtime> Run<'_, R> {
    /// Goes through all steps that are left.
    fn train(&mut self) -> Result<(), TrainError> {
        // Also where a former process was stopped in the midst of it.
        if self.is_due() && self.metrics.validated() != Some(self.position.step) {
            let figures = self.validate()?;
            self.log(self.position.step, &figures)?;
        }
        while self.position.step < self.config.steps {
            let mut figures = Figures::default();
            let mut clock = Clock::start();
            let (groups, position) = self.play(&mut figures)?;
            let played = clock.lap();
            let tokens = figures.get("response_tokens_mean").unwrap_or(0.0)
                * figures.get("episodes").unwrap_or(0.0);
            figures.add("tokens_per_s", tokens / played.max(1e-9));
            figures.add("seconds/play", played);
            self.learn(position.step, &groups, &mut figures)?;
            figures.add("seconds/learn", clock.lap());
            self.position = position;
            let shown = self.show();
            if let Ok(validated) = &shown {
                figures.extend(validated);
            }
            figures.add("seconds/validate", clock.lap());
            // A step that was taken is written down, also where what followed failed or was stopped.
            self.log(self.position.step, &figures)?;
            shown?;
            let last = self.position.step == self.config.steps;
            if last || self.position.step.is_multiple_of(self.config.checkpoints.every) {
                self.save()?;
            }
        }
        Ok(())
    }

    /// Gives the sampler what was learnt, and tries it on held-out problems where it is time.
    fn show(&self) -> Result<Figures, TrainError> {
        self.sampler.0.refresh(self.learner.net())?;
        if self.is_due() { self.validate() } else { Ok(Figures::default()) }
    }

    /// Whether held-out problems are to be played at this step: before the first, then now and then, and after the last.
    fn is_due(&self) -> bool {
        let step = self.position.step;
        let due = step == 0 || self.config.validation.is_due(step, self.config.steps);
        due && !self.validation.is_empty()
    }

    /// Whether the weights are those of the last step that was taken, after this went wrong.
    fn is_whole_after(&self, error: &TrainError) -> bool {
        match error {
            TrainError::Play(_) | TrainError::Engine(_) => true,
            TrainError::Learn(error) => {
                error.is_before_a_step() && self.config.algorithm.steps_per_batch() == 1
            }
            _ => false,
        }
    }

    /// The groups of the next step, and where the run will stand after it.
    fn play(&mut self, figures: &mut Figures) -> Result<(Vec<Group>, Position), TrainError> {
        let wanted = self.config.rollout.problems;
        let mut position = Position { step: self.position.step + 1, ..self.position };
        let mut taken = HashSet::new();
        let mut played: Vec<Group> = Vec::new();
        for round in 0..=self.config.algorithm.resample {
            let telling = played.iter().filter(|group| group.has_spread()).count();
            let problems = self.draw(wanted.saturating_sub(telling), &mut taken, &mut position);
            if problems.is_empty() {
                break;
            }
            let name = format!("step-{:06}-{round}", position.step);
            let choice = self.config.rollout.sampling.choice(self.config.seed);
            let members = self.config.rollout.members;
            let more = self.perform(problems, members, position.step, choice, &name, "training");
            match more {
                // A few bad problems must not end a step that has others.
                Err(TrainError::Play(error @ PlayError::NothingPlayed { .. })) if round > 0 => {
                    self.outside.note(&format!("step {}: {}", position.step, chain(&error)));
                }
                more => played.extend(more?),
            }
        }
        figures.extend(&episodes::figures(&played));
        if figures.get("turns_mean") == Some(0.0) {
            let (step, most) = (position.step, self.config.rollout.tokens);
            let text = format!(
                "step {step}: no prompt leaves room for a reply in `rollout.tokens` ({most})"
            );
            self.outside.note(&text);
        }
        Ok((chosen(played, wanted), position))
    }

    /// Problems that were not drawn in this step yet.
    fn draw(
        &self,
        count: usize,
        taken: &mut HashSet<usize>,
        position: &mut Position,
    ) -> Vec<Arc<Problem>> {
        let count = count.min(self.problems.len() - taken.len());
        let mut drawn = Vec::with_capacity(count);
        while drawn.len() < count {
            for at in self.deck.draw(position.drawn, 1) {
                if taken.insert(at) {
                    drawn.push(Arc::clone(&self.problems[at]));
                }
            }
            position.drawn += 1;
        }
        drawn
    }

    /// Plays episodes and tells how far they are.
    fn perform(
        &self,
        problems: Vec<Arc<Problem>>,
        members: usize,
        step: u64,
        choice: rollout::Choice,
        name: &str,
        what: &str,
    ) -> Result<Vec<Group>, TrainError> {
        let Some(stage) = &self.stage else { return Ok(Vec::new()) };
        let all = problems.len() * members;
        let order = Order {
            problems,
            members: u32::try_from(members).unwrap_or(u32::MAX),
            step,
            choice,
            events: Some(self.directory.path().join("episodes").join(name)),
            watch: self.outside.watch.clone(),
        };
        let (mut done, watcher) = (0, self.outside.watcher);
        let hear = |_: &Played| {
            done += 1;
            watcher.hear(News::Playing { done, all, what });
        };
        let playing = stage.play(&self.sampler, &order, hear);
        self.outside.tokio.block_on(playing).map_err(TrainError::Play)
    }

    /// Learns from groups, in one step or in several.
    fn learn(
        &mut self,
        step: u64,
        groups: &[Group],
        figures: &mut Figures,
    ) -> Result<(), TrainError> {
        let settings = &self.config.algorithm;
        let keep = if self.reference.is_some() { Keep::All } else { Keep::WithAdvantage };
        let mut batches = Vec::new();
        for part in parts(groups, settings.mini_batches()) {
            let (rows, notes) =
                episodes::rows(part, self.config.rollout.members, &*self.objective, keep);
            notes.0.iter().for_each(|note| self.outside.note(&format!("step {step}: {note}")));
            batches.push(rows);
        }
        self.score(&mut batches)?;
        let rate = self.config.optimiser.rate_at(step, self.config.steps);
        let lesson = lesson(self.config, &*self.objective);
        let mut all = Vec::new();
        for rows in (0..settings.epochs()).flat_map(|_| &batches) {
            let learnt = self.learner.step(rows, rate, lesson)?;
            if let Some(why) = learnt.skipped {
                let why = if rows.is_empty() { NO_SPREAD } else { why };
                self.outside.note(&format!("step {step}: the weights stay as they are: {why}"));
            }
            all.push(learnt);
        }
        figures.add("lr", rate);
        add_learnt(&all, figures);
        Ok(())
    }

    /// Gives rows the log-probs they have to be compared with.
    fn score(&mut self, batches: &mut [Vec<Row>]) -> Result<(), TrainError> {
        let settings = &self.config.algorithm;
        let recomputed = settings.old == Old::Recomputed || settings.steps_per_batch() > 1;
        for rows in batches {
            if recomputed {
                let scores = self.learner.score(rows)?;
                rows.iter_mut().zip(scores).for_each(|(row, old)| row.old = old);
            }
            if let Some(reference) = &self.reference {
                let scores = self.learner.score_by(reference, rows)?;
                rows.iter_mut().zip(scores).for_each(|(row, found)| row.reference = found);
            }
        }
        Ok(())
    }

    /// The figures of the held-out problems, always played with the same chance.
    fn validate(&self) -> Result<Figures, TrainError> {
        let settings = &self.config.validation;
        let choice = settings.sampling.choice(self.config.seed ^ 1);
        let name = format!("validation-{:06}", self.position.step);
        let problems = self.validation.clone();
        let groups = self.perform(problems, settings.members, 0, choice, &name, "validation")?;
        Ok(episodes::figures(&groups).of_kind("validation"))
    }

    fn log(&mut self, step: u64, figures: &Figures) -> Result<(), TrainError> {
        let path = self.directory.path().to_owned();
        self.metrics.add(step, figures).map_err(|source| TrainError::Figures { path, source })?;
        self.outside.watcher.hear(News::Step { step, steps: self.config.steps, figures });
        Ok(())
    }

    /// Saves the run as it stands, unless it is saved already.
    fn save(&mut self) -> Result<(), TrainError> {
        let step = self.position.step;
        if self.saved == Some(step) || step == 0 {
            return Ok(());
        }
        self.checkpoints.save(&self.position, &self.learner.memory()?)?;
        self.saved = Some(step);
        self.outside.watcher.hear(News::Saved { step });
        Ok(())
    }

    /// Removes the sandboxes that were made ahead.
    fn close(&mut self) {
        if let Some(stage) = self.stage.take()
            && let Err(error) = self.outside.tokio.block_on(stage.close())
        {
            self.outside.note(&format!("sandboxes may be left: {error}"));
        }
    }
}

impl<'a, R: Runtime> Run<'a, R> {
    /// Makes everything ready, and goes on where a former process stopped.
    fn begin(config: &'a RlConfig, outside: &'a Outside<'a, R>) -> Result<Self, TrainError> {
        let task = data::task(&config.data.task)?;
        let problems = drawn_from(&task, config, outside)?;
        let validation = held_out(&task, config, outside)?;
        let start = Start::from(config);
        let (origin, machine) = start.settle()?;
        let speech = Arc::new(Speech::load(&config.model)?);
        let mut learner = start.learner(origin, machine)?.at(config.rollout.sampling.temperature);
        let held = config.algorithm.kl > 0.0;
        let reference = held.then(|| start.reference(origin, machine)).transpose()?;
        // Not before: a run whose input is at fault has not begun.
        let directory = RunDirectory::open(&config.output, config)?;
        origin.keep(&directory)?;
        let checkpoints = Checkpoints::of(directory.path(), config.checkpoints.keep);
        let mut position = Position::default();
        let mut saved = None;
        if let Some((found, memory)) = checkpoints.last()? {
            learner.recall(&memory)?;
            saved = Some(found.step);
            position = found;
        }
        let metrics = Metrics::open(directory.path(), saved).map_err(|source| {
            let path = directory.path().to_owned();
            TrainError::Figures { path, source }
        })?;
        let settings = engine_settings(config, learner.net(), validation.len());
        let longest = settings.length;
        let engine = Arc::new(Engine::start(learner.net(), settings)?);
        let objective = config.algorithm.objective(config.rollout.tokens);
        // Before anything is played: what does not fit is told at once.
        if machine.device.is_cuda() && position.step < config.steps {
            learner.rehearse(longest, lesson(config, &*objective))?;
        }
        if let Some(why) = engine.unrecorded().filter(|_| machine.device.is_cuda()) {
            outside.note(&format!("sampling goes without CUDA graphs: {why}"));
        }
        let what = format!("{} parameters on {}", learner.numbers(), machine.shown());
        outside.watcher.hear(News::Begun { step: position.step, steps: config.steps, what: &what });
        let stage = stage(speech, task, config, outside).map_err(TrainError::Play)?;
        Ok(Self {
            config,
            outside,
            checkpoints,
            saved,
            metrics,
            objective,
            deck: Deck::new(config.seed, problems.len()),
            problems,
            validation,
            learner,
            reference,
            sampler: Arc::new(EngineSampler(engine)),
            stage: Some(stage),
            position,
            directory,
        })
    }
}

/// The problems that steps draw from.
fn drawn_from<R: Runtime>(
    task: &Task,
    config: &RlConfig,
    outside: &Outside<'_, R>,
) -> Result<Vec<Arc<Problem>>, TrainError> {
    if config.steps == 0 {
        return Ok(Vec::new());
    }
    let (problems, notes) =
        data::problems(task, &config.data.train, "data.train", config.rollout.problems)?;
    notes.iter().for_each(|note| outside.note(note));
    Ok(problems.into_iter().map(Arc::new).collect())
}

/// The problems that are never trained on.
fn held_out<R: Runtime>(
    task: &Task,
    config: &RlConfig,
    outside: &Outside<'_, R>,
) -> Result<Vec<Arc<Problem>>, TrainError> {
    if config.validation.every == 0 && config.steps > 0 {
        return Ok(Vec::new());
    }
    let files = &config.data.validation;
    let least = usize::from(!files.is_empty());
    let (problems, notes) = data::problems(task, files, "data.validation", least)?;
    notes.iter().for_each(|note| outside.note(note));
    let most = match config.validation.problems {
        0 => usize::MAX,
        most => most,
    };
    Ok(problems.into_iter().take(most).map(Arc::new).collect())
}

fn stage<R: Runtime>(
    speech: Arc<Speech>,
    task: Task,
    config: &RlConfig,
    outside: &Outside<'_, R>,
) -> Result<Stage<R>, PlayError> {
    let overlong = match config.algorithm.name {
        AlgorithmName::GrpoPlusPlus => Overlong::Mask,
        AlgorithmName::Rloo | AlgorithmName::Grpo => Overlong::Zero,
    };
    let (method, runtime) = (config.rollout.method(overlong), outside.runtime.clone());
    let _within = outside.tokio.enter();
    Stage::new(Scene { speech, task, method, reward: Reward::Grader, runtime })
}

/// So many groups: those that tell something before those that do not, then in the order in which they were drawn.
fn chosen(played: Vec<Group>, wanted: usize) -> Vec<Group> {
    let mut groups: Vec<(usize, Group)> = played.into_iter().enumerate().collect();
    groups.sort_by_key(|(at, group)| (!group.has_spread(), *at));
    groups.truncate(wanted);
    groups.sort_by_key(|(at, _)| *at);
    groups.into_iter().map(|(_, group)| group).collect()
}

/// So many parts that differ in size by one at most; fewer where there are not as many.
fn parts<T>(all: &[T], count: usize) -> impl Iterator<Item = &[T]> {
    let count = count.clamp(1, all.len().max(1));
    (0..count).map(move |part| &all[all.len() * part / count..all.len() * (part + 1) / count])
}

fn lesson<'a>(config: &RlConfig, objective: &'a dyn Objective) -> Lesson<'a> {
    let importance = config.algorithm.importance.map(|most| Importance { most });
    Lesson::Improve { objective, importance }
}

fn engine_settings(config: &RlConfig, net: &Net, held_out: usize) -> policy::Settings {
    let positions = usize::try_from(net.shape().positions).unwrap_or(usize::MAX);
    let measured = held_out * config.validation.members;
    policy::Settings {
        slots: config.rollout.slots(measured),
        length: config.rollout.tokens.min(positions),
        recording: policy::Recording::WherePossible,
        most_memory: None,
        // On a processor the same run is to give the same numbers.
        sharing: if net.device().is_cuda() { Sharing::On } else { Sharing::Off },
    }
}

/// The figures of one or several steps of the optimiser.
fn add_learnt(all: &[Learnt], figures: &mut Figures) {
    let tokens: usize = all.iter().map(|learnt| learnt.learnt).sum();
    // Where nothing was learnt there is nothing to tell.
    let mean = |of: fn(&Learnt) -> f64| match tokens {
        0 => f64::NAN,
        _ => {
            all.iter().map(|learnt| of(learnt) * learnt.learnt as f64).sum::<f64>() / tokens as f64
        }
    };
    let sum = |of: fn(&Learnt) -> f64| all.iter().map(of).sum::<f64>();
    figures.add("loss", sum(|learnt| learnt.loss) / all.len().max(1) as f64);
    figures.add("entropy", mean(|learnt| learnt.entropy));
    figures.add("kl_to_sampler", mean(|learnt| learnt.divergence));
    figures.add("clip_fraction", mean(|learnt| learnt.clipped));
    figures.add("grad_norm", sum(|learnt| learnt.gradient) / all.len().max(1) as f64);
    figures.add("learnt_tokens", tokens as f64);
    figures.add("computed_tokens", sum(|learnt| learnt.computed as f64));
    figures.add("skipped_steps", sum(|learnt| f64::from(u8::from(learnt.skipped.is_some()))));
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[path = "rl_tests.rs"]
mod tests;
