//! Streams a response as server-sent events.
//!
//! Sends what is certain. Does not change the response.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use futures_util::stream;
use openai_wire::{
    ApiError, CompletionHeader, finish_reason, numbered, parameters::StreamUsage, sse,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    generation::{Generation, Progress, broken},
    holdback::{Calls, Holdback},
};

/// Starts streaming a response. One that fails before its first piece gets an error status instead.
pub(crate) async fn respond(
    mut generation: Generation,
    fields: CompletionHeader,
    calls: Calls,
    usage: StreamUsage,
    heartbeat: Duration,
) -> Result<Response<Body>, ApiError> {
    let mut events = Events::new(fields, calls, usage);
    match timeout(heartbeat, generation.next()).await {
        Err(_) => events.comment(),
        Ok(None) => return Err(broken()),
        Ok(Some(Progress::Done(done))) => events.finish(&(*done)?),
        Ok(Some(event)) => events.take(event),
    }
    let sending = Sending { generation, events, heartbeat };
    let body = stream::unfold(sending, |mut sending| async {
        let bytes = sending.next().await?;
        Some((Ok::<_, Infallible>(bytes), sending))
    });
    Ok(sse::event_stream(Body::from_stream(body)))
}

struct Sending {
    generation: Generation,
    events: Events,
    heartbeat: Duration,
}

impl Sending {
    /// The next bytes, or `None` at the end.
    async fn next(&mut self) -> Option<String> {
        while self.events.out.is_empty() {
            if self.events.ended {
                return None;
            }
            match timeout(self.heartbeat, self.generation.next()).await {
                Err(_) => self.events.comment(),
                Ok(None) => self.events.fail(&broken()),
                Ok(Some(event)) => self.events.take(event),
            }
        }
        // A slow reader gets what has accumulated at once.
        while !self.events.ended
            && self.events.out.len() < MAX_CHUNK
            && let Some(event) = self.generation.ready()
        {
            self.events.take(event);
        }
        Some(std::mem::take(&mut self.events.out))
    }
}

const MAX_CHUNK: usize = 64 << 10;

/// The events of one response.
struct Events {
    fields: CompletionHeader,
    usage: StreamUsage,
    text: Holdback,
    reasoning: Holdback,
    begun: bool,
    ended: bool,
    /// Bytes to send next.
    out: String,
}

impl Events {
    fn new(fields: CompletionHeader, calls: Calls, usage: StreamUsage) -> Self {
        Self {
            fields,
            usage,
            text: Holdback::new(calls),
            reasoning: Holdback::new(Calls::Impossible),
            begun: false,
            ended: false,
            out: String::new(),
        }
    }

    fn take(&mut self, event: Progress) {
        match event {
            Progress::Reasoning(piece) => {
                let piece = self.reasoning.push(&piece).to_owned();
                self.push("reasoning_content", &piece);
            }
            Progress::Text(piece) => {
                let piece = self.text.push(&piece).to_owned();
                self.push("content", &piece);
            }
            Progress::Void => {
                if self.reasoning.void().and(self.text.void()).is_err() {
                    let message = "the response was interrupted; discard what was sent";
                    self.fail(&ApiError::new(StatusCode::BAD_GATEWAY, message));
                }
            }
            Progress::Done(done) => match *done {
                Ok(response) => self.finish(&response),
                Err(failure) => self.fail(&failure),
            },
        }
    }

    /// Sends the rest of the response, and its end.
    fn finish(&mut self, response: &model::Response) {
        let rest = self.reasoning.rest(&response.message.reasoning).to_owned();
        self.push("reasoning_content", &rest);
        let rest = self.text.rest(&response.message.text).to_owned();
        self.push("content", &rest);
        let calls = &response.message.calls;
        if !calls.is_empty() {
            self.chunk(json!({ "tool_calls": numbered(calls) }), None);
        }
        self.chunk(json!({}), Some(finish_reason(response)));
        if self.usage == StreamUsage::Included {
            let usage = self.fields.usage_chunk(&response.usage);
            self.event(&usage);
        }
        self.out.push_str(sse::DONE);
        self.ended = true;
    }

    fn fail(&mut self, failure: &ApiError) {
        self.event(&failure.json());
        self.ended = true;
    }

    fn push(&mut self, kind: &str, piece: &str) {
        if !piece.is_empty() {
            self.chunk(json!({ kind: piece }), None);
        }
    }

    fn chunk(&mut self, delta: Value, finish: Option<&str>) {
        if !std::mem::replace(&mut self.begun, true) {
            let role = json!({ "role": "assistant", "content": "" });
            let first = self.fields.chunk(role, None, self.usage);
            self.event(&first);
        }
        let chunk = self.fields.chunk(delta, finish, self.usage);
        self.event(&chunk);
    }

    fn event(&mut self, json: &Value) {
        sse::push_event(&mut self.out, json);
    }

    fn comment(&mut self) {
        sse::push_comment(&mut self.out);
    }
}
