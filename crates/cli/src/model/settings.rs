//! Settings of a model: flags over the settings file over the environment over defaults.
//!
//! Keys are separate from what is recorded, and what looks like a key is hidden there.

use std::{
    fmt, fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use model::{Price, Prices, Sampling, Secret, ToolFormat};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Adapter, LocalSettings, ModelFile, store};
use crate::{
    args::model::{AdapterArg, Forcing, Images, LocalArgs, ModelArgs, Provider},
    console::output,
    exit::UsageError,
    settings::{Settings, config::Config, environment},
};

/// Default idle timeout of a server.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Default number of retries.
const RETRIES: u32 = 5;

/// Default temperature of local models: small ones derail easily.
const LOCAL_TEMPERATURE: f64 = 0.2;

/// Recorded instead of a secret.
const HIDDEN: &str = "[hidden]";

/// Which model, and how it is called.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ModelSettings {
    pub(crate) name: String,
    #[serde(rename = "place")]
    pub(crate) location: ModelLocation,
    /// The variable that holds the key.
    pub(crate) api_key_env: Option<String>,
    pub(crate) tool_format: ToolFormat,
    pub(crate) forced: Forcing,
    pub(crate) images: Images,
    pub(crate) sampling: Sampling,
    pub(crate) extra_body: Map<String, Value>,
    pub(crate) silence: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) cache: Option<PathBuf>,
    pub(crate) price: Option<Price>,
    /// Context window in tokens, if it is known.
    pub(crate) context: Option<u64>,
    /// A note for a user who chose no model, or not its adapter.
    #[serde(skip)]
    pub(crate) hint: Option<String>,
    /// Nothing in settings that are read from a record.
    #[serde(skip)]
    pub(crate) defaults: Defaults,
}

/// What the user did not choose.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Defaults {
    model: bool,
    adapter: bool,
}

/// Where a model runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ModelLocation {
    /// On a server.
    Server {
        /// Its protocol.
        provider: Provider,
        /// Its base URL.
        base_url: String,
    },
    /// In this process.
    #[serde(rename = "here")]
    InProcess(LocalSettings),
}

impl fmt::Display for ModelLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { base_url, .. } => f.write_str(base_url),
            Self::InProcess(_) => f.write_str("this process"),
        }
    }
}

/// Secrets, which are not recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    pub(crate) api_key: Option<Secret>,
    pub(crate) headers: Vec<(String, Secret)>,
}

impl ModelSettings {
    /// Combines arguments, settings file and environment.
    pub(crate) fn check(
        args: ModelArgs,
        config: &Config,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let environment = settings.model_variables();
        let name = args.model.or_else(|| config.model.clone()).or_else(|| environment.name.clone());
        let prefixed = name.as_deref().and_then(ModelFile::prefixed);
        if prefixed.is_some() && (args.base_url.is_some() || args.provider.is_some()) {
            let text = "local:NAME is a local model; it takes no --base-url and no --provider";
            return Err(UsageError(text.into()).into());
        }
        let base_url = args.base_url.or_else(|| config.base_url.clone());
        let base_url = base_url.or_else(|| environment.base_url.clone());
        let adapter = config.adapter.clone().or_else(|| environment.adapter.clone());
        let Chosen { name, location, hint, defaults } =
            choose(name, base_url, args.provider, args.local, adapter, settings)?;
        let tool_format = match args.tool_format {
            ToolFormat::Auto => ToolFormat::suggested(&name),
            chosen => chosen,
        };
        let temperature =
            matches!(location, ModelLocation::InProcess(_)).then_some(LOCAL_TEMPERATURE);
        let prices = prices(args.prices.as_deref())?;
        let mut chosen = Self {
            price: price(&prices, &name, &location),
            context: prices.context(&name),
            images: args.images.unwrap_or_else(|| images(&prices, &name, &location)),
            forced: forcing(args.force_calls, tool_format, &location)?,
            location,
            api_key_env: args.api_key_env,
            tool_format,
            sampling: Sampling {
                temperature: args.temperature.or(temperature),
                top_p: args.top_p,
                top_k: args.top_k,
                min_p: args.min_p,
                repetition_penalty: args.repetition_penalty,
                seed: args.seed,
                stop: args.stop,
                thinking: args.thinking,
                ..Sampling::default()
            },
            extra_body: args.extra_body.unwrap_or_default(),
            silence: args.silence.map_or(Some(IDLE_TIMEOUT), |limit| limit.0),
            retries: args.retries.unwrap_or(RETRIES),
            cache: args.cache.map(absolute),
            name,
            hint,
            defaults,
        };
        let given = args.api_key.as_deref().map(Secret::new).or_else(|| config.api_key.clone());
        let secrets = chosen.secrets(given, &args.header, settings)?;
        tracing::debug!(model = chosen.name, location = %chosen.location, format = %chosen.tool_format, "model");
        Ok((chosen, secrets))
    }

