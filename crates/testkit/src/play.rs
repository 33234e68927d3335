//! Turns an answer into bytes on the wire: first a plan, which is pure data, then its execution.

use std::{io, time::Duration};

use crate::{
    Answer, Fault, Quirk, Received, Turn,
    answer::{Leave, What},
    connection::Connection,
    protocol::{Context, Protocol},
};

/// The bytes to send, and how the response ends.
#[derive(Debug)]
pub(crate) struct Plan {
    head: String,
    framing: Framing,
    chunks: Vec<Vec<u8>>,
    end: End,
    delay: Duration,
    every: Duration,
    split: Option<usize>,
}

/// What happens to the connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Request,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Chunked,
    Length(usize),
    /// Nothing is sent.
    None,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Clean,
    Close,
    Reset,
    Silence,
    Repeat(Vec<u8>),
    Fill(u64),
}

impl Plan {
    /// The plan for a request. `number` is unique.
    pub(crate) fn new(answer: &Answer, received: &Received, number: u64) -> Self {
        let protocol = received.protocol().unwrap_or(Protocol::OpenAi);
        match &answer.what {
            What::Says(turn) => turn_plan(answer, turn, received, protocol, number),
            What::Body { status, kind, body } => whole(answer, *status, kind, body, protocol),
            What::Error { status, message } => {
                let body = protocol.error(*status, message).to_string();
                whole(answer, *status, "application/json", body.as_bytes(), protocol)
            }
            What::LongLine(bytes) => {
                let start = b"data: {\"type\": \"".to_vec();
                let plan = Self::with(answer, Framing::Chunked, vec![start], End::Fill(*bytes));
                plan.headed(200, "text/event-stream", answer)
            }
            What::NoResponse(leave) => {
                let end = match leave {
                    Leave::Close => End::Close,
                    Leave::Reset => End::Reset,
                    Leave::Hang => End::Silence,
                };
                Self::with(answer, Framing::None, vec![], end)
            }
        }
    }

    /// Executes the plan. An error means that the client disconnected.
    pub(crate) async fn play(self, connection: &mut Connection) -> io::Result<Next> {
        pause(self.delay, connection).await?;
        if self.every.is_zero() && self.split.is_none() {
            let mut bytes = self.head.clone().into_bytes();
            self.framing.frame(&self.chunks.concat(), &mut bytes);
            if self.end == End::Clean {
                bytes.extend(self.framing.last());
            }
            connection.write(&bytes).await?;
        } else {
            connection.write(self.head.as_bytes()).await?;
            for chunk in self.pieces() {
                pause(self.every, connection).await?;
                self.framing.write(&chunk, connection).await?;
                // Flush this piece before the next one.
                tokio::task::yield_now().await;
            }
            if self.end == End::Clean {
                connection.write(self.framing.last()).await?;
            }
        }
        self.finish(connection).await
    }

    fn pieces(&self) -> Vec<Vec<u8>> {
        match self.split {
            Some(size) => self.chunks.concat().chunks(size).map(<[u8]>::to_vec).collect(),
            None => self.chunks.clone(),
        }
    }

    async fn finish(self, connection: &mut Connection) -> io::Result<Next> {
        match self.end {
            End::Clean => return Ok(Next::Request),
            End::Close => {}
            End::Reset => connection.reset()?,
            End::Silence => connection.left().await,
            End::Repeat(chunk) => loop {
                pause(self.every, connection).await?;
                self.framing.write(&chunk, connection).await?;
                tokio::task::yield_now().await;
            },
            End::Fill(bytes) => {
                let fill = [b'x'; 64 << 10];
                let mut left = bytes;
                while left > 0 {
                    let now = left.min(fill.len() as u64);
                    self.framing.write(&fill[..now as usize], connection).await?;
                    left -= now;
                }
                connection.write(self.framing.last()).await?;
                return Ok(Next::Request);
            }
        }
        Ok(Next::Close)
    }

    fn with(answer: &Answer, framing: Framing, chunks: Vec<Vec<u8>>, end: End) -> Self {
        let Answer { delay, every, split, .. } = *answer;
        Self { head: String::new(), framing, chunks, end, delay, every, split }
    }

    fn headed(mut self, status: u16, kind: &str, answer: &Answer) -> Self {
        let framing = match self.framing {
            Framing::Length(length) => format!("content-length: {length}\r\n"),
            Framing::Chunked => "transfer-encoding: chunked\r\n".into(),
            Framing::None => return self,
        };
        let headers = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let headers: String = headers.collect();
        self.head = format!(
            "HTTP/1.1 {status} {}\r\ncontent-type: {kind}\r\n{framing}{headers}\r\n",
            reason(status)
        );
        self
    }
}

impl Framing {
    fn frame(self, bytes: &[u8], into: &mut Vec<u8>) {
        match self {
            Self::Chunked if !bytes.is_empty() => {
                into.extend(format!("{:x}\r\n", bytes.len()).bytes());
                into.extend(bytes);
                into.extend(b"\r\n");
            }
            _ => into.extend(bytes),
        }
    }

