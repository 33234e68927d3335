//! The settings of a benchmark run, resolved and checked: flags over the settings file over the environment over defaults.
//! They are recorded with the run and read back to resume it; secrets are kept apart.

use std::{collections::BTreeSet, num::NonZeroU32, path::Path, time::Duration};

use attempt::{Capability, Documents, LimitSettings};
use benchmark::{Concurrency, TaskRows};
use model::{Sampling, ToolFormat};
use results::{JudgeRecord, Mode, ProblemRequest, ResultsDir, RunSettings, Selection};
use sandbox::{ImageRef, Spec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    args::{self, AttemptLimitArgs, BenchmarkArgs, JudgeArgs, Modes},
    sources::{Source, sources},
};
use crate::{
    args::{
        model::{Forcing, Images},
        sandbox::RuntimeKind,
    },
    commands::run::{Compact, FOREVER, max_response_tokens, seal, vision},
    exit::UsageError,
    model::{Adapter, ModelLocation, ModelSettings, Secrets},
    settings::{Settings, sandbox::SandboxSettings},
};

/// Default concurrent conversations of an in-process model.
const LOCAL_CALLS: u32 = 4;

/// Maximum concurrent conversations of an in-process model: each takes memory for a whole context.
const MAX_LOCAL_CALLS: u32 = 8;

/// Default sandboxes per processor: most of them wait for the model.
const PER_PROCESSOR: usize = 8;

/// Maximum number of sandboxes by default.
const MAX_SANDBOXES: usize = 256;

/// The settings of a benchmark run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BenchmarkSettings {
    pub(crate) tasks: Vec<Source>,
    pub(crate) selection: Selection,
    pub(crate) repeats: u32,
    pub(crate) modes: Vec<Mode>,
    #[serde(rename = "context")]
    pub(crate) documents: Documents,
    pub(crate) without: BTreeSet<Capability>,
    pub(crate) model: ModelSettings,
    #[serde(rename = "caps")]
    pub(crate) limits: LimitSettings,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) compact: Compact,
    #[serde(rename = "computer")]
    pub(crate) sandbox: SandboxSettings,
    /// The judge. Recorded beside the rest, since it may be named later.
    #[serde(skip)]
    pub(crate) judge: JudgeArgs,
    /// What earlier commands requested, maybe repeated more often, where a resumed run selects nothing else.
    #[serde(skip)]
    pub(crate) earlier: Vec<ProblemRequest>,
}

impl BenchmarkSettings {
    /// Resolves and checks all settings. Creates nothing.
    pub(crate) fn check(
        args: BenchmarkArgs,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let config = settings.config(args.settings.as_deref())?;
        let selection = args.selection();
        let (mut model, secrets) = ModelSettings::check(args.model, &config, settings)?;
        default_sampling(&mut model);
        let mut sandbox_args = args.sandbox;
        if let Some(image) = args.docker_image {
            sandbox_args.runtime = RuntimeKind::Docker;
            sandbox_args.image = ImageRef::Name(image);
        }
        let sandbox = SandboxSettings::check(sandbox_args, "/testbed".into())?;
        let tasks: Vec<String> = args.tasks.into_iter().chain(args.task).collect();
        let benchmark = Self {
            tasks: sources(tasks, args.data)?,
            selection,
            repeats: args.repeat.map_or(1, NonZeroU32::get),
            modes: args.mode.unwrap_or(Modes::Sandbox).all(),
            documents: match args.documents {
                args::Documents::Files => Documents::Files,
                args::Documents::Prompt => Documents::Prompt,
            },
            without: args.without.into_iter().collect(),
            limits: limits(&args.limits, &model),
            command_timeout: args.limits.episode.command_timeout.0,
            compact: if args.limits.episode.compact {
                Compact::NearTheLimit
            } else {
                Compact::Never
            },
            model,
            sandbox,
            judge: args.judge,
            earlier: Vec::new(),
        };
        benchmark.check_combinations()?;
        Ok((benchmark, secrets))
    }

