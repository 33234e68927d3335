//! Around every request: its id, its time, its line in the logs, and what the metrics count of it.

use std::{
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, HeaderValue, Method, Request, Response},
};
use http_server::Peer;
use hyper::body::{Frame, SizeHint};
use tracing::Instrument;

use crate::{
    audit::{Audit, Entry},
    metrics::{Metrics, RouteClass},
    places::Place,
};

/// The header with the id of a request.
const REQUEST_ID: &str = "x-request-id";
/// Longest id that is taken over from a client, and longest path in a log.
const MAX_ID: usize = 64;
const MAX_PATH: usize = 256;

/// What is found out about a request while it is answered.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The name of its token.
    pub(crate) token: OnceLock<Arc<str>>,
    /// The sandbox it is for.
    pub(crate) sandbox: OnceLock<String>,
    /// Where its path says too little.
    pub(crate) class: OnceLock<RouteClass>,
    /// What it takes of its token's share of the connections, until it is answered.
    pub(crate) place: OnceLock<Place>,
}

impl Facts {
    /// The request is for this sandbox.
    pub(crate) fn concern(&self, sandbox: &str) {
        let _ = self.sandbox.set(sandbox.to_owned());
    }
}

/// In the extensions of a response: the sandbox it is about.
#[derive(Clone, Debug)]
pub(crate) struct Made(pub(crate) String);

/// What a request was, as it is remembered while it is answered.
struct Head {
    id: String,
    method: Method,
    path: String,
    client: Option<String>,
    class: RouteClass,
}

impl Head {
    fn of(request: &Request<Body>) -> Self {
        let path = request.uri().path();
        let client = request.extensions().get::<Peer>().map(|peer| peer.0.ip().to_string());
        Self {
            id: request_id(request.headers()),
            method: request.method().clone(),
            path: path.chars().take(MAX_PATH).collect(),
            client,
            class: RouteClass::of(path),
        }
    }
}

/// The id that the client gave the request, if it is harmless in a log, or a new one.
fn request_id(headers: &HeaderMap) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let given = given.filter(|id| !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(plain));
    given.map_or_else(|| format!("{:016x}", fastrand::u64(..)), str::to_owned)
}

/// The status of a request whose client left before it was answered, as other servers log it.
const CLIENT_LEFT: u16 = 499;

/// Answers a request and remembers how that went, even where the client does not wait for it.
pub(crate) async fn observe(
    metrics: &Arc<Metrics>,
    audit: Option<&Audit>,
    request: Request<Body>,
    answer: impl AsyncFnOnce(Request<Body>, Arc<Facts>) -> Response<Body>,
) -> Response<Body> {
    let (head, facts) = (Head::of(&request), Arc::new(Facts::default()));
    let span = tracing::info_span!("request", id = head.id);
    let id = HeaderValue::from_str(&head.id);
    let observed = Observed {
        head: Some(head),
        facts: Arc::clone(&facts),
        begun: Instant::now(),
        metrics,
        audit,
    };
    let (received, held) = (Arc::clone(metrics), Arc::clone(&facts));
    let request = request.map(|body| Counted::body(body, received, Direction::Received, None));
    let mut response = answer(request, facts).instrument(span).await;
    let made = response.extensions_mut().remove::<Made>();
    observed.answered(response.status().as_u16(), made);
    if let Ok(id) = id {
        // A program in a sandbox may have ids of its own.
        response.headers_mut().entry(REQUEST_ID).or_insert(id);
    }
    let sent = Arc::clone(metrics);
    response.map(|body| Counted::body(body, sent, Direction::Sent, Some(held)))
}

/// A request while it is answered. Dropped before that, it is remembered as one whose client left: what it asked for may
/// have been done.
struct Observed<'a> {
    /// Until it is remembered.
    head: Option<Head>,
    facts: Arc<Facts>,
    begun: Instant,
    metrics: &'a Metrics,
    audit: Option<&'a Audit>,
}

impl Observed<'_> {
    fn answered(mut self, status: u16, made: Option<Made>) {
        if let Some(head) = self.head.take() {
            self.remember(head, status, made);
        }
    }

    fn remember(&self, head: Head, status: u16, made: Option<Made>) {
        let (facts, time) = (&self.facts, self.begun.elapsed());
        let class = facts.class.get().copied().unwrap_or(head.class);
        self.metrics.count(class, status, time);
        let sandbox = made.map(|Made(id)| id).or_else(|| facts.sandbox.get().cloned());
        let sandbox = sandbox.or_else(|| sandbox_in(&head.path));
        let token = facts.token.get().map(|name| name.to_string());
        tracing::info!(
            request = head.id,
            token = token.as_deref().unwrap_or("-"),
            client = head.client.as_deref().unwrap_or("-"),
            method = %head.method,
            path = head.path,
            status,
            sandbox = sandbox.as_deref().unwrap_or("-"),
            seconds = time.as_secs_f64(),
            "request"
        );
        if let Some(audit) = self.audit.filter(|_| is_audited(class, &head, status)) {
            audit.record(Entry {
                time: jiff::Timestamp::now().to_string(),
                request: head.id,
                token,
                client: head.client,
                method: head.method.to_string(),
                path: head.path,
                status,
                sandbox,
                seconds: time.as_secs_f64(),
                skipped: 0,
            });
        }
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        if let Some(head) = self.head.take() {
            self.remember(head, CLIENT_LEFT, None);
        }
    }
}

/// The sandbox that a path of the control plane names.
fn sandbox_in(path: &str) -> Option<String> {
    let path = path.strip_prefix("/v2").unwrap_or(path);
    let id = path.strip_prefix("/sandboxes/")?.split('/').next()?;
    (!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| id.to_owned())
}

