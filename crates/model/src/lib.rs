//! One trait for every language model, and what stands between it and a conversation: servers, tool-call
//! formats, retries, a cache, prices.
//!
//! Knows no sandbox and runs no tool.

mod anthropic;
mod cache;
mod endpoint;
mod error;
mod failure;
mod format;
mod http;
mod openai;
mod overflow;
mod price;
mod quirks;
mod repair;
mod reply;
mod request;
mod retry;
mod secret;
mod shape;
mod sse;
mod talk;
pub mod think;
mod wire;

pub use anthropic::Anthropic;
pub use cache::Cached;
pub use endpoint::Endpoint;
pub use error::Error;
pub use format::{Formatted, ToolFormat, UnknownFormat};
pub use openai::OpenAi;
pub use overflow::Overflow;
pub use price::{Price, PriceError, Prices};
pub use reply::{Delta, LastFailure, Listener, Reply, Silent};
pub use request::{Calling, Model, Place, Request, Sampling, ToolSpec};
pub use retry::{Retry, Retrying};
pub use secret::Secret;
pub use shape::{Before, Body, Shape};
