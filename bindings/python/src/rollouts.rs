//! Episodes for training: groups of attempts with the tokens that a server sampled.

use std::{path::PathBuf, sync::Arc};

use attempt::{LimitSettings, Mode, Settings};
use model::Retry;
use problems::{Problem, Task};
use rollout::{
    ChatCodec, EngineParts, Group, Overlong, Reward, RolloutEngine, RolloutError, RolloutRequest,
    RolloutSettings,
};
use sampling::SamplingParams;
use sampling_http::{Api, ConnectError, HttpSampler, ServerSettings};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::Process,
    failure::Failure,
    model::ModelChoice,
    renewed::Renewed,
    spec::{SandboxSpec, duration},
};

/// Rollouts as Python describes them, in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RolloutArguments {
    task: String,
    data: Vec<PathBuf>,
    tokenizer: PathBuf,
    model: ModelChoice,
    group_size: u32,
    limit: Option<usize>,
    step: u64,
    temperature: f64,
    top_p: f64,
    top_k: Option<usize>,
    seed: u64,
    max_turns: Option<u32>,
    max_tokens: Option<u64>,
    max_response_tokens: Option<u64>,
    /// Seconds.
    max_time: Option<f64>,
    /// Seconds.
    command_timeout: f64,
    mode: Mode,
    tool_format: String,
    api: Api,
    context: Option<usize>,
    vocabulary_size: Option<usize>,
    overlong: Overlong,
    concurrency: usize,
    warm: usize,
    /// Whether the task's grader gives the rewards.
    graded: bool,
}

/// Rollouts and the rows of their problems.
pub(crate) struct Rollouts {
    pub(crate) groups: Vec<Group>,
    /// The problems of the groups.
    pub(crate) problems: Vec<Arc<Problem>>,
}

impl RolloutArguments {
    /// Reads the arguments.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        serde_json::from_str(text)
            .map_err(|error| Failure::usage(format!("the arguments of rollout: {error}")))
    }

    fn settings(&self, spec: &SandboxSpec) -> Result<RolloutSettings, Failure> {
        let limits = LimitSettings {
            turns: self.max_turns,
            tokens: self.max_tokens,
            time: self.max_time.map(|time| duration("max_time", time)).transpose()?,
            ..LimitSettings::default()
        };
        let per_call = self.max_response_tokens.unwrap_or(limits.tokens_per_call);
        let attempt = Settings {
            sandbox: spec.spec.clone(),
            limits: LimitSettings { tokens_per_call: per_call, plain_tokens: per_call, ..limits },
            command_timeout: duration("command_timeout", self.command_timeout)?,
            ..Settings::default()
        };
        let format = self.tool_format.parse();
        Ok(RolloutSettings {
            name: self.model.name().to_owned(),
            mode: self.mode,
            format: format
                .map_err(|error: model::UnknownFormat| Failure::usage(error.to_string()))?,
            attempt,
            sandboxes: self.concurrency.max(1),
            warm: self.warm,
            overlong: self.overlong,
            ..RolloutSettings::default()
        })
    }

    fn task(&self) -> Result<(Task, Vec<Arc<Problem>>), Failure> {
        let refused = |error: &dyn std::error::Error| Failure::usage(error_text::chain(error));
        let task = match Task::builtin(&self.task) {
            Some(task) => task,
            None => Task::load(self.task.as_ref()).map_err(|error| refused(&error))?,
        };
        let rows = task.read_files(&self.data).map_err(|error| refused(&error))?;
        if rows.problems.is_empty() {
            let why: Vec<String> = rows.bad.iter().take(3).map(ToString::to_string).collect();
            return Err(Failure::usage(format!("there are no problems; {}", why.join("; "))));
        }
        let limit = self.limit.unwrap_or(usize::MAX);
        let problems = rows.problems.into_iter().take(limit).map(Arc::new).collect();
        Ok((task, problems))
    }

    async fn sampler(&self, codec: &ChatCodec) -> Result<HttpSampler, Failure> {
        let Some((endpoint, retries)) = self.model.endpoint() else {
            return Err(Failure::usage("rollouts need a server with token ids"));
        };
        let vocabulary = self.vocabulary_size.unwrap_or_else(|| codec.vocabulary().size());
        let settings = ServerSettings {
            api: self.api,
            context: self.context,
            concurrency: self.concurrency.max(1),
            retry: Retry { attempts: retries.saturating_add(1), ..Retry::default() },
            ..ServerSettings::new(endpoint, vocabulary)
        };
        HttpSampler::connect(settings).await.map_err(|error| match error {
            ConnectError::NoContext { .. } => Failure::usage(format!("{error}: `context`")),
            error => Failure::Raise("ModelError", error_text::chain(&error)),
        })
    }

    /// Runs all groups. Dropping the future cancels them.
    pub(crate) async fn run(
        self,
        process: Arc<Process>,
        spec: SandboxSpec,
    ) -> Result<Rollouts, Failure> {
        let codec = ChatCodec::load(&self.tokenizer)
            .map_err(|error| Failure::usage(error_text::chain(&error)))?;
        let (task, problems) = self.task()?;
        let settings = self.settings(&spec)?;
        let sampler = Arc::new(self.sampler(&codec).await?);
        let runtime = match (self.mode, task.grader.is_immediate()) {
            (Mode::Llm, true) => None,
            _ => Some(Arc::new(Renewed::start(&process, &spec.runtime).await?)),
        };
        let reward = match self.graded {
            true => Reward::Grader,
            // Python computes it.
            false => Reward::Custom(Arc::new(|_, _| 0.0)),
        };
        let parts: EngineParts<Renewed> =
            EngineParts { codec: Arc::new(codec), task, settings, reward, runtime };
        let engine = RolloutEngine::new(parts).map_err(failed)?;
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        let request = RolloutRequest {
            problems: problems.clone(),
            members: self.group_size.max(1),
            step: self.step,
            params: SamplingParams {
                temperature: self.temperature,
                top_p: self.top_p,
                top_k: self.top_k,
                seed: self.seed,
            },
            events: None,
            cancel,
        };
        let groups = engine.run(&sampler, &request, |_| {}).await;
        let closed = engine.close().await;
        let groups = groups.map_err(failed)?;
        closed.map_err(failed)?;
        Ok(Rollouts { groups, problems })
    }
}

fn failed(error: RolloutError) -> Failure {
    let text = error_text::chain(&error);
    match error {
        RolloutError::Grader { .. }
        | RolloutError::NoRuntime
        | RolloutError::NoSandboxes { .. } => Failure::usage(text),
        _ => Failure::infrastructure(text),
    }
}
