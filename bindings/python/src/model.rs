//! Models as Python names them: a server, or a function.

use std::time::Duration;

use model::{
    Anthropic, Endpoint, Error, Given, GivenCall, Listener, Model, OpenAi, Request, Response,
    Retry, Retrying, Secret,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{episode::Caller, failure::Failure};

/// A model as Python describes it.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ModelChoice {
    /// A server that speaks OpenAI's or Anthropic's protocol.
    Server {
        /// The model's name there.
        name: String,
        /// The address.
        base_url: String,
        /// `openai` or `anthropic`.
        provider: String,
        /// The key.
        api_key: Option<String>,
        /// Further headers.
        headers: Vec<(String, String)>,
        /// Further fields of requests.
        extra_body: Map<String, Value>,
        /// Tries after the first.
        retries: u32,
        /// Seconds after which a silent server has failed.
        silence: Option<f64>,
    },
    /// A Python function.
    Callable {
        /// A name for it.
        name: String,
    },
}

impl ModelChoice {
    /// The model's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Server { name, .. } | Self::Callable { name } => name,
        }
    }
}

impl ModelChoice {
    /// The server, and how often a request is tried again; `None` for a function.
    pub(crate) fn endpoint(&self) -> Option<(Endpoint, u32)> {
        let Self::Server { name, base_url, api_key, headers, extra_body, retries, silence, .. } =
            self
        else {
            return None;
        };
        let secret = |(name, value): &(String, String)| (name.clone(), Secret::new(value));
        let mut endpoint = Endpoint {
            api_key: api_key.as_deref().map(Secret::new),
            headers: headers.iter().map(secret).collect(),
            extra_body: extra_body.clone(),
            ..Endpoint::new(name, base_url)
        };
        let given = silence.and_then(|silence| Duration::try_from_secs_f64(silence).ok());
        endpoint.silence = given.unwrap_or(endpoint.silence);
        Some((endpoint, *retries))
    }
}

/// A model of any kind.
pub(crate) enum PythonModel {
    OpenAi(Retrying<OpenAi>),
    Anthropic(Retrying<Anthropic>),
    Callable(Callable),
}

/// A Python function as a model.
pub(crate) struct Callable {
    name: String,
    caller: Caller,
}

impl PythonModel {
    /// Opens a model. No request is sent yet.
    pub(crate) fn open(choice: &ModelChoice, caller: Caller) -> Result<Self, Failure> {
        let failed = |error: Error| Failure::usage(error.chain());
        match choice {
            ModelChoice::Callable { name } => {
                Ok(Self::Callable(Callable { name: name.clone(), caller }))
            }
            ModelChoice::Server { provider, .. } => {
                let Some((endpoint, retries)) = choice.endpoint() else {
                    return Err(Failure::usage("the model has no server"));
                };
                let retry = Retry { attempts: retries.saturating_add(1), ..Retry::default() };
                match provider.as_str() {
                    "openai" => {
                        let server = OpenAi::new(endpoint).map_err(failed)?;
                        Ok(Self::OpenAi(Retrying::new(server, retry)))
                    }
                    "anthropic" => {
                        let server = Anthropic::new(endpoint).map_err(failed)?;
                        Ok(Self::Anthropic(Retrying::new(server, retry)))
                    }
                    other => Err(Failure::usage(format!(
                        "there is no provider `{other}`; write openai or anthropic"
                    ))),
                }
            }
        }
    }
}

impl Model for PythonModel {
    fn name(&self) -> &str {
        match self {
            Self::OpenAi(model) => model.name(),
            Self::Anthropic(model) => model.name(),
            Self::Callable(model) => &model.name,
        }
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        match self {
            Self::OpenAi(model) => model.complete(request, listener).await,
            Self::Anthropic(model) => model.complete(request, listener).await,
            Self::Callable(model) => model.complete(request).await,
        }
    }
}

/// A function's reply, in the form that the Python side makes of it.
#[derive(Deserialize)]
struct FunctionReply {
    text: String,
    reasoning: String,
    /// Id, name and arguments as JSON.
    calls: Vec<(String, String, String)>,
    cut_off: bool,
    tokens: Option<(u64, u64)>,
}

impl Callable {
    async fn complete(&self, request: &Request<'_>) -> Result<Response, Error> {
        let asked = json!({
            "messages": request.messages,
            "tools": request.tools,
            "sampling": request.sampling,
            "max_tokens": request.max_tokens,
        });
        let reply = self.caller.ask("model", asked.to_string()).await.map_err(Error::Settings)?;
        let reply: FunctionReply = serde_json::from_value(reply)
            .map_err(|error| Error::Settings(format!("the function's reply: {error}")))?;
        let call = |(id, name, arguments)| GivenCall { id, name, arguments };
        let given = Given {
            text: reply.text,
            reasoning: reply.reasoning,
            calls: reply.calls.into_iter().map(call).collect(),
            cut_off: reply.cut_off,
            tokens: reply.tokens,
        };
        Ok(given.into_response(request))
    }
}
