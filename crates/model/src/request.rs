//! What a model is asked, and the trait every model implements.

use std::future::Future;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trajectory::Message;

use crate::{Error, Listener, Reply, Shape};

/// Something that continues a conversation.
pub trait Model: Send + Sync + 'static {
    /// The name under which it is known to its server, its users and the price table.
    fn name(&self) -> &str;

    /// How a model that wrote no call, and is offered these tools, is told to write one.
    fn how_to_call(&self, tools: &[ToolSpec]) -> &'static str {
        let _ = tools;
        "call one of the tools"
    }

    /// Whether its replies can be held to a [`Shape`].
    fn can_be_held(&self) -> bool {
        false
    }

    /// Waits until one more may ask, where only so many may at once. The place is held until the reply is there.
    /// This wait is nobody's work: it is timed apart from the call, and no limit of time counts it.
    fn place(&self) -> impl Future<Output = Place> + Send {
        std::future::ready(Place::default())
    }

    /// The next message. `listener` hears of it while it is being written.
    fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> impl Future<Output = Result<Reply, Error>> + Send;
}

/// A place among those who may ask a model, given back when it is dropped.
#[derive(Debug, Default)]
pub struct Place {
    _held: Option<Box<dyn std::any::Any + Send>>,
}

impl Place {
    /// The place that dropping this gives back.
    pub fn new(held: impl Send + 'static) -> Self {
        Self { _held: Some(Box::new(held)) }
    }
}

impl<M: Model> Model for std::sync::Arc<M> {
    fn name(&self) -> &str {
        M::name(self)
    }

    fn how_to_call(&self, tools: &[ToolSpec]) -> &'static str {
        M::how_to_call(self, tools)
    }

    fn can_be_held(&self) -> bool {
        M::can_be_held(self)
    }

    async fn place(&self) -> Place {
        M::place(self).await
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        M::complete(self, request, listener).await
    }
}

/// One call to a model.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The conversation so far.
    pub messages: &'a [Message],
    /// What the model may call.
    pub tools: &'a [ToolSpec],
    /// How it chooses its words.
    pub sampling: &'a Sampling,
    /// The most tokens it may write.
    pub max_tokens: u64,
}

/// A tool, as models are told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// A JSON schema of its arguments, of type `object`.
    pub parameters: Value,
}

/// How a model chooses its words. What is absent is left to the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Randomness; 0 always takes the likeliest token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Only the likeliest tokens that together have this probability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Only this many of the likeliest tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// Only tokens at least this likely, relative to the likeliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
    /// Above 1, words already used become less likely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetition_penalty: Option<f64>,
    /// The same seed and the same request give the same reply, where the server keeps that promise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Texts that end the reply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Tokens of thinking a model may use, for vendors that want to be asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<u64>,
    /// The form every reply is forced into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// Whether a reply has to hold a call.
    #[serde(skip_serializing_if = "Calling::is_free")]
    pub calling: Calling,
}

/// Whether a reply has to hold a tool call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calling {
    /// The model decides.
    #[default]
    Free,
    /// It has to, where it can be held to that; where it cannot, this changes nothing.
    Required,
}

impl Calling {
    fn is_free(&self) -> bool {
        *self == Self::Free
    }
}
