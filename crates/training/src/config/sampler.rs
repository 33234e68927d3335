//! The inference server that samples in place of the trainer's own engine.

use std::{path::PathBuf, time::Duration};

use model::{Endpoint, Retry, Secret};
use sampling_http::{Api, LogprobsKind, ServerSettings};
use serde::{Deserialize, Serialize};

use super::{ConfigError, MAX_EPISODES, check};

/// An inference server as the sampler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerSettings {
    /// The address up to and including the version, such as `http://localhost:8000/v1`.
    pub url: String,
    /// The model's name at the server.
    pub model: String,
    /// The tokenizer and chat template of that model: a directory with `tokenizer.json`, or a GGUF file. Default: those of
    /// the configuration's `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// The protocol: `completions`, or `generate` for SGLang without `return_token_ids`.
    #[serde(default)]
    pub api: Api,
    /// The server's log-probabilities: `raw`, `processed` or `temperature`. Default: by the kind of server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<LogprobsKind>,
    /// Maximum tokens of a sequence; needed where the server does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// Concurrent requests; 256 by default.
    #[serde(default = "default_concurrency")]
    pub concurrency: usize,
    /// Seconds without a token after which a request is repeated; 600 by default.
    #[serde(default = "default_timeout")]
    pub timeout: f64,
    /// Attempts of a request, including the first; 6 by default.
    #[serde(default = "default_attempts")]
    pub attempts: u32,
    /// The environment variable with the server's API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The API key itself, which the program fills in. Never stored.
    #[serde(skip)]
    pub api_key: Option<Secret>,
}

impl SamplerSettings {
    /// The settings of the client, for a vocabulary of this size.
    pub(crate) fn server(&self, vocabulary: usize) -> ServerSettings {
        let mut endpoint = Endpoint::new(&self.model, &self.url);
        endpoint.api_key.clone_from(&self.api_key);
        endpoint.silence = Duration::from_secs_f64(self.timeout);
        ServerSettings {
            api: self.api,
            context: self.context,
            logprobs: self.logprobs,
            concurrency: self.concurrency,
            retry: Retry { attempts: self.attempts, ..Retry::default() },
            ..ServerSettings::new(endpoint, vocabulary)
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let is_http = self.url.starts_with("http://") || self.url.starts_with("https://");
        check("sampler.url", &self.url, is_http, "an http or https address")?;
        check("sampler.model", "empty", !self.model.trim().is_empty(), "the name of a model")?;
        let context = self.context.unwrap_or(1);
        check("sampler.context", context, context > 0, "above 0")?;
        let concurrency = (1..=MAX_EPISODES).contains(&self.concurrency);
        check("sampler.concurrency", self.concurrency, concurrency, "between 1 and 65536")?;
        let timeout = self.timeout > 0.0 && self.timeout <= 1e6;
        check("sampler.timeout", self.timeout, timeout, "above 0")?;
        check("sampler.attempts", self.attempts, self.attempts > 0, "above 0")
    }
}

fn default_concurrency() -> usize {
    256
}

fn default_timeout() -> f64 {
    600.0
}

fn default_attempts() -> u32 {
    6
}
