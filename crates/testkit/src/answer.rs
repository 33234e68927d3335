//! What the mock server does with one request, as a test writes it down: a turn of a model, a status, or
//! one of the ways in which servers fail. Knows neither protocol.

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
    NoWord(Leave),
}

/// How a connection ends without a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    Close,
    Reset,
    Hang,
}

/// A way in which a reply goes wrong on its way. Chunks are the events of a stream, or the tenths of a
/// body that is not streamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends after this many chunks.
    CutAfter(usize),
    /// The connection ends inside a character of several bytes; inside the JSON where there is none.
    CutInChar,
    /// The connection ends inside the JSON of the chunk with this number, from 0.
    CutInJson(usize),
    /// The stream ends after this many chunks as if that were all, the connection being sound.
    EndAfter(usize),
    /// Nothing more comes after this many chunks, until the client goes away. With 0 there are headers only.
    SilentAfter(usize),
    /// The chunk with this number, from 0, holds no JSON; the others come as they should.
    Malformed(usize),
    /// After this many chunks the server reports an error within the stream, and ends it.
    ErrorEvent(usize, String),
    /// The first piece of the reply comes again and again, until the client goes away.
    Endless,
}

/// What servers do differently without being wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// No word at the end of the stream that it is complete.
    NoDone,
    /// Tokens are not counted.
    NoUsage,
    /// The thinking comes under this name (OpenAI's protocol; `reasoning_content` otherwise).
    ReasoningAs(&'static str),
    /// Each call comes in one piece (OpenAI's protocol).
    WholeCalls,
    /// The arguments of several calls come by turns (OpenAI's protocol).
    Interleaved,
    /// Comments between the events.
    Comments,
    /// Lines end as on Windows.
    CrLf,
    /// The reply comes in one piece although a stream was asked for.
    Unstreamed,
}

impl Answer {
    /// A turn of the model.
    pub fn says(turn: Turn) -> Self {
        Self { delay: turn.delay, ..Self::new(What::Says(turn)) }
    }

    /// A status, with the message in the error object of the protocol spoken.
    pub fn error(status: u16, message: impl Into<String>) -> Self {
        Self::new(What::Error { status, message: message.into() })
    }

    /// Too many requests, come back after so many seconds.
    pub fn busy(seconds: u64) -> Self {
        Self::error(429, "too many requests").header("retry-after", seconds.to_string())
    }

    /// A status with a body of one's own, said to be JSON.
    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::body(status, "application/json", body)
    }

    /// Any body at all.
    pub fn body(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(What::Body { status, kind, body: body.into() })
    }

    /// A body that claims to be a stream of events.
    pub fn events(body: impl Into<Vec<u8>>) -> Self {
        Self::body(200, "text/event-stream", body)
    }

    /// The page of a proxy that cannot reach the server.
    pub fn page(status: u16) -> Self {
        let body = format!(
            "<!doctype html>\n<html><head><title>{status}</title></head>\n<body><h1>{status}</h1>\
             <p>The upstream server is not available.</p></body></html>\n"
        );
        Self::body(status, "text/html", body)
    }

    /// A stream of one line of so many bytes that does not end there.
    pub fn long_line(bytes: u64) -> Self {
        Self::new(What::LongLine(bytes))
    }

    /// The connection ends before any header.
    pub fn close() -> Self {
        Self::new(What::NoWord(Leave::Close))
    }

    /// The connection is reset before any header.
    pub fn reset() -> Self {
        Self::new(What::NoWord(Leave::Reset))
    }

    /// Not even headers come, until the client goes away.
    pub fn hang() -> Self {
        Self::new(What::NoWord(Leave::Hang))
    }

    /// A call cut off by the limit of tokens in the middle of its arguments.
    pub fn cut_call(name: &str, arguments: &str) -> Self {
        Self::says(calls([Call::raw(name, arguments)]).stop(Stop::Length))
    }

    /// The same, going wrong in this way.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// The same, done differently.
    pub fn quirk(mut self, quirk: Quirk) -> Self {
        self.quirks.push(quirk);
        self
    }

    /// The same with one more header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same, begun after a while.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The same with a pause before every chunk.
    pub fn every(mut self, pause: Duration) -> Self {
        self.every = pause;
        self
    }

    /// The same, written so many bytes at a time, whatever they belong to.
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
    /// The turn, going wrong on its way.
    pub fn fault(self, fault: Fault) -> Answer {
        Answer::says(self).fault(fault)
    }

    /// The turn as a server tells it that does this differently.
    pub fn quirk(self, quirk: Quirk) -> Answer {
        Answer::says(self).quirk(quirk)
    }

    /// The turn with a pause before every chunk.
    pub fn every(self, pause: Duration) -> Answer {
        Answer::says(self).every(pause)
    }
}
