//! The model behind `serve`, and where its episodes are kept.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use agent::Limits;
use anyhow::Context;
use clap::Args;
use episodes::{EpisodeOptions, ServedModel, Store};
use model::{SharedModel, ToolFormat};
use sandbox::Spec;
use server::ChatOptions;

use super::chat::{self, ChatArgs};
use crate::{
    args::{
        model::{Images, LocalArgs, ModelArgs, Provider},
        values,
    },
    commands::run::{FOREVER, LimitArgs, PromptArgs, max_response_tokens, prompts, vision},
    exit::UsageError,
    model::{AnyModel, ModelSettings},
    settings::Settings,
};

/// What clients are told that need a model where there is none.
pub(super) const NO_MODEL: &str =
    "this server has no model; start it with --model NAME to play episodes";

/// Options of episodes.
#[derive(Debug, Args)]
pub(crate) struct EpisodeArgs {
    #[command(flatten)]
    model: ServedModelArgs,
    #[command(flatten)]
    chat: ChatArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

/// The served model: the options of `run`, but for the key, whose option is that of the server's own key here.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
struct ServedModelArgs {
    /// Model that plays episodes, as in `run`; without it only sandboxes are served
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Base URL of the model's server, including the version [else: as in `run`]
    #[arg(long, value_name = "URL", requires = "model")]
    base_url: Option<String>,
    /// Environment variable with the API key of the model's server [else: $LLM_API_KEY, then $OPENAI_API_KEY or
    /// $ANTHROPIC_API_KEY]
    #[arg(long, value_name = "VAR", requires = "model")]
    model_key_env: Option<String>,
    /// Protocol of the model's server [default: by the model's name]
    #[arg(long, value_enum, requires = "model")]
    provider: Option<Provider>,
    /// Tool-call format: auto, native, hermes, qwen3-coder, fenced
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    tool_format: ToolFormat,
    /// Whether the model accepts images [default: by the model's name]
    #[arg(long, value_enum, requires = "model")]
    images: Option<Images>,
    /// Sampling temperature [default: the model server's; 0.2 for a local model]
    #[arg(long, value_name = "T", value_parser = values::temperature, allow_negative_numbers = true, requires = "model")]
    temperature: Option<f64>,
    /// JSON object to merge into every request to the model's server
    #[arg(long, value_name = "JSON", value_parser = values::object, requires = "model")]
    extra_body: Option<serde_json::Map<String, serde_json::Value>>,
    /// HTTP header of every request to the model's server, never recorded; repeatable
    #[arg(long, value_name = "NAME: VALUE", requires = "model")]
    header: Vec<String>,
    /// Retries of a request to the model's server that failed temporarily [default: 5]
    #[arg(long, value_name = "N", requires = "model")]
    retries: Option<u32>,
    /// File with prices of models, added to the built-in table
    #[arg(long, value_name = "FILE", requires = "model")]
    prices: Option<PathBuf>,
    #[command(flatten)]
    local: LocalArgs,
}

impl From<ServedModelArgs> for ModelArgs {
    fn from(args: ServedModelArgs) -> Self {
        Self {
            model: args.model,
            base_url: args.base_url,
            api_key_env: args.model_key_env,
            provider: args.provider,
            tool_format: args.tool_format,
            images: args.images,
            temperature: args.temperature,
            extra_body: args.extra_body,
            header: args.header,
            retries: args.retries,
            prices: args.prices,
            local: args.local,
            ..Self::default()
        }
    }
}

/// Opens the model, and episodes and files in the server's directory. Without a model there are none, except where those
/// of this directory are to be kept.
pub(super) async fn open(
    args: EpisodeArgs,
    data: &Path,
    keeps_episodes: bool,
    spec: Spec,
    settings: &Settings,
) -> anyhow::Result<Option<(EpisodeOptions, ChatOptions)>> {
    let has_model = args.model.model.is_some();
    if !has_model && !keeps_episodes {
        return Ok(None);
    }
    let config = settings.config(args.prompt.settings.as_deref())?;
    let prompts = prompts(&args.prompt, config.prompt_config.as_deref())?;
    let store = store(data)?;
    let mut limits = Limits::default();
    let mut models = Vec::new();
    let mut gateway = None;
    if has_model {
        let (mut chosen, secrets) = ModelSettings::check(args.model.into(), &config, settings)?;
        if args.limits.episode.max_cost.is_some() && chosen.price.is_none() {
            let text = format!(
                "--max-cost: the price of `{}` is not known; give it with --prices FILE",
                chosen.name
            );
            return Err(UsageError(text).into());
        }
        gateway = args.chat.gateway(&chosen, &secrets, data)?;
        limits.tokens_per_call = max_response_tokens(&chosen.location);
        let (model, context) = AnyModel::open(&chosen, secrets, settings).await?;
        chosen.context = context;
        models.push(ServedModel {
            name: chosen.name,
            model: SharedModel::new(model),
            sampling: chosen.sampling,
            price: chosen.price,
            context: chosen.context,
            vision: vision(chosen.images),
        });
    }
    args.limits.apply(&mut limits);
    let chat = chat::open(data, gateway)?;
    let episodes = EpisodeOptions {
        spec,
        prompts,
        limits,
        command_timeout: args.limits.episode.command_timeout.0.unwrap_or(FOREVER),
        compact: args.limits.episode.compact,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        ..EpisodeOptions::new(Arc::new(store), models)
    };
    Ok(Some((episodes, chat)))
}

/// Opens the directory of episodes.
fn store(data: &Path) -> anyhow::Result<Store> {
    Store::open(&data.join("episodes")).with_context(|| {
        format!("cannot keep episodes in {}; choose another --data-dir", data.display())
    })
}