    /// Applies arguments to recorded settings.
    pub(crate) fn override_with(
        &mut self,
        args: ModelArgs,
        config: &Config,
        settings: &Settings,
    ) -> anyhow::Result<Secrets> {
        let recorded = self.name.clone();
        self.move_to(args.model, args.base_url, args.provider, args.local, settings)?;
        let prices = prices(args.prices.as_deref())?;
        if self.name != recorded {
            self.images = images(&prices, &self.name, &self.location);
        }
        self.price = price(&prices, &self.name, &self.location).or(self.price);
        self.context = prices.context(&self.name);
        self.forced =
            forcing(args.force_calls.or(Some(self.forced)), self.tool_format, &self.location)
                .or_else(|error| match args.force_calls {
                    None => Ok(Forcing::No),
                    Some(_) => Err(error),
                })?;
        match args.extra_body {
            Some(body) => self.extra_body = body,
            None if is_hidden(&self.extra_body) => {
                let text = "the keys in --extra-body are not recorded; repeat the option";
                return Err(UsageError(text.into()).into());
            }
            None => {}
        }
        // A key on the command line wins over the recorded variable.
        let recorded = self.api_key_env.take().filter(|_| args.api_key.is_none());
        self.api_key_env = args.api_key_env.or(recorded);
        self.images = args.images.unwrap_or(self.images);
        self.silence = args.silence.map_or(self.silence, |limit| limit.0);
        self.retries = args.retries.unwrap_or(self.retries);
        self.cache = args.cache.map(absolute).or_else(|| self.cache.take());
        let recorded = std::mem::take(&mut self.sampling);
        self.sampling = Sampling {
            temperature: args.temperature.or(recorded.temperature),
            top_p: args.top_p.or(recorded.top_p),
            top_k: args.top_k.or(recorded.top_k),
            min_p: args.min_p.or(recorded.min_p),
            repetition_penalty: args.repetition_penalty.or(recorded.repetition_penalty),
            seed: args.seed.or(recorded.seed),
            stop: if args.stop.is_empty() { recorded.stop } else { args.stop },
            thinking: args.thinking.or(recorded.thinking),
            ..Sampling::default()
        };
        let given = args.api_key.as_deref().map(Secret::new).or_else(|| config.api_key.clone());
        self.secrets(given, &args.header, settings)
    }

    /// Switches to another model, or to another server.
    fn move_to(
        &mut self,
        model: Option<String>,
        url: Option<String>,
        provider: Option<Provider>,
        local: LocalArgs,
        settings: &Settings,
    ) -> anyhow::Result<()> {
        let (old_url, old_provider) = match &mut self.location {
            ModelLocation::Server { provider, base_url } => {
                (Some(base_url.clone()), Some(*provider))
            }
            ModelLocation::InProcess(plan) if model.is_none() && url.is_none() => {
                if provider.is_some() {
                    let text =
                        "--provider: this run uses a local model; choose another with --model";
                    return Err(UsageError(text.into()).into());
                }
                plan.override_with(local, &store::catalogue()?);
                return Ok(());
            }
            ModelLocation::InProcess(_) => (None, None),
        };
        let (url, provider) = (url.or(old_url), provider.or(old_provider));
        let name = model.unwrap_or_else(|| self.name.clone());
        let adapter_given = local.adapter.is_some();
        let chosen = choose(Some(name), url, provider, local, None, settings)?;
        self.settle(chosen, adapter_given);
        Ok(())
    }

