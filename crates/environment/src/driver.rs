//! The model of a session: its responses come from outside, through a channel.

use std::sync::Arc;

use model::{Error, Given, Listener, Model, Overflow, Request, Response, ToolSpec};
use tokio::sync::{Mutex, mpsc};
use trajectory::{Assistant, Message};

use crate::session::Session;

/// What a session returns for a reset or a step.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// The messages for the model since its last response: the first ones, tool results, reminders.
    pub messages: Vec<Message>,
    /// The response as it was understood: with the ids of its calls, and without what follows them.
    pub message: Option<Assistant>,
    /// The tools; empty after the first turn, and where the format of calls describes them in the messages.
    pub tools: Vec<ToolSpec>,
    /// The most tokens of the next response.
    pub max_tokens: u64,
    /// How the episode ended, if this was its last turn.
    pub outcome: Option<trajectory::Outcome>,
}

/// A message to the driver.
#[derive(Debug)]
pub(crate) enum Input {
    Response(Box<Given>),
    /// The policy writes nothing more: its context is full, or its owner has seen enough.
    Stop,
}

/// The model of a session.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) session: Arc<Session>,
    pub(crate) inbox: Mutex<mpsc::Receiver<Input>>,
}

impl Model for Driver {
    fn name(&self) -> &str {
        "client"
    }

    async fn complete(&self, request: &Request<'_>, _: &dyn Listener) -> Result<Response, Error> {
        self.session.observed(turn(request, self.session.is_started()));
        match self.inbox.lock().await.recv().await {
            Some(Input::Response(given)) => Ok(given.into_response(request)),
            Some(Input::Stop) | None => Err(Error::Overflow {
                numbers: Overflow::default(),
                message: "the client ended the episode".into(),
            }),
        }
    }
}

/// The part of a conversation that is new.
fn turn(request: &Request<'_>, is_started: bool) -> Turn {
    let is_response = |message: &Message| matches!(message, Message::Assistant(_));
    // The first messages may have an example, with responses in it.
    let last = request.messages.iter().rposition(is_response).filter(|_| is_started);
    let message = match last.and_then(|at| request.messages.get(at)) {
        Some(Message::Assistant(message)) => Some(message.clone()),
        _ => None,
    };
    let from = last.map_or(0, |at| at + 1);
    Turn {
        messages: request.messages.get(from..).unwrap_or_default().to_vec(),
        message,
        tools: if is_started { Vec::new() } else { request.tools.to_vec() },
        max_tokens: request.max_tokens,
        outcome: None,
    }
}