    /// The recorded settings of a run, with what the user overrides now.
    pub(crate) fn resume(
        dir: &Path,
        args: BenchmarkArgs,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let run = ResultsDir::new(dir).run()?.ok_or_else(|| {
            UsageError(format!(
                "cannot resume: {} is not a benchmark run: it has no run.json",
                dir.display()
            ))
        })?;
        if !args.trust && !seal(settings)?.verify(&serde_json::to_value(&run.settings)?) {
            let text = format!(
                "the settings in {} were not written by you on this machine, or were changed since; they decide \
                 where keys are sent and how strong the sandboxes are: check them, then pass your own, or add \
                 --trust",
                dir.join("run.json").display()
            );
            return Err(UsageError(text).into());
        }
        let requests = run.requests();
        let mut benchmark: Self =
            serde_json::from_value(run.settings.requested).map_err(|error| {
                UsageError(format!(
                    "cannot resume: the recorded settings are unreadable ({error}); give the whole command"
                ))
            })?;
        let selection = args.selects().then(|| args.selection());
        benchmark.judge = match (args.judge.judge_model.is_some(), run.settings.judge) {
            (false, Some(judge)) => serde_json::from_value(judge.requested).unwrap_or_default(),
            _ => args.judge,
        };
        benchmark.repeats = repeats(args.repeat, selection.is_some(), benchmark.repeats, &requests);
        match selection {
            Some(selection) => benchmark.selection = selection,
            None => {
                let least = args.repeat.map_or(1, NonZeroU32::get);
                let more = |request: ProblemRequest| ProblemRequest {
                    repeats: request.repeats.max(least),
                    ..request
                };
                benchmark.earlier = requests.into_iter().map(more).collect();
            }
        }
        // Earlier commands may have requested other modes.
        benchmark.modes = run.modes;
        for mode in args.mode.map(Modes::all).unwrap_or_default() {
            if !benchmark.modes.contains(&mode) {
                benchmark.modes.push(mode);
            }
        }
        benchmark.sandbox.restore_env(args.sandbox.env)?;
        let config = settings.config(args.settings.as_deref())?;
        let secrets = benchmark.model.override_with(args.model, &config, settings)?;
        benchmark.check_combinations()?;
        Ok((benchmark, secrets))
    }

    /// The problems this command requests.
    pub(crate) fn requests(&self, rows: &[TaskRows]) -> Vec<ProblemRequest> {
        let names = rows.iter().map(|rows| rows.task.name.clone());
        // A task that could not be loaded before is in no earlier request.
        let is_new =
            |name: &String| !self.earlier.iter().any(|request| request.tasks.contains(name));
        let tasks: Vec<String> = names.filter(is_new).collect();
        let own = (!tasks.is_empty()).then(|| ProblemRequest {
            tasks,
            selection: self.selection.clone(),
            repeats: self.repeats,
        });
        own.into_iter().chain(self.earlier.clone()).collect()
    }

    /// The settings as they are recorded, without secrets. `judge` is the name of the judge's model.
    pub(crate) fn record(&self, judge: Option<String>) -> anyhow::Result<RunSettings> {
        let mut settings = self.clone();
        for (_, value) in &mut settings.sandbox.spec.env {
            value.clear();
        }
        settings.model.hide_secrets();
        let requested = serde_json::to_value(&self.judge)?;
        Ok(RunSettings {
            fixed: serde_json::to_value(FixedSettings::of(&settings))?,
            requested: serde_json::to_value(&settings)?,
            judge: judge.map(|name| JudgeRecord { name, requested }),
            ..RunSettings::default()
        })
    }

    /// How attempts are played. `context` is the model's context window in tokens, where it is known.
    pub(crate) fn attempt(&self, context: Option<u64>) -> attempt::Settings {
        let compaction = match self.compact {
            Compact::NearTheLimit => {
                Some(agent::Compaction { window: context, ..agent::Compaction::default() })
            }
            Compact::Never => None,
        };
        attempt::Settings {
            sandbox: self.sandbox.spec.clone(),
            limits: self.limits.clone(),
            command_timeout: self.command_timeout.unwrap_or(FOREVER),
            vision: vision(self.model.images),
            sampling: self.model.sampling.clone(),
            price: self.model.price,
            compaction,
            documents: self.documents,
            without: self.without.clone(),
            changes: agent::FileChanges::Recorded,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            ..attempt::Settings::default()
        }
    }

