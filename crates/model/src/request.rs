//! The request to a model, and the trait every model implements.

use std::future::Future;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trajectory::Message;

use crate::{Error, Listener, Response, Shape};

/// A language model: anything that continues a conversation.
///
/// Servers, local models, wrappers (retries, cache, tool-call formats) and test doubles implement it.
pub trait Model: Send + Sync + 'static {
    /// The model's name, as the server, users and the price table know it.
    fn name(&self) -> &str;

    /// Instruction for a model that was offered these tools and wrote no call: how to write one.
    fn tool_call_hint(&self, tools: &[ToolSpec]) -> &'static str {
        let _ = tools;
        "call one of the tools"
    }

    /// Whether responses can be constrained to a [`Shape`].
    fn supports_shapes(&self) -> bool {
        false
    }

    /// Waits for a permit, where the number of concurrent calls is limited. Hold it until the response is complete.
    /// The wait is separate from the call, so that time limits and timings do not include it.
    fn permit(&self) -> impl Future<Output = Permit> + Send {
        std::future::ready(Permit::default())
    }

    /// Generates the next message. `listener` receives it piece by piece as it is generated.
    fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> impl Future<Output = Result<Response, Error>> + Send;
}

/// Permission for one call to a model, released on drop.
#[derive(Debug, Default)]
pub struct Permit {
    _held: Option<Box<dyn std::any::Any + Send>>,
}

impl Permit {
    /// A permit that holds `held`, such as a semaphore permit, until it is dropped.
    pub fn new(held: impl Send + 'static) -> Self {
        Self { _held: Some(Box::new(held)) }
    }
}

/// Forwards every method of [`Model`] but `complete` to the model inside a wrapper.
macro_rules! forward_to_inner {
    (|$wrapper:ident| $inner:expr) => {
        fn name(&self) -> &str {
            let $wrapper = self;
            $inner.name()
        }

        fn tool_call_hint(&self, tools: &[$crate::ToolSpec]) -> &'static str {
            let $wrapper = self;
            $inner.tool_call_hint(tools)
        }

        fn supports_shapes(&self) -> bool {
            let $wrapper = self;
            $inner.supports_shapes()
        }

        async fn permit(&self) -> $crate::Permit {
            let $wrapper = self;
            $inner.permit().await
        }
    };
}
pub(crate) use forward_to_inner;

impl<M: Model> Model for std::sync::Arc<M> {
    forward_to_inner!(|arc| (**arc));

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        M::complete(self, request, listener).await
    }
}

/// One call to a model.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The conversation so far.
    pub messages: &'a [Message],
    /// The tools the model may call.
    pub tools: &'a [ToolSpec],
    /// How tokens are sampled.
    pub sampling: &'a Sampling,
    /// Maximum output tokens.
    pub max_tokens: u64,
}

/// A tool as it is described to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The tool's name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// A JSON schema of its arguments, of type `object`.
    pub parameters: Value,
}

/// Sampling settings. What is absent is left to the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// Sampling temperature; 0 always takes the most likely token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling: only the most likely tokens whose probabilities sum to this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Only this many of the most likely tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// Only tokens at least this likely, relative to the most likely one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
    /// Above 1, tokens that already occurred become less likely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetition_penalty: Option<f64>,
    /// Random seed: the same request with the same seed gives the same response, where the server supports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Stop sequences: texts that end the response.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Thinking budget in tokens, for vendors that need one to enable thinking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<u64>,
    /// The form every response is constrained to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// Whether a response must contain a tool call.
    #[serde(alias = "calling", skip_serializing_if = "ToolChoice::is_auto")]
    pub tool_choice: ToolChoice,
}

/// Whether a response must contain a tool call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    #[serde(alias = "free")]
    Auto,
    /// It must, where the model supports it; elsewhere this has no effect.
    Required,
}

impl ToolChoice {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}
