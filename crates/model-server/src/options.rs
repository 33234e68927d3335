//! What is served, and how much of it at once. Plain values: nothing is read from anywhere.

use std::time::Duration;

use model::{Model, Sampling, Secret};

/// A model and what its clients need to know about it.
#[derive(Clone, Debug)]
pub struct Served<M> {
    /// The model.
    pub model: M,
    /// The names clients may ask for. The first is the one it is listed under.
    pub names: Vec<String>,
    /// The most tokens of a reply whose client sets no limit.
    pub max_tokens: u64,
    /// How words are chosen where the client does not say.
    pub sampling: Sampling,
    /// Whether it can look at pictures.
    pub sight: Sight,
}

/// Whether a model can look at pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It can.
    Sees,
    /// It cannot: requests with pictures are refused.
    Blind,
}

impl<M: Model> Served<M> {
    /// A model under its own name.
    pub fn new(model: M, max_tokens: u64) -> Self {
        let names = vec![model.name().to_owned()];
        Self { model, names, max_tokens, sampling: Sampling::default(), sight: Sight::Sees }
    }
}

/// Who may ask, and how much at once.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The key clients must send. Without one, everybody who reaches the address may ask.
    pub api_key: Option<Secret>,
    /// Replies written at the same time.
    pub max_running: usize,
    /// Requests that wait for their turn; those beyond are turned away.
    pub max_waiting: usize,
    /// Open connections; those beyond wait in the system's queue.
    pub max_connections: usize,
    /// Bytes of one request.
    pub max_body: usize,
    /// How long a client may take to send the head of a request, or leave a connection unused.
    pub head_timeout: Duration,
    /// How long a client may take to send the body of a request.
    pub body_timeout: Duration,
    /// How long a client may leave what it was sent unread.
    pub stall_timeout: Duration,
    /// A stream in which nothing is said for this long is kept open with a comment.
    pub heartbeat: Duration,
    /// How long replies that are being written may go on after the end was asked for.
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
