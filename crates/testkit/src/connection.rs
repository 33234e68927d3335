//! One client connection: requests in, bytes out. Implements HTTP/1.1 as far as our clients need it, and no model's
//! protocol.

use std::{fmt, io};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::protocol::Protocol;

/// Maximum bytes of the headers.
const HEAD: usize = 64 << 10;

/// Bytes read at once.
const ROOM: usize = 16 << 10;

/// Maximum bytes of a body.
const BODY: usize = 256 << 20;

/// A request as received. Its debug output shows every header, keys included: tests have no secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The method, such as `POST`.
    pub method: String,
    /// The path, such as `/v1/messages`.
    pub path: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; null if there is none or it is not JSON.
    pub body: Value,
    /// The length of the body in bytes.
    pub bytes: usize,
}

impl Received {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The protocol, by the path.
    pub fn protocol(&self) -> Option<Protocol> {
        Protocol::of(&self.path)
    }

    /// Whether it requests a stream.
    pub fn is_streaming(&self) -> bool {
        self.body["stream"] == true
    }

    /// The messages of the conversation.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// How many turns of the model the conversation contains.
    pub fn turns(&self) -> usize {
        self.messages().iter().filter(|message| message["role"] == "assistant").count()
    }

    /// Whether a text occurs anywhere in the messages or the system prompt.
    pub fn mentions(&self, text: &str) -> bool {
        mentions(&self.body["messages"], text) || mentions(&self.body["system"], text)
    }
}

fn mentions(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string.contains(text),
        Value::Array(items) => items.iter().any(|item| mentions(item, text)),
        Value::Object(map) => map.values().any(|item| mentions(item, text)),
        _ => false,
    }
}

pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes after the last request.
    ahead: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, ahead: Vec::new() })
    }

    /// The next request, or `None` if the client disconnected.
    pub(crate) async fn request(&mut self) -> io::Result<Option<Received>> {
        let end = loop {
            if let Some(end) = self.ahead.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            if self.ahead.len() > HEAD {
                return Err(nonsense("the head is too long"));
            }
            // Head and body of a typical request in one read.
            self.ahead.reserve(ROOM);
            if self.stream.read_buf(&mut self.ahead).await? == 0 {
                return Ok(None);
            }
        };
        let mut received = parse(&self.ahead[..end])?;
        self.ahead.drain(..end + 4);
        let length = length(&received)?;
        if received.header("expect").is_some() && self.ahead.len() < length {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        self.ahead.reserve(length.saturating_sub(self.ahead.len()));
        while self.ahead.len() < length {
            if self.stream.read_buf(&mut self.ahead).await? == 0 {
                return Ok(None);
            }
        }
        received.bytes = length;
        received.body = serde_json::from_slice(&self.ahead[..length]).unwrap_or(Value::Null);
        self.ahead.drain(..length);
        Ok(Some(received))
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Waits until the client disconnects. Cancel-safe.
    pub(crate) async fn left(&mut self) {
        while self.ahead.len() <= HEAD {
            if !matches!(self.stream.read_buf(&mut self.ahead).await, Ok(read) if read > 0) {
                return;
            }
        }
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(&self) -> io::Result<()> {
        self.stream.set_zero_linger()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("stream", &self.stream).finish_non_exhaustive()
    }
}

fn parse(head: &[u8]) -> io::Result<Received> {
    let head = std::str::from_utf8(head).map_err(|_| nonsense("the head is not text"))?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1")) = (first.next(), first.next(), first.next())
    else {
        return Err(nonsense("the first line is not a request line"));
    };
    let path = target.split('?').next().unwrap_or_default();
    let headers = lines.map(|line| {
        let (name, value) =
            line.split_once(':').ok_or_else(|| nonsense("a header lacks a colon"))?;
        Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    Ok(Received {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: headers.collect::<io::Result<_>>()?,
        body: Value::Null,
        bytes: 0,
    })
}

fn length(received: &Received) -> io::Result<usize> {
    if received.header("transfer-encoding").is_some() {
        return Err(nonsense("a body without a length is not understood"));
    }
    let length = received.header("content-length").unwrap_or("0").parse();
    match length {
        Ok(length) if length <= BODY => Ok(length),
        _ => Err(nonsense("the body has no sensible length")),
    }
}

fn nonsense(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
