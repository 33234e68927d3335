//! A client of the protocol, as raw lines, and a session with real sandboxes.

use std::{sync::Arc, time::Duration};

use agent::tools::Tools;
use lis_mcp::{CreateError, SandboxSource, ServeError, Session, serve_lines};
use sandbox::{Runtime, Spec};
use sandbox_native::{NativeRuntime, NativeSandbox};
use sandbox_testkit::Spawner;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

const BOUND: Duration = Duration::from_secs(60);
/// Longest wait for a line.
const ANSWER: Duration = Duration::from_secs(20);

struct Source(Arc<NativeRuntime>);

impl SandboxSource for Source {
    type Sandbox = NativeSandbox;
    type Permit = ();

    async fn create(&self) -> Result<(NativeSandbox, ()), CreateError> {
        Ok((self.0.create(&Spec::default()).await?, ()))
    }
}

/// A client and the session it is connected to.
pub(crate) struct Client {
    pub(crate) runtime: Arc<NativeRuntime>,
    pub(crate) stop: CancellationToken,
    pub(crate) output: Option<WriteHalf<DuplexStream>>,
    pub(crate) input: Option<BufReader<ReadHalf<DuplexStream>>>,
    serving: JoinHandle<Result<(), ServeError>>,
    next: u64,
}

/// Runs a test with a client. Afterwards no sandbox is left.
pub(crate) fn with_client(test: impl AsyncFnOnce(&mut Client)) {
    let spawner = Spawner::Example("lis-mcp-spawner");
    sandbox_testkit::with_runtime(spawner, BOUND, async |runtime| {
        let runtime = Arc::new(runtime);
        let tools = Tools { workdir: Spec::default().workdir, ..Tools::default() };
        let session = Arc::new(Session::new(Source(Arc::clone(&runtime)), tools));
        let (near, far) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(far);
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve_lines(session, input, output, stop.clone()));
        let (input, output) = tokio::io::split(near);
        let mut client = Client {
            runtime,
            stop,
            output: Some(output),
            input: Some(BufReader::new(input)),
            serving,
            next: 0,
        };
        test(&mut client).await;
        client.stop.cancel();
        if !client.serving.is_finished() {
            client.ended().await.ok();
        }
        assert_eq!(client.sandboxes().await, 0);
    });
}

impl Client {
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.output.as_mut().unwrap().write_all(bytes).await.unwrap();
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_bytes(format!("{message}\n").as_bytes()).await;
    }

    /// The next line of the server.
    pub(crate) async fn receive(&mut self) -> Value {
        let mut line = String::new();
        let reading = self.input.as_mut().unwrap().read_line(&mut line);
        timeout(ANSWER, reading).await.expect("an answer").unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Sends a request; returns its id.
    pub(crate) async fn start(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&request).await;
        id
    }

    /// Sends a request and waits for its answer. Notifications are skipped; the answer to an earlier request is a failure: a
    /// test that waits for that one later would wait in vain.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.start(method, params).await;
        loop {
            let answer = self.receive().await;
            if answer["id"] == id {
                return answer;
            }
            assert!(!answer["method"].is_null(), "before the answer to {id}: {answer}");
        }
    }

    /// Opens the session.
    pub(crate) async fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = self.request("initialize", params).await;
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.send(&initialized).await;
        answer["result"].clone()
    }

    /// Starts a tool call; returns its id.
    pub(crate) async fn start_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.start("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Calls a tool; returns its result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.request("tools/call", params).await;
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    pub(crate) async fn bash(&mut self, command: &str) -> String {
        let result = self.call("execute_bash", json!({ "command": command })).await;
        text(&result)
    }

    pub(crate) async fn sandboxes(&self) -> usize {
        self.runtime.list().await.unwrap().len()
    }

    /// Waits for the session's own end.
    pub(crate) async fn ended(&mut self) -> Result<(), ServeError> {
        timeout(ANSWER, &mut self.serving).await.expect("the session ends").unwrap()
    }
}

/// The text of a result.
pub(crate) fn text(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}
