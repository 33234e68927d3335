//! What the mock server does with one request: a turn of a model, a status, or one of the ways in which servers fail.
//! Knows neither protocol.

use std::time::Duration;

use trajectory::Stop;

use crate::{Call, Turn, turn::calls};

/// What the server does with one request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) what: What,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) fault: Option<Fault>,
    pub(crate) quirks: Vec<Quirk>,
    pub(crate) delay: Duration,
    pub(crate) every: Duration,
    pub(crate) split: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Says(Turn),
    Body { status: u16, kind: &'static str, body: Vec<u8> },
    Error { status: u16, message: String },
    LongLine(u64),
    NoResponse(Leave),
}

/// How a connection ends without a response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    Close,
    Reset,
    Hang,
}

/// A failure while a response is sent. Chunks are the events of a stream, or the tenths of a body that is not streamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends after this many chunks.
    CutAfter(usize),
    /// The connection ends inside a multi-byte character, or inside the JSON where there is none.
    CutInChar,
    /// The connection ends inside the JSON of the chunk with this number, from 0.
    CutInJson(usize),
    /// The stream ends cleanly after this many chunks, as if complete.
    EndAfter(usize),
    /// Nothing is sent after this many chunks, until the client disconnects. With 0, only headers are sent.
    SilentAfter(usize),
    /// The chunk with this number, from 0, is not JSON; the others are.
    Malformed(usize),
    /// After this many chunks, the server reports an error within the stream and ends it.
    ErrorEvent(usize, String),
    /// The first piece of the response is repeated until the client disconnects.
    Endless,
}

/// Valid variations between servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// No event marks the end of the stream.
    NoDone,
    /// No token usage is sent.
    NoUsage,
    /// Thinking is sent in this field instead of `reasoning_content` (OpenAI's protocol).
    ReasoningAs(&'static str),
    /// Each call is sent in one piece (OpenAI's protocol).
    WholeCalls,
    /// The arguments of several calls are interleaved (OpenAI's protocol).
    Interleaved,
    /// Comments between the events.
    Comments,
    /// Lines end with CRLF.
    CrLf,
    /// The response is sent as one document although a stream was requested.
    Unstreamed,
}

impl Answer {
    /// A turn of the model.
    pub fn says(turn: Turn) -> Self {
        Self { delay: turn.delay, ..Self::new(What::Says(turn)) }
    }

    /// An error status, with the message in the protocol's error object.
    pub fn error(status: u16, message: impl Into<String>) -> Self {
        Self::new(What::Error { status, message: message.into() })
    }

    /// Status 429 with a `retry-after` of this many seconds.
    pub fn busy(seconds: u64) -> Self {
        Self::error(429, "too many requests").header("retry-after", seconds.to_string())
    }

    /// A status with this body, declared as JSON.
    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::body(status, "application/json", body)
    }

    /// A status with any body.
    pub fn body(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(What::Body { status, kind, body: body.into() })
    }

    /// A body declared as a stream of events.
    pub fn events(body: impl Into<Vec<u8>>) -> Self {
        Self::body(200, "text/event-stream", body)
    }

    /// The HTML page of a proxy that cannot reach the server.
    pub fn page(status: u16) -> Self {
        let body = format!(
            "<!doctype html>\n<html><head><title>{status}</title></head>\n<body><h1>{status}</h1>\
             <p>The upstream server is not available.</p></body></html>\n"
        );
        Self::body(status, "text/html", body)
    }

    /// A stream of one line of this many bytes, without a line end.
    pub fn long_line(bytes: u64) -> Self {
        Self::new(What::LongLine(bytes))
    }

    /// The connection is closed before any header.
    pub fn close() -> Self {
        Self::new(What::NoResponse(Leave::Close))
    }

    /// The connection is reset before any header.
    pub fn reset() -> Self {
        Self::new(What::NoResponse(Leave::Reset))
    }

    /// Nothing is sent until the client disconnects.
    pub fn hang() -> Self {
        Self::new(What::NoResponse(Leave::Hang))
    }

    /// A call cut off by the token limit in the middle of its arguments.
    pub fn cut_call(name: &str, arguments: &str) -> Self {
        Self::says(calls([Call::raw(name, arguments)]).stop(Stop::Length))
    }

    /// Adds a fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Adds a quirk.
    #[must_use]
    pub fn quirk(mut self, quirk: Quirk) -> Self {
        self.quirks.push(quirk);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets a delay before the answer.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets a pause before every chunk.
    #[must_use]
    pub fn every(mut self, pause: Duration) -> Self {
        self.every = pause;
        self
    }

    /// Writes this many bytes at a time, regardless of chunks.
    #[must_use]
    pub fn split(mut self, bytes: usize) -> Self {
        self.split = Some(bytes.max(1));
        self
    }

    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    fn new(what: What) -> Self {
        Self {
            what,
            headers: Vec::new(),
            fault: None,
            quirks: Vec::new(),
            delay: Duration::ZERO,
            every: Duration::ZERO,
            split: None,
        }
    }
}

impl From<Turn> for Answer {
    fn from(turn: Turn) -> Self {
        Self::says(turn)
    }
}

impl Turn {
    /// An answer with this turn and a fault.
    pub fn fault(self, fault: Fault) -> Answer {
        Answer::says(self).fault(fault)
    }

    /// An answer with this turn and a quirk.
    pub fn quirk(self, quirk: Quirk) -> Answer {
        Answer::says(self).quirk(quirk)
    }

    /// An answer with this turn and a pause before every chunk.
    pub fn every(self, pause: Duration) -> Answer {
        Answer::says(self).every(pause)
    }
}
