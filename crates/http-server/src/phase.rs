//! What a connection is doing, followed through its requests and responses.
//!
//! Forwards bodies unchanged.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::{sync::Notify, time::Instant};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not sent a complete head, since then.
    Waiting(Instant),
    /// It has not sent the complete body of its request, since then.
    Receiving(Instant),
    /// Its request is being answered.
    Answering,
}

/// A connection, as the server's loop and the connection's own task see it.
#[derive(Debug)]
pub(crate) struct Connection {
    state: Mutex<State>,
    /// Notified when the connection has to give its place to another.
    pub(crate) evicted: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Counts requests: what remains of an earlier one changes nothing.
    request: u64,
}

impl Connection {
    pub(crate) fn new() -> Self {
        let state = State { phase: Phase::Waiting(Instant::now()), request: 0 };
        Self { state: Mutex::new(state), evicted: Notify::new() }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).phase
    }

    /// A head was received. Returns the number of the request.
    fn begin(&self, phase: Phase) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.request += 1;
        state.phase = phase;
        state.request
    }

    /// Something of a request has ended.
    fn end(&self, request: u64, ended: Ended) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.request != request {
            return;
        }
        state.phase = match (ended, state.phase) {
            (Ended::Request, Phase::Receiving(_)) => Phase::Answering,
            // A response may be complete before the body it answers was read.
            (Ended::Request, phase) => phase,
            (Ended::Response, _) => Phase::Waiting(Instant::now()),
        };
    }
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    Request,
    Response,
}

/// Part of an exchange; its drop is its end.
#[derive(Debug)]
struct Part {
    connection: Arc<Connection>,
    request: u64,
    kind: Ended,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.connection.end(self.request, self.kind);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Exchange(Part);

impl Exchange {
    /// Begins with the body of a request. Returns it as a body that is followed.
    pub(crate) fn begin<B>(connection: &Arc<Connection>, body: B) -> (Self, Body)
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let phase = match body.is_end_stream() {
            true => Phase::Answering,
            false => Phase::Receiving(Instant::now()),
        };
        let request = connection.begin(phase);
        let part = |kind| Part { connection: connection.clone(), request, kind };
        let body = Followed { body, part: Some(part(Ended::Request)) };
        (Self(part(Ended::Response)), Body::new(body))
    }

    /// Follows the body of the response, at whose end the next request is waited for.
    pub(crate) fn respond(self, body: Body) -> Body {
        self.0.connection.end(self.0.request, Ended::Request);
        Body::new(Followed { body, part: Some(self.0) })
    }
}

/// A body whose end, or drop, changes the phase.
struct Followed<B> {
    body: B,
    part: Option<Part>,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Followed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let poll = Pin::new(&mut self.body).poll_frame(context);
        if matches!(poll, Poll::Ready(None | Some(Err(_)))) || self.body.is_end_stream() {
            self.part = None;
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
