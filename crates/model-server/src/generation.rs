//! Generates a response in its own task, which is aborted when the client disconnects.
//!
//! Knows models. Knows neither HTTP nor how a response is sent.

use std::sync::Arc;

use axum::http::StatusCode;
use model::{Delta, Listener, Model, Request, Response, Sampling, Silent, ToolChoice};
use openai_wire::{ApiError, parameters::Delivery};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinHandle,
};
use trajectory::{Message, Stop, Usage};

use crate::{
    Served,
    admission::QueueSlot,
    chat_request::{ChatRequest, Choice, Parallel},
};

/// An event of a generation.
#[derive(Debug)]
pub(crate) enum Progress {
    /// More thinking.
    Reasoning(String),
    /// More text.
    Text(String),
    /// Everything so far is void; the response starts over.
    Void,
    /// The response is complete, or failed.
    Done(Box<Result<Response, ApiError>>),
}

/// A running generation, aborted on drop.
#[derive(Debug)]
pub(crate) struct Generation {
    events: UnboundedReceiver<Progress>,
    task: JoinHandle<()>,
}

/// Attempts of a model that must call a tool.
const ATTEMPTS: u32 = 3;

impl Generation {
    /// Starts the generation as soon as admission allows.
    pub(crate) fn start<M: Model>(
        models: Arc<Vec<Served<M>>>,
        which: usize,
        chat: ChatRequest,
        slot: QueueSlot,
    ) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let _permit = slot.run().await;
            let Some(served) = models.get(which) else { return };
            let forwarder = Forwarder(sender);
            // Attempts without the required call are discarded, so they are not streamed.
            let streams = chat.choice == Choice::Auto && chat.delivery != Delivery::Whole;
            let listener: &dyn Listener = if streams { &forwarder } else { &Silent };
            let done = respond(served, chat, listener).await;
            let _ = forwarder.0.send(Progress::Done(Box::new(done)));
        });
        Self { events, task }
    }

    /// The next event; `None` after the end.
    pub(crate) async fn next(&mut self) -> Option<Progress> {
        self.events.recv().await
    }

    /// The next event, if there is one already.
    pub(crate) fn ready(&mut self) -> Option<Progress> {
        self.events.try_recv().ok()
    }

    /// Waits for the complete response.
    pub(crate) async fn done(mut self) -> Result<Response, ApiError> {
        while let Some(event) = self.next().await {
            if let Progress::Done(done) = event {
                return *done;
            }
        }
        Err(broken())
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The error where the task ended without a result: the model panicked.
pub(crate) fn broken() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the model failed")
}

async fn respond<M: Model>(
    served: &Served<M>,
    chat: ChatRequest,
    listener: &dyn Listener,
) -> Result<Response, ApiError> {
    let ChatRequest { mut messages, tools, choice, parallel, sampling, max_tokens, .. } = chat;
    let max_tokens = max_tokens.unwrap_or(served.max_tokens);
    let tool_choice = match choice {
        Choice::Auto => ToolChoice::Auto,
        Choice::Required => ToolChoice::Required,
    };
    let sampling = Sampling { tool_choice, ..sampling };
    let mut usage = Usage::default();
    for _ in 0..ATTEMPTS {
        let request =
            Request { messages: &messages, tools: &tools, sampling: &sampling, max_tokens };
        let mut response = served.model.complete(&request, listener).await?;
        usage += response.usage;
        let offered = |name: &str| tools.iter().any(|tool| tool.name == name);
        if choice == Choice::Required {
            response.message.calls.retain(|call| offered(&call.name));
        }
        if choice == Choice::Auto || !response.message.calls.is_empty() {
            if parallel == Parallel::One {
                response.message.calls.truncate(1);
            }
            return Ok(Response { usage, ..response });
        }
        if response.stop == Stop::Length {
            let message = "tool_choice: the response was cut off before its call was complete; allow more tokens";
            return Err(no_call(message.into()));
        }
        messages.push(Message::Assistant(response.message));
        let how = served.model.tool_call_hint(&tools);
        messages.push(Message::user(format!("This reply has to be a call of a tool: {how}.")));
    }
    Err(no_call(format!("tool_choice: the model called no tool in {ATTEMPTS} attempts")))
}

fn no_call(message: String) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message).code("no_tool_call")
}

/// Sends the pieces of a response to the HTTP task.
struct Forwarder(UnboundedSender<Progress>);

impl Listener for Forwarder {
    fn on_delta(&self, delta: Delta<'_>) {
        let event = match delta {
            Delta::Reasoning(text) => Progress::Reasoning(text.to_owned()),
            Delta::Text(text) => Progress::Text(text.to_owned()),
            Delta::Retry { .. } => Progress::Void,
            // Calls are sent once they are complete and parsed.
            Delta::Call(_) | Delta::Arguments(_) => return,
        };
        // Without a receiver, this task is about to be aborted.
        let _ = self.0.send(event);
    }
}
