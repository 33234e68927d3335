//! The loop: a model works in a sandbox with three tools until it submits or a limit ends it.
//!
//! Names no runtime and no vendor, reads no settings and writes no file.

mod compact;
mod episode;
mod journal;
mod limits;
pub mod prompt;
mod run;
mod stop;
pub mod tools;

pub use compact::Compaction;
pub use episode::{Episode, Opening, Settings};
pub use journal::Journal;
pub use limits::Limits;
pub use prompt::Prompts;
pub use run::run;
pub use stop::{Stopper, Watch, stopper};
