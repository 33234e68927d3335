//! What a run is to do, finished and checked: flags over the settings file over the environment over
//! defaults. It is recorded with the episode and read again to resume it; secrets are kept apart.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use agent::{Limits, Prompts};
use sandbox::ImageRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model_plan::{ModelPlan, Place, Secrets};
use crate::{
    agent_args::{AgentArgs, PromptArgs},
    args::RuntimeKind,
    exit::{self, Usage},
    output,
    request::Computer,
    settings::Settings,
};

/// No task needs a longer text; documents belong into files.
const LONGEST_TASK: u64 = 16 << 20;

/// Tokens of one reply, unless the user says otherwise.
const LONGEST_REPLY: u64 = 65_536;

/// The same for a model in this process. Small ones may repeat themselves without end, and are slow.
const LONGEST_LOCAL_REPLY: u64 = 4096;

/// What a run is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) task: String,
    pub(crate) input: Option<PathBuf>,
    pub(crate) model: ModelPlan,
    pub(crate) prompts: Prompts,
    pub(crate) limits: Limits,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) compact: Compact,
    pub(crate) computer: Computer,
}

/// Whether old results are shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compact {
    /// When the conversation nears its limit.
    NearTheLimit,
    /// Never.
    Never,
}

impl Plan {
    /// Puts everything together. Nothing is made yet.
    pub(crate) fn check(args: AgentArgs, settings: &Settings) -> anyhow::Result<(Self, Secrets)> {
        let config = settings.config(args.prompt.settings.as_deref())?;
        let task = match args.task.or(args.query) {
            Some(dash) if dash == "-" => from_stdin()?,
            Some(task) => task,
            None => String::new(),
        };
        if task.trim().is_empty() {
            return Err(Usage("the task is empty; say what the model is to do".into()).into());
        }
        let prompts = prompts(&args.prompt, config.prompt_config.as_deref())?;
        // Found now, so that no sandbox is made for a template that cannot be filled in.
        prompts.render(&task, &args.computer.network).map_err(|error| Usage(error.to_string()))?;
        let (model, secrets) = ModelPlan::check(args.model, &config, settings)?;
        let mut computer_args = args.computer;
        if let Some(image) = args.docker_image {
            computer_args.runtime = RuntimeKind::Docker;
            computer_args.image = ImageRef::Name(image);
        }
        let computer = Computer::check(computer_args, prompts.working_dir.clone())?;
        let limits = Limits {
            turns: args.limits.max_turns,
            tokens_per_call: args
                .limits
                .max_tokens_per_call
                .unwrap_or_else(|| longest_reply(&model.place)),
            tokens: args.limits.max_tokens,
            time: args.limits.deadline.0,
            cost: args.limits.max_cost,
            ..Limits::default()
        };
        let input = args.input.map(|input| readable(&input)).transpose()?;
        let plan = Self {
            task,
            input,
            model,
            prompts,
            limits,
            command_timeout: args.limits.command_timeout.0,
            compact: if args.limits.compact { Compact::NearTheLimit } else { Compact::Never },
            computer,
        };
        plan.priced()?;
        plan.record()?;
        Ok((plan, secrets))
    }

    /// What is recorded: everything but what may be a secret.
    pub(crate) fn record(&self) -> Result<Value, Usage> {
        let mut plan = self.clone();
        for (_, value) in &mut plan.computer.spec.env {
            value.clear();
        }
        plan.model.hide_secrets();
        serde_json::to_value(plan)
            .map_err(|error| Usage(format!("these settings cannot be recorded: {error}")))
    }

    /// The plan of a recorded episode, with what the user says anew on top.
    pub(crate) fn resume(
        recorded: &Value,
        args: AgentArgs,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let mut plan: Self = serde_json::from_value(recorded.clone()).map_err(|error| {
            Usage(format!("the record does not say how to go on ({error}); start anew"))
        })?;
        plan.computer.give_again(args.computer.env)?;
        let config = settings.config(args.prompt.settings.as_deref())?;
        let secrets = plan.model.override_with(args.model, &config, settings)?;
        plan.priced()?;
        Ok((plan, secrets))
    }

    /// Refuses a limit nobody could tell the reaching of.
    fn priced(&self) -> Result<(), Usage> {
        if self.limits.cost.is_none() || self.model.price.is_some() {
            return Ok(());
        }
        let name = &self.model.name;
        Err(Usage(format!(
            "--max-cost: the price of `{name}` is not known; give it with --prices FILE"
        )))
    }
}

/// Tokens of one reply of a model there, unless the user says otherwise.
pub(crate) fn longest_reply(place: &Place) -> u64 {
    match place {
        Place::Server { .. } => LONGEST_REPLY,
        Place::Here(_) => LONGEST_LOCAL_REPLY,
    }
}

fn from_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    let read = io::stdin().take(LONGEST_TASK + 1).read_to_string(&mut text);
    match read {
        Ok(length) if length as u64 > LONGEST_TASK => {
            Err(Usage("the task is too long; put documents into --input DIR".into()).into())
        }
        Ok(_) => Ok(text),
        Err(error) => Err(Usage(format!("cannot read the task: {error}")).into()),
    }
}

fn prompts(args: &PromptArgs, configured: Option<&Path>) -> anyhow::Result<Prompts> {
    let Some(path) = args.prompt_config.as_deref().or(configured) else {
        let builtin = Prompts::builtin(&args.prompt);
        return builtin.ok_or_else(|| {
            let names = agent::prompt::BUILTIN.join(", ");
            Usage(format!("--prompt: there is no set `{}`; there are {names}", args.prompt)).into()
        });
    };
    let refuse = |why: String| Usage(format!("prompt config {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let prompts =
        Prompts::parse(&text).map_err(|error| refuse(exit::line(&anyhow::Error::new(error))))?;
    if !prompts.unknown.is_empty() {
        let names = prompts.unknown.join(", ");
        output::note(&format!("{}: unknown keys are ignored: {names}", path.display()));
    }
    Ok(prompts)
}

/// An input that can be read, by its full path.
pub(crate) fn readable(input: &Path) -> Result<PathBuf, Usage> {
    let refuse = |error: io::Error| {
        Usage(format!("--input: cannot read {}: {error}; check the path", input.display()))
    };
    let path = fs::canonicalize(input).map_err(refuse)?;
    match path.is_dir() {
        true => fs::read_dir(&path).map(drop).map_err(refuse)?,
        false => fs::File::open(&path).map(drop).map_err(refuse)?,
    }
    Ok(path)
}
