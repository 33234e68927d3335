//! Accepts connections, passes their requests to the routes, and shuts down gracefully.

use std::{convert::Infallible, future::Future, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    busy::Busy,
    connections::Connections,
    phase::{Connection, Exchange},
    stall::StallTimeout,
};

/// Maximum bytes of a request's head, and of the buffered part of its body.
const MAX_BUFFER: usize = 128 << 10;

/// Wait after a failed `accept`, most often for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Limits of connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Open connections. A further one takes the place of the connection that has kept the server waiting longest, for a
    /// head or else for a body; if all are being answered, it gets status 503.
    pub max_connections: usize,
    /// Time limit for receiving the head of a request, and for idle connections.
    pub head_timeout: Duration,
    /// How long a client may leave sent data unread.
    pub stall_timeout: Duration,
    /// How long running responses may continue after shutdown was requested.
    pub grace: Duration,
    /// The body of the response with status 503, as JSON.
    pub busy: String,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_connections: 512,
            head_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(30),
            busy: r#"{"error":"too many connections"}"#.into(),
        }
    }
}

/// Serves until `shutdown` completes. Then no new connections are accepted, running responses may finish within
/// [`ConnectionLimits::grace`], and the rest is aborted. A request's future is dropped when its client disconnects.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    limits: &ConnectionLimits,
    shutdown: impl Future<Output = ()>,
) {
    let (closing, closed) = watch::channel(());
    let connections = Connections::new(limits.max_connections);
    let busy = Busy::new(&limits.busy);
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            stream = accept(&listener, &connections) => {
                let Some(place) = connections.admit() else {
                    busy.tell(stream);
                    continue;
                };
                let (app, limits, closed) = (app.clone(), limits.clone(), closed.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = handle(stream, app, &limits, &place.connection, closed) => {}
                        () = place.connection.evicted.notified() => {}
                    }
                });
            }
        }
    }
    drop(listener);
    drop(closing);
    let ended = async { while tasks.join_next().await.is_some() {} };
    let _ = timeout(limits.grace, ended).await;
    tasks.shutdown().await;
}

/// The next connection.
async fn accept(listener: &TcpListener, connections: &Connections) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // Errors concern that connection only, or this process has no more descriptors.
            Err(_) => {
                connections.evict();
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Serves one connection with all its requests.
async fn handle(
    stream: TcpStream,
    app: Router,
    limits: &ConnectionLimits,
    connection: &Arc<Connection>,
    mut closed: watch::Receiver<()>,
) {
    // Stream each piece at once instead of coalescing them.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(StallTimeout::new(stream, limits.stall_timeout));
    let app = TowerToHyperService::new(app);
    let service = service_fn(|request: Request<Incoming>| {
        let (head, body) = request.into_parts();
        let (exchange, body) = Exchange::begin(connection, body);
        let answering = app.call(Request::from_parts(head, body));
        async move { Ok::<_, Infallible>(answering.await?.map(|body| exchange.respond(body))) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(stream, service);
    let mut serving = pin!(serving);
    // Errors are the client's: it disconnected or does not speak HTTP.
    tokio::select! {
        _ = serving.as_mut() => {}
        _ = closed.changed() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}
