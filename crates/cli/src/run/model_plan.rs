//! Which model a run asks, where it is and who asks: chosen from flags, settings file and environment.
//!
//! Keys are kept apart from what is recorded, and what looks like one is hidden there.

use std::{
    fmt, fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use model::{Price, Prices, Sampling, Secret, ToolFormat};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    agent_args::{Forcing, Images, LocalArgs, ModelArgs, Provider},
    config::Config,
    environment,
    exit::Usage,
    local::{LocalPlan, ModelFile},
    output,
    settings::Settings,
};

/// A server that says nothing for this long has failed, unless the user says otherwise.
const SILENCE: Duration = Duration::from_secs(600);

/// So often a call that failed is made again, unless the user says otherwise.
const RETRIES: u32 = 5;

/// How random a model in this process is, unless the user says otherwise: small ones go astray easily.
const LOCAL_TEMPERATURE: f64 = 0.2;

/// What is recorded in the place of a secret.
const HIDDEN: &str = "[hidden]";

/// Which model, and how it is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ModelPlan {
    pub(crate) name: String,
    pub(crate) place: Place,
    /// The variable the key came from.
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
    /// Tokens the model takes, where that is known.
    pub(crate) context: Option<u64>,
    /// What a user who named no model may want to know.
    #[serde(skip)]
    pub(crate) hint: Option<String>,
}

/// Where a model is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// At a server.
    Server {
        /// The protocol it speaks.
        provider: Provider,
        /// Its address.
        base_url: String,
    },
    /// In this process.
    Here(LocalPlan),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { base_url, .. } => f.write_str(base_url),
            Self::Here(_) => f.write_str("this process"),
        }
    }
}

/// What must not be recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    pub(crate) api_key: Option<Secret>,
    pub(crate) headers: Vec<(String, Secret)>,
}

impl ModelPlan {
    /// Puts everything together.
    pub(crate) fn check(
        args: ModelArgs,
        config: &Config,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Secrets)> {
        let environment = settings.model_variables();
        let name = args.model.or_else(|| config.model.clone()).or_else(|| environment.name.clone());
        let marked = name.as_deref().and_then(ModelFile::marked);
        if marked.is_some() && (args.base_url.is_some() || args.provider.is_some()) {
            let text =
                "a model called local:NAME runs in this process, without --base-url and --provider";
            return Err(Usage(text.into()).into());
        }
        let said = args.base_url.or_else(|| config.base_url.clone());
        let said = said.or_else(|| environment.base_url.clone());
        let Chosen { name, place, hint } = choose(name, said, args.provider, args.local, settings)?;
        let tool_format = match args.tool_format {
            ToolFormat::Auto => ToolFormat::suggested(&name),
            chosen => chosen,
        };
        let temperature = matches!(place, Place::Here(_)).then_some(LOCAL_TEMPERATURE);
        let prices = prices(args.prices.as_deref())?;
        let mut plan = Self {
            price: price(&prices, &name, &place),
            context: prices.context(&name),
            images: args.images.unwrap_or_else(|| images(&prices, &name, &place)),
            forced: forcing(args.force_calls, tool_format, &place)?,
            place,
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
            silence: args.silence.map_or(Some(SILENCE), |limit| limit.0),
            retries: args.retries.unwrap_or(RETRIES),
            cache: args.cache.map(absolute),
            name,
            hint,
        };
        let given = args.api_key.as_deref().map(Secret::new).or_else(|| config.api_key.clone());
        let secrets = plan.secrets(given, &args.header, settings)?;
        Ok((plan, secrets))
    }

