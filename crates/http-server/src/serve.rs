//! Accepts connections, passes their requests to the routes, and shuts down gracefully.

use std::{
    convert::Infallible, future::Future, net::SocketAddr, pin::pin, sync::Arc, time::Duration,
};

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
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    busy::Busy,
    connections::Connections,
    phase::{Connection, Exchange},
    stall::StallTimeout,
    tls::Tls,
};

/// Maximum bytes of a request's head, and of the buffered part of its body.
const MAX_BUFFER: usize = 128 << 10;

/// Wait after a failed `accept`, most often for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// The address of the client, in the extensions of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

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
    serve_tls(listener, None, app, limits, shutdown).await;
}

/// As [`serve`], with TLS if there is a certificate. A handshake is part of a request's head: it counts to its time limit,
/// and a connection that has not finished it makes room for others.
pub async fn serve_tls(
    listener: TcpListener,
    tls: Option<Tls>,
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
            (stream, peer) = accept(&listener, &connections) => {
                let Some(place) = connections.admit() else {
                    // Without a handshake nothing could be said to the client.
                    if tls.is_none() {
                        busy.tell(stream);
                    }
                    continue;
                };
                let acceptor = tls.as_ref().map(Tls::acceptor);
                let (app, limits, closed) = (app.clone(), limits.clone(), closed.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = begin(stream, acceptor, peer, app, &limits, &place.connection, closed) => {}
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
async fn accept(listener: &TcpListener, connections: &Connections) -> (TcpStream, Peer) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return (stream, Peer(address)),
            // Errors concern that connection only, or this process has no more descriptors.
            Err(_) => {
                connections.evict();
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// How long a connection may be silent before the kernel asks whether its client is still there, and how often it asks
/// until it gives up: a client that vanished is noticed even where nothing is sent to it.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    let (idle, interval, count) = KEEPALIVE;
    // Where an option is not supported the connection works without it.
    let _ = sockopt::set_tcp_keepidle(stream, idle);
    let _ = sockopt::set_tcp_keepintvl(stream, interval);
    let _ = sockopt::set_tcp_keepcnt(stream, count);
    let _ = sockopt::set_socket_keepalive(stream, true);
}

/// Serves one connection, after the handshake of TLS if there is one.
async fn begin(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    peer: Peer,
    app: Router,
    limits: &ConnectionLimits,
    connection: &Arc<Connection>,
    mut closed: watch::Receiver<()>,
) {
    // Stream each piece at once instead of coalescing them.
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    let stream = StallTimeout::new(stream, limits.stall_timeout);
    let Some(acceptor) = acceptor else {
        return handle(stream, peer, app, limits, connection, closed).await;
    };
    let handshake = timeout(limits.head_timeout, acceptor.accept(stream));
    let stream = tokio::select! {
        stream = handshake => stream,
        _ = closed.changed() => return,
    };
    // Errors are the client's.
    if let Ok(Ok(stream)) = stream {
        handle(stream, peer, app, limits, connection, closed).await;
    }
}

/// Serves one connection with all its requests.
async fn handle<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    peer: Peer,
    app: Router,
    limits: &ConnectionLimits,
    connection: &Arc<Connection>,
    mut closed: watch::Receiver<()>,
) {
    let stream = TokioIo::new(stream);
    let app = TowerToHyperService::new(app);
    let service = service_fn(|request: Request<Incoming>| {
        let (mut head, body) = request.into_parts();
        head.extensions.insert(peer);
        let (exchange, body) = Exchange::begin(connection, body);
        let answering = app.call(Request::from_parts(head, body));
        async move { Ok::<_, Infallible>(answering.await?.map(|body| exchange.respond(body))) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(MAX_BUFFER)
        .preserve_header_case(true)
        .serve_connection(stream, service)
        .with_upgrades();
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

#[cfg(test)]
mod tests {
    use rustix::net::sockopt;

    use super::*;

    #[tokio::test]
    async fn the_kernel_asks_whether_silent_clients_are_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = accept(&listener, &Connections::new(1)).await;
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
        keep_alive(&stream);
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let (idle, interval, count) = KEEPALIVE;
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), idle);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), interval);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), count);
        assert!(idle + interval * count <= Duration::from_secs(120), "too late to be of use");
    }
}
