//! A model that is asked again: after failures that pass, and with fewer tokens where the conversation and
//! the reply do not fit together.
//!
//! Knows neither HTTP nor a vendor: it reads [`Error`] values alone.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{Delta, Error, Listener, Model, Overflow, Reply, Request, wire};

/// How often and how long to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Calls in all, the first included.
    pub attempts: u32,
    /// The wait after the first failure; each later one is twice as long.
    pub first_wait: Duration,
    /// No wait of ours is longer.
    pub longest_wait: Duration,
    /// No wait a server asks for is longer either.
    pub longest_asked: Duration,
    /// How often the tokens of a reply may be lowered within one call.
    pub shrinks: u32,
    /// A reply of fewer tokens is of no use.
    pub least_tokens: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 6,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
            longest_asked: Duration::from_secs(300),
            shrinks: 5,
            least_tokens: 256,
        }
    }
}

/// Templates and tokenisers disagree about a few tokens.
const MARGIN: u64 = 16;

/// A model behind patience.
#[derive(Debug)]
pub struct Retrying<M> {
    model: M,
    settings: Retry,
    limits: Mutex<Limits>,
}

/// What refusals have taught about the model.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    context: Option<u64>,
    output: Option<u64>,
    /// Tokens per byte of the conversation, as the server last counted them.
    density: Option<f64>,
}

impl<M> Retrying<M> {
    /// Puts patience in front of a model.
    pub fn new(model: M, settings: Retry) -> Self {
        Self { model, settings, limits: Mutex::default() }
    }

    fn limits(&self) -> std::sync::MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to ask for, given what earlier refusals taught.
    fn tokens(&self, request: &Request<'_>) -> u64 {
        let Limits { context, output, density } = *self.limits();
        let mut tokens = output.map_or(request.max_tokens, |output| request.max_tokens.min(output));
        if let (Some(context), Some(density)) = (context, density) {
            let prompt = estimated(wire::size(request), density);
            let room = context.saturating_sub(prompt.saturating_add(MARGIN));
            // An estimate alone refuses nothing: the server has the last word.
            tokens = tokens.min(room.max(self.settings.least_tokens));
        }
        tokens
    }

    /// Fewer tokens that may fit, by the server's numbers or by halving. Nothing where none do.
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
        // Numbers that would change nothing are wrong, or were only estimated.
        let fewer = if fitting < tokens { fitting } else { tokens / 2 };
        (fewer >= self.settings.least_tokens).then_some(fewer)
    }

    /// The server's own count of the conversation, for the next estimate.
    fn learn(&self, request: &Request<'_>, reply: &Reply) {
        let mut limits = self.limits();
        if limits.context.is_some() && !reply.usage.estimated && !reply.from_cache {
            let size = wire::size(request);
            if reply.usage.input > 0 && size > 0 {
                limits.density = Some(reply.usage.input as f64 / size as f64);
            }
        }
    }

    fn wait(&self, attempt: u32, error: &Error) -> Duration {
        let Retry { first_wait, longest_wait, longest_asked, .. } = self.settings;
        let doubled = first_wait.saturating_mul(1 << (attempt - 1).min(16)).min(longest_wait);
        // Somewhere between half and all of it, so that many episodes do not come back at once.
        let ours = doubled.mul_f64(0.5 + fastrand::f64() / 2.0);
        match error {
            Error::Busy { retry_after: Some(asked), .. } => {
                let asked = (*asked).min(longest_asked);
                // Many servers always say "one second", however long they have been busy.
                ours.max(asked + (asked / 10).mul_f64(fastrand::f64()))
            }
            _ => ours,
        }
    }
}

impl<M: Model> Model for Retrying<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn can_be_held(&self) -> bool {
        self.model.can_be_held()
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        let mut tokens = self.tokens(request);
        let (mut attempt, mut shrinks) = (1, 0);
        loop {
            let asked = Request { max_tokens: tokens, ..*request };
            let error = match self.model.complete(&asked, listener).await {
                Ok(reply) => {
                    self.learn(request, &reply);
                    return Ok(reply);
                }
                Err(error) => error,
            };
            let wait = match &error {
                Error::Overflow { numbers, .. } if shrinks < self.settings.shrinks => {
                    let Some(fewer) = self.shrunk(tokens, numbers, request) else {
                        return Err(error);
                    };
                    shrinks += 1;
                    tokens = fewer;
                    Duration::ZERO
                }
                error if error.is_passing() && attempt < self.settings.attempts => {
                    self.wait(attempt, error)
                }
                _ if error.is_passing() => {
                    // One attempt is no giving up.
                    return Err(match attempt {
                        1 => error,
                        attempts => Error::GaveUp { attempts, last: Box::new(error) },
                    });
                }
                _ => return Err(error),
            };
            let why = error.with_causes();
            listener.hear(Delta::Retry { attempt: attempt + shrinks, wait, why: &why });
            if error.is_passing() {
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
