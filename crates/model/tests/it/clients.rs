//! One client type for both protocols, so that every test runs with both.

use std::{sync::Mutex, time::Duration};

use lis_model::{
    Anthropic, Delta, Endpoint, Error, Listener, Model, OpenAi, Request, Response, Sampling,
    Secret, ToolSpec,
};
use serde_json::json;
use testkit::{Answer, MockServer};
use trajectory::Message;

pub(crate) const KEY: &str = "sk-very-secret-1234";

/// Whose protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    OpenAi,
    Anthropic,
}

pub(crate) const VENDORS: [Vendor; 2] = [Vendor::OpenAi, Vendor::Anthropic];

#[derive(Debug)]
pub(crate) enum Client {
    OpenAi(OpenAi),
    Anthropic(Anthropic),
}

impl Client {
    pub(crate) fn new(vendor: Vendor, endpoint: Endpoint) -> Result<Self, Error> {
        Ok(match vendor {
            Vendor::OpenAi => Self::OpenAi(OpenAi::new(endpoint)?),
            Vendor::Anthropic => Self::Anthropic(Anthropic::new(endpoint)?),
        })
    }
}

impl Model for Client {
    fn name(&self) -> &str {
        match self {
            Self::OpenAi(model) => model.name(),
            Self::Anthropic(model) => model.name(),
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
        }
    }
}

/// Everything that was received, in order.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    pub(crate) fn heard(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Listener for Recorder {
    fn on_delta(&self, delta: Delta<'_>) {
        self.0.lock().unwrap().push(match delta {
            Delta::Reasoning(text) => format!("reasoning {text}"),
            Delta::Text(text) => format!("text {text}"),
            Delta::Call(name) => format!("call {name}"),
            Delta::Arguments(text) => format!("arguments {text}"),
            Delta::Retry { attempt, wait, why } => format!("retry {attempt} {wait:?} {why}"),
        });
    }
}

pub(crate) fn endpoint(server: &MockServer) -> Endpoint {
    Endpoint {
        api_key: Some(Secret::new(KEY)),
        headers: vec![("x-team".into(), Secret::new("secret-team-5678"))],
        silence: Duration::from_secs(10),
        ..Endpoint::new("mock", server.base_url())
    }
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    let parameters = json!({
        "type": "object",
        "properties": { "command": { "type": "string" } },
        "required": ["command"],
    });
    let bash = ToolSpec { name: "execute_bash".into(), description: "Runs it.".into(), parameters };
    let parameters = json!({ "type": "object", "properties": {} });
    let submit = ToolSpec { name: "submit".into(), description: "Ends it.".into(), parameters };
    vec![bash, submit]
}

/// Asks any model something small.
pub(crate) async fn ask(model: &impl Model, listener: &dyn Listener) -> Result<Response, Error> {
    let (tools, sampling) = (tools(), Sampling::default());
    let messages = [Message::System { text: "You have a computer.".into() }, Message::user("Go.")];
    let request =
        Request { messages: &messages, tools: &tools, sampling: &sampling, max_tokens: 4096 };
    model.complete(&request, listener).await
}

/// What one client makes of one answer.
pub(crate) async fn told(vendor: Vendor, answer: impl Into<Answer>) -> Result<Response, Error> {
    let server = MockServer::scripted([answer]).unwrap();
    let client = Client::new(vendor, endpoint(&server)).unwrap();
    ask(&client, &lis_model::Silent).await
}
