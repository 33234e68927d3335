//! The start of a reinforcement-learning run: data, weights, sampler and rollout engine, resumed where there is a
//! checkpoint.

use std::sync::Arc;

use policy::{AdapterPath, CudaGraphs, Engine, EngineSettings, Network, PrefixSharing};
use problems::{Problem, Task};
use rollout::{ChatCodec, OpenGroups};
use sandbox::Runtime;

use super::{Run, loss_kind};
use crate::{
    checkpoint::Progress,
    config::RlConfig,
    data,
    draw::ProblemDraw,
    events::RunEvent,
    file_error::FileError,
    metrics::MetricsWriter,
    run::RunDirectory,
    services::{Services, TrainError},
    setup::Start,
    validation::{self, LoadedSet},
};

impl<'a, R: Runtime> Run<'a, R> {
    /// Sets everything up, and resumes from the last checkpoint.
    pub(super) fn start(
        config: &'a RlConfig,
        services: &'a Services<'a, R>,
    ) -> Result<Self, TrainError> {
        let task = data::task(&config.data.task)?;
        let problems = training_problems(&task, config, services)?;
        let sets = validation::load(config, services)?;
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
        validation::remove_after(path, progress.position.step)
            .map_err(FileError::new("remove results of later steps in", path))?;
        let settings = engine_settings(config, trainer.net(), &sets);
        let engine = Arc::new(Engine::start(trainer.net(), settings)?);
        let objective = config.algorithm.objective(origin.default_length(config.rollout.tokens));
        let step = progress.position.step;
        // Before any episode is played: out-of-memory is reported at once.
        if machine.device.is_cuda() && step < config.steps {
            let context = config.rollout.tokens.min(positions(trainer.net()));
            trainer.check_memory(context, loss_kind(config, &*objective))?;
        }
        if machine.device.is_cuda() {
            paths(&engine, trainer.net()).iter().for_each(|note| services.note(note));
        }
        let what = format!("{} parameters on {}", trainer.parameter_count(), machine.describe());
        let steps = config.steps;
        services.observer.on_event(RunEvent::Started { step, steps, what: &what });
        let engines = validation::engines(codec, task, sets, config, services);
        let (rollouts, validation) = engines.map_err(TrainError::Play)?;
        Ok(Self {
            config,
            services,
            directory,
            progress,
            metrics,
            objective,
            draw: ProblemDraw::new(
                config.seed,
                config.data.draw,
                config.reward.threshold,
                problems.iter().map(|problem| &**problem),
            ),
            problems,
            validation,
            trainer,
            reference,
            engine,
            rollouts: Some(rollouts),
            open: OpenGroups::default(),
            early: None,
        })
    }
}

/// What of a GPU is not used, and why.
fn paths(engine: &Engine, net: &Network) -> Vec<String> {
    let kernels = engine.kernels_disabled_reason();
    let disabled = [
        ("CUDA graphs are", engine.graphs_disabled_reason()),
        ("the sampler's own kernels are", kernels.map(str::to_owned)),
        ("packed attention is", net.packed_attention_disabled_reason()),
    ];
    let disabled = disabled.into_iter();
    let mut notes: Vec<String> =
        disabled.filter_map(|(what, why)| Some(format!("{what} disabled: {}", why?))).collect();
    if kernels.is_none() && engine.adapter_path() == AdapterPath::Factors {
        let why = "there is no memory for a copy of the weights; sampling is slower";
        notes.push(format!("the adapter is not merged for sampling: {why}"));
    }
    notes
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

fn engine_settings(config: &RlConfig, net: &Network, sets: &[LoadedSet]) -> EngineSettings {
    let training = config.training_episodes();
    let tokens = config.rollout.tokens * usize::from(training > 0);
    EngineSettings {
        slots: config.rollout.slots(training, validation::episodes(sets)),
        context: sets.iter().map(LoadedSet::tokens).fold(tokens, usize::max).min(positions(net)),
        cuda_graphs: CudaGraphs::Auto,
        memory_limit: None,
        // Without it, the same run gives the same numbers on a CPU.
        prefix_sharing: if net.device().is_cuda() { PrefixSharing::On } else { PrefixSharing::Off },
    }
}

/// The tokens a sequence may have.
fn positions(net: &Network) -> usize {
    usize::try_from(net.shape().positions).unwrap_or(usize::MAX)
}
