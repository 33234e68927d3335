//! The sampler: bounds concurrent requests, retries what may succeed, and reports a server that is gone.
//!
//! A response that breaks off is continued from its last token: what was sampled so far is still a sample. Completions are
//! always streamed, so that a silent server is noticed and a response that ends early stops the server's work.

use std::time::Instant;

use model::{Error, JsonClient};
use sampling::{SampleError, SampleRequest, Sampled, Sampler, SamplingParams};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use crate::{
    Api, InvalidResponse, LogprobsKind, ServerSettings,
    body::Wanted,
    collect::{Collector, Limits},
    events::{Events, LastToken},
};

/// A server cannot be used as a sampler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The server does not answer.
    #[error("the sampler's server cannot be used")]
    Server(#[source] Error),
    /// It has no model of this name.
    #[error("the server has no model `{model}`; it has {}", list(.listed))]
    NoModel {
        /// The name.
        model: String,
        /// The names it lists.
        listed: Vec<String>,
    },
    /// The context length is not known.
    #[error(
        "the server does not report the context length of `{model}`; set it in the configuration"
    )]
    NoContext {
        /// The model.
        model: String,
    },
}

/// Why a request to a server failed: the source of [`SampleError::Failed`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// It cannot be reached, refuses the request, or breaks off.
    #[error("the sampler's server failed")]
    Server(#[source] Error),
    /// Its response cannot be used.
    #[error("the sampler's server sent an unusable response")]
    Invalid(#[source] InvalidResponse),
    /// An earlier request found it gone.
    #[error("the sampler's server is gone: {0}")]
    Gone(String),
}

/// A sampler behind an inference server.
#[derive(Debug)]
pub struct HttpSampler {
    client: JsonClient,
    settings: ServerSettings,
    context: usize,
    logprobs: LogprobsKind,
    permits: Semaphore,
    last_token: LastToken,
    /// Why the server is considered gone.
    gone: watch::Sender<Option<String>>,
}

impl HttpSampler {
    /// Finds the model at the server and its context length. Retries like a request.
    pub async fn connect(settings: ServerSettings) -> Result<Self, ConnectError> {
        let endpoint = settings.endpoint.clone();
        let lister = JsonClient::new(endpoint, "completions").map_err(ConnectError::Server)?;
        let list = retried(&settings, || lister.models()).await.map_err(ConnectError::Server)?;
        let found = find(&list, &lister)?;
        let reported = ["max_model_len", "context_length"].iter().find_map(|name| {
            usize::try_from(found.get(*name)?.as_u64()?).ok().filter(|length| *length > 0)
        });
        let context = match (settings.context, reported) {
            (Some(set), Some(reported)) => set.min(reported),
            (set, reported) => set.or(reported).ok_or_else(|| ConnectError::NoContext {
                model: lister.endpoint().model.clone(),
            })?,
        };
        let owner = found.get("owned_by").and_then(Value::as_str).unwrap_or_default();
        let logprobs = settings.logprobs.unwrap_or_else(|| LogprobsKind::of_owner(owner));
        let client = match settings.api {
            Api::Completions => lister,
            Api::Generate => {
                let mut endpoint = settings.endpoint.clone();
                let base = endpoint.base_url.trim_end_matches('/');
                endpoint.base_url = base.strip_suffix("/v1").unwrap_or(base).to_owned();
                JsonClient::new(endpoint, "generate").map_err(ConnectError::Server)?
            }
        };
        let permits = Semaphore::new(settings.concurrency.clamp(1, Semaphore::MAX_PERMITS));
        let last_token = LastToken::new();
        let gone = watch::Sender::new(None);
        Ok(Self { client, settings, context, logprobs, permits, last_token, gone })
    }

    /// The same sampler with sequences of at most this many tokens.
    pub fn limited_to(mut self, tokens: usize) -> Self {
        self.context = self.context.min(tokens);
        self
    }

    /// What the server's log-probabilities refer to.
    pub fn logprobs(&self) -> LogprobsKind {
        self.logprobs
    }

    /// Why the server is considered gone, if it is; see [`Self::gone`].
    pub fn failure(&self) -> Option<String> {
        self.gone.borrow().clone()
    }

    /// Waits until the server is considered gone, and returns why: a request failed in every attempt, and no other one
    /// received a token meanwhile. From then on all requests fail at once. Never returns while the server works.
    pub async fn gone(&self) -> String {
        let mut gone = self.gone.subscribe();
        loop {
            if let Some(why) = gone.borrow_and_update().clone() {
                return why;
            }
            if gone.changed().await.is_err() {
                // The sender lives as long as this sampler.
                std::future::pending::<()>().await;
            }
        }
    }

    async fn collect(&self, request: SampleRequest) -> Result<Sampled, SampleError> {
        let limits = self.check(&request)?;
        let _permit = self.permits.acquire().await.map_err(|_| SampleError::Stopped)?;
        let mut failing_since = Instant::now();
        let SampleRequest { tokens, params, stop_tokens, until, .. } = request;
        let mut sample = Collector::new(limits, stop_tokens, until);
        let mut attempt = 1;
        loop {
            if let Some(why) = self.failure() {
                return Err(failed(ServerError::Gone(why)));
            }
            let before = sample.tokens().len();
            let error = match self.attempt(&tokens, params, &mut sample).await {
                Ok(()) => match sample.take() {
                    Some(sampled) => return Ok(sampled),
                    None => Error::Cut("the response ended without a reason".into()),
                },
                Err(Failure::Invalid(InvalidResponse::Panicked)) => {
                    return Err(SampleError::Panicked);
                }
                Err(Failure::Invalid(why)) => return Err(failed(ServerError::Invalid(why))),
                Err(Failure::Server(Error::Overflow { .. })) => {
                    let (tokens, context) = (tokens.len(), self.context);
                    return Err(SampleError::TooLong { tokens, context });
                }
                Err(Failure::Server(error)) => error,
            };
            // A server that makes progress is not given up.
            if sample.tokens().len() > before {
                attempt = 1;
                failing_since = Instant::now();
            }
            if !error.is_transient() {
                return Err(failed(ServerError::Server(error)));
            }
            if attempt >= self.settings.retry.attempts {
                return Err(self.give_up(error, attempt, failing_since));
            }
            let wait = self.settings.retry.wait(attempt, &error);
            let why = error.chain();
            tracing::warn!(attempt, ?wait, error = %why, "sampling failed, retrying");
            tokio::time::sleep(wait).await;
            // Not from the failure itself: when a server dies, other requests receive their last tokens a moment later.
            if attempt == 1 {
                failing_since = Instant::now();
            }
            attempt += 1;
        }
    }

    /// One exchange with the server, for what is missing of the sample.
    async fn attempt(
        &self,
        tokens: &[u32],
        params: SamplingParams,
        sample: &mut Collector,
    ) -> Result<(), Failure> {
        let mut prompt = tokens.to_vec();
        prompt.extend_from_slice(sample.tokens());
        // The same noise must not be drawn again for other tokens.
        let seed = match sample.tokens().len() {
            0 => params.seed,
            tokens => seeded::derive(params.seed, &[tokens as u64]),
        };
        let stop_tokens = sample.stop_tokens().to_vec();
        let wanted = Wanted {
            model: &self.settings.endpoint.model,
            prompt: &prompt,
            max_tokens: sample.remaining(),
            params: SamplingParams { seed, ..params },
            stop_tokens: &stop_tokens,
        };
        let body = match self.settings.api {
            Api::Completions => wanted.completions(),
            Api::Generate => wanted.generate(),
        };
        let mut events = Events::new(self.settings.api, sample, &prompt, &self.last_token);
        let exchanged = self.client.post(body, &mut events).await;
        match events.violation() {
            Some(why) => Err(Failure::Invalid(why)),
            None => exchanged.map_err(Failure::Server),
        }
    }

    /// Rejects requests that no server could serve.
    fn check(&self, request: &SampleRequest) -> Result<Limits, SampleError> {
        let (tokens, context) = (request.tokens.len(), self.context);
        if tokens == 0 {
            return Err(SampleError::Empty);
        }
        if tokens >= context {
            return Err(SampleError::TooLong { tokens, context });
        }
        let vocabulary = self.settings.vocabulary;
        if let Some(&token) = request.tokens.iter().find(|token| **token as usize >= vocabulary) {
            let vocabulary = i64::try_from(vocabulary).unwrap_or(i64::MAX);
            return Err(SampleError::UnknownToken { token, vocabulary });
        }
        if request.max_tokens == 0 {
            let name = "the number of tokens to add";
            return Err(SampleError::InvalidParameter { name, value: 0.0 });
        }
        let max_tokens = request.max_tokens.min(context - tokens);
        Ok(Limits { prompt: tokens, max_tokens, context, vocabulary })
    }

    /// The error after the last attempt. The server is gone unless it has sent others a token while it failed here.
    fn give_up(&self, error: Error, attempts: u32, failing_since: Instant) -> SampleError {
        if self.last_token.is_before(failing_since) {
            let why = error.chain();
            tracing::error!(error = %why, attempts, "the sampler's server is gone");
            self.gone.send_replace(Some(why));
        }
        let error = match attempts {
            1 => error,
            attempts => Error::GaveUp { attempts, last: Box::new(error) },
        };
        failed(ServerError::Server(error))
    }
}

impl Sampler for HttpSampler {
    fn context(&self) -> usize {
        self.context
    }

    async fn sample(&self, request: SampleRequest) -> Result<Sampled, SampleError> {
        self.collect(request).await
    }

    /// Servers cache prefixes by themselves.
    fn release(&self, _conversation: u64) {}

    fn is_remote(&self) -> bool {
        true
    }
}

/// Why an attempt failed.
enum Failure {
    Server(Error),
    Invalid(InvalidResponse),
}

fn failed(error: ServerError) -> SampleError {
    SampleError::Failed(Box::new(error))
}

/// The entry of the model in a server's list.
fn find<'l>(list: &'l Value, client: &JsonClient) -> Result<&'l Value, ConnectError> {
    let all = || list["data"].as_array().into_iter().flatten();
    let name = &client.endpoint().model;
    let found = all().find(|model| model["id"] == name.as_str());
    found.ok_or_else(|| {
        let names = all().filter_map(|model| model["id"].as_str());
        let listed = names.take(16).map(|name| client.shown(name)).collect();
        ConnectError::NoModel { model: name.clone(), listed }
    })
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

async fn retried<T, F: Future<Output = Result<T, Error>>>(
    settings: &ServerSettings,
    mut send: impl FnMut() -> F,
) -> Result<T, Error> {
    let mut attempt = 1;
    loop {
        match send().await {
            Err(error) if error.is_transient() && attempt < settings.retry.attempts => {
                let (wait, why) = (settings.retry.wait(attempt, &error), error.chain());
                tracing::warn!(attempt, ?wait, error = %why, "the server does not answer, retrying");
                tokio::time::sleep(wait).await;
                attempt += 1;
            }
            done => return done,
        }
    }
}
