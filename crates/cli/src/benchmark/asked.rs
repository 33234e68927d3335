//! What a run of a benchmark is to do, finished and checked: flags over the settings file over the environment
//! over defaults. It is recorded with the run and read again to resume it; secrets are kept apart.

use std::{collections::BTreeSet, num::NonZeroU32, path::Path, time::Duration};

use benchmark::{Capability, Caps, Context, Method, Pace, Selection};
use results::{Folder, Mode};
use sandbox::ImageRef;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    args::{BenchmarkArgs, CapArgs, ContextIn, JudgeArgs},
    sources::{Source, sources},
};
use crate::{
    args::RuntimeKind,
    exit::Usage,
    perf,
    request::Computer,
    run::{Compact, FOREVER, ModelPlan, Place, Secrets, longest_reply, seal, vision},
    settings::Settings,
};

/// Conversations at once of a model in this process, unless the user says otherwise.
const LOCAL_CALLS: u32 = 4;

/// And at most: each takes memory for a whole conversation.
const MOST_LOCAL_CALLS: u32 = 8;

/// Sandboxes for each processor: most of them wait for the model.
const PER_PROCESSOR: usize = 8;

/// No more unless the user says so.
const MOST_SANDBOXES: usize = 256;

/// What a run is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) tasks: Vec<Source>,
    pub(crate) selection: Selection,
    pub(crate) repeats: u32,
    pub(crate) modes: Vec<Mode>,
    pub(crate) context: Context,
    pub(crate) without: BTreeSet<Capability>,
    pub(crate) model: ModelPlan,
    pub(crate) caps: Caps,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) compact: Compact,
    pub(crate) computer: Computer,
    /// Who judges. It stands beside the rest in the record, since it may be named later.
    #[serde(skip)]
    pub(crate) judge: JudgeArgs,
}

impl Asked {
    /// Puts everything together. Nothing is made yet.
    pub(crate) fn check(
        args: BenchmarkArgs,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let config = settings.config(args.settings.as_deref())?;
        let (mut model, secrets) = ModelPlan::check(args.model, &config, settings)?;
        usual_sampling(&mut model);
        let mut computer_args = args.computer;
        if let Some(image) = args.docker_image {
            computer_args.runtime = RuntimeKind::Docker;
            computer_args.image = ImageRef::Name(image);
        }
        let computer = Computer::check(computer_args, "/testbed".into())?;
        let tasks: Vec<String> = args.tasks.into_iter().chain(args.task).collect();
        let asked = Self {
            tasks: sources(tasks, args.data)?,
            selection: Selection {
                start: args.start_id,
                end: args.end_id,
                ids: args.ids,
                limit: args.limit,
            },
            repeats: args.repeat.get(),
            modes: args.mode.all(),
            context: match args.context_in {
                ContextIn::Files => Context::Files,
                ContextIn::Prompt => Context::Prompt,
            },
            without: args.without.into_iter().collect(),
            caps: caps(&args.limits, &model),
            command_timeout: args.limits.command_timeout.0,
            compact: if args.limits.compact { Compact::NearTheLimit } else { Compact::Never },
            model,
            computer,
            judge: args.judge,
        };
        asked.possible()?;
        Ok((asked, secrets))
    }