    /// The settings under the reference's names.
    pub(crate) fn config(&self) -> Value {
        let base_url = match &self.model.location {
            ModelLocation::Server { base_url, .. } => Some(base_url),
            ModelLocation::InProcess(_) => None,
        };
        json!({
            "mode": benchmark::reference_mode(&self.modes),
            "llm_name": self.model.name,
            "llm_base_url": base_url,
            "adapter": self.model.adapter().map(ToString::to_string),
            "docker_image": self.sandbox.spec.image.to_string(),
            "max_steps": self.limits.turns,
            "temperature": self.model.sampling.temperature,
            "max_token_limit": self.limits.tokens,
            "max_tokens_per_call": self.limits.tokens_per_call,
            "max_response_len": self.limits.plain_tokens,
            "repeat": self.repeats,
            "context": self.documents,
            "without": self.without,
        })
    }

    /// How much is done at once. An in-process model makes room for as many conversations.
    pub(crate) fn concurrency(&mut self, args: &ConcurrencyArgs) -> Concurrency {
        let in_process = matches!(self.model.location, ModelLocation::InProcess(_));
        let sandboxes = match args.concurrency {
            Some(number) => number.get() as usize,
            None if in_process => LOCAL_CALLS as usize,
            None => default_sandboxes(self.sandbox.spec.limits.memory.map(|size| size.0)),
        };
        let calls = args.model_calls.map_or(sandboxes, |number| number.get() as usize);
        let calls = if in_process { calls.min(MAX_LOCAL_CALLS as usize) } else { calls };
        if let ModelLocation::InProcess(local) = &mut self.model.location {
            let sequences = u32::try_from(calls).unwrap_or(MAX_LOCAL_CALLS);
            local.sequences = NonZeroU32::new(sequences).unwrap_or(NonZeroU32::MIN);
        }
        Concurrency {
            sandboxes,
            model_calls: calls,
            conversations: if in_process { calls } else { usize::MAX },
            tries: args.tries.get(),
            max_failures: args.max_failures.get(),
            ..Concurrency::default()
        }
    }

    /// Rejects combinations that cannot work.
    fn check_combinations(&self) -> Result<(), UsageError> {
        let lacks = |capability| self.without.contains(&capability);
        if lacks(Capability::Files) && lacks(Capability::Execution) {
            let text =
                "--without files,execution leaves nothing to do in a sandbox; use --mode llm";
            return Err(UsageError(text.into()));
        }
        if lacks(Capability::Files) && self.sandbox.runtime == RuntimeKind::Docker {
            let text = "--without files: Docker cannot make a container's files read-only for good once it runs; \
                        use --runtime native";
            return Err(UsageError(text.into()));
        }
        if self.model.cache.is_some() && self.model.sampling.seed.is_none() {
            let text = "--cache: without --seed N a resumed run would get the cached response of an attempt that was counted \
                        before; add --seed N";
            return Err(UsageError(text.into()));
        }
        if self.limits.cost.is_some() && self.model.price.is_none() {
            let name = &self.model.name;
            return Err(UsageError(format!(
                "--max-cost: the price of `{name}` is not known; give it with --prices FILE"
            )));
        }
        Ok(())
    }
}

/// How often a resumed run repeats its problems: as given; else a new selection as often as every command so far, however
/// narrow the last one was.
fn repeats(
    given: Option<NonZeroU32>,
    selects: bool,
    recorded: u32,
    requests: &[ProblemRequest],
) -> u32 {
    let fewest = requests.iter().map(|request| request.repeats).min();
    match (given, selects) {
        (Some(given), _) => given.get(),
        (None, true) => fewest.unwrap_or(recorded),
        (None, false) => recorded,
    }
}

/// The default sampling of models at servers: the paper's.
fn default_sampling(model: &mut ModelSettings) {
    if let ModelLocation::InProcess(_) = model.location {
        return;
    }
    let sampling = &mut model.sampling;
    match model.name.to_lowercase().contains("qwen3") {
        true if sampling.temperature.is_none() => {
            sampling.temperature = Some(0.7);
            sampling.top_p.get_or_insert(0.8);
            sampling.top_k.get_or_insert(20);
        }
        _ => {
            sampling.temperature.get_or_insert(1.0);
        }
    }
}

