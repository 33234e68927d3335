//! [`serve`].

use std::{convert::Infallible, future::Future, io, sync::Arc};

use http_server::ConnectionLimits;
use sandbox::RemoteRuntime;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    ServeOptions,
    app::{Server, app},
};

/// Serves sandboxes of a runtime until `shutdown` completes. Then no new connections are accepted, all sandboxes are removed,
/// running episodes are stopped so that they can be resumed, and responses may finish. All of it takes at most
/// [`ConnectionLimits::grace`]: sandboxes that are not removed by then are left to the runtime.
pub async fn serve<R: RemoteRuntime>(
    listener: TcpListener,
    runtime: Arc<R>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?.ip();
    let tls = options.tls.clone();
    let grace = options.connections.grace;
    // The rest is for sandboxes whose creation was under way.
    let limits = ConnectionLimits { grace: grace / 10 * 9, ..options.connections.clone() };
    let server = Arc::new(Server::new(runtime, options, address)?);
    let stopped = CancellationToken::new();
    let stopping = async {
        shutdown.await;
        server.end_sandboxes();
        server.mcp.close();
        stopped.cancel();
    };
    let serving =
        http_server::serve_tls(listener, tls, app(Arc::clone(&server)), &limits, stopping);
    // Meanwhile: the responses that follow a parked episode end with it.
    let parking = async {
        stopped.cancelled().await;
        let deadline = Instant::now() + grace;
        if let Some(episodes) = &server.episodes {
            episodes.close(limits.grace).await;
        }
        deadline
    };
    let deadline = tokio::select! {
        ((), deadline) = async { tokio::join!(serving, parking) } => deadline,
        never = end_orphans(&server) => match never {},
    };
    server.end_sandboxes();
    if tokio::time::timeout_at(deadline, server.registry.closed()).await.is_err() {
        tracing::error!("sandboxes were not removed within {grace:?}");
    }
    if let Some(audit) = &server.audit {
        audit.close().await;
    }
    Ok(())
}

impl<R: RemoteRuntime> Server<R> {
    /// Ends all sandboxes but those of episodes, and lets no others begin.
    fn end_sandboxes(&self) {
        self.registry.close();
        self.environments.iter().for_each(|environments| environments.shut_down());
    }
}

/// Ends the sandboxes of tokens that were taken away while the server runs.
async fn end_orphans<R: RemoteRuntime>(server: &Server<R>) -> Infallible {
    let registry = &server.registry;
    let mut changes = registry.options.tokens.changes();
    loop {
        match changes.changed().await {
            Ok(()) => {
                server.end_orphans();
                let is_orphan = |owner: &str| !registry.options.tokens.has(owner);
                server.episodes.iter().for_each(|episodes| episodes.cancel_where(is_orphan));
                if let Some(environments) = &server.environments {
                    environments.retain(|owner| registry.options.tokens.has(owner));
                }
            }
            Err(_) => std::future::pending().await,
        }
    }
}
