//! A local server that implements both vendors' protocols, answers from a script and records every request.
//!
//! It has its own thread and runtime, so that tests need neither; both end when it is dropped.

use std::{
    collections::VecDeque,
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime,
    sync::oneshot,
};

use crate::{
    Answer, Protocol, Received, TooFew,
    connection::Connection,
    log::Log,
    play::{Next, Plan},
};

/// How long tests wait for requests.
const PATIENCE: Duration = Duration::from_secs(20);

/// Paths of protocols with token ids, whose bodies tests write themselves.
const TOKEN_PATHS: [&str; 2] = ["/v1/completions", "/generate"];

/// Concurrent connection attempts.
const BACKLOG: u32 = 4096;

/// A running server.
pub struct MockServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether requests are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of them.
    Requests,
    /// Only their number.
    Counts,
}

/// A port on which nothing listens, reserved for the lifetime of this value.
#[derive(Debug)]
pub struct UnusedPort {
    /// Bound, so that no other process gets the port.
    socket: TcpSocket,
}

type Closure = Box<dyn Fn(&Received) -> Answer + Send + Sync>;

struct Shared {
    queue: Mutex<VecDeque<Answer>>,
    closure: Option<Closure>,
    keep: Keep,
    log: Log,
    answered: AtomicU64,
    models: Mutex<Vec<String>>,
    /// Further fields of each listed model.
    model_fields: Mutex<Map<String, Value>>,
    lists: AtomicU64,
}

impl MockServer {
    /// A server with an empty script; see [`MockServer::push`].
    pub fn start() -> io::Result<Self> {
        Self::scripted([] as [Answer; 0])
    }

    /// A server that sends these answers, one per request.
    pub fn scripted<A: Into<Answer>>(answers: impl IntoIterator<Item = A>) -> io::Result<Self> {
        let queue = answers.into_iter().map(Into::into).collect();
        Self::serve(queue, None, Keep::Requests)
    }

    /// A server that computes each answer from its request, so that it can serve concurrent conversations. Pushed
    /// answers come first.
    pub fn answering<A: Into<Answer>>(
        answer: impl Fn(&Received) -> A + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::answering_and(Keep::Requests, answer)
    }

    /// Like [`MockServer::answering`], recording requests or not.
    pub fn answering_and<A: Into<Answer>>(
        keep: Keep,
        answer: impl Fn(&Received) -> A + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let closure: Closure = Box::new(move |received| answer(received).into());
        Self::serve(VecDeque::new(), Some(closure), keep)
    }

    /// The base URL including the version, for clients of either protocol.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// The URL without a path.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The socket address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Appends an answer to the script.
    pub fn push(&self, answer: impl Into<Answer>) {
        self.shared.queue().push_back(answer.into());
    }