    /// Keeps what the user set for the previous model, but not its defaults.
    fn settle(&mut self, chosen: Chosen, adapter_given: bool) {
        let previous = std::mem::replace(&mut self.location, chosen.location);
        let name = std::mem::replace(&mut self.name, chosen.name);
        match (previous, &mut self.location) {
            (ModelLocation::InProcess(previous), ModelLocation::InProcess(now)) => {
                now.context = now.context.or(previous.context);
                now.threads = now.threads.or(previous.threads);
                match previous.adapter {
                    _ if adapter_given => {}
                    // The same model: with the adapter it had, or without one.
                    adapter if previous.file == now.file => now.adapter = adapter,
                    Some(Adapter::File(path)) => output::note(&format!(
                        "the adapter {} belongs to the previous model and is not used; give another with --adapter",
                        path.display()
                    )),
                    Some(Adapter::Bundled { .. }) | None => {}
                }
            }
            (ModelLocation::Server { .. }, ModelLocation::InProcess(_)) => {
                self.sampling.temperature.get_or_insert(LOCAL_TEMPERATURE);
            }
            (ModelLocation::InProcess(_), ModelLocation::Server { .. }) => {
                let default = self.sampling.temperature == Some(LOCAL_TEMPERATURE);
                self.sampling.temperature = self.sampling.temperature.filter(|_| !default);
            }
            (ModelLocation::Server { .. }, ModelLocation::Server { .. }) => {}
        }
        if self.name != name && self.tool_format == ToolFormat::suggested(&name) {
            self.tool_format = ToolFormat::suggested(&self.name);
        }
    }

    /// Takes the adapter, or none, of a recorded run with the same local model, unless the user chose one. A recorded
    /// file is not taken: an option named it, and is missing now. Returns whether the default is another.
    pub(crate) fn keep_adapter(
        &mut self,
        recorded: ModelLocation,
        settings: &Settings,
    ) -> anyhow::Result<bool> {
        let (ModelLocation::InProcess(local), ModelLocation::InProcess(recorded)) =
            (&mut self.location, recorded)
        else {
            return Ok(false);
        };
        let is_file = matches!(recorded.adapter, Some(Adapter::File(_)));
        let is_kept = self.defaults.adapter && recorded.file == local.file && !is_file;
        if !is_kept || recorded.adapter == local.adapter {
            return Ok(false);
        }
        // Another adapter cannot be chosen in this run, so the hint does not offer it.
        local.adapter = None;
        self.hint = local.hint(self.defaults.model, settings)?;
        local.adapter = recorded.adapter;
        Ok(true)
    }

    /// The model's name, and the adapter it is used with.
    pub(crate) fn title(&self) -> String {
        match &self.location {
            ModelLocation::InProcess(local) => local.title(),
            ModelLocation::Server { .. } => self.name.clone(),
        }
    }

    /// The adapter of a local model.
    pub(crate) fn adapter(&self) -> Option<&Adapter> {
        match &self.location {
            ModelLocation::InProcess(local) => local.adapter.as_ref(),
            ModelLocation::Server { .. } => None,
        }
    }

    /// Hides what looks like a secret. Proxies take keys in the body of a request.
    pub(crate) fn hide_secrets(&mut self) {
        hide(&mut self.extra_body);
    }