    /// What the record of a run says, with what the user says anew on top.
    pub(crate) fn resume(
        dir: &Path,
        args: BenchmarkArgs,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let run = Folder::new(dir).run()?.ok_or_else(|| {
            Usage(format!("{} holds no run of a benchmark: it has no run.json", dir.display()))
        })?;
        if !args.trust && !seal(settings)?.is_on(&run.settings) {
            let text = format!(
                "the settings in {} were not written by you on this machine, or were changed since; they decide \
                 where keys are sent and how strong the sandboxes are: look at them, then give your own, or say \
                 --trust",
                dir.join("run.json").display()
            );
            return Err(Usage(text).into());
        }
        let recorded = run.settings.get("asked").cloned().unwrap_or_default();
        let mut asked: Self = serde_json::from_value(recorded).map_err(|error| {
            Usage(format!("the record does not say how to go on ({error}); give the whole command"))
        })?;
        asked.judge = match args.judge.judge_model {
            Some(_) => args.judge,
            None => {
                serde_json::from_value(run.settings["judge"]["asked"].clone()).unwrap_or_default()
            }
        };
        // Another mode may have been asked for before the last.
        asked.modes = run.modes;
        asked.computer.give_again(args.computer.env)?;
        let config = settings.config(args.settings.as_deref())?;
        let secrets = asked.model.override_with(args.model, &config, settings)?;
        asked.possible()?;
        Ok((asked, secrets))
    }

    /// What is recorded: under `same` what has to be the same for a run to go on, under `asked` everything.
    /// Neither holds secrets.
    pub(crate) fn record(&self) -> Value {
        let mut asked = self.clone();
        for (_, value) in &mut asked.computer.spec.env {
            value.clear();
        }
        asked.model.hide_secrets();
        json!({ "same": asked.same(), "asked": asked })
    }

    /// All that may change a result and that `run.json` does not say elsewhere.
    fn same(&self) -> Value {
        let local = match &self.model.place {
            Place::Here(plan) => json!({ "adapter": plan.adapter, "context": plan.context }),
            Place::Server { .. } => Value::Null,
        };
        json!({
            "sampling": self.model.sampling,
            "tool_format": self.model.tool_format,
            "forced": self.model.forced,
            "images": self.model.images,
            "extra_body": self.model.extra_body,
            "local": local,
            "caps": self.caps,
            "command_timeout": self.command_timeout,
            "compact": self.compact,
            "runtime": self.computer.runtime,
            "sandbox": self.computer.spec,
            "selection": self.selection,
        })
    }

