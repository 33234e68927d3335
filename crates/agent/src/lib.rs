//! The agent loop: a model works in a sandbox with tools until it submits or a limit ends the episode.
//!
//! Start reading at [`run()`], the main loop in `episode.rs`. An [`Episode`] brings together a model, a sandbox, a
//! [`Journal`] for its events and [`EpisodeSettings`]. Every ending is a [`trajectory::Outcome`], never an error.
//!
//! Names no runtime and no vendor, reads no settings and writes no file.
//!
//! ```
//! # extern crate model as lis_model;
//! # extern crate sandbox as lis_sandbox;
//! # extern crate trajectory as lis_trajectory;
//! use lis_agent::{CancellationToken, Episode, EpisodeSettings, Journal, Limits, Opening, Prompts};
//! use lis_model::Model;
//! use lis_sandbox::{Network, Sandbox};
//! use lis_trajectory::{Ended, Started};
//!
//! async fn solve<M: Model, S: Sandbox>(
//!     problem: &str,
//!     model: &M,
//!     sandbox: &S,
//!     journal: &impl Journal<S>,
//! ) -> Result<Ended, lis_agent::prompt::PromptError> {
//!     let prompts = Prompts::builtin("math").unwrap_or_default();
//!     let started = Started {
//!         problem_statement: problem.to_owned(),
//!         messages: prompts.render(problem, &Network::None)?.messages(),
//!         model: "my-model".to_owned(),
//!         settings: serde_json::Value::Null,
//!         protection: serde_json::Value::Null,
//!         program: "my-program 1.0".to_owned(),
//!     };
//!     let settings = EpisodeSettings {
//!         limits: Limits { turns: 20, ..Limits::default() },
//!         output_dir: Some(prompts.output_dir.clone()),
//!         ..EpisodeSettings::default()
//!     };
//!     let opening = Opening::Fresh(Box::new(started));
//!     let cancel = CancellationToken::new();
//!     Ok(lis_agent::run(Episode::new(model, sandbox, journal, &settings, opening, cancel)).await)
//! }
//!
//! let task = Prompts::builtin("math").unwrap().render("What is 6 * 7?", &Network::None).unwrap();
//! assert!(task.user.contains("What is 6 * 7?"));
//! ```

mod compact;
mod episode;
mod journal;
mod limits;
pub mod prompt;
mod resume;
mod text;
pub mod tools;

pub use compact::Compaction;
pub use episode::{Episode, EpisodeSettings, FileChanges, Opening, RestoredFiles, run};
pub use journal::Journal;
pub use limits::Limits;
pub use prompt::Prompts;
pub use resume::{recorded_calls, recorded_usage};
pub use tokio_util::sync::CancellationToken;
pub use tools::{Observation, Tool, ToolFuture, ToolOutcome};
