//! A server with real sandboxes, and requests to it.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use lis_server::{ServeOptions, serve};
use reqwest::{Client, Method, RequestBuilder, Response};
use sandbox_native::NativeRuntime;
use sandbox_testkit::{Faulty, Spawner, setting};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot};
use tokio_util::sync::CancellationToken;

/// Longest time of a test.
fn bound() -> Duration {
    Duration::from_secs(if setting("LIS_SLOW").is_some() { 600 } else { 120 })
}

/// A running server.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) runtime: Arc<Faulty<NativeRuntime>>,
    pub(crate) client: Client,
    /// Cancelled when it has ended.
    pub(crate) ended: CancellationToken,
}

/// Runs a test with a server; skips it where there can be no sandboxes. Afterwards no sandbox is left.
pub(crate) fn with_server(options: ServeOptions, test: impl AsyncFnOnce(&TestServer)) {
    with_stoppable_server(options, async |server, _stop| test(server).await);
}

/// The same, with a function that asks the server to end.
pub(crate) fn with_stoppable_server(
    options: ServeOptions,
    test: impl AsyncFnOnce(&TestServer, Box<dyn FnOnce()>),
) {
    let spawner = Spawner::Example("lis-server-spawner");
    sandbox_testkit::with_runtime(spawner, bound(), async |runtime| {
        let runtime = Arc::new(Faulty::new(runtime));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async {
            let _ = stopped.await;
        };
        let ended = CancellationToken::new();
        let serving = tokio::spawn({
            let (runtime, ended) = (Arc::clone(&runtime), ended.clone().drop_guard());
            async move {
                let _ended = ended;
                serve(listener, runtime, options, until).await
            }
        });
        // Nothing here is encrypted, but the client insists.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The environment may name a proxy, which does not know this machine's own addresses.
        let client = Client::builder().no_proxy().build().unwrap();
        let server = TestServer { address, runtime, client, ended };
        test(&server, Box::new(move || drop(stop))).await;
        serving.await.unwrap().unwrap();
        let left = sandbox::Runtime::list(&*server.runtime).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    });
}

/// A sandbox, as its creator knows it.
pub(crate) struct Created {
    pub(crate) id: String,
    pub(crate) token: String,
}

impl TestServer {
    /// A request to the control plane.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// Creates a sandbox.
    pub(crate) async fn create(&self) -> Created {
        let body = json!({ "templateID": "base", "timeout": 60 });
        let response =
            self.request(Method::POST, "/v2/sandboxes").json(&body).send().await.unwrap();
        assert_eq!(response.status(), 201);
        let value: Value = response.json().await.unwrap();
        let text = |name: &str| value[name].as_str().unwrap().to_owned();
        Created { id: text("sandboxID"), token: text("envdAccessToken") }
    }

    /// A request to a sandbox.
    pub(crate) fn to(&self, sandbox: &Created, method: Method, path: &str) -> RequestBuilder {
        let request = self.request(method, path).header("E2b-Sandbox-Id", &sandbox.id);
        request.header("X-Access-Token", &sandbox.token)
    }

    /// Calls a procedure with one message each way.
    pub(crate) async fn call(
        &self,
        sandbox: &Created,
        procedure: &str,
        message: &Value,
    ) -> Response {
        self.to(sandbox, Method::POST, procedure).json(message).send().await.unwrap()
    }

    /// Starts a procedure that answers with a stream.
    pub(crate) async fn stream(
        &self,
        sandbox: &Created,
        procedure: &str,
        message: &Value,
    ) -> Response {
        self.streaming(sandbox, procedure, message).send().await.unwrap()
    }

    /// The request that does.
    pub(crate) fn streaming(
        &self,
        sandbox: &Created,
        procedure: &str,
        message: &Value,
    ) -> RequestBuilder {
        let body = message.to_string().into_bytes();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let body = [&[0], &length[..], &body].concat();
        let request = self.to(sandbox, Method::POST, procedure);
        request.header("Content-Type", "application/connect+json").body(body)
    }
}

/// The messages of a whole stream.
pub(crate) fn messages(mut body: &[u8]) -> Vec<Value> {
    let mut all = Vec::new();
    while !body.is_empty() {
        let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
        all.push(serde_json::from_slice(&body[5..5 + length]).unwrap());
        body = &body[5 + length..];
    }
    all
}

/// A program for `/process.Process/Start`.
pub(crate) fn bash(script: &str) -> Value {
    json!({ "process": { "cmd": "/bin/bash", "args": ["-c", script] }, "stdin": false })
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_met().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until there are this many sandboxes.
pub(crate) async fn becomes(server: &TestServer, count: usize) {
    let begun = Instant::now();
    while sandbox::Runtime::list(&*server.runtime).await.unwrap().len() != count {
        assert!(begun.elapsed() < Duration::from_secs(20), "still not {count} sandboxes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
