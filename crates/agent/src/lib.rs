//! The loop: a model works in a sandbox with three tools until it submits or a limit ends it.
//!
//! Names no runtime and no vendor, reads no settings and writes no file.

mod journal;
mod limits;
pub mod prompt;
mod stop;
pub mod tools;

pub use journal::Journal;
pub use limits::Limits;
pub use stop::{Stopper, Watch, stopper};