/// How much is done at once, as far as the user says so.
#[derive(Clone, Debug)]
pub(crate) struct ConcurrencyArgs {
    pub(crate) concurrency: Option<NonZeroU32>,
    pub(crate) model_calls: Option<NonZeroU32>,
    pub(crate) tries: NonZeroU32,
    pub(crate) max_failures: NonZeroU32,
}

impl ConcurrencyArgs {
    /// From the arguments.
    pub(crate) fn of(args: &BenchmarkArgs) -> Self {
        let BenchmarkArgs { concurrency, model_calls, tries, max_failures, .. } = *args;
        Self { concurrency, model_calls, tries, max_failures }
    }
}

fn limits(args: &AttemptLimitArgs, model: &ModelSettings) -> LimitSettings {
    let episode = &args.episode;
    let tokens_per_call =
        episode.max_tokens_per_call.unwrap_or_else(|| max_response_tokens(&model.location));
    LimitSettings {
        turns: episode.max_turns,
        tokens: episode.max_tokens,
        tokens_per_call,
        plain_tokens: args.max_response_len.unwrap_or(tokens_per_call),
        time: args.deadline.0,
        cost: episode.max_cost,
        misses: None,
    }
}

/// Eight per processor, but no more than fit into memory if each uses a quarter of its limit.
fn default_sandboxes(limit: Option<u64>) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = perf::meminfo("MemAvailable").and_then(|bytes| u64::try_from(bytes).ok());
    let fitting = match (memory, limit) {
        (Some(memory), Some(limit)) => usize::try_from(memory / (limit / 4).max(1)).unwrap_or(1),
        _ => MAX_SANDBOXES,
    };
    (processors * PER_PROCESSOR).min(fitting).clamp(1, MAX_SANDBOXES)
}

/// The settings that may change a result and must not differ when a run is resumed, besides those `run.json` lists itself.
#[derive(Serialize)]
struct FixedSettings<'a> {
    sampling: &'a Sampling,
    tool_format: ToolFormat,
    forced: Forcing,
    images: Images,
    extra_body: &'a Map<String, Value>,
    local: Option<FixedLocal>,
    #[serde(rename = "caps")]
    limits: &'a LimitSettings,
    command_timeout: Option<Duration>,
    compact: Compact,
    runtime: RuntimeKind,
    sandbox: &'a Spec,
}

/// The same for an in-process model.
#[derive(Serialize)]
struct FixedLocal {
    adapter: Option<String>,
    context: Option<NonZeroU32>,
}

impl<'a> FixedSettings<'a> {
    fn of(settings: &'a BenchmarkSettings) -> Self {
        let BenchmarkSettings { model, limits, sandbox, .. } = settings;
        let local = match &model.location {
            ModelLocation::InProcess(local) => Some(FixedLocal {
                adapter: local.adapter.as_ref().map(Adapter::id),
                context: local.context,
            }),
            ModelLocation::Server { .. } => None,
        };
        Self {
            sampling: &model.sampling,
            tool_format: model.tool_format,
            forced: model.forced,
            images: model.images,
            extra_body: &model.extra_body,
            local,
            limits,
            command_timeout: settings.command_timeout,
            compact: settings.compact,
            runtime: sandbox.runtime,
            sandbox: &sandbox.spec,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_selection_is_repeated_as_often_as_all_problems_were() {
        let request = |repeats| ProblemRequest {
            tasks: vec!["math".into()],
            selection: Selection::default(),
            repeats,
        };
        let requests = [request(2), request(16)];
        assert_eq!(repeats(None, true, 16, &requests), 2);
        assert_eq!(repeats(None, false, 16, &requests), 16);
        assert_eq!(repeats(NonZeroU32::new(3), true, 16, &requests), 3);
    }

    #[test]
    fn a_machine_always_runs_some_and_never_too_many() {
        assert_eq!(default_sandboxes(Some(u64::MAX)), 1);
        assert!((1..=MAX_SANDBOXES).contains(&default_sandboxes(None)));
        assert!((1..=MAX_SANDBOXES).contains(&default_sandboxes(Some(0))));
    }
}
