//! A model that follows a script, and a server that speaks both vendors' protocols and fails on demand.
//!
//! For tests and measurements only: no crate of the product depends on it.

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
pub use scripted::{Asked, Line, Scripted};
pub use server::{Keep, MockServer, Nobody};
pub use turn::{Call, Turn, bash, calls, edit, say, submit};