    /// The key: from the variable the user named, else as given, else from the default variables.
    fn secrets(
        &mut self,
        given: Option<Secret>,
        headers: &[String],
        settings: &Settings,
    ) -> anyhow::Result<Secrets> {
        let headers = headers.iter().map(|text| header(text)).collect::<Result<Vec<_>, _>>()?;
        let ModelLocation::Server { provider, base_url } = &self.location else {
            return Ok(Secrets::default());
        };
        let api_key = match (&self.api_key_env, given) {
            (Some(name), _) => Some(environment::api_key(name)?),
            (None, Some(key)) => Some(key),
            (None, None) => settings.model_variables().key(*provider),
        };
        if api_key.is_none() && base_url == default_url(*provider, "gpt-") {
            let variable = match provider {
                Provider::Openai => environment::OPENAI_API_KEY,
                Provider::Anthropic => environment::ANTHROPIC_API_KEY,
            };
            let text = format!(
                "{base_url} requires a key; set {variable}, name another variable with --api-key-env, or use another \
                 server with --base-url"
            );
            return Err(UsageError(text).into());
        }
        Ok(Secrets { api_key, headers })
    }
}

/// A model and where it runs.
struct Chosen {
    name: String,
    location: ModelLocation,
    hint: Option<String>,
    defaults: Defaults,
}

/// Chooses the model. With neither a name nor a server, it is the default local model. `adapter` is that of the settings
/// file or the environment, for local models.
fn choose(
    name: Option<String>,
    url: Option<String>,
    provider: Option<Provider>,
    mut local: LocalArgs,
    adapter: Option<AdapterArg>,
    settings: &Settings,
) -> anyhow::Result<Chosen> {
    let file = match &name {
        Some(name) if url.is_some() || provider.is_some() => ModelFile::prefixed(name),
        Some(name) => ModelFile::named(name),
        None if url.is_none() && provider.is_none() => Some(ModelFile::default_model()?),
        None => {
            let text = "no model given; use --model NAME, llm_name in a settings file, or LLM_NAME";
            return Err(UsageError(text.into()).into());
        }
    };
    if let Some(file) = file {
        local.adapter = local.adapter.or(adapter);
        let defaults = Defaults { model: name.is_none(), adapter: local.adapter.is_none() };
        let local = LocalSettings::new(file, local, NonZeroU32::MIN, &store::catalogue()?);
        let hint = local.hint(defaults.model, settings)?;
        let (name, location) = (local.file.name(), ModelLocation::InProcess(local));
        return Ok(Chosen { name, location, hint, defaults });
    }
    if local != LocalArgs::default() {
        let text = "--adapter, --threads and --context-tokens apply only to local models: --model local:NAME or FILE.gguf";
        return Err(UsageError(text.into()).into());
    }
    let name = name.unwrap_or_default();
    if url.is_none() && Path::new(&name).is_dir() {
        let text = format!(
            "{name} is a directory; --model takes a GGUF file or the name of a server's model: serve the directory, for \
             example with vLLM, and give its address with --base-url"
        );
        return Err(UsageError(text).into());
    }
    let provider = provider.unwrap_or_else(|| provider_of(&name, url.as_deref()));
    let name = strip_vendor(&name).to_owned();
    let url = url.unwrap_or_else(|| default_url(provider, &name).to_owned());
    Ok(Chosen {
        name,
        location: ModelLocation::Server { provider, base_url: checked_url(&url)? },
        hint: None,
        defaults: Defaults::default(),
    })
}

/// The price of a model. A local model costs nothing.
fn price(prices: &Prices, name: &str, location: &ModelLocation) -> Option<Price> {
    match location {
        ModelLocation::Server { .. } => prices.price(name),
        ModelLocation::InProcess(_) => Some(Price::default()),
    }
}

/// Whether a model accepts images.
fn images(prices: &Prices, name: &str, location: &ModelLocation) -> Images {
    let can = match location {
        ModelLocation::InProcess(_) => false,
        ModelLocation::Server { provider, .. } => {
            prices.accepts_images(name).unwrap_or(*provider == Provider::Anthropic)
        }
    };
    if can { Images::Yes } else { Images::No }
}

