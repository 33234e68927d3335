//! Retries: after transient failures, and with fewer output tokens where the conversation and the response together
//! exceed the context.
//!
//! Decides from [`Error`] values alone; knows neither HTTP nor a vendor.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{
    Delta, Error, Listener, Model, Overflow, Request, Response, request::forward_to_inner, wire,
};

/// When and how often to retry.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Attempts in total, including the first.
    pub attempts: u32,
    /// Wait after the first failure; doubled after each further one.
    pub first_wait: Duration,
    /// Maximum wait of the exponential backoff.
    pub max_wait: Duration,
    /// Maximum wait on request of the server.
    pub max_retry_after: Duration,
    /// How often the output token limit may be lowered within one call.
    pub max_shrinks: u32,
    /// The output token limit is not lowered below this.
    pub min_tokens: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 6,
            first_wait: Duration::from_secs(1),
            max_wait: Duration::from_secs(60),
            max_retry_after: Duration::from_secs(300),
            max_shrinks: 5,
            min_tokens: 256,
        }
    }
}

impl Retry {
    /// The wait after this many failed attempts, from 1: exponential with jitter, at least as long as the server requests.
    pub fn wait(&self, attempt: u32, error: &Error) -> Duration {
        let Self { first_wait, max_wait, max_retry_after, .. } = *self;
        let doubled =
            first_wait.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(max_wait);
        // Jitter, so that concurrent episodes do not retry at the same moment.
        let backoff = doubled.mul_f64(0.5 + fastrand::f64() / 2.0);
        match error {
            Error::Busy { retry_after: Some(requested), .. } => {
                let requested = (*requested).min(max_retry_after);
                // Many servers always request one second, however long they have been busy.
                backoff.max(requested + (requested / 10).mul_f64(fastrand::f64()))
            }
            _ => backoff,
        }
    }
}

/// Slack in tokens: chat templates and tokenizers disagree about a few.
const MARGIN: u64 = 16;

/// A model whose transient failures are retried.
#[derive(Debug)]
pub struct Retrying<M> {
    model: M,
    policy: Retry,
    limits: Mutex<Limits>,
}

/// The model's limits, as learned from its refusals.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    context: Option<u64>,
    output: Option<u64>,
    /// Tokens per byte of conversation, from the server's last count.
    density: Option<f64>,
}

impl<M> Retrying<M> {
    /// Wraps a model.
    pub fn new(model: M, policy: Retry) -> Self {
        Self { model, policy, limits: Mutex::default() }
    }

    fn limits(&self) -> std::sync::MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The output tokens to request, given what earlier refusals revealed.
    fn initial_tokens(&self, request: &Request<'_>) -> u64 {
        let Limits { context, output, density } = *self.limits();
        let mut tokens = output.map_or(request.max_tokens, |output| request.max_tokens.min(output));
        if let (Some(context), Some(density)) = (context, density) {
            let prompt = estimated(wire::size(request), density);
            let room = context.saturating_sub(prompt.saturating_add(MARGIN));
            // An estimate alone refuses nothing: the server decides.
            tokens = tokens.min(room.max(self.policy.min_tokens));
        }
        tokens
    }

    /// A lower output limit that may fit, from the server's numbers or by halving. `None` where none can.
    fn shrunk(&self, tokens: u64, numbers: &Overflow, request: &Request<'_>) -> Option<u64> {
        let mut limits = self.limits();
        limits.context = numbers.context.or(limits.context);
        limits.output = numbers.output.or(limits.output);
        let size = wire::size(request);
        if let Some(prompt) = numbers.prompt.filter(|_| size > 0) {
            limits.density = Some(prompt as f64 / size as f64);
        }
        let prompt = match (numbers.prompt, limits.density) {
            (Some(prompt), _) => Some(prompt),
            (None, Some(density)) => Some(estimated(size, density)),
            (None, None) => None,
        };
        let room = match (numbers.context, prompt) {
            (Some(context), Some(prompt)) => context.saturating_sub(prompt.saturating_add(MARGIN)),
            _ => u64::MAX,
        };
        let fitting = room.min(numbers.output.unwrap_or(u64::MAX));
        // Numbers that change nothing are wrong or estimated.
        let fewer = if fitting < tokens { fitting } else { tokens / 2 };
        (fewer >= self.policy.min_tokens).then_some(fewer)
    }

    /// Remembers the server's token count for the next estimate.
    fn learn(&self, request: &Request<'_>, response: &Response) {
        let mut limits = self.limits();
        if limits.context.is_some() && !response.usage.estimated && !response.from_cache {
            let size = wire::size(request);
            if response.usage.input > 0 && size > 0 {
                limits.density = Some(response.usage.input as f64 / size as f64);
            }
        }
    }
}

impl<M: Model> Model for Retrying<M> {
    forward_to_inner!(|retrying| retrying.model);

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let mut tokens = self.initial_tokens(request);
        let (mut attempt, mut shrinks) = (1, 0);
        loop {
            let limited = Request { max_tokens: tokens, ..*request };
            let error = match self.model.complete(&limited, listener).await {
                Ok(response) => {
                    self.learn(request, &response);
                    return Ok(response);
                }
                Err(error) => error,
            };
            let wait = match &error {
                Error::Overflow { numbers, .. } if shrinks < self.policy.max_shrinks => {
                    let Some(fewer) = self.shrunk(tokens, numbers, request) else {
                        return Err(error);
                    };
                    shrinks += 1;
                    tokens = fewer;
                    Duration::ZERO
                }
                error if error.is_transient() && attempt < self.policy.attempts => {
                    self.policy.wait(attempt, error)
                }
                _ if error.is_transient() => {
                    // Without a retry, the error itself says it all.
                    return Err(match attempt {
                        1 => error,
                        attempts => Error::GaveUp { attempts, last: Box::new(error) },
                    });
                }
                _ => return Err(error),
            };
            let why = error.chain();
            tracing::warn!(model = self.name(), attempt, ?wait, tokens, error = %why, "model call failed, retrying");
            listener.on_delta(Delta::Retry { attempt: attempt + shrinks, wait, why: &why });
            if error.is_transient() {
                attempt += 1;
            }
            tokio::time::sleep(wait).await;
        }
    }
}

fn estimated(size: usize, density: f64) -> u64 {
    (size as f64 * density).ceil() as u64
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
