//! [`serve`].

use std::{convert::Infallible, future::Future, io, sync::Arc, time::Duration};

use sandbox::RemoteRuntime;
use tokio::net::TcpListener;

use crate::{
    ServeOptions,
    app::{Server, app},
};

/// How long running episodes may take to stop so that they can be resumed. Saving their files takes most of it.
const PARKING: Duration = Duration::from_secs(30);

/// Serves sandboxes of a runtime until `shutdown` completes. Then running responses may finish within the grace period,
/// and all sandboxes are removed before it returns. Running episodes are stopped so that they can be resumed.
pub async fn serve<R: RemoteRuntime>(
    listener: TcpListener,
    runtime: Arc<R>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?.ip();
    let limits = options.connections.clone();
    let tls = options.tls.clone();
    let server = Arc::new(Server::new(runtime, options, address)?);
    let registry = Arc::clone(&server.registry);
    let ending = async {
        shutdown.await;
        server.mcp.close();
        registry.close();
        server.environments.iter().for_each(|environments| environments.shut_down());
        if let Some(episodes) = &server.episodes {
            episodes.close(PARKING).await;
        }
    };
    let serving = http_server::serve_tls(listener, tls, app(Arc::clone(&server)), &limits, ending);
    tokio::select! {
        () = serving => {}
        never = end_orphans(&server) => match never {},
    }
    // A sandbox whose creation was under way.
    registry.close();
    server.environments.iter().for_each(|environments| environments.shut_down());
    registry.closed().await;
    if let Some(audit) = &server.audit {
        audit.close().await;
    }
    Ok(())
}

/// Ends the sandboxes of tokens that were taken away while the server runs.
async fn end_orphans<R: RemoteRuntime>(server: &Server<R>) -> Infallible {
    let registry = &server.registry;
    let mut changes = registry.options.tokens.changes();
    loop {
        match changes.changed().await {
            Ok(()) => {
                registry.end_orphans();
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