    /// How attempts are made. `context` is how many tokens the model takes, where that is known.
    pub(crate) fn method(&self, record: Value, context: Option<u64>) -> Method {
        let compaction = match self.compact {
            Compact::NearTheLimit => {
                Some(agent::Compaction { window: context, ..agent::Compaction::default() })
            }
            Compact::Never => None,
        };
        Method {
            spec: self.computer.spec.clone(),
            caps: self.caps.clone(),
            command_timeout: self.command_timeout.unwrap_or(FOREVER),
            vision: vision(self.model.images),
            sampling: self.model.sampling.clone(),
            price: self.model.price,
            compaction,
            context: self.context,
            without: self.without.clone(),
            settings: record,
            program: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The settings with the names the reference gives them.
    pub(crate) fn config(&self) -> Value {
        let base_url = match &self.model.place {
            Place::Server { base_url, .. } => Some(base_url),
            Place::Here(_) => None,
        };
        json!({
            "mode": benchmark::reference_mode(&self.modes),
            "llm_name": self.model.name,
            "llm_base_url": base_url,
            "docker_image": self.computer.spec.image.to_string(),
            "max_steps": self.caps.turns,
            "temperature": self.model.sampling.temperature,
            "max_token_limit": self.caps.tokens,
            "max_tokens_per_call": self.caps.tokens_per_call,
            "max_response_len": self.caps.plain_tokens,
            "repeat": self.repeats,
            "context": self.context,
            "without": self.without,
        })
    }

    /// Sets how much is done at once; a model in this process makes room for as many conversations.
    pub(crate) fn pace(&mut self, asked: &PaceAsked) -> Pace {
        let here = matches!(self.model.place, Place::Here(_));
        let sandboxes = match asked.concurrency {
            Some(number) => number.get() as usize,
            None if here => LOCAL_CALLS as usize,
            None => usual_sandboxes(self.computer.spec.limits.memory.map(|size| size.0)),
        };
        let calls = asked.model_calls.map_or(sandboxes, |number| number.get() as usize);
        let calls = if here { calls.min(MOST_LOCAL_CALLS as usize) } else { calls };
        if let Place::Here(plan) = &mut self.model.place {
            let sequences = u32::try_from(calls).unwrap_or(MOST_LOCAL_CALLS);
            plan.sequences = NonZeroU32::new(sequences).unwrap_or(NonZeroU32::MIN);
        }
        Pace {
            sandboxes,
            model_calls: calls,
            conversations: if here { calls } else { usize::MAX },
            tries: asked.tries.get(),
            failures_in_a_row: asked.max_failures.get(),
            ..Pace::default()
        }
    }

    /// Refuses what can be seen to fail.
    fn possible(&self) -> Result<(), Usage> {
        let lacks = |capability| self.without.contains(&capability);
        if lacks(Capability::Files) && lacks(Capability::Execution) {
            let text =
                "--without files,execution leaves nothing to do in a sandbox; use --mode llm";
            return Err(Usage(text.into()));
        }
        if lacks(Capability::Files) && self.computer.runtime == RuntimeKind::Docker {
            let text = "--without files: Docker cannot make a container's files read-only for good once it runs; \
                        use --runtime native";
            return Err(Usage(text.into()));
        }
        if self.model.cache.is_some() && self.model.sampling.seed.is_none() {
            let text = "--cache: without --seed N the same question, asked again by a run that goes on, would get the \
                        reply that was counted before";
            return Err(Usage(text.into()));
        }
        if self.caps.cost.is_some() && self.model.price.is_none() {
            let name = &self.model.name;
            return Err(Usage(format!(
                "--max-cost: the price of `{name}` is not known; give it with --prices FILE"
            )));
        }
        Ok(())
    }
}

/// How models at servers choose their words unless the user says so: as in the paper.
fn usual_sampling(model: &mut ModelPlan) {
    if let Place::Here(_) = model.place {
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

/// How much is to be done at once, as far as the user says so.
#[derive(Clone, Debug)]
pub(crate) struct PaceAsked {
    pub(crate) concurrency: Option<NonZeroU32>,
    pub(crate) model_calls: Option<NonZeroU32>,
    pub(crate) tries: NonZeroU32,
    pub(crate) max_failures: NonZeroU32,
}

impl PaceAsked {
    /// What the arguments say.
    pub(crate) fn of(args: &BenchmarkArgs) -> Self {
        let BenchmarkArgs { concurrency, model_calls, tries, max_failures, .. } = *args;
        Self { concurrency, model_calls, tries, max_failures }
    }
}

fn caps(args: &CapArgs, model: &ModelPlan) -> Caps {
    let tokens_per_call = args.max_tokens_per_call.unwrap_or_else(|| longest_reply(&model.place));
    Caps {
        turns: args.max_turns,
        tokens: args.max_tokens,
        tokens_per_call,
        plain_tokens: args.max_response_len.unwrap_or(tokens_per_call),
        time: args.deadline.0,
        cost: args.max_cost,
    }
}

/// Eight for each processor, but no more than fit into memory if each uses a quarter of what it may.
fn usual_sandboxes(limit: Option<u64>) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = perf::memory_line("MemAvailable").and_then(|bytes| u64::try_from(bytes).ok());
    let fitting = match (memory, limit) {
        (Some(memory), Some(limit)) => usize::try_from(memory / (limit / 4).max(1)).unwrap_or(1),
        _ => MOST_SANDBOXES,
    };
    (processors * PER_PROCESSOR).min(fitting).clamp(1, MOST_SANDBOXES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_always_runs_some_and_never_too_many() {
        assert_eq!(usual_sandboxes(Some(u64::MAX)), 1);
        assert!((1..=MOST_SANDBOXES).contains(&usual_sandboxes(None)));
        assert!((1..=MOST_SANDBOXES).contains(&usual_sandboxes(Some(0))));
    }
}