    fn last(self) -> &'static [u8] {
        if self == Self::Chunked { b"0\r\n\r\n" } else { b"" }
    }

    async fn write(self, bytes: &[u8], connection: &mut Connection) -> io::Result<()> {
        let mut framed = Vec::with_capacity(bytes.len() + 16);
        self.frame(bytes, &mut framed);
        connection.write(&framed).await
    }
}

/// A turn of the model, streamed if requested.
fn turn_plan(
    answer: &Answer,
    turn: &Turn,
    received: &Received,
    protocol: Protocol,
    number: u64,
) -> Plan {
    let streaming = received.is_streaming() && !answer.has(Quirk::Unstreamed);
    let reports_usage =
        !answer.has(Quirk::NoUsage) && (!streaming || protocol.counts(&received.body));
    let context = Context {
        number,
        model: received.body["model"].as_str().unwrap_or("mock"),
        usage: reports_usage.then(|| turn.usage_after(received.bytes)),
        answer,
    };
    if !streaming {
        let body = protocol.whole(turn, &context).to_string();
        return whole(answer, 200, "application/json", body.as_bytes(), protocol);
    }
    let stream = protocol.stream(turn, &context);
    let mut events = stream.events;
    if !answer.has(Quirk::NoDone) {
        events.push(stream.done);
    }
    let chunks = events.into_iter().map(|event| apply_quirks(event, answer)).collect();
    let (chunks, end) = apply_fault(chunks, stream.repeat, answer, protocol);
    Plan::with(answer, Framing::Chunked, chunks, end).headed(200, "text/event-stream", answer)
}

/// A body of known length.
fn whole(answer: &Answer, status: u16, kind: &str, body: &[u8], protocol: Protocol) -> Plan {
    let tenth = body.len().div_ceil(10).max(1);
    let chunks = body.chunks(tenth).map(<[u8]>::to_vec).collect();
    let (chunks, end) = apply_fault(chunks, 0, answer, protocol);
    let framing = match end {
        End::Clean => Framing::Length(chunks.iter().map(Vec::len).sum()),
        End::Repeat(_) => Framing::Chunked,
        _ => Framing::Length(body.len()),
    };
    Plan::with(answer, framing, chunks, end).headed(status, kind, answer)
}

/// Applies the server's quirks to an event.
fn apply_quirks(event: String, answer: &Answer) -> Vec<u8> {
    let comment = if answer.has(Quirk::Comments) { ": still here\n\n" } else { "" };
    let event = format!("{comment}{event}");
    // Line breaks in the data are escaped, so only those of the framing are replaced.
    let event = if answer.has(Quirk::CrLf) { event.replace('\n', "\r\n") } else { event };
    event.into_bytes()
}

fn apply_fault(
    mut chunks: Vec<Vec<u8>>,
    repeat: usize,
    answer: &Answer,
    protocol: Protocol,
) -> (Vec<Vec<u8>>, End) {
    let end = match &answer.fault {
        None => End::Clean,
        Some(Fault::CutAfter(count)) => {
            chunks.truncate(*count);
            End::Close
        }
        Some(Fault::CutInChar) => {
            let last = chunks.len().saturating_sub(1);
            let found = chunks.iter().enumerate().find_map(|(at, chunk)| {
                Some((at, chunk.iter().position(|byte| *byte >= 0xc0)? + 1))
            });
            let (at, length) = found.unwrap_or((last, half(chunks.last())));
            cut_inside(&mut chunks, at, length);
            End::Close
        }
        Some(Fault::CutInJson(at)) => {
            let length = half(chunks.get(*at));
            cut_inside(&mut chunks, *at, length);
            End::Close
        }
        Some(Fault::EndAfter(count)) => {
            chunks.truncate(*count);
            End::Clean
        }
        Some(Fault::SilentAfter(count)) => {
            chunks.truncate(*count);
            End::Silence
        }
        Some(Fault::Malformed(at)) => {
            if let Some(chunk) = chunks.get_mut(*at) {
                *chunk = b"data: {\"choices\": [{\"delta\": {\"content\": nothing\n\n".to_vec();
            }
            End::Clean
        }
        Some(Fault::ErrorEvent(count, message)) => {
            chunks.truncate(*count);
            chunks.push(protocol.error_event(message).into_bytes());
            End::Clean
        }
        Some(Fault::Endless) => {
            chunks.truncate(repeat + 1);
            End::Repeat(chunks.last().cloned().unwrap_or_else(|| b"\n".to_vec()))
        }
    };
    (chunks, end)
}

fn half(chunk: Option<&Vec<u8>>) -> usize {
    chunk.map_or(0, |chunk| chunk.len() / 2)
}

fn cut_inside(chunks: &mut Vec<Vec<u8>>, at: usize, length: usize) {
    chunks.truncate(at + 1);
    if let Some(chunk) = chunks.get_mut(at) {
        chunk.truncate(length);
    }
}

/// Waits, unless the client disconnects.
async fn pause(delay: Duration, connection: &mut Connection) -> io::Result<()> {
    if delay.is_zero() {
        return Ok(());
    }
    tokio::select! {
        () = tokio::time::sleep(delay) => Ok(()),
        () = connection.left() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        410 => "Gone",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}
