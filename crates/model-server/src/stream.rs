//! A reply as server-sent events, from its first word to the last.
//!
//! Sends what is certain. Decides nothing about the reply itself.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use futures_util::stream;
use model::Reply;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    answer::{self, Heading},
    failure::Failure,
    generation::{Generation, News, broken},
    hold::{Calls, Hold},
    question::StreamUsage,
};

/// Begins to send a reply. One that fails before its first word gets a status that says so.
pub(crate) async fn respond(
    mut generation: Generation,
    heading: Heading,
    calls: Calls,
    usage: StreamUsage,
    heartbeat: Duration,
) -> Result<Response<Body>, Failure> {
    let mut events = Events::new(heading, calls, usage);
    match timeout(heartbeat, generation.next()).await {
        Err(_) => events.comment(),
        Ok(None) => return Err(broken()),
        Ok(Some(News::Done(done))) => events.finish(&(*done)?),
        Ok(Some(news)) => events.take(news),
    }
    let sending = Sending { generation, events, heartbeat };
    let body = stream::unfold(sending, |mut sending| async {
        let bytes = sending.next().await?;
        Some((Ok::<_, Infallible>(bytes), sending))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

struct Sending {
    generation: Generation,
    events: Events,
    heartbeat: Duration,
}

impl Sending {
    /// The next bytes, or nothing at the end.
    async fn next(&mut self) -> Option<String> {
        while self.events.out.is_empty() {
            if self.events.ended {
                return None;
            }
            match timeout(self.heartbeat, self.generation.next()).await {
                Err(_) => self.events.comment(),
                Ok(None) => self.events.fail(&broken()),
                Ok(Some(news)) => self.events.take(news),
            }
        }
        // Whoever reads slowly gets what has gathered at once.
        while !self.events.ended
            && self.events.out.len() < MOST_AT_ONCE
            && let Some(news) = self.generation.ready()
        {
            self.events.take(news);
        }
        Some(std::mem::take(&mut self.events.out))
    }
}

const MOST_AT_ONCE: usize = 64 << 10;

/// The events of one reply.
struct Events {
    heading: Heading,
    usage: StreamUsage,
    text: Hold,
    reasoning: Hold,
    begun: bool,
    ended: bool,
    /// What is to be sent next.
    out: String,
}

impl Events {
    fn new(heading: Heading, calls: Calls, usage: StreamUsage) -> Self {
        Self {
            heading,
            usage,
            text: Hold::new(calls),
            reasoning: Hold::new(Calls::Impossible),
            begun: false,
            ended: false,
            out: String::new(),
        }
    }

    fn take(&mut self, news: News) {
        match news {
            News::Reasoning(piece) => {
                let piece = self.reasoning.push(&piece).to_owned();
                self.say("reasoning_content", &piece);
            }
            News::Text(piece) => {
                let piece = self.text.push(&piece).to_owned();
                self.say("content", &piece);
            }
            News::Void => {
                if self.reasoning.void().and(self.text.void()).is_err() {
                    let message = "the reply broke off, and what was sent of it is void";
                    self.fail(&Failure::new(StatusCode::BAD_GATEWAY, message));
                }
            }
            News::Done(done) => match *done {
                Ok(reply) => self.finish(&reply),
                Err(failure) => self.fail(&failure),
            },
        }
    }

    /// What is left of the reply, and the end.
    fn finish(&mut self, reply: &Reply) {
        let rest = self.reasoning.rest(&reply.message.reasoning).to_owned();
        self.say("reasoning_content", &rest);
        let rest = self.text.rest(&reply.message.text).to_owned();
        self.say("content", &rest);
        let calls = &reply.message.calls;
        if !calls.is_empty() {
            self.chunk(json!({ "tool_calls": answer::numbered(calls) }), None);
        }
        self.chunk(json!({}), Some(answer::finish(reply)));
        if self.usage == StreamUsage::Told {
            let count = self.heading.count(&reply.usage);
            self.event(&count);
        }
        self.out.push_str("data: [DONE]\n\n");
        self.ended = true;
    }

    fn fail(&mut self, failure: &Failure) {
        self.event(&failure.json());
        self.ended = true;
    }

    fn say(&mut self, kind: &str, piece: &str) {
        if !piece.is_empty() {
            self.chunk(json!({ kind: piece }), None);
        }
    }

    fn chunk(&mut self, delta: Value, finish: Option<&str>) {
        if !std::mem::replace(&mut self.begun, true) {
            let role = json!({ "role": "assistant", "content": "" });
            let first = self.heading.chunk(role, None, self.usage);
            self.event(&first);
        }
        let chunk = self.heading.chunk(delta, finish, self.usage);
        self.event(&chunk);
    }

    /// Line breaks are escaped in JSON, so an event is one line.
    fn event(&mut self, json: &Value) {
        self.out.push_str("data: ");
        self.out.push_str(&json.to_string());
        self.out.push_str("\n\n");
    }

    /// Says nothing, and shows that somebody is there.
    fn comment(&mut self) {
        self.out.push_str(": still writing\n\n");
    }
}
