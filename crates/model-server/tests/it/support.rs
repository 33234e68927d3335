//! A server for each test, a client that sends any bytes, and models that can be watched.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lis_model_server::{ServeOptions, Served, serve};
use model::{Delta, Error, Listener, Model, Request, Response};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// Nothing a test waits for takes longer.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

/// A server that ends with its test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub(crate) async fn of<M: Model>(model: M) -> Self {
        Self::with(vec![Served::new(model, 1000)], ServeOptions::default()).await
    }

    pub(crate) async fn with<M: Model>(models: Vec<Served<M>>, options: ServeOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, models, options, async {
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), task }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Asks it to end.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits for its end.
    pub(crate) async fn ended(self) {
        timeout(LONGEST, self.task).await.unwrap().unwrap().unwrap();
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
            .await
    }

    pub(crate) async fn ask(&self, body: &Value) -> Got {
        self.send(&chat(&body.to_string(), "connection: close\r\n")).await
    }

    /// Sends bytes and reads the answer up to its end.
    pub(crate) async fn send(&self, request: impl AsRef<[u8]>) -> Got {
        let mut stream = self.connect().await;
        stream.write_all(request.as_ref()).await.unwrap();
        read(&mut stream).await
    }
}

/// A request for a completion.
pub(crate) fn chat(body: &str, headers: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

/// A question.
pub(crate) fn question(more: Value) -> Value {
    let mut body =
        json!({ "model": "scripted", "messages": [{ "role": "user", "content": "Hi" }] });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// The tools most questions offer.
pub(crate) fn tools() -> Value {
    let parameters = json!({ "type": "object", "properties": { "command": { "type": "string" } } });
    let tool = |name: &str| {
        let function = json!({ "name": name, "description": "Does it.", "parameters": parameters });
        json!({ "type": "function", "function": function })
    };
    json!([tool("execute_bash"), tool("submit")])
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error, in the shape every error has.
    pub(crate) fn error(&self) -> Value {
        let json = self.json();
        let error = json["error"].as_object().unwrap();
        let keys: Vec<_> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "message", "param", "type"]);
        assert!(error["message"].is_string() && error["type"].is_string());
        assert_eq!(self.header("content-type"), Some("application/json"));
        json["error"].clone()
    }

    /// The text of the response, streamed or whole.
    pub(crate) fn content(&self) -> String {
        if self.header("content-type") != Some("text/event-stream") {
            return self.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        }
        let events = self.events().into_iter().filter(|event| event != "[DONE]");
        let chunks = events.map(|event| serde_json::from_str::<Value>(&event).unwrap());
        let delta =
            |chunk: Value| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
        chunks.filter_map(delta).collect()
    }

    /// The data of the events.
    pub(crate) fn events(&self) -> Vec<String> {
        let body = self.body.split("\r\n").collect::<String>();
        let lines = body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(str::to_owned).collect()
    }
}

/// Reads an answer up to the end of the connection.
pub(crate) async fn read(stream: &mut TcpStream) -> Got {
    let mut bytes = Vec::new();
    // A connection may be reset once the answer is there; what came before counts.
    let _ = timeout(LONGEST, stream.read_to_end(&mut bytes)).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(body) } else { body.to_owned() };
    Got { status, head: head.to_owned(), body }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        let Some((chunk, after)) = after.split_at_checked(size) else { break };
        body.push_str(chunk);
        rest = after.strip_prefix("\r\n").unwrap_or_default();
    }
    body
}

/// Reads until the text has come.
pub(crate) async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        loop {
            let read = String::from_utf8_lossy(&bytes).into_owned();
            if read.contains(text) {
                return read;
            }
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "{read:?}");
        }
    };
    timeout(LONGEST, reading).await.unwrap()
}

/// Waits until something is true.
pub(crate) async fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + LONGEST;
    while !is_true() {
        assert!(Instant::now() < until, "never came true: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A model that streams one word and then hangs; counts running and abandoned responses.
#[derive(Clone, Default)]
pub(crate) struct Endless {
    pub(crate) running: Arc<AtomicUsize>,
    pub(crate) begun: Arc<AtomicUsize>,
}

impl Endless {
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Model for Endless {
    fn name(&self) -> &str {
        "scripted"
    }

    fn complete(
        &self,
        _: &Request<'_>,
        listener: &dyn Listener,
    ) -> impl Future<Output = Result<Response, Error>> + Send {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(self.running.clone());
        async move {
            let _running = running;
            listener.on_delta(Delta::Text("word"));
            std::future::pending().await
        }
    }
}
