//! Accepts connections, passes their requests to the routes, and shuts down gracefully.

use std::{future::Future, io, pin::pin, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use model::Model;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{ServeOptions, Served, app::app, stall::StallTimeout};

/// Maximum bytes of a request's head, and of the buffered part of its body.
const MAX_BUFFER: usize = 128 << 10;

/// Wait after a failed `accept`, most often for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Serves these models until `shutdown` completes. Then no new connections are accepted, running responses may finish
/// within [`ServeOptions::grace`], and the rest is aborted.
///
/// Requests that name no model get the first one.
pub async fn serve<M: Model>(
    listener: TcpListener,
    models: Vec<Served<M>>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    if models.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no model to serve"));
    }
    let app = app(models, options.clone(), listener.local_addr()?.ip());
    let (closing, closed) = watch::channel(());
    let slots = Slots::new(options.max_connections);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (stream, slot) = slots.accept(&listener) => {
                let (app, options, closed) = (app.clone(), options.clone(), closed.clone());
                connections.spawn(async move {
                    handle(stream, app, &options, closed).await;
                    drop(slot);
                });
            }
        }
    }
    drop(listener);
    drop(closing);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(options.grace, ended).await;
    connections.shutdown().await;
    Ok(())
}

/// Serves one connection with all its requests.
async fn handle(
    stream: TcpStream,
    app: Router,
    options: &ServeOptions,
    mut closed: watch::Receiver<()>,
) {
    // Stream each piece at once instead of coalescing them.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(StallTimeout::new(stream, options.stall_timeout));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(stream, TowerToHyperService::new(app));
    let mut connection = pin!(connection);
    // Errors are the client's: it disconnected or does not speak HTTP.
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = closed.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Bounds the number of connections.
struct Slots(std::sync::Arc<Semaphore>);

impl Slots {
    fn new(most: usize) -> Self {
        Self(std::sync::Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Accepts the next connection once a slot is free.
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, Option<OwnedSemaphorePermit>) {
        let slot = self.0.clone().acquire_owned().await.ok();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, slot),
                // Errors concern that connection only.
                Err(_) => sleep(ACCEPT_RETRY).await,
            }
        }
    }
}
