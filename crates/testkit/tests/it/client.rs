//! A client that shows what really came over the wire, and how it ended. Hides nothing and repairs nothing.

use std::{net::SocketAddr, time::Duration};

use lis_testkit::MockServer;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// A server that is to answer has done so by then.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const OPENAI: &str = "/v1/chat/completions";
pub(crate) const ANTHROPIC: &str = "/v1/messages";

pub(crate) struct Client {
    stream: TcpStream,
    ahead: Vec<u8>,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As announced.
    Clean,
    /// The connection was closed before.
    Cut,
    /// The connection was reset.
    Reset,
    /// Nothing more came.
    Silent,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

enum Framing {
    Chunked,
    Length(usize),
}

pub(crate) fn request(stream: bool) -> Value {
    json!({
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": stream,
        "stream_options": {"include_usage": true},
    })
}

/// One request on a connection of its own.
pub(crate) async fn ask(server: &MockServer, path: &str, stream: bool) -> Response {
    let mut client = Client::open(server.address()).await;
    client.post(path, &request(stream)).await;
    client.response(PATIENCE).await
}

impl Client {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), ahead: Vec::new() }
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: mock\r\nAuthorization: Bearer k-1\r\nX-Api-Key: k-2\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.stream.write_all((head + &body).as_bytes()).await.unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) {
        let head = format!("GET {path} HTTP/1.1\r\nHost: mock\r\n\r\n");
        self.stream.write_all(head.as_bytes()).await.unwrap();
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The response, as far as it comes; each read may take this long.
    pub(crate) async fn response(&mut self, within: Duration) -> Response {
        let mut response =
            Response { status: 0, head: String::new(), body: vec![], end: End::Clean };
        let end = loop {
            if let Some(end) = self.ahead.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            if let Some(end) = self.more(within).await {
                response.end = end;
                return response;
            }
        };
        response.head = String::from_utf8(self.ahead.drain(..end + 4).collect()).unwrap();
        response.status = response.head.split(' ').nth(1).unwrap().parse().unwrap();
        let framing = match response.header("content-length") {
            Some(length) => Framing::Length(length.parse().unwrap()),
            None => Framing::Chunked,
        };
        response.end = loop {
            if self.take(&framing, &mut response.body) {
                break End::Clean;
            }
            if let Some(end) = self.more(within).await {
                break end;
            }
        };
        response
    }

    /// Reads some bytes of a body, and then leaves it at that.
    pub(crate) async fn taste(&mut self, bytes: usize) -> Vec<u8> {
        while self.ahead.len() < bytes {
            assert_eq!(self.more(PATIENCE).await, None);
        }
        self.ahead.clone()
    }

    async fn more(&mut self, within: Duration) -> Option<End> {
        match timeout(within, self.stream.read_buf(&mut self.ahead)).await {
            Err(_) => Some(End::Silent),
            Ok(Err(_)) => Some(End::Reset),
            Ok(Ok(0)) => Some(End::Cut),
            Ok(Ok(_)) => None,
        }
    }

    /// Moves the received bytes into the body; returns whether it is complete.
    fn take(&mut self, framing: &Framing, body: &mut Vec<u8>) -> bool {
        if let Framing::Length(length) = framing {
            let now = self.ahead.len().min(length - body.len());
            body.extend(self.ahead.drain(..now));
            return body.len() == *length;
        }
        while let Some(line) = self.ahead.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&self.ahead[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if self.ahead.len() < line + size + 4 {
                return false;
            }
            body.extend(&self.ahead[line + 2..line + 2 + size]);
            self.ahead.drain(..line + size + 4);
            if size == 0 {
                return true;
            }
        }
        false
    }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The data of all events that hold JSON.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.text().lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }

    /// Joins the texts at a JSON pointer over all events that have it.
    pub(crate) fn joined(&self, pointer: &str) -> String {
        let events = self.events();
        let texts = events.iter().filter_map(|event| event.pointer(pointer)?.as_str());
        texts.collect()
    }
}
