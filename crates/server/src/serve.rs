//! [`serve`].

use std::{future::Future, io, sync::Arc};

use sandbox::RemoteRuntime;
use tokio::net::TcpListener;

use crate::{
    ServeOptions,
    app::{Server, app},
};

/// Serves sandboxes of a runtime until `shutdown` completes. Then running responses may finish within the grace period,
/// and all sandboxes are removed before it returns.
pub async fn serve<R: RemoteRuntime>(
    listener: TcpListener,
    runtime: Arc<R>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?.ip();
    let limits = options.connections.clone();
    let server = Arc::new(Server::new(runtime, options, address));
    let registry = Arc::clone(&server.registry);
    let ending = async {
        shutdown.await;
        registry.close();
    };
    http_server::serve(listener, app(Arc::clone(&server)), &limits, ending).await;
    // A sandbox whose creation was under way.
    registry.close();
    registry.closed().await;
    Ok(())
}
