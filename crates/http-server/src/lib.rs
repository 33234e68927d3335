//! The parts of an HTTP server that keep hostile clients from harming others, in front of any axum [`Router`](axum::Router).
//!
//! Start with [`serve()`]. [`Gate`] checks who may ask, [`receive`] reads bodies within bounds. Knows no routes, no formats of
//! errors and no settings.
//!
//! ```
//! use axum::{Router, routing::get};
//! use lis_http_server::{ConnectionLimits, serve};
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let app = Router::new().route("/health", get(async || "ok"));
//! // Serves until the last argument completes, here at once; use a signal handler in a program.
//! serve(listener, app, &ConnectionLimits::default(), async {}).await;
//! # Ok(())
//! # }
//! ```

mod body;
mod busy;
mod connections;
mod gate;
mod key;
mod memory;
mod phase;
mod serve;
mod stall;
mod tls;

pub use body::{BodyError, BodyLimits, receive};
pub use gate::{Gate, Refusal};
pub use key::{KeyHash, same_secret};
pub use memory::{MemoryBudget, MemoryPermit};
pub use serve::{ConnectionLimits, Peer, serve, serve_tls};
pub use tls::{Tls, TlsError};