    /// What the user says anew about the model of an earlier process.
    pub(crate) fn override_with(
        &mut self,
        args: ModelArgs,
        config: &Config,
        settings: &Settings,
    ) -> anyhow::Result<Secrets> {
        let then = self.name.clone();
        self.move_to(args.model, args.base_url, args.provider, args.local, settings)?;
        let prices = prices(args.prices.as_deref())?;
        if self.name != then {
            self.images = images(&prices, &self.name, &self.place);
        }
        self.price = price(&prices, &self.name, &self.place).or(self.price);
        self.context = prices.context(&self.name);
        self.forced =
            forcing(args.force_calls.or(Some(self.forced)), self.tool_format, &self.place)
                .or_else(|error| match args.force_calls {
                    None => Ok(Forcing::No),
                    Some(_) => Err(error),
                })?;
        match args.extra_body {
            Some(body) => self.extra_body = body,
            None if is_hidden(&self.extra_body) => {
                let text = "the keys in --extra-body are not recorded; give it again";
                return Err(Usage(text.into()).into());
            }
            None => {}
        }
        // A key given now wins over the variable of then.
        let then = self.api_key_env.take().filter(|_| args.api_key.is_none());
        self.api_key_env = args.api_key_env.or(then);
        self.images = args.images.unwrap_or(self.images);
        self.silence = args.silence.map_or(self.silence, |limit| limit.0);
        self.retries = args.retries.unwrap_or(self.retries);
        self.cache = args.cache.map(absolute).or_else(|| self.cache.take());
        let then = std::mem::take(&mut self.sampling);
        self.sampling = Sampling {
            temperature: args.temperature.or(then.temperature),
            top_p: args.top_p.or(then.top_p),
            top_k: args.top_k.or(then.top_k),
            min_p: args.min_p.or(then.min_p),
            repetition_penalty: args.repetition_penalty.or(then.repetition_penalty),
            seed: args.seed.or(then.seed),
            stop: if args.stop.is_empty() { then.stop } else { args.stop },
            thinking: args.thinking.or(then.thinking),
            ..Sampling::default()
        };
        let given = args.api_key.as_deref().map(Secret::new).or_else(|| config.api_key.clone());
        self.secrets(given, &args.header, settings)
    }

    /// Goes on with another model, or the same elsewhere.
    fn move_to(
        &mut self,
        model: Option<String>,
        url: Option<String>,
        provider: Option<Provider>,
        local: LocalArgs,
        settings: &Settings,
    ) -> anyhow::Result<()> {
        let (then_url, then_provider) = match &mut self.place {
            Place::Server { provider, base_url } => (Some(base_url.clone()), Some(*provider)),
            Place::Here(plan) if model.is_none() && url.is_none() => {
                if provider.is_some() {
                    let text = "--provider: this run's model is in this process; name another with \
                                --model too";
                    return Err(Usage(text.into()).into());
                }
                plan.override_with(local);
                return Ok(());
            }
            Place::Here(_) => (None, None),
        };
        let (url, provider) = (url.or(then_url), provider.or(then_provider));
        let name = model.unwrap_or_else(|| self.name.clone());
        let chosen = choose(Some(name), url, provider, local, settings)?;
        self.settle(chosen);
        Ok(())
    }

    /// Takes over what the user said of the model before, and not what followed from it.
    fn settle(&mut self, chosen: Chosen) {
        let then = std::mem::replace(&mut self.place, chosen.place);
        let name = std::mem::replace(&mut self.name, chosen.name);
        match (then, &mut self.place) {
            (Place::Here(then), Place::Here(now)) => {
                now.context = now.context.or(then.context);
                now.threads = now.threads.or(then.threads);
                if let (Some(adapter), None) = (&then.adapter, &now.adapter) {
                    output::note(&format!(
                        "{} was made for the model before, and is left out; --adapter names one anew",
                        adapter.display()
                    ));
                }
            }
            (Place::Server { .. }, Place::Here(_)) => {
                self.sampling.temperature.get_or_insert(LOCAL_TEMPERATURE);
            }
            (Place::Here(_), Place::Server { .. }) => {
                let usual = self.sampling.temperature == Some(LOCAL_TEMPERATURE);
                self.sampling.temperature = self.sampling.temperature.filter(|_| !usual);
            }
            (Place::Server { .. }, Place::Server { .. }) => {}
        }
        if self.name != name && self.tool_format == ToolFormat::suggested(&name) {
            self.tool_format = ToolFormat::suggested(&self.name);
        }
    }

    /// Hides what looks like a secret. Proxies take keys of others in the body of a request.
    pub(crate) fn hide_secrets(&mut self) {
        hide(&mut self.extra_body);
    }

