//! Streams an episode: its steps as reasoning, then its answer.

use std::{convert::Infallible, time::Duration};

use axum::{body::Body, http::Response};
use futures_util::stream;
use openai_wire::{ApiError, parameters::StreamUsage, sse};
use sandbox::RemoteRuntime;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::episode::{Answered, Playing};

/// Most bytes of a piece of the answer.
const PIECE: usize = 4096;

/// Streams an episode. One that fails before its first step gets an error status instead.
pub(super) async fn respond<R: RemoteRuntime>(
    mut playing: Playing<R>,
    usage: StreamUsage,
    heartbeat: Duration,
) -> Result<Response<Body>, ApiError> {
    let mut events = Events { usage, out: String::new(), begun: false };
    let mut ended = false;
    match timeout(heartbeat, playing.next()).await {
        Err(_) => sse::push_comment(&mut events.out),
        Ok(Some(step)) => events.step(&playing, &step),
        Ok(None) => {
            let answered = playing.answer().await?;
            events.finish(&playing, &answered);
            ended = true;
        }
    }
    let sending = Sending { playing, events, heartbeat, ended };
    let body = stream::unfold(sending, |mut sending| async {
        let bytes = sending.next().await?;
        Some((Ok::<_, Infallible>(bytes), sending))
    });
    Ok(sse::event_stream(Body::from_stream(body)))
}

/// A stream on its way. Dropped when the client disconnects, which cancels the episode.
struct Sending<R: RemoteRuntime> {
    playing: Playing<R>,
    events: Events,
    heartbeat: Duration,
    ended: bool,
}

impl<R: RemoteRuntime> Sending<R> {
    /// The next bytes, or `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if self.events.out.is_empty() {
            if self.ended {
                return None;
            }
            match timeout(self.heartbeat, self.playing.next()).await {
                Err(_) => sse::push_comment(&mut self.events.out),
                Ok(Some(step)) => self.events.step(&self.playing, &step),
                Ok(None) => {
                    match self.playing.answer().await {
                        Ok(answered) => self.events.finish(&self.playing, &answered),
                        Err(error) => sse::push_event(&mut self.events.out, &error.json()),
                    }
                    self.ended = true;
                }
            }
        }
        Some(std::mem::take(&mut self.events.out))
    }
}

/// The events of one response.
struct Events {
    usage: StreamUsage,
    /// Bytes to send next.
    out: String,
    begun: bool,
}

impl Events {
    fn step<R: RemoteRuntime>(&mut self, playing: &Playing<R>, step: &str) {
        self.chunk(playing, json!({ "reasoning_content": step }), None);
    }

    /// Sends the answer and the end.
    fn finish<R: RemoteRuntime>(&mut self, playing: &Playing<R>, answered: &Answered) {
        let mut rest = answered.content.as_str();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(PIECE));
            self.chunk(playing, json!({ "content": piece }), None);
            rest = later;
        }
        let last = (answered.finish_reason, &answered.extension);
        self.chunk(playing, json!({}), Some(last));
        if self.usage == StreamUsage::Included {
            sse::push_event(&mut self.out, &playing.header.usage_chunk(&answered.usage));
        }
        self.out.push_str(sse::DONE);
    }

    fn chunk<R: RemoteRuntime>(
        &mut self,
        playing: &Playing<R>,
        delta: Value,
        last: Option<(&str, &Value)>,
    ) {
        if !std::mem::replace(&mut self.begun, true) {
            let role = json!({ "role": "assistant", "content": "" });
            let first = playing.header.chunk(role, None, self.usage);
            sse::push_event(&mut self.out, &first);
        }
        let mut chunk = playing.header.chunk(delta, last.map(|(reason, _)| reason), self.usage);
        if let Some((_, extension)) = last {
            chunk["episode"] = extension.clone();
        }
        sse::push_event(&mut self.out, &chunk);
    }
}
