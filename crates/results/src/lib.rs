//! What a benchmark leaves on disk, and how it is read again.
//!
//! A run is a directory: `run.json` says what was asked, each finished attempt has a file of its own below
//! `attempts`, the events of its episode lie below `trajectories`, and `results.json` sums up. This crate plays
//! nothing and grades nothing.

mod attempt;
mod folder;
mod judgement;
mod name;
mod run;
mod tokens;

pub use attempt::{Attempt, Key, Mode, Tokens};
pub use folder::{Error, Folder, Lock, write_whole};
pub use judgement::Judgement;
pub use run::{Run, TaskInfo};

/// The version of the files this program writes. It reads all from 1 to this.
pub const VERSION: u32 = 1;
