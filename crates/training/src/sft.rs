//! The loop of supervised learning: recorded episodes and scripted demonstrations become token sequences, just as a
//! policy would have lived through them, and their replies are learnt.
//!
//! Knows neither flags nor terminals.

use std::{path::PathBuf, sync::Arc};

use agent::tools::Tools;
use policy::Net;
use problems::Task;
use rollout::{DemonstrationError, PlayError, Segment, Speech, demonstration};
use sandbox::Runtime;

use crate::{
    batch::Row,
    chance::Deck,
    checkpoint::{Checkpoints, Position},
    config::SftConfig,
    data, demonstrations,
    learner::{Learner, Lesson},
    metrics::{Figures, Metrics},
    news::News,
    origin::Start,
    outside::{Clock, Ending, Outside, TrainError, chain},
    recorded::{self, Conversation},
    run::RunDirectory,
};

/// So much of what was left out is named.
const NAMED: usize = 5;

/// Trains as the configuration says, from where the run stands.
pub fn sft<R: Runtime>(config: &SftConfig, outside: &Outside<'_, R>) -> Result<Ending, TrainError> {
    let task = data::task(config.data.task())?;
    let start = Start::from(config);
    let (origin, machine) = start.settle()?;
    let speech = Arc::new(Speech::load(&config.model)?);
    let learner = start.learner(origin, machine)?;
    // Not before: a run whose input is at fault has not begun.
    let directory = RunDirectory::open(&config.output, config)?;
    origin.keep(&directory)?;
    let episodes = match episodes(config, &directory, &task, &speech, learner.net(), outside) {
        Err(TrainError::Play(PlayError::Stopped)) => return Ok(Ending::Stopped(0)),
        episodes => episodes?,
    };
    let checkpoints = Checkpoints::of(directory.path(), config.checkpoints.keep);
    let seen = config.epochs.saturating_mul(episodes.len() as u64);
    let mut run = Run {
        config,
        checkpoints,
        learner,
        deck: Deck::new(config.seed, episodes.len()),
        steps: seen.div_ceil(config.batch as u64),
        episodes,
        position: Position::default(),
        saved: None,
    };
    if let Some((position, memory)) = run.checkpoints.last()? {
        run.learner.recall(&memory)?;
        run.saved = Some(position.step);
        run.position = position;
    }
    let what = format!(
        "{} parameters on {} from {} episodes",
        run.learner.numbers(),
        machine.shown(),
        run.episodes.len()
    );
    outside.watcher.hear(News::Begun { step: run.position.step, steps: run.steps, what: &what });
    run.train(&directory, outside)
}

/// A run under way. An episode is the rows of its segments.
struct Run<'a> {
    config: &'a SftConfig,
    checkpoints: Checkpoints,
    learner: Learner,
    deck: Deck,
    episodes: Vec<Vec<Row>>,
    steps: u64,
    position: Position,
    /// The step that was saved last.
    saved: Option<u64>,
}

