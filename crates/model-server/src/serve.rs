//! Serves models.

use std::{future::Future, io};

use http_server::ConnectionLimits;
use model::Model;
use openai_wire::ApiError;
use tokio::net::TcpListener;

use crate::{ServeOptions, Served, app::app};

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
    let limits = ConnectionLimits {
        max_connections: options.max_connections,
        head_timeout: options.head_timeout,
        stall_timeout: options.stall_timeout,
        grace: options.grace,
        busy: ApiError::busy("too many connections").json().to_string(),
    };
    let app = app(models, options, listener.local_addr()?.ip());
    http_server::serve(listener, app, &limits, shutdown).await;
    Ok(())
}