/// Whether responses are forced to end with a tool call.
fn forcing(
    requested: Option<Forcing>,
    format: ToolFormat,
    location: &ModelLocation,
) -> Result<Forcing, UsageError> {
    let local = matches!(location, ModelLocation::InProcess(_));
    match requested {
        Some(Forcing::Yes) if !local => {
            Err(UsageError("--force-calls applies only to local models".into()))
        }
        Some(Forcing::Yes) if !format.can_be_forced() => Err(UsageError(format!(
            "--force-calls: calls cannot be forced in the format {format}; choose --tool-format hermes or fenced"
        ))),
        Some(requested) => Ok(requested),
        None => Ok(Forcing::No),
    }
}

/// Absolute, since a resumed run may start in another directory.
fn absolute(dir: PathBuf) -> PathBuf {
    std::path::absolute(&dir).unwrap_or(dir)
}

/// Hides texts under names that look like those of secrets.
fn hide(map: &mut Map<String, Value>) {
    for (name, value) in map {
        match value {
            Value::String(text) if is_secret(name) => HIDDEN.clone_into(text),
            Value::Object(below) => hide(below),
            _ => {}
        }
    }
}

fn is_hidden(map: &Map<String, Value>) -> bool {
    map.values().any(|value| match value {
        Value::String(text) => text == HIDDEN,
        Value::Object(below) => is_hidden(below),
        _ => false,
    })
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    ["key", "token", "secret", "password", "authorization", "credential"]
        .iter()
        .any(|word| name.contains(word))
}

fn prices(path: Option<&Path>) -> anyhow::Result<Prices> {
    let mut prices = Prices::embedded();
    if let Some(path) = path {
        let invalid = |why: String| UsageError(format!("--prices {}: {why}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
        prices.merge(Prices::parse(&text).map_err(|error| invalid(error.to_string()))?);
    }
    Ok(prices)
}

/// The protocol of a model, by its name and server.
fn provider_of(name: &str, base_url: Option<&str>) -> Provider {
    let claude = name.starts_with("anthropic/") || name.starts_with("claude");
    match base_url {
        Some(url) if url.contains("api.anthropic.com") => Provider::Anthropic,
        None if claude => Provider::Anthropic,
        _ => Provider::Openai,
    }
}

/// A name without the prefix that chose a vendor. `openai/gpt-oss…` is a model's full name.
pub(crate) fn strip_vendor(name: &str) -> &str {
    let rest = ["openai/", "anthropic/", "hosted_vllm/"].iter().find_map(|p| name.strip_prefix(p));
    rest.filter(|rest| !rest.starts_with("gpt-oss") && !rest.is_empty()).unwrap_or(name)
}

/// The default server of a model.
fn default_url(provider: Provider, name: &str) -> &'static str {
    let hosted = ["gpt-", "o1", "o3", "o4", "chatgpt-"].iter().any(|start| name.starts_with(start));
    match provider {
        Provider::Anthropic => "https://api.anthropic.com/v1",
        Provider::Openai if hosted && !name.starts_with("gpt-oss") => "https://api.openai.com/v1",
        Provider::Openai => "http://localhost:8000/v1",
    }
}

/// Checks a base URL, which is recorded and must not contain keys.
fn checked_url(url: &str) -> Result<String, UsageError> {
    let url = url.trim().trim_end_matches('/');
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
        return Err(UsageError(
            "--base-url: the address must start with http:// or https://, such as \
             http://localhost:8000/v1"
                .into(),
        ));
    };
    if rest.contains(['@', '?', '#']) {
        return Err(UsageError(
            "--base-url: the address must not contain a password or query; keys go into \
             --api-key-env or --header"
                .into(),
        ));
    }
    Ok(url.to_owned())
}

/// Parses a header. Errors do not quote the text, which may be a key.
fn header(text: &str) -> Result<(String, Secret), UsageError> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| UsageError("--header: missing colon; write NAME: VALUE".into()))?;
    Ok((name.trim().to_owned(), Secret::new(value)))
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
