//! An inference server as the sampler: episodes are played with its tokens, and nothing is trained.
//!
//! A server that is gone stops the run: its episodes are not scored, and the run resumes when it is started again.

use std::{path::Path, sync::Arc};

use rollout::{ChatCodec, RolloutError};
use sampling::{Sampler, SamplingParams};
use sampling_http::HttpSampler;
use sandbox::Runtime;

use crate::{
    config::{RlConfig, SamplerSettings},
    data,
    events::RunEvent,
    file_error::FileError,
    metrics::MetricsWriter,
    run::RunDirectory,
    services::{RunOutcome, Services, TrainError},
    validation::{self, Occasion},
};

/// A connected server and the codec of its model.
pub(crate) struct Remote {
    pub(crate) sampler: Arc<HttpSampler>,
    pub(crate) codec: Arc<ChatCodec>,
    /// A description for the user.
    pub(crate) what: String,
}

impl Remote {
    /// Connects to the server. `model` has the tokenizer unless the settings name another one; `tokens` is the maximum
    /// length of an episode.
    pub(crate) fn connect<R: Runtime>(
        settings: &SamplerSettings,
        model: &Path,
        tokens: usize,
        services: &Services<'_, R>,
    ) -> Result<Self, TrainError> {
        let codec = ChatCodec::load(settings.tokenizer.as_deref().unwrap_or(model))?;
        let server = settings.server(codec.vocabulary().size());
        let sampler = services.tokio.block_on(HttpSampler::connect(server))?;
        let context = sampler.context();
        if context < tokens {
            services.note(&format!(
                "the server takes {context} tokens, fewer than the {tokens} that an episode may have: longer episodes end early"
            ));
        }
        let sampler = sampler.limited_to(tokens);
        let (context, name) = (sampler.context(), &settings.model);
        let what = format!("`{name}` at {}, {context} tokens per episode", settings.url);
        Ok(Self { sampler: Arc::new(sampler), codec: Arc::new(codec), what })
    }

    /// Notes where the log-probabilities of episodes with these parameters are not those of the policy.
    pub(crate) fn note_logprobs<R: Runtime>(
        &self,
        params: &SamplingParams,
        services: &Services<'_, R>,
    ) {
        if !self.sampler.logprobs().is_exact(params) {
            services.note(
                "the server's log-probabilities are not those at this temperature before top_p and top_k; scores are not \
                 affected, and supervised training does not use them",
            );
        }
    }

    /// Plays with the server. If it is gone, everything is cancelled and that is the error.
    pub(crate) fn play<R: Runtime, T>(
        &self,
        services: &Services<'_, R>,
        play: impl FnOnce(&Services<'_, R>) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let cancel = services.cancel.child_token();
        let watching = services.tokio.spawn({
            let (sampler, cancel) = (Arc::clone(&self.sampler), cancel.clone());
            async move {
                sampler.gone().await;
                cancel.cancel();
            }
        });
        let watched = Services {
            runtime: services.runtime.clone(),
            tokio: services.tokio,
            observer: services.observer,
            cancel,
        };
        let played = play(&watched);
        watching.abort();
        match self.sampler.failure() {
            Some(why) if !services.cancel.is_cancelled() => Err(TrainError::SamplerGone(why)),
            _ => played,
        }
    }
}

/// Validates the model of a server.
pub(crate) fn validate<R: Runtime>(
    config: &RlConfig,
    settings: &SamplerSettings,
    services: &Services<'_, R>,
) -> Result<RunOutcome, TrainError> {
    let task = data::task(&config.data.task)?;
    let sets = validation::load(config, services)?;
    let tokens = sets.iter().map(validation::LoadedSet::tokens).max().unwrap_or_default();
    let remote = Remote::connect(settings, &config.model, tokens, services)?;
    // Not before: invalid input must not create a run directory.
    let directory = RunDirectory::open(&config.output, config)?;
    let path = directory.path();
    let mut metrics = MetricsWriter::open(path, Some(0)).map_err(FileError::new("write", path))?;
    services.observer.on_event(RunEvent::Started { step: 0, steps: 0, what: &remote.what });
    if !metrics.validated(0).is_empty() {
        return Ok(RunOutcome::Complete);
    }
    let engines = validation::engines(Arc::clone(&remote.codec), task, sets, config, services);
    let (rollouts, sets) = engines.map_err(TrainError::Play)?;
    let played = remote.play(services, |services| {
        sets.run(&remote.sampler, &Occasion { run: path, step: 0, services })
    });
    if let Err(error) = services.tokio.block_on(rollouts.close()) {
        services.note(&format!("sandboxes may be left behind: {error}"));
    }
    let found = match played {
        Err(TrainError::Play(RolloutError::Cancelled)) => return Ok(RunOutcome::Stopped(0)),
        played => played?,
    };
    metrics.add(0, &found).map_err(FileError::new("write", path))?;
    services.observer.on_event(RunEvent::Step { step: 0, steps: 0, metrics: &found });
    Ok(RunOutcome::Complete)
}
