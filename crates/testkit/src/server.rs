//! A server that speaks both vendors' protocols on this machine, from a script, and remembers every request.
//!
//! It has a thread and a runtime of its own, so that tests need neither; both end when it is dropped.

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

use serde_json::{Value, json};
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

/// Tests wait no longer than this for requests.
const PATIENCE: Duration = Duration::from_secs(20);

/// Clients that connect at the same time.
const BACKLOG: u32 = 4096;

/// A running server.
pub struct MockServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether requests are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of them.
    Requests,
    /// Only how many there were.
    Counts,
}

/// An address at which nobody listens, for as long as this lives.
#[derive(Debug)]
pub struct Nobody {
    /// Bound, so that no other program gets the port.
    socket: TcpSocket,
}

type Closure = Box<dyn Fn(&Received) -> Answer + Send + Sync>;

struct Shared {
    queue: Mutex<VecDeque<Answer>>,
    closure: Option<Closure>,
    keep: Keep,
    log: Log,
    told: AtomicU64,
}

impl MockServer {
    /// A server with an empty script; see [`MockServer::push`].
    pub fn start() -> io::Result<Self> {
        Self::scripted([] as [Answer; 0])
    }

    /// A server that gives these answers, one for each request, whoever asks.
    pub fn scripted<A: Into<Answer>>(answers: impl IntoIterator<Item = A>) -> io::Result<Self> {
        let queue = answers.into_iter().map(Into::into).collect();
        Self::serve(queue, None, Keep::Requests)
    }

    /// A server that answers each request by itself, so that it can hold many conversations at once.
    /// Answers pushed come first.
    pub fn answering<A: Into<Answer>>(
        answer: impl Fn(&Received) -> A + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::answering_and(Keep::Requests, answer)
    }

    /// The same, remembering requests or not.
    pub fn answering_and<A: Into<Answer>>(
        keep: Keep,
        answer: impl Fn(&Received) -> A + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let closure: Closure = Box::new(move |received| answer(received).into());
        Self::serve(VecDeque::new(), Some(closure), keep)
    }

    /// Where it is, up to and including the version: what clients of either protocol are told.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// Where it is, without a path.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One more answer at the end of the script.
    pub fn push(&self, answer: impl Into<Answer>) {
        self.shared.queue().push_back(answer.into());
    }

    /// How many answers of the script were not given.
    pub fn left(&self) -> usize {
        self.shared.queue().len()
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.log.kept()
    }

    /// How many requests came so far.
    pub fn count(&self) -> usize {
        self.shared.log.counts().came
    }

    /// How many requests are being answered now.
    pub fn open(&self) -> usize {
        self.shared.log.counts().open
    }

    /// The most requests that were being answered at one time.
    pub fn peak(&self) -> usize {
        self.shared.log.counts().peak
    }

    /// Blocks until this many requests came, for 20 seconds at most; returns all so far.
    pub fn wait_for_requests(&self, wanted: usize) -> Result<Vec<Received>, TooFew> {
        let log = &self.shared.log;
        let came = log.wait(PATIENCE, |counts| counts.came >= wanted);
        if came { Ok(log.kept()) } else { Err(TooFew { wanted, came: log.counts().came }) }
    }

    /// The same for tests that must not block their thread.
    pub async fn requests_reach(&self, wanted: usize) -> Result<Vec<Received>, TooFew> {
        let log = &self.shared.log;
        let came = log.reach(PATIENCE, |counts| counts.came >= wanted).await;
        if came { Ok(log.kept()) } else { Err(TooFew { wanted, came: log.counts().came }) }
    }

    /// Blocks until no request is being answered, for 20 seconds at most; says whether that is so. A client
    /// that gave up on a reply has closed its connection by then.
    pub fn wait_until_idle(&self) -> bool {
        self.shared.log.wait(PATIENCE, |counts| counts.open == 0)
    }

    /// The same for tests that must not block their thread.
    pub async fn is_idle_soon(&self) -> bool {
        self.shared.log.reach(PATIENCE, |counts| counts.open == 0).await
    }

    fn serve(queue: VecDeque<Answer>, closure: Option<Closure>, keep: Keep) -> io::Result<Self> {
        let log = Log::default();
        let told = AtomicU64::new(0);
        let shared = Arc::new(Shared { queue: Mutex::new(queue), closure, keep, log, told });
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
            // Its panics are those of single connections, which ended by them.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for MockServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Nobody {
    /// Takes a port and does not listen there.
    pub fn new() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { socket })
    }

    /// The address that refuses connections, with a version.
    pub fn base_url(&self) -> io::Result<String> {
        Ok(format!("http://{}/v1", self.socket.local_addr()?))
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Answer>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, received: &Received) -> Answer {
        match (received.method.as_str(), received.path.as_str()) {
            ("GET", "/health") => return Answer::status(200, json!({"status": "ok"}).to_string()),
            ("GET", "/v1/models") => return Answer::status(200, models().to_string()),
            ("POST", path) if Protocol::of(path).is_some() => {}
            (method, path) => return Answer::error(404, format!("no {method} at {path}")),
        }
        if received.body == Value::Null {
            return Answer::error(400, "the body is no JSON");
        }
        let next = self.queue().pop_front();
        match (next, &self.closure) {
            (Some(answer), _) => answer,
            (None, Some(closure)) => closure(received),
            (None, None) => Answer::error(410, "the script has no reply left"),
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(converse(stream, Arc::clone(&shared)));
            }
            // Out of descriptors, most likely: some may be free after a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection. What goes wrong with it is its client's business.
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
        let kept = (shared.keep == Keep::Requests).then(|| received.clone());
        let open = shared.log.enter(kept);
        let answer = shared.answer(&received);
        let number = shared.told.fetch_add(1, Ordering::Relaxed) + 1;
        let plan = Plan::new(&answer, &received, number);
        // A conversation may be long: it is not kept while its answer is on the way.
        drop((received, answer));
        let next = plan.play(&mut connection).await;
        drop(open);
        if last || !matches!(next, Ok(Next::Request)) {
            return;
        }
    }
}

fn models() -> Value {
    json!({"object": "list", "data": [{"id": "mock", "object": "model", "owned_by": "testkit"}]})
}
