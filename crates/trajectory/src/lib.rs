//! What happens in an episode: messages, tool calls, outcomes and events, and how they are written down.
//!
//! Plain data with versioned formats. This crate opens no file and talks to nobody.

mod event;
mod hidden;
mod history;
mod message;
mod outcome;
mod record;
mod usage;

pub use event::{ENDED, Ended, Event, Line, Observed, ReadError, Replied, Started, VERSION, read};
pub use hidden::is_hidden;
pub use history::{compacted, history};
pub use message::{Arguments, Assistant, Content, Message, Stop, ToolCall, ToolResult};
pub use outcome::Outcome;
pub use record::{Action, Step, Trajectory};
pub use usage::{Spent, Usage};
