//! OpenAI's chat completions on the wire: what servers of them share.
//!
//! Errors ([`ApiError`]), fields of a request whose errors name them ([`Fields`]), [`messages`], sampling parameters and
//! delivery ([`parameters`]), responses whole and in chunks ([`CompletionHeader`]), and event streams ([`sse`]).
//! Serves nothing and knows no model.

mod api_error;
mod completion;
mod fields;
pub mod messages;
pub mod parameters;
pub mod sse;
mod values;

pub use api_error::ApiError;
pub use completion::{CompletionHeader, finish_reason, now, numbered};
pub use fields::{Fields, wrong};
pub use values::ValueBudget;
