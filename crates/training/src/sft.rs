//! Supervised fine-tuning: recorded episodes and scripted demonstrations become token sequences, exactly as a policy
//! would have sampled them, and the model's responses are trained on.
//!
//! Start reading at [`sft`]. Knows neither flags nor terminals.

use std::{path::PathBuf, sync::Arc};

use agent::tools::Tools;
use policy::Network;
use problems::Task;
use rollout::{ChatCodec, DemonstrationError, RolloutError, Segment, demonstration};
use sandbox::Runtime;

use crate::{
    batch::Row,
    checkpoint::{Position, Progress},
    config::{KeptEpisodes, SftConfig},
    data, demonstrations,
    events::RunEvent,
    file_error::FileError,
    metrics::{Metrics, MetricsWriter},
    recordings::{self, Conversation},
    run::RunDirectory,
    selection::{self, Started},
    services::{RunOutcome, Services, Stopwatch, TrainError},
    setup::{Origin, Start},
    shuffle::ShuffledIndices,
    trainer::{LossKind, Trainer},
};

/// The number of skipped episodes that are listed.
const LISTED: usize = 5;

/// Runs supervised fine-tuning, from the last checkpoint of the run if there is one.
pub fn sft<R: Runtime>(
    config: &SftConfig,
    services: &Services<'_, R>,
) -> Result<RunOutcome, TrainError> {
    let _span = tracing::info_span!("sft", output = %config.output.display()).entered();
    let task = data::task(config.data.task())?;
    let start = Start::from(config);
    let (origin, machine) = start.resolve()?;
    let codec = Arc::new(ChatCodec::load(&config.model)?);
    let mut trainer = start.trainer(origin, machine)?;
    let started = match Origin::read(&config.output)? {
        Some(_) => Started::Before,
        None => Started::Now,
    };
    // Not before: invalid input must not create a run directory.
    let directory = RunDirectory::open(&config.output, config)?;
    let keep = selection::resolve(&config.data, &directory, started)?;
    origin.write(&directory)?;
    let unpacked = trainer.net().packed_attention_disabled_reason();
    if let Some(why) = unpacked.filter(|_| machine.device.is_cuda()) {
        services.note(&format!("packed attention is disabled: {why}"));
    }
    let episodes =
        match load_episodes(config, keep, &directory, &task, &codec, trainer.net(), services) {
            Err(TrainError::Play(RolloutError::Cancelled)) => return Ok(RunOutcome::Stopped(0)),
            episodes => episodes?,
        };
    let progress = Progress::resume(directory.path(), config.checkpoints.keep, &mut trainer)?;
    let samples = config.epochs.saturating_mul(episodes.len() as u64);
    let mut run = Run {
        config,
        services,
        directory,
        trainer,
        order: ShuffledIndices::new(config.seed, episodes.len()),
        steps: samples.div_ceil(config.batch as u64),
        episodes,
        progress,
    };
    let what = format!(
        "{} parameters on {} from {} episodes",
        run.trainer.parameter_count(),
        machine.describe(),
        run.episodes.len()
    );
    let (step, steps) = (run.progress.position.step, run.steps);
    services.observer.on_event(RunEvent::Started { step, steps, what: &what });
    run.train()
}

/// A run in progress.
struct Run<'a, R: Runtime> {
    config: &'a SftConfig,
    services: &'a Services<'a, R>,
    directory: RunDirectory,
    trainer: Trainer,
    order: ShuffledIndices,
    /// The rows of each episode, one per segment.
    episodes: Vec<Vec<Row>>,
    steps: u64,
    progress: Progress,
}

