//! The start of a reinforcement-learning run: data, weights, sampler and rollout engine, resumed where there is a
//! checkpoint.

use std::sync::Arc;

use policy::{CudaGraphs, Engine, EngineSettings, Network, PrefixSharing};
use problems::{Problem, Task};
use rollout::{ChatCodec, EngineParts, Overlong, Reward, RolloutEngine, RolloutError};
use sandbox::Runtime;

use super::{Run, loss_kind};
use crate::{
    checkpoint::Progress,
    config::{AlgorithmName, RlConfig},
    data,
    events::RunEvent,
    file_error::FileError,
    metrics::MetricsWriter,
    run::RunDirectory,
    services::{Services, TrainError},
    setup::Start,
    shuffle::ShuffledIndices,
};

impl<'a, R: Runtime> Run<'a, R> {
    /// Sets everything up, and resumes from the last checkpoint.
    pub(super) fn start(
        config: &'a RlConfig,
        services: &'a Services<'a, R>,
    ) -> Result<Self, TrainError> {
        let task = data::task(&config.data.task)?;
        let problems = training_problems(&task, config, services)?;
        let validation = validation_problems(&task, config, services)?;
        let start = Start::from(config);
        let (origin, machine) = start.resolve()?;
        let codec = Arc::new(ChatCodec::load(&config.model)?);
        let trainer = start.trainer(origin, machine)?;
        let mut trainer = trainer.with_temperature(config.rollout.sampling.temperature);
        let has_kl = config.algorithm.kl > 0.0;
        let reference = has_kl.then(|| start.reference(origin, machine)).transpose()?;
        // Not before: invalid input must not create a run directory.
        let directory = RunDirectory::open(&config.output, config)?;
        origin.write(&directory)?;
        let path = directory.path();
        let progress = Progress::resume(path, config.checkpoints.keep, &mut trainer)?;
        let metrics = MetricsWriter::open(path, progress.saved());
        let metrics = metrics.map_err(FileError::new("write", path))?;
        let settings = engine_settings(config, trainer.net(), validation.len());
        let context = settings.context;
        let engine = Arc::new(Engine::start(trainer.net(), settings)?);
        let objective = config.algorithm.objective(config.rollout.tokens);
        let step = progress.position.step;
        // Before any episode is played: out-of-memory is reported at once.
        if machine.device.is_cuda() && step < config.steps {
            trainer.check_memory(context, loss_kind(config, &*objective))?;
        }
        if let Some(why) = engine.graphs_disabled_reason().filter(|_| machine.device.is_cuda()) {
            services.note(&format!("CUDA graphs are disabled: {why}"));
        }
        let what = format!("{} parameters on {}", trainer.parameter_count(), machine.describe());
        let steps = config.steps;
        services.observer.on_event(RunEvent::Started { step, steps, what: &what });
        let rollouts = rollout_engine(codec, task, config, services).map_err(TrainError::Play)?;
        Ok(Self {
            config,
            services,
            directory,
            progress,
            metrics,
            objective,
            order: ShuffledIndices::new(config.seed, problems.len()),
            problems,
            validation,
            trainer,
            reference,
            engine,
            rollouts: Some(rollouts),
        })
    }
}

/// The problems to train on.
fn training_problems<R: Runtime>(
    task: &Task,
    config: &RlConfig,
    services: &Services<'_, R>,
) -> Result<Vec<Arc<Problem>>, TrainError> {
    if config.steps == 0 {
        return Ok(Vec::new());
    }
    let (problems, notes) =
        data::problems(task, &config.data.train, "data.train", config.rollout.problems)?;
    notes.iter().for_each(|note| services.note(note));
    Ok(problems.into_iter().map(Arc::new).collect())
}

/// The held-out problems, if the run validates.
fn validation_problems<R: Runtime>(
    task: &Task,
    config: &RlConfig,
    services: &Services<'_, R>,
) -> Result<Vec<Arc<Problem>>, TrainError> {
    if config.validation.every == 0 && config.steps > 0 {
        return Ok(Vec::new());
    }
    let files = &config.data.validation;
    let least = usize::from(!files.is_empty());
    let (problems, notes) = data::problems(task, files, "data.validation", least)?;
    notes.iter().for_each(|note| services.note(note));
    let limit = match config.validation.problems {
        0 => usize::MAX,
        limit => limit,
    };
    Ok(problems.into_iter().take(limit).map(Arc::new).collect())
}

fn rollout_engine<R: Runtime>(
    codec: Arc<ChatCodec>,
    task: Task,
    config: &RlConfig,
    services: &Services<'_, R>,
) -> Result<RolloutEngine<R>, RolloutError> {
    let overlong = match config.algorithm.name {
        AlgorithmName::GrpoPlusPlus => Overlong::Mask,
        AlgorithmName::Rloo | AlgorithmName::Grpo => Overlong::Zero,
    };
    let (settings, runtime) = (config.rollout.engine_settings(overlong), services.runtime.clone());
    let _guard = services.tokio.enter();
    RolloutEngine::new(EngineParts { codec, task, settings, reward: Reward::Grader, runtime })
}

fn engine_settings(config: &RlConfig, net: &Network, validation: usize) -> EngineSettings {
    let positions = usize::try_from(net.shape().positions).unwrap_or(usize::MAX);
    let validation_episodes = validation * config.validation.members;
    EngineSettings {
        slots: config.rollout.slots(validation_episodes),
        context: config.rollout.tokens.min(positions),
        cuda_graphs: CudaGraphs::Auto,
        memory_limit: None,
        // Without it, the same run gives the same numbers on a CPU.
        prefix_sharing: if net.device().is_cuda() { PrefixSharing::On } else { PrefixSharing::Off },
    }
}