    /// Sets the names in the list of models; `mock` and `scripted` unless set.
    pub fn list_models(&self, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        *self.shared.models.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Sets further fields of each listed model, such as `max_model_len`.
    pub fn describe_models(&self, fields: &Value) {
        let fields = fields.as_object().cloned().unwrap_or_default();
        *self.shared.model_fields.lock().unwrap_or_else(PoisonError::into_inner) = fields;
    }

    /// How often the list of models was requested. These requests are neither recorded nor counted among the others.
    pub fn lists(&self) -> u64 {
        self.shared.lists.load(Ordering::Relaxed)
    }

    /// How many answers of the script remain.
    pub fn remaining(&self) -> usize {
        self.shared.queue().len()
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.log.kept()
    }

    /// How many requests were received so far.
    pub fn count(&self) -> usize {
        self.shared.log.counts().came
    }

    /// How many requests are currently processed.
    pub fn open(&self) -> usize {
        self.shared.log.counts().open
    }

    /// The maximum number of requests that were processed at once.
    pub fn peak(&self) -> usize {
        self.shared.log.counts().peak
    }

    /// Blocks until this many requests were received, at most 20 seconds; returns all so far.
    pub fn wait_for_requests(&self, wanted: usize) -> Result<Vec<Received>, TooFew> {
        let log = &self.shared.log;
        let came = log.wait(PATIENCE, |counts| counts.came >= wanted);
        if came { Ok(log.kept()) } else { Err(TooFew { wanted, came: log.counts().came }) }
    }

    /// Async version of [`MockServer::wait_for_requests`].
    pub async fn requests_reach(&self, wanted: usize) -> Result<Vec<Received>, TooFew> {
        let log = &self.shared.log;
        let came = log.reach(PATIENCE, |counts| counts.came >= wanted).await;
        if came { Ok(log.kept()) } else { Err(TooFew { wanted, came: log.counts().came }) }
    }

    /// Blocks until no request is processed, at most 20 seconds; returns whether that is so. Clients that gave up on a
    /// response have closed their connections by then.
    pub fn wait_until_idle(&self) -> bool {
        self.shared.log.wait(PATIENCE, |counts| counts.open == 0)
    }

    /// Async version of [`MockServer::wait_until_idle`].
    pub async fn is_idle_soon(&self) -> bool {
        self.shared.log.reach(PATIENCE, |counts| counts.open == 0).await
    }

    fn serve(queue: VecDeque<Answer>, closure: Option<Closure>, keep: Keep) -> io::Result<Self> {
        let log = Log::default();
        let answered = AtomicU64::new(0);
        let models = Mutex::new(["mock", "scripted"].map(str::to_owned).to_vec());
        let (queue, lists) = (Mutex::new(queue), AtomicU64::new(0));
        let model_fields = Mutex::default();
        let shared = Shared { queue, closure, keep, log, answered, models, model_fields, lists };
        let shared = Arc::new(shared);
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = {
            let _guard = runtime.enter();
            socket.listen(BACKLOG)?
        };
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = thread::Builder::new().name("mock-server".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, serving) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic ends the connection it occurs in only.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for MockServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl UnusedPort {
    /// Reserves a port.
    pub fn new() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { socket })
    }

    /// The base URL, including a version, that refuses connections.
    pub fn base_url(&self) -> io::Result<String> {
        Ok(format!("http://{}/v1", self.socket.local_addr()?))
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Answer>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> Answer {
        self.lists.fetch_add(1, Ordering::Relaxed);
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let fields = self.model_fields.lock().unwrap_or_else(PoisonError::into_inner);
        let model = |name: &String| {
            let mut model = json!({"id": name, "object": "model", "owned_by": "testkit"});
            fields.iter().for_each(|(field, value)| model[field] = value.clone());
            model
        };
        let models: Vec<Value> = models.iter().map(model).collect();
        Answer::status(200, json!({"object": "list", "data": models}).to_string())
    }

    fn answer(&self, received: &Received) -> Answer {
        match (received.method.as_str(), received.path.as_str()) {
            ("GET", "/health") => return Answer::status(200, json!({"status": "ok"}).to_string()),
            ("POST", path) if Protocol::of(path).is_some() || TOKEN_PATHS.contains(&path) => {}
            (method, path) => return Answer::error(404, format!("no {method} at {path}")),
        }
        if received.body == Value::Null {
            return Answer::error(400, "the body is not JSON");
        }
        let next = self.queue().pop_front();
        match (next, &self.closure) {
            (Some(answer), _) => answer,
            (None, Some(closure)) => closure(received),
            (None, None) => Answer::error(410, "the script has ended"),
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(converse(stream, Arc::clone(&shared)));
            }
            // Most likely out of file descriptors, which may be free again soon.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection. Its errors concern its client only.
async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    let Ok(mut connection) = Connection::new(stream) else { return };
    loop {
        let received = match connection.request().await {
            Ok(Some(received)) => received,
            Ok(None) => return,
            Err(error) => {
                let why = format!("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n{error}\n");
                let _ = connection.write(why.as_bytes()).await;
                return;
            }
        };
        let last = received.header("connection").is_some_and(|value| value == "close");
        let lists = received.method == "GET" && received.path == "/v1/models";
        let kept = (shared.keep == Keep::Requests).then(|| received.clone());
        let open = (!lists).then(|| shared.log.enter(kept));
        let answer = if lists { shared.list() } else { shared.answer(&received) };
        let number = shared.answered.fetch_add(1, Ordering::Relaxed) + 1;
        let plan = Plan::new(&answer, &received, number);
        // Conversations may be long: free the request while its answer is sent.
        drop((received, answer));
        let next = plan.play(&mut connection).await;
        drop(open);
        if last || !matches!(next, Ok(Next::Request)) {
            return;
        }
    }
}
