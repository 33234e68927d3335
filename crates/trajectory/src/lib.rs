//! The data of an episode: messages, tool calls, events and outcomes, with versioned file formats.
//!
//! Start with [`Event`], one line of an events file; [`history()`] and [`Trajectory`] are derived from the events. Plain
//! data: this crate opens no file and makes no request.
//!
//! ```
//! use lis_trajectory::{Ended, Event, Line, Message, Outcome, Spent, Started, history, read};
//!
//! let started = Started {
//!     problem_statement: "Count the words.".into(),
//!     messages: vec![Message::user("Count the words.")],
//!     model: "example".into(),
//!     settings: serde_json::Value::Null,
//!     protection: serde_json::Value::Null,
//!     program: "0.1.0".into(),
//! };
//! let ended = Ended { outcome: Outcome::Submitted, spent: Spent::default() };
//! let events = [Event::Started(Box::new(started)), Event::Ended(ended)];
//! let lines = events.map(|event| serde_json::to_string(&Line::new(0, event)).unwrap() + "\n");
//!
//! let lines = read(&lines.concat()).unwrap();
//! let (messages, complete_turns) = history(&lines);
//! assert_eq!((messages.len(), complete_turns), (1, 0));
//! ```

mod bounds;
mod event;
mod hidden;
mod history;
mod message;
mod outcome;
mod record;
mod usage;
mod validity;

pub use bounds::{MAX_FILE_VALUES, count_values};
pub use error_text::chain as error_chain;
pub use event::{
    Changed, ChangedFile, ENDED, Ended, Event, FileChange, Line, Observed, ReadError, Responded,
    Started, VERSION, read,
};
pub use hidden::{escape_hidden, is_hidden};
pub use history::{compacted, history};
pub use message::{Arguments, Assistant, Content, Message, Stop, ToolCall, ToolResult};
pub use outcome::{Fault, Outcome};
pub use record::{Action, Step, THEN_SUBMIT, Trajectory};
pub use usage::{Spent, Usage};
pub use validity::{Mode, Validity};