    /// The key: as given, else from the variable the user names, else from the usual ones.
    fn secrets(
        &mut self,
        given: Option<Secret>,
        headers: &[String],
        settings: &Settings,
    ) -> anyhow::Result<Secrets> {
        let headers = headers.iter().map(|text| header(text)).collect::<Result<Vec<_>, _>>()?;
        let Place::Server { provider, base_url } = &self.place else {
            return Ok(Secrets::default());
        };
        let api_key = match (&self.api_key_env, given) {
            (Some(name), _) => Some(environment::api_key(name)?),
            (None, Some(key)) => Some(key),
            (None, None) => settings.model_variables().key(*provider),
        };
        if api_key.is_none() && base_url == usual_url(*provider, "gpt-") {
            let usual = match provider {
                Provider::Openai => environment::OPENAI_API_KEY,
                Provider::Anthropic => environment::ANTHROPIC_API_KEY,
            };
            let text = format!(
                "{base_url} wants a key; set {usual}, name another variable with --api-key-env, or another \
                 server with --base-url"
            );
            return Err(Usage(text).into());
        }
        Ok(Secrets { api_key, headers })
    }
}

/// A model and where it is.
struct Chosen {
    name: String,
    place: Place,
    hint: Option<String>,
}

/// The model the user names. Where nothing is named, and no server either, it is one in this process.
fn choose(
    name: Option<String>,
    url: Option<String>,
    provider: Option<Provider>,
    local: LocalArgs,
    settings: &Settings,
) -> anyhow::Result<Chosen> {
    let mut hint = None;
    let file = match &name {
        Some(name) if url.is_some() || provider.is_some() => ModelFile::marked(name),
        Some(name) => ModelFile::named(name),
        None if url.is_none() && provider.is_none() => {
            let (file, told) = ModelFile::usual(settings)?;
            hint = Some(told);
            Some(file)
        }
        None => {
            let text =
                "no model is named; use --model NAME, llm_name in a settings file, or LLM_NAME";
            return Err(Usage(text.into()).into());
        }
    };
    if let Some(file) = file {
        let name = file.name();
        let place = Place::Here(LocalPlan::new(file, local, NonZeroU32::MIN));
        return Ok(Chosen { name, place, hint });
    }
    if local != LocalArgs::default() {
        let text = "--adapter, --threads and --context (in a benchmark --context-tokens) are for models in this \
                    process: --model local:NAME or FILE.gguf";
        return Err(Usage(text.into()).into());
    }
    let name = name.unwrap_or_default();
    if url.is_none() && Path::new(&name).is_dir() {
        let text = format!(
            "{name} is a directory; --model takes a GGUF file, or the name of a model at a server: serve the directory with \
             vLLM, say, and name its address with --base-url"
        );
        return Err(Usage(text).into());
    }
    let provider = provider.unwrap_or_else(|| provider_of(&name, url.as_deref()));
    let name = without_vendor(&name).to_owned();
    let url = url.unwrap_or_else(|| usual_url(provider, &name).to_owned());
    Ok(Chosen { name, place: Place::Server { provider, base_url: checked_url(&url)? }, hint })
}

/// What a model costs. One in this process costs nothing.
fn price(prices: &Prices, name: &str, place: &Place) -> Option<Price> {
    match place {
        Place::Server { .. } => prices.price(name),
        Place::Here(_) => Some(Price::default()),
    }
}

/// Whether a model can look at pictures.
fn images(prices: &Prices, name: &str, place: &Place) -> Images {
    let can = match place {
        Place::Here(_) => false,
        Place::Server { provider, .. } => {
            prices.accepts_images(name).unwrap_or(*provider == Provider::Anthropic)
        }
    };
    if can { Images::Yes } else { Images::No }
}

/// Whether replies are forced to end with a call.
fn forcing(asked: Option<Forcing>, format: ToolFormat, place: &Place) -> Result<Forcing, Usage> {
    let here = matches!(place, Place::Here(_));
    match asked {
        Some(Forcing::Yes) if !here => {
            Err(Usage("--force-calls: only a model in this process can be forced".into()))
        }
        Some(Forcing::Yes) if !format.can_be_forced() => Err(Usage(format!(
            "--force-calls: calls cannot be forced in the format {format}; choose --tool-format hermes or fenced"
        ))),
        Some(asked) => Ok(asked),
        None => Ok(Forcing::No),
    }
}

/// A resumed run may start elsewhere.
fn absolute(dir: PathBuf) -> PathBuf {
    std::path::absolute(&dir).unwrap_or(dir)
}

/// Hides texts under names that speak of keys.
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
        let refuse = |why: String| Usage(format!("--prices {}: {why}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        prices.merge(Prices::parse(&text).map_err(|error| refuse(error.to_string()))?);
    }
    Ok(prices)
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
pub(crate) fn without_vendor(name: &str) -> &str {
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
#[path = "model_plan_tests.rs"]
mod tests;