/// Whether a request changes something, may do so from now on over its connection, or was refused.
fn is_audited(class: RouteClass, head: &Head, status: u16) -> bool {
    // What a program in a sandbox answers is its own matter.
    if class == RouteClass::Port {
        return false;
    }
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&head.method);
    let reads = reads || READS.contains(&head.path.as_str());
    let refused = status != CLIENT_LEFT && (400..500).contains(&status);
    !reads || refused || [SWITCHING, 501, 503, 507].contains(&status)
}

/// The status of a connection that becomes a WebSocket.
const SWITCHING: u16 = 101;

/// Procedures that change nothing, though they are sent like those that do.
const READS: [&str; 8] = [
    "/process.Process/List",
    "/process.Process/Connect",
    "/filesystem.Filesystem/Stat",
    "/filesystem.Filesystem/ListDir",
    "/filesystem.Filesystem/WatchDir",
    "/filesystem.Filesystem/CreateWatcher",
    "/filesystem.Filesystem/GetWatcherEvents",
    "/filesystem.Filesystem/RemoveWatcher",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Received,
    Sent,
}

/// A body whose bytes are counted. Forwards them unchanged.
struct Counted {
    body: Body,
    metrics: Arc<Metrics>,
    direction: Direction,
    /// What is held until it is sent.
    _facts: Option<Arc<Facts>>,
}

impl Counted {
    fn body(
        body: Body,
        metrics: Arc<Metrics>,
        direction: Direction,
        facts: Option<Arc<Facts>>,
    ) -> Body {
        if direction == Direction::Sent {
            metrics.open_responses.fetch_add(1, Ordering::Relaxed);
        }
        Body::new(Self { body, metrics, direction, _facts: facts })
    }

    fn bytes(&self) -> &AtomicU64 {
        match self.direction {
            Direction::Received => &self.metrics.received_bytes,
            Direction::Sent => &self.metrics.sent_bytes,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.direction == Direction::Sent {
            self.metrics.open_responses.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let poll = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &poll
            && let Some(data) = frame.data_ref()
        {
            self.bytes().fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    async fn observed(request: Request<Body>, status: u16) -> (Response<Body>, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::default());
        let response = observe(&metrics, None, request, async |request, _| {
            let body = axum::body::to_bytes(request.into_body(), 100).await.unwrap();
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        });
        (response.await, metrics)
    }

    #[tokio::test]
    async fn a_request_gets_an_id_and_is_counted() {
        let request = Request::post("/sandboxes").body(Body::from("four")).unwrap();
        let (response, metrics) = observed(request, 201).await;
        assert_eq!(response.headers()[REQUEST_ID].len(), 16);
        assert_eq!(metrics.open_responses.load(Ordering::Relaxed), 1);
        assert_eq!(response.body().size_hint().exact(), Some(4));
        let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(body, "four");
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!((count(&metrics.received_bytes), count(&metrics.sent_bytes)), (4, 4));
        assert_eq!(metrics.open_responses.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn only_harmless_ids_are_taken_over() {
        let long = "x".repeat(65);
        let cases = [("my-id.7", true), ("", false), ("a b", false), (&long, false)];
        for (id, kept) in cases {
            let request = Request::get("/").header(REQUEST_ID, id).body(Body::empty()).unwrap();
            let (response, _) = observed(request, 200).await;
            assert_eq!(response.headers()[REQUEST_ID] == id, kept, "{id}");
        }
    }

    #[test]
    fn changes_and_refusals_are_audited() {
        let audited = |method: Method, path: &str, status| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            let head = Head::of(&request);
            is_audited(head.class, &head, status)
        };
        assert!(audited(Method::POST, "/v2/sandboxes", 201));
        assert!(audited(Method::DELETE, "/sandboxes/x", 204));
        assert!(audited(Method::GET, "/v2/sandboxes", 401));
        assert!(audited(Method::GET, "/ws", 101));
        assert!(audited(Method::GET, "/page/api/sandboxes/x/terminal", 101));
        assert!(!audited(Method::GET, "/v2/sandboxes", 200));
        assert!(!audited(Method::POST, "/process.Process/List", 200));
        assert!(audited(Method::POST, "/process.Process/List", 429));
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_audited() {
        let directory = tempfile::tempdir().unwrap();
        let audit = Audit::open(directory.path(), 1 << 20).unwrap();
        let metrics = Arc::new(Metrics::default());
        for method in [Method::DELETE, Method::GET] {
            let request = Request::builder().method(method).uri("/sandboxes/abc");
            let request = request.body(Body::empty()).unwrap();
            let answering = observe(&metrics, Some(&audit), request, async |_, facts| {
                facts.token.set("alice".into()).unwrap();
                std::future::pending().await
            });
            // The server drops it so.
            tokio::time::timeout(std::time::Duration::from_millis(1), answering).await.unwrap_err();
        }
        audit.close().await;
        let log = std::fs::read_to_string(directory.path().join("audit.jsonl")).unwrap();
        let lines: Vec<serde_json::Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [line] = lines.as_slice() else { panic!("a read that nobody awaits: {log}") };
        assert_eq!((&line["status"], &line["token"]), (&499.into(), &"alice".into()), "{line}");
        assert_eq!(
            (&line["method"], &line["sandbox"]),
            (&"DELETE".into(), &"abc".into()),
            "{line}"
        );
    }

    #[test]
    fn queries_are_not_remembered() {
        let request = Request::get("/files?path=/x&signature=v1_secret").body(Body::empty());
        assert_eq!(Head::of(&request.unwrap()).path, "/files");
        assert_eq!(sandbox_in("/v2/sandboxes/abc/connect").as_deref(), Some("abc"));
        assert_eq!(sandbox_in("/sandboxes/..%2f/x"), None);
    }
}
