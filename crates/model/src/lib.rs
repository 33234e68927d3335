//! One trait, [`Model`], for every language model, and what stands between it and a conversation: clients for servers,
//! tool-call formats, retries, a response cache, prices.
//!
//! Start with [`Model`] in `request.rs`. [`OpenAi`] and [`Anthropic`] are clients; [`Formatted`], [`Retrying`] and
//! [`Cached`] wrap any model. Knows no sandbox and runs no tool.
//!
//! ```
//! use lis_model::{Error, Formatted, Listener, Model, Request, Response, Sampling, Silent, ToolFormat};
//! use serde_json::json;
//! use trajectory::{Assistant, Message, Stop, Usage};
//!
//! /// A model that always writes the same text.
//! struct Canned(&'static str);
//!
//! impl Model for Canned {
//!     fn name(&self) -> &str {
//!         "canned"
//!     }
//!
//!     async fn complete(&self, _: &Request<'_>, _: &dyn Listener) -> Result<Response, Error> {
//!         let message = Assistant { text: self.0.into(), ..Assistant::default() };
//!         Ok(Response { message, stop: Stop::End, usage: Usage::default(), from_cache: false })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let model = Formatted::new(Canned("I look.\n```bash\nls\n```"), ToolFormat::Fenced);
//! let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
//! let tools = [lis_model::ToolSpec {
//!     name: "execute_bash".into(),
//!     description: "Runs a shell command.".into(),
//!     parameters,
//! }];
//! let messages = [Message::user("What files are there?")];
//! let request =
//!     Request { messages: &messages, tools: &tools, sampling: &Sampling::default(), max_tokens: 100 };
//! let response = model.complete(&request, &Silent).await?;
//! assert_eq!(response.message.text, "I look.");
//! assert_eq!(response.message.calls[0].name, "execute_bash");
//! # Ok(())
//! # }
//! ```

mod anthropic;
mod cache;
mod endpoint;
mod error;
mod exchange;
mod format;
mod given;
mod http;
mod json_client;
mod openai;
mod overflow;
mod pass_through;
mod price;
mod quirks;
mod refusal;
mod repair;
mod request;
mod response;
mod retry;
mod secret;
mod shape;
mod shared;
mod sse;
pub mod think;
mod wire;

pub use anthropic::Anthropic;
pub use cache::Cached;
pub use endpoint::Endpoint;
pub use error::{Error, NO_KEY};
pub use exchange::{EventSink, Progress};
pub use format::{Formatted, ToolFormat, UnknownFormat};
pub use given::{Given, GivenCall};
pub use json_client::JsonClient;
pub use openai::OpenAi;
pub use overflow::Overflow;
pub use pass_through::{PassThrough, Passed};
pub use price::{Price, PriceError, Prices};
pub use request::{Model, Permit, Request, Sampling, ToolChoice, ToolSpec};
pub use response::{Delta, LastFailure, Listener, Response, Silent};
pub use retry::{Retry, Retrying};
pub use secret::Secret;
pub use shape::{Before, Body, Shape};
pub use shared::SharedModel;
