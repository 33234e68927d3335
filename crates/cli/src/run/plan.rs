//! What a run is to do, finished and checked: flags over the settings file over the environment over
//! defaults. It is recorded with the episode and read again to resume it; secrets are kept apart.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use agent::{Limits, Prompts};
use model::{Price, Prices, Sampling, Secret, ToolFormat};
use sandbox::ImageRef;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    agent_args::{AgentArgs, Images, ModelArgs, PromptArgs, Provider},
    args::RuntimeKind,
    config::Config,
    environment,
    exit::{self, Usage},
    output,
    request::Computer,
    settings::Settings,
};

/// No task needs a longer text; documents belong into files.
const LONGEST_TASK: u64 = 16 << 20;

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

/// Which model, and how it is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ModelPlan {
    pub(crate) name: String,
    pub(crate) provider: Provider,
    pub(crate) base_url: String,
    /// The variable the key came from.
    pub(crate) api_key_env: Option<String>,
    pub(crate) tool_format: ToolFormat,
    pub(crate) images: Images,
    pub(crate) sampling: Sampling,
    pub(crate) extra_body: Map<String, Value>,
    pub(crate) silence: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) cache: Option<PathBuf>,
    pub(crate) price: Option<Price>,
    /// Tokens the model takes, where that is known.
    pub(crate) context: Option<u64>,
}

/// What must not be recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    pub(crate) api_key: Option<Secret>,
    pub(crate) headers: Vec<(String, Secret)>,
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
            tokens_per_call: args.limits.max_tokens_per_call,
            tokens: args.limits.max_tokens,
            time: args.limits.deadline.0,
            cost: args.limits.max_cost,
            ..Limits::default()
        };
        if limits.cost.is_some() && model.price.is_none() {
            let text = format!(
                "--max-cost: the price of `{}` is not known; give it with --prices FILE",
                model.name
            );
            return Err(Usage(text).into());
        }
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
        Ok((plan, secrets))
    }

    /// What is recorded: everything but the values of variables, which may be secrets.
    pub(crate) fn record(&self) -> Value {
        let mut plan = self.clone();
        for (_, value) in &mut plan.computer.spec.env {
            value.clear();
        }
        serde_json::to_value(plan).unwrap_or_default()
    }

    /// The plan of a recorded episode, with what the user says anew on top.
    pub(crate) fn resume(
        recorded: &Value,
        args: ModelArgs,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let mut plan: Self = serde_json::from_value(recorded.clone()).map_err(|error| {
            Usage(format!("the record does not say how to go on ({error}); start anew"))
        })?;
        for (name, value) in &mut plan.computer.spec.env {
            let now = environment::copied(name).and_then(|value| value.into_string().ok());
            *value = now.unwrap_or_default();
        }
        let secrets = plan.model.override_with(args, settings)?;
        Ok((plan, secrets))
    }
}

impl ModelPlan {
    fn check(
        args: ModelArgs,
        config: &Config,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let environment = settings.model_variables();
        let name = args.model.or_else(|| config.model.clone()).or_else(|| environment.name.clone());
        let name = name.ok_or_else(|| {
            Usage(
                "no model is named; use --model NAME, llm_name in a settings file, or LLM_NAME"
                    .into(),
            )
        })?;
        let said = args.base_url.or_else(|| config.base_url.clone());
        let said = said.or_else(|| environment.base_url.clone());
        let provider = args.provider.unwrap_or_else(|| provider_of(&name, said.as_deref()));
        let name = without_vendor(&name).to_owned();
        let base_url = said.unwrap_or_else(|| usual_url(provider, &name).to_owned());
        let prices = prices(args.prices.as_deref())?;
        let images = args.images.unwrap_or_else(|| {
            let known = prices.accepts_images(&name).unwrap_or(provider == Provider::Anthropic);
            if known { Images::Yes } else { Images::No }
        });
        let mut plan = Self {
            price: prices.price(&name),
            context: prices.context(&name),
            provider,
            base_url: checked_url(&base_url)?,
            api_key_env: args.api_key_env,
            tool_format: match args.tool_format {
                ToolFormat::Auto => ToolFormat::suggested(&name),
                chosen => chosen,
            },
            images,
            sampling: Sampling {
                temperature: args.temperature,
                top_p: args.top_p,
                top_k: args.top_k,
                min_p: args.min_p,
                repetition_penalty: args.repetition_penalty,
                seed: args.seed,
                stop: args.stop,
                thinking: args.thinking,
            },
            extra_body: args.extra_body.unwrap_or_default(),
            silence: args.silence.0,
            retries: args.retries,
            cache: args.cache,
            name,
        };
        let given = args.api_key.as_deref().map(Secret::new).or_else(|| config.api_key.clone());
        let secrets = plan.secrets(given, &args.header, settings)?;
        Ok((plan, secrets))
    }

    /// What the user says anew about where the model is and who asks.
    fn override_with(&mut self, args: ModelArgs, settings: &Settings) -> anyhow::Result<Secrets> {
        if let Some(name) = args.model {
            self.name = without_vendor(&name).to_owned();
            self.price = prices(args.prices.as_deref())?.price(&self.name);
        }
        if let Some(url) = args.base_url {
            self.base_url = checked_url(&url)?;
        }
        self.provider = args.provider.unwrap_or(self.provider);
        self.api_key_env = args.api_key_env.or_else(|| self.api_key_env.take());
        let given = args.api_key.as_deref().map(Secret::new);
        let given = match given {
            Some(key) => Some(key),
            None => settings.config(None)?.api_key,
        };
        self.secrets(given, &args.header, settings)
    }

