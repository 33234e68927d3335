//! One trait for every language model, and what stands between it and a conversation: servers, tool-call
//! formats, retries, a cache, prices.
//!
//! Knows no sandbox and runs no tool.

mod endpoint;
mod error;
mod failure;
mod http;
mod overflow;
#[cfg_attr(not(test), expect(dead_code, reason = "the clients that use it are being written"))]
mod repair;
mod reply;
mod request;
mod secret;
mod sse;

pub use endpoint::Endpoint;
pub use error::Error;
pub use overflow::Overflow;
pub use reply::{Delta, Listener, Reply, Silent};
pub use request::{Model, Request, Sampling, ToolSpec};
pub use secret::Secret;