impl Run<'_> {
    fn train<R: Runtime>(
        &mut self,
        directory: &RunDirectory,
        outside: &Outside<'_, R>,
    ) -> Result<Ending, TrainError> {
        let failed = |source| TrainError::Figures { path: directory.path().to_owned(), source };
        let mut metrics = Metrics::open(directory.path(), self.saved).map_err(failed)?;
        while self.position.step < self.steps {
            if outside.watch.is_stopped() {
                self.save(outside)?;
                return Ok(Ending::Stopped(self.position.step));
            }
            let (figures, skipped) = match self.step() {
                Err(TrainError::Learn(error)) if error.is_before_a_step() => {
                    if let Err(unsaved) = self.save(outside) {
                        outside
                            .note(&format!("what was learnt cannot be saved: {}", chain(&unsaved)));
                    }
                    return Err(error.into());
                }
                learnt => learnt?,
            };
            let step = self.position.step;
            if let Some(why) = skipped {
                outside.note(&format!("step {step}: the weights stay as they are: {why}"));
            }
            metrics.add(step, &figures).map_err(failed)?;
            outside.watcher.hear(News::Step { step, steps: self.steps, figures: &figures });
            if step == self.steps || step.is_multiple_of(self.config.checkpoints.every) {
                self.save(outside)?;
            }
        }
        Ok(Ending::Complete)
    }

    /// Learns from the next episodes.
    fn step(&mut self) -> Result<(Figures, Option<&'static str>), TrainError> {
        let mut clock = Clock::start();
        let left = self.config.epochs * self.episodes.len() as u64 - self.position.drawn;
        let count = (self.config.batch as u64).min(left);
        let drawn = self.deck.draw(self.position.drawn, count as usize);
        let mut rows: Vec<Row> = drawn.iter().flat_map(|at| self.episodes[*at].clone()).collect();
        let tokens = rows.iter().map(Row::learnt).sum::<usize>().max(1);
        rows.iter_mut().for_each(|row| row.weight = 1.0 / tokens as f64);
        let step = self.position.step + 1;
        let rate = self.config.optimiser.rate_at(step, self.steps);
        let learnt = self.learner.step(&rows, rate, Lesson::Imitate)?;
        self.position = Position { step, drawn: self.position.drawn + count };
        let seconds = clock.lap();
        let mut figures = Figures::default();
        figures.add("loss", learnt.loss);
        figures.add("entropy", learnt.entropy);
        figures.add("grad_norm", learnt.gradient);
        figures.add("lr", rate);
        figures.add("episodes", count as f64);
        figures.add("learnt_tokens", learnt.learnt as f64);
        figures.add("computed_tokens", learnt.computed as f64);
        figures.add("tokens_per_s", learnt.computed as f64 / seconds.max(1e-9));
        figures.add("seconds/learn", seconds);
        Ok((figures, learnt.skipped))
    }

    fn save<R: Runtime>(&mut self, outside: &Outside<'_, R>) -> Result<(), TrainError> {
        let step = self.position.step;
        if self.saved == Some(step) || step == 0 {
            return Ok(());
        }
        self.checkpoints.save(&self.position, &self.learner.memory()?)?;
        self.saved = Some(step);
        outside.watcher.hear(News::Saved { step });
        Ok(())
    }
}

/// All that is learnt from, as rows.
fn episodes<R: Runtime>(
    config: &SftConfig,
    directory: &RunDirectory,
    task: &Task,
    speech: &Arc<Speech>,
    net: &Net,
    outside: &Outside<'_, R>,
) -> Result<Vec<Vec<Row>>, TrainError> {
    let demonstrations = demonstrations::played(config, directory, task, speech, outside)?;
    let places: Vec<PathBuf> =
        config.data.trajectories.iter().cloned().chain(demonstrations).collect();
    let mut recorded = recorded::read(&places, task)?;
    if let Some(limit) = config.data.limit {
        recorded.conversations.truncate(limit);
    }
    let most =
        config.rollout.tokens.min(usize::try_from(net.shape().positions).unwrap_or(usize::MAX));
    let mut episodes = Vec::new();
    for conversation in &recorded.conversations {
        match rows(config, task, speech, conversation, most) {
            Ok(rows) => episodes.push(rows),
            Err(why) => recorded.left_out.push(format!("{}: {why}", conversation.path.display())),
        }
    }
    if !recorded.left_out.is_empty() {
        outside.note(&format!("{} episodes are left out", recorded.left_out.len()));
        recorded.left_out.iter().take(NAMED).for_each(|note| outside.note(note));
    }
    match episodes.is_empty() {
        true => {
            let first = recorded.left_out.first();
            let why = first.map_or("no episode was found", String::as_str);
            Err(TrainError::Nothing(format!("there is nothing to learn from: {why}")))
        }
        false => Ok(episodes),
    }
}

/// The rows of a conversation, or why it cannot be learnt from.
fn rows(
    config: &SftConfig,
    task: &Task,
    speech: &Speech,
    conversation: &Conversation,
    most: usize,
) -> Result<Vec<Row>, String> {
    let method = config.rollout.method(rollout::Overlong::Keep);
    let tools = Tools {
        timeout: method.command_timeout,
        workdir: task.prompts.working_dir.clone(),
        ..Tools::default()
    };
    let (format, tools) = (config.rollout.format, tools.specs());
    let segments = demonstration(speech, format, &tools, &conversation.messages, most);
    let segments = segments.map_err(|error| match error {
        DemonstrationError::Long { tokens, most } => format!(
            "it has {tokens} tokens or more, and `rollout.tokens` and the model allow {most}"
        ),
        error => chain(&error),
    })?;
    Ok(segments.into_iter().map(row).collect())
}

fn row(segment: Segment) -> Row {
    Row { tokens: segment.tokens, trained: segment.sampled, ..Row::default() }
}
