//! The settings of a run, resolved and checked: flags over the settings file over the environment over defaults. They are
//! recorded with the episode and read back to resume it; secrets are kept apart.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use agent::{
    Compaction, EpisodeSettings, FileChanges, Limits, Prompts,
    tools::{Tools, Vision},
};
use sandbox::ImageRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    args::{PromptArgs, RunArgs},
    task,
};
use crate::{
    args::{model::Images, sandbox::RuntimeKind},
    console::output,
    exit::{self, UsageError},
    model::{ModelLocation, ModelSettings, Secrets},
    settings::{Settings, sandbox::SandboxSettings},
};

/// Default maximum tokens of a response.
const MAX_RESPONSE: u64 = 65_536;

/// The same for an in-process model. Small models may repeat themselves endlessly, and are slow.
const MAX_LOCAL_RESPONSE: u64 = 4096;

/// The time limit of a command without one: a year.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The settings of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunSettings {
    pub(crate) task: String,
    pub(crate) input: Option<PathBuf>,
    pub(crate) model: ModelSettings,
    pub(crate) prompts: Prompts,
    pub(crate) limits: Limits,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) compact: Compact,
    #[serde(rename = "computer")]
    pub(crate) sandbox: SandboxSettings,
}

/// Whether old tool results are shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compact {
    /// Near the token limit of the conversation.
    NearTheLimit,
    /// Never.
    Never,
}

impl RunSettings {
    /// Resolves and checks all settings. Creates nothing.
    pub(crate) fn check(args: RunArgs, settings: &Settings) -> anyhow::Result<(Self, Secrets)> {
        let config = settings.config(args.prompt.settings.as_deref())?;
        let task = task::text(args.task, args.query, args.task_file.as_deref())?;
        let prompts = prompts(&args.prompt, config.prompt_config.as_deref())?;
        // Checked now, so that no sandbox is created for a template that cannot be rendered.
        prompts
            .render(&task, &args.sandbox.network)
            .map_err(|error| UsageError(error.to_string()))?;
        let (model, secrets) = ModelSettings::check(args.model, &config, settings)?;
        let mut sandbox_args = args.sandbox;
        if let Some(image) = args.docker_image {
            sandbox_args.runtime = RuntimeKind::Docker;
            sandbox_args.image = ImageRef::Name(image);
        }
        let sandbox = SandboxSettings::check(sandbox_args, prompts.working_dir.clone())?;
        let tokens_per_call = max_response_tokens(&model.location);
        let mut limits = Limits { tokens_per_call, ..Limits::default() };
        args.limits.apply(&mut limits);
        let input = args.input.map(|input| readable(&input)).transpose()?;
        sandbox.check_size("--input", input.iter().map(PathBuf::as_path))?;
        let run = Self {
            task,
            input,
            model,
            prompts,
            limits,
            command_timeout: args.limits.episode.command_timeout.0,
            compact: if args.limits.episode.compact {
                Compact::NearTheLimit
            } else {
                Compact::Never
            },
            sandbox,
        };
        run.check_price()?;
        run.record()?;
        Ok((run, secrets))
    }

    /// The settings as they are recorded: without what may be a secret.
    pub(crate) fn record(&self) -> Result<Value, UsageError> {
        let mut record = self.clone();
        for (_, value) in &mut record.sandbox.spec.env {
            value.clear();
        }
        record.model.hide_secrets();
        serde_json::to_value(record)
            .map_err(|error| UsageError(format!("these settings cannot be recorded: {error}")))
    }

    /// The recorded settings of an episode, with what the user overrides now.
    pub(crate) fn resume(
        recorded: &Value,
        args: RunArgs,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let mut run: Self = serde_json::from_value(recorded.clone()).map_err(|error| {
            UsageError(format!(
                "cannot resume: the recorded settings are unreadable ({error}); start a new run"
            ))
        })?;
        run.sandbox.restore_env(args.sandbox.env)?;
        let config = settings.config(args.prompt.settings.as_deref())?;
        let secrets = run.model.override_with(args.model, &config, settings)?;
        args.limits.apply(&mut run.limits);
        run.check_price()?;
        Ok((run, secrets))
    }

    /// Rejects `--max-cost` when the model's price is unknown.
    fn check_price(&self) -> Result<(), UsageError> {
        if self.limits.cost.is_none() || self.model.price.is_some() {
            return Ok(());
        }
        let name = &self.model.name;
        Err(UsageError(format!(
            "--max-cost: the price of `{name}` is not known; give it with --prices FILE"
        )))
    }
}

impl RunSettings {
    /// The settings of the episode.
    pub(crate) fn episode(&self) -> EpisodeSettings {
        let mut tools = Tools { workdir: self.prompts.working_dir.clone(), ..Tools::default() };
        tools.timeout = self.command_timeout.unwrap_or(FOREVER);
        tools.vision = vision(self.model.images);
        EpisodeSettings {
            limits: self.limits.clone(),
            tools,
            sampling: self.model.sampling.clone(),
            price: self.model.price,
            compaction: match self.compact {
                Compact::NearTheLimit => {
                    let window = self.model.context.unwrap_or(u64::MAX).min(self.limits.tokens);
                    Some(Compaction { window: Some(window), ..Compaction::default() })
                }
                Compact::Never => None,
            },
            output_dir: Some(self.prompts.output_dir.clone()),
            answer_file: None,
            changes: FileChanges::Recorded,
        }
    }
}

/// Default maximum tokens of a response of a model at this location.
pub(crate) fn max_response_tokens(location: &ModelLocation) -> u64 {
    match location {
        ModelLocation::Server { .. } => MAX_RESPONSE,
        ModelLocation::InProcess(_) => MAX_LOCAL_RESPONSE,
    }
}

/// The prompts that the user chose.
pub(crate) fn prompts(args: &PromptArgs, configured: Option<&Path>) -> anyhow::Result<Prompts> {
    let Some(path) = args.prompt_config.as_deref().or(configured) else {
        let builtin = Prompts::builtin(&args.prompt);
        return builtin.ok_or_else(|| {
            let names = agent::prompt::BUILTIN.join(", ");
            UsageError(format!("--prompt: there is no set `{}`; there are {names}", args.prompt))
                .into()
        });
    };
    let refuse = |why: String| UsageError(format!("prompt config {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let prompts = Prompts::parse(&text)
        .map_err(|error| refuse(exit::describe(&anyhow::Error::new(error))))?;
    if !prompts.unknown.is_empty() {
        let names = prompts.unknown.join(", ");
        output::note(&format!("{}: unknown keys are ignored: {names}", path.display()));
    }
    Ok(prompts)
}

/// The absolute path of an input that can be read.
pub(crate) fn readable(input: &Path) -> Result<PathBuf, UsageError> {
    let refuse = |error: io::Error| {
        UsageError(format!("--input: cannot read {}: {error}; check the path", input.display()))
    };
    let path = fs::canonicalize(input).map_err(refuse)?;
    match path.is_dir() {
        true => fs::read_dir(&path).map(drop).map_err(refuse)?,
        false => fs::File::open(&path).map(drop).map_err(refuse)?,
    }
    Ok(path)
}

/// What tools may show to a model.
pub(crate) fn vision(images: Images) -> Vision {
    match images {
        Images::Yes => Vision::Images,
        Images::No => Vision::TextOnly,
    }
}
