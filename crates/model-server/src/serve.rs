//! Takes connections, hands their requests to the routes, and comes to an orderly end.

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

use crate::{ServeOptions, Served, app::app, patient::Patient};

/// The head of a request is not longer; what is buffered of a body neither.
const MAX_BUFFER: usize = 128 << 10;

/// How long to wait after the system had no connection to give, most often for want of descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Serves these models until `shutdown` is done. Then no connection is taken any more, replies that are
/// being written may end within [`ServeOptions::grace`], and the rest is broken off.
///
/// Requests that name no model get the first one.
pub async fn serve<M: Model>(
    listener: TcpListener,
    models: Vec<Served<M>>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    if models.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no model to serve"));
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
                    talk(stream, app, &options, closed).await;
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

/// One connection, with all its requests.
async fn talk(
    stream: TcpStream,
    app: Router,
    options: &ServeOptions,
    mut closed: watch::Receiver<()>,
) {
    // Words are sent as they are written; without this they would wait for one another.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(Patient::new(stream, options.stall_timeout));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(stream, TowerToHyperService::new(app));
    let mut connection = pin!(connection);
    // A client that breaks off, or speaks no HTTP, is nobody's failure but its own.
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = closed.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// So many connections at once.
struct Slots(std::sync::Arc<Semaphore>);

impl Slots {
    fn new(most: usize) -> Self {
        Self(std::sync::Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// The next connection, once there is a slot for it.
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, Option<OwnedSemaphorePermit>) {
        let slot = self.0.clone().acquire_owned().await.ok();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, slot),
                // None of them concerns the connections to come.
                Err(_) => sleep(BREATH).await,
            }
        }
    }
}
