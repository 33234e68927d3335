//! What is served, and the limits. Plain values.

use std::time::Duration;

use model::{Model, Sampling, Secret};

use crate::TokenModel;

/// A model and how it is offered to clients.
#[derive(Clone, Debug)]
pub struct Served<M> {
    /// The model.
    pub model: M,
    /// The names clients may use.
    pub names: Vec<String>,
    /// Maximum output tokens where the client sets no limit.
    pub max_tokens: u64,
    /// Sampling settings where the client gives none.
    pub sampling: Sampling,
    /// Whether it accepts images.
    pub images: Images,
    /// The same model as a sampler of tokens, for clients that send token ids; `None` where it is not one.
    pub tokens: Option<TokenModel>,
}

/// Whether a model accepts images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Images {
    /// It does.
    Accepted,
    /// It does not: requests with images are refused.
    Refused,
}

impl<M: Model> Served<M> {
    /// A model under its own name.
    pub fn new(model: M, max_tokens: u64) -> Self {
        let names = vec![model.name().to_owned()];
        let (sampling, images) = (Sampling::default(), Images::Accepted);
        Self { model, names, max_tokens, sampling, images, tokens: None }
    }
}

/// Authentication and limits.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The key clients must send. `None`: no authentication.
    pub api_key: Option<Secret>,
    /// Concurrent responses.
    pub max_running: usize,
    /// Waiting requests; more are rejected.
    pub max_waiting: usize,
    /// Open connections. A further one takes the place of the connection that has kept the server waiting longest; if all
    /// are being answered, it gets status 503.
    pub max_connections: usize,
    /// Maximum bytes of a request's body.
    pub max_body: usize,
    /// Time limit for receiving the head of a request, and for idle connections.
    pub head_timeout: Duration,
    /// Time limit for receiving the body of a request.
    pub body_timeout: Duration,
    /// How long a client may leave sent data unread.
    pub stall_timeout: Duration,
    /// A stream without content for this long is kept alive with a comment.
    pub heartbeat: Duration,
    /// How long running responses may continue after shutdown was requested.
    pub grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            api_key: None,
            max_running: 4,
            max_waiting: 256,
            max_connections: 512,
            max_body: 16 << 20,
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            heartbeat: Duration::from_secs(15),
            grace: Duration::from_secs(30),
        }
    }
}
