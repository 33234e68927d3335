//! Test doubles for language models: a [`ScriptedModel`] in this process, and a [`MockServer`] that implements both
//! vendors' protocols and fails on demand.
//!
//! Start with [`ScriptedModel`], the smallest implementation of [`model::Model`]. For tests, examples and measurements
//! only: no other crate depends on it in a release build.
//!
//! ```
//! use lis_testkit::{ScriptedModel, bash, say, submit};
//! use model::{Model, Request, Sampling, Silent};
//! use trajectory::Message;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), model::Error> {
//! let model = ScriptedModel::new([
//!     bash("wc -w report.txt").text("I count the words."),
//!     say("The report has 420 words.").tokens(1200, 9),
//!     submit(),
//! ]);
//!
//! let messages = [Message::user("How many words has the report?")];
//! let request =
//!     Request { messages: &messages, tools: &[], sampling: &Sampling::default(), max_tokens: 100 };
//! let response = model.complete(&request, &Silent).await?;
//!
//! assert_eq!(response.message.calls[0].name, "execute_bash");
//! assert_eq!(model.requests().len(), 1);
//! assert_eq!(model.remaining(), 2);
//! # Ok(())
//! # }
//! ```

mod answer;
mod anthropic;
mod connection;
mod conversation;
mod log;
mod openai;
mod play;
mod protocol;
mod scripted;
mod server;
mod turn;

pub use answer::{Answer, Fault, Quirk};
pub use connection::Received;
pub use conversation::Conversation;
pub use log::TooFew;
pub use protocol::Protocol;
pub use scripted::{RecordedRequest, ScriptedModel, Step};
pub use server::{Keep, MockServer, UnusedPort};
pub use turn::{Call, Turn, bash, calls, edit, say, submit};
