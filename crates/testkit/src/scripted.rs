//! A model that follows a script and records its requests. Makes no network request.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use model::{Delta, Error, Listener, Model, Request, Response, Sampling};
use serde_json::Value;
use trajectory::{Arguments, Assistant, Message, ToolCall};

use crate::{Call, Turn};

/// A model whose responses are scripted. Records every request.
pub struct ScriptedModel {
    name: String,
    delay: Duration,
    script: Script,
    state: Mutex<State>,
}

/// One step of a script: what the model does with the next request.
#[derive(Debug)]
pub enum Step {
    /// It responds with this turn.
    Turn(Turn),
    /// It returns exactly this response.
    Response(Box<Response>),
    /// The call fails.
    Error(Error),
    /// The call never completes.
    Hang,
}

/// A request a scripted model received.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedRequest {
    /// The conversation.
    pub messages: Vec<Message>,
    /// How many tools were offered.
    pub tools: usize,
    /// The sampling settings.
    pub sampling: Sampling,
    /// Maximum output tokens.
    pub max_tokens: u64,
}

/// What follows the scripted steps.
enum Script {
    End,
    Closure(Box<dyn Fn(&Request<'_>) -> Step + Send + Sync>),
}

#[derive(Default)]
struct State {
    steps: VecDeque<Step>,
    played: usize,
    calls: usize,
    requests: Vec<RecordedRequest>,
}

impl ScriptedModel {
    /// A model that follows these steps, one per request. Further requests fail.
    pub fn new<S: Into<Step>>(steps: impl IntoIterator<Item = S>) -> Self {
        let steps = steps.into_iter().map(Into::into).collect();
        Self::with(Script::End, State { steps, ..State::default() })
    }

    /// A model that computes each response from its request, so that it can serve concurrent conversations.
    pub fn answering<S: Into<Step>>(
        answer: impl Fn(&Request<'_>) -> S + Send + Sync + 'static,
    ) -> Self {
        let answer = move |request: &Request<'_>| answer(request).into();
        Self::with(Script::Closure(Box::new(answer)), State::default())
    }

    /// Appends a step. Steps come before the responses of a closure.
    #[must_use]
    pub fn then(self, step: impl Into<Step>) -> Self {
        self.push(step);
        self
    }

    /// Sets the model's name. Default: `scripted`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets a delay before every response.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Appends a step.
    pub fn push(&self, step: impl Into<Step>) {
        self.state().steps.push_back(step.into());
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state().requests.clone()
    }

    /// How many steps remain.
    pub fn remaining(&self) -> usize {
        self.state().steps.len()
    }

    fn with(script: Script, state: State) -> Self {
        Self { name: "scripted".into(), delay: Duration::ZERO, script, state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A panicking test leaves no partial change: every change is one push or pop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, request: &Request<'_>) -> Step {
        let mut state = self.state();
        state.requests.push(RecordedRequest {
            messages: request.messages.to_vec(),
            tools: request.tools.len(),
            sampling: request.sampling.clone(),
            max_tokens: request.max_tokens,
        });
        if let Some(step) = state.steps.pop_front() {
            state.played += 1;
            return step;
        }
        let played = state.played;
        drop(state);
        match &self.script {
            Script::End => Step::Error(Error::Refused {
                // The same status as the mock server's.
                status: 410,
                message: format!("the script has ended after {played} steps"),
            }),
            Script::Closure(answer) => answer(request),
        }
    }

    fn response(&self, turn: &Turn, request: &Request<'_>) -> Response {
        let mut state = self.state();
        let calls = turn.calls.iter().map(|call| {
            state.calls += 1;
            ToolCall {
                id: call.id.clone().unwrap_or_else(|| format!("call_{}", state.calls)),
                name: call.name.clone(),
                arguments: call.parsed(),
            }
        });
        Response {
            message: Assistant {
                text: turn.text.clone(),
                reasoning: turn.reasoning.clone(),
                calls: calls.collect(),
                ..Assistant::default()
            },
            stop: turn.stop_reason(),
            usage: turn.usage_after(request.messages.iter().map(Message::size).sum()),
            from_cache: false,
        }
    }
}

impl Default for ScriptedModel {
    /// A model with an empty script; see [`ScriptedModel::then`].
    fn default() -> Self {
        Self::new([] as [Step; 0])
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        &self.name
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let step = self.next(request);
        pause(self.delay).await;
        match step {
            Step::Turn(turn) => {
                pause(turn.delay).await;
                stream(&turn, listener);
                Ok(self.response(&turn, request))
            }
            Step::Response(response) => {
                stream(&turn(&response.message), listener);
                Ok(*response)
            }
            Step::Error(error) => Err(error),
            Step::Hang => std::future::pending().await,
        }
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("name", &self.name).finish_non_exhaustive()
    }
}

impl From<Turn> for Step {
    fn from(turn: Turn) -> Self {
        Self::Turn(turn)
    }
}

impl From<Response> for Step {
    fn from(response: Response) -> Self {
        Self::Response(Box::new(response))
    }
}

impl From<Error> for Step {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The turn of a message, for streaming it.
fn turn(message: &Assistant) -> Turn {
    let calls = message.calls.iter().map(|call| match &call.arguments {
        Arguments::Object(map) => Call::new(&call.name, Value::Object(map.clone())),
        Arguments::Malformed { malformed, .. } => Call::raw(&call.name, malformed),
    });
    crate::calls(calls).text(&message.text).reasoning(&message.reasoning)
}

async fn pause(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

fn stream(turn: &Turn, listener: &dyn Listener) {
    turn.cut(&turn.reasoning).for_each(|piece| listener.on_delta(Delta::Reasoning(piece)));
    turn.cut(&turn.text).for_each(|piece| listener.on_delta(Delta::Text(piece)));
    for call in &turn.calls {
        listener.on_delta(Delta::Call(&call.name));
        turn.cut(&call.arguments).for_each(|piece| listener.on_delta(Delta::Arguments(piece)));
    }
}