impl<R: Runtime> Run<'_, R> {
    /// Takes all remaining steps.
    fn train(&mut self) -> Result<RunOutcome, TrainError> {
        let path = self.directory.path().to_owned();
        let metrics = MetricsWriter::open(&path, self.progress.saved());
        let mut writer = metrics.map_err(FileError::new("write", &path))?;
        while self.progress.position.step < self.steps {
            if self.services.cancel.is_cancelled() {
                self.save()?;
                return Ok(RunOutcome::Stopped(self.progress.position.step));
            }
            let (metrics, skipped) = match self.step() {
                Err(TrainError::Step(error)) if error.leaves_weights_unchanged() => {
                    self.progress.save_after_error(&self.trainer, self.services);
                    return Err(error.into());
                }
                result => result?,
            };
            let (step, steps) = (self.progress.position.step, self.steps);
            if let Some(why) = skipped {
                self.services.note(&format!("step {step}: the weights are unchanged: {why}"));
            }
            writer.add(step, &metrics).map_err(FileError::new("write", &path))?;
            let event = RunEvent::Step { step, steps, metrics: &metrics };
            self.services.observer.on_event(event);
            if step == steps || step.is_multiple_of(self.config.checkpoints.every) {
                self.save()?;
            }
        }
        Ok(RunOutcome::Complete)
    }

    /// Trains on the next batch of episodes; the loss is the mean over its tokens.
    fn step(&mut self) -> Result<(Metrics, Option<&'static str>), TrainError> {
        let Position { step, drawn, .. } = self.progress.position.clone();
        let step = step + 1;
        let _span = tracing::info_span!("step", step).entered();
        let mut stopwatch = Stopwatch::start();
        let left = self.config.epochs * self.episodes.len() as u64 - drawn;
        let count = (self.config.batch as u64).min(left);
        let indices = self.order.get(drawn, count as usize);
        let mut rows: Vec<Row> = indices.iter().flat_map(|at| self.episodes[*at].clone()).collect();
        let tokens = rows.iter().map(Row::trained_tokens).sum::<usize>().max(1);
        rows.iter_mut().for_each(|row| row.weight = 1.0 / tokens as f64);
        let learning_rate = self.config.optimizer.learning_rate_at(step, self.steps);
        let stats = self.trainer.step(&rows, learning_rate, LossKind::Supervised)?;
        self.progress.position = Position { step, drawn: drawn + count, ..Position::default() };
        let seconds = stopwatch.lap();
        let mut metrics = Metrics::default();
        metrics.add("loss", stats.loss);
        metrics.add("entropy", stats.entropy);
        metrics.add("grad_norm", stats.grad_norm);
        metrics.add("lr", learning_rate);
        metrics.add("episodes", count as f64);
        metrics.add("learnt_tokens", stats.trained_tokens as f64);
        metrics.add("computed_tokens", stats.computed_tokens as f64);
        metrics.add("tokens_per_s", stats.computed_tokens as f64 / seconds.max(1e-9));
        metrics.add("seconds/learn", seconds);
        Ok((metrics, stats.skipped))
    }

    fn save(&mut self) -> Result<(), TrainError> {
        self.progress.save(&self.trainer, self.services)
    }
}

/// The rows of all episodes: recorded ones, then demonstrations.
fn load_episodes<R: Runtime>(
    config: &SftConfig,
    keep: KeptEpisodes,
    directory: &RunDirectory,
    task: &Task,
    codec: &Arc<ChatCodec>,
    net: &Network,
    services: &Services<'_, R>,
) -> Result<Vec<Vec<Row>>, TrainError> {
    let demonstrations = demonstrations::files(config, directory, task, codec, services)?;
    let read = |paths: &[PathBuf]| recordings::read(paths, task).map_err(TrainError::Recordings);
    let (recorded, scripted) = (read(&config.data.trajectories)?, read(&demonstrations)?);
    let threshold = config.data.threshold();
    let (mut conversations, notes) = selection::select(recorded.conversations, keep, threshold);
    notes.iter().for_each(|note| services.note(note));
    // Only correct ones are among them.
    conversations.extend(scripted.conversations);
    conversations.truncate(config.data.limit.unwrap_or(usize::MAX));
    let positions = usize::try_from(net.shape().positions).unwrap_or(usize::MAX);
    let max_tokens = config.rollout.tokens.min(positions);
    let (mut episodes, mut skipped) = (Vec::new(), recorded.skipped);
    skipped.extend(scripted.skipped);
    for conversation in &conversations {
        match rows(config, task, codec, conversation, max_tokens) {
            Ok(rows) => episodes.push(rows),
            Err(why) => skipped.push(format!("{}: {why}", conversation.path.display())),
        }
    }
    if !skipped.is_empty() {
        services.note(&format!("{} episodes are skipped", skipped.len()));
        skipped.iter().take(LISTED).for_each(|note| services.note(note));
    }
    if episodes.is_empty() {
        let why = skipped.first().or(notes.first());
        let why = why.map_or("no episode was found", String::as_str);
        return Err(TrainError::NoData(format!("there is nothing to train on: {why}")));
    }
    Ok(episodes)
}

/// The rows of a conversation, or why it cannot be trained on.
fn rows(
    config: &SftConfig,
    task: &Task,
    codec: &ChatCodec,
    conversation: &Conversation,
    max_tokens: usize,
) -> Result<Vec<Row>, String> {
    let settings = config.rollout.engine_settings(rollout::Overlong::Keep);
    let tools = Tools {
        timeout: settings.attempt.command_timeout,
        workdir: task.prompts.working_dir.clone(),
        ..Tools::default()
    };
    let (format, tools) = (config.rollout.format, tools.specs());
    let segments = demonstration(codec, format, &tools, &conversation.messages, max_tokens);
    let segments = segments.map_err(|error| match error {
        DemonstrationError::TooLong { tokens, max_tokens } => format!(
            "it has {tokens} tokens or more, and `rollout.tokens` and the model allow {max_tokens}"
        ),
        error => error_text::one_line(&error),
    })?;
    Ok(segments.into_iter().map(row).collect())
}

fn row(segment: Segment) -> Row {
    Row { tokens: segment.tokens, trained: segment.sampled, ..Row::default() }
}