    /// The key: as given, else from the variable the user names, else from the usual ones.
    fn secrets(
        &mut self,
        given: Option<Secret>,
        headers: &[String],
        settings: &Settings,
    ) -> anyhow::Result<Secrets> {
        let headers = headers.iter().map(|text| header(text)).collect::<Result<Vec<_>, _>>()?;
        let api_key = match (&self.api_key_env, given) {
            (Some(name), _) => Some(
                environment::variable(name)
                    .and_then(|key| key.into_string().ok())
                    .map(|key| Secret::new(&key))
                    .ok_or_else(|| Usage(format!("--api-key-env: {name} is not set")))?,
            ),
            (None, Some(key)) => Some(key),
            (None, None) => settings.model_variables().key(self.provider),
        };
        if api_key.is_none() && self.base_url == usual_url(self.provider, "gpt-") {
            let usual = match self.provider {
                Provider::Openai => environment::OPENAI_API_KEY,
                Provider::Anthropic => environment::ANTHROPIC_API_KEY,
            };
            let text = format!(
                "{} wants a key; set {usual}, name another variable with --api-key-env, or another \
                 server with --base-url",
                self.base_url
            );
            return Err(Usage(text).into());
        }
        Ok(Secrets { api_key, headers })
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

fn prices(path: Option<&Path>) -> anyhow::Result<Prices> {
    let mut prices = Prices::embedded();
    if let Some(path) = path {
        let refuse = |why: String| Usage(format!("--prices {}: {why}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        prices.merge(Prices::parse(&text).map_err(|error| refuse(error.to_string()))?);
    }
    Ok(prices)
}

fn readable(input: &Path) -> Result<PathBuf, Usage> {
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

/// The protocol of a model nobody said more about.
fn provider_of(name: &str, base_url: Option<&str>) -> Provider {
    let claude = name.starts_with("anthropic/") || name.starts_with("claude");
    match base_url {
        Some(url) if url.contains("api.anthropic.com") => Provider::Anthropic,
        None if claude => Provider::Anthropic,
        _ => Provider::Openai,
    }
}

/// A name without the word that chose a vendor. `openai/gpt-oss…` is a model's full name.
fn without_vendor(name: &str) -> &str {
    let rest = ["openai/", "anthropic/", "hosted_vllm/"].iter().find_map(|p| name.strip_prefix(p));
    rest.filter(|rest| !rest.starts_with("gpt-oss") && !rest.is_empty()).unwrap_or(name)
}

/// Where a model is, unless the user says so.
fn usual_url(provider: Provider, name: &str) -> &'static str {
    let hosted = ["gpt-", "o1", "o3", "o4", "chatgpt-"].iter().any(|start| name.starts_with(start));
    match provider {
        Provider::Anthropic => "https://api.anthropic.com/v1",
        Provider::Openai if hosted && !name.starts_with("gpt-oss") => "https://api.openai.com/v1",
        Provider::Openai => "http://localhost:8000/v1",
    }
}

/// An address that can be recorded: keys do not belong into it.
fn checked_url(url: &str) -> Result<String, Usage> {
    let url = url.trim().trim_end_matches('/');
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
        return Err(Usage(
            "--base-url: the address must start with http:// or https://, such as \
             http://localhost:8000/v1"
                .into(),
        ));
    };
    if rest.contains(['@', '?', '#']) {
        return Err(Usage(
            "--base-url: an address holds no password and no question mark; keys go into \
             --api-key-env or --header"
                .into(),
        ));
    }
    Ok(url.to_owned())
}

/// A header. What is wrong is told without the text, which may be a key.
fn header(text: &str) -> Result<(String, Secret), Usage> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| Usage("--header: there is no colon in it; write NAME: VALUE".into()))?;
    Ok((name.trim().to_owned(), Secret::new(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_vendor_and_server() {
        let usual = |name: &str| {
            let provider = provider_of(name, None);
            let short = without_vendor(name);
            (provider, short.to_owned(), usual_url(provider, short))
        };
        let (local, openai) = ("http://localhost:8000/v1", "https://api.openai.com/v1");
        let anthropic = "https://api.anthropic.com/v1";
        assert_eq!(usual("gpt-4.1"), (Provider::Openai, "gpt-4.1".into(), openai));
        assert_eq!(usual("openai/gpt-5"), (Provider::Openai, "gpt-5".into(), openai));
        assert_eq!(usual("openai/m"), (Provider::Openai, "m".into(), local));
        let oss = "openai/gpt-oss-120b";
        assert_eq!(usual(oss), (Provider::Openai, oss.into(), local));
        assert_eq!(usual("Qwen/Qwen3-8B"), (Provider::Openai, "Qwen/Qwen3-8B".into(), local));
        assert_eq!(usual("claude-x"), (Provider::Anthropic, "claude-x".into(), anthropic));
        // A proxy in front of everybody speaks the usual protocol.
        assert_eq!(provider_of("claude-x", Some("http://proxy/v1")), Provider::Openai);
    }

    #[test]
    fn addresses_hold_no_secrets() {
        assert_eq!(checked_url(" http://h:1/v1/ ").unwrap(), "http://h:1/v1");
        for bad in ["", "h/v1", "http://", "http://me:pw@h/v1", "http://h/v1?key=sk-1"] {
            let error = checked_url(bad).unwrap_err().to_string();
            assert!(error.contains("--base-url") && !error.contains("sk-1"), "{error}");
        }
        let error = header("Authorization Bearer sk-1").unwrap_err().to_string();
        assert!(!error.contains("sk-1"), "{error}");
    }
}
