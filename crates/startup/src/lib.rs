//! Start-up code that the two programs share. Start with [`Program`].
//!
//! ```
//! use lis_startup::{Exit, Program, Threads, describe};
//!
//! let program = Program::new("example");
//! let ended = program.block_on(Threads::One, async |_signals| Ok(Exit::Done));
//! assert_eq!(ended.map(Exit::code).map_err(|error| describe(&error)), Ok(0));
//! ```

mod children;
mod exit;
mod json_log;
mod log;
mod note;
mod program;
mod sanitize;
mod signals;
#[cfg(target_os = "linux")]
mod state;
pub mod terminal;

pub use children::{terminate_children, wait_for_children};
pub use exit::{Exit, UsageError, argument_error, describe, describe_with};
pub use log::{LOG_VARIABLE, LogArgs, LogFormat};
pub use note::note;
#[cfg(target_os = "linux")]
pub use program::launcher;
pub use program::{Program, Threads};
pub use sanitize::sanitize;
pub use signals::Signals;
#[cfg(target_os = "linux")]
pub use state::{NoStateDir, StateDir, TMPDIR_VARIABLE, TemporaryDirs, state_dir, state_dirs};
pub use trajectory::escape_hidden;
