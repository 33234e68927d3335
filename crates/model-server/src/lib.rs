//! An OpenAI-compatible HTTP endpoint in front of any [`model::Model`].
//!
//! Start reading at [`serve()`] and `app.rs`, the routes. Knows HTTP and OpenAI's chat completions, and completions with
//! token ids in front of any [`sampling::Sampler`]. Loads no model, reads no settings and runs no tool.
//!
//! ```
//! use lis_model_server::{ServeOptions, Served, serve};
//! use testkit::{ScriptedModel, say};
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let model = Served::new(ScriptedModel::new([say("Hello!")]), 1024);
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! // Serves until the last argument completes, here at once; use a signal handler in a program.
//! serve(listener, vec![model], ServeOptions::default(), async {}).await
//! # }
//! ```

mod admission;
mod app;
mod chat;
mod chat_request;
mod completions;
mod completions_request;
mod completions_response;
mod generation;
mod holdback;
mod options;
mod serve;
mod stream;
mod tokens;

pub use options::{Images, ServeOptions, Served};
pub use serve::serve;
pub use tokens::{TokenModel, TokenText};
