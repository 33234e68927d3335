//! What can go wrong with playing as a whole. What goes wrong with an episode is told with the episode.

use std::{error::Error, io, path::PathBuf};

/// Groups cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlayError {
    /// Somebody stopped it.
    #[error("playing was stopped")]
    Stopped,
    /// The task's answers cannot be worth anything here.
    #[error(
        "task `{task}` is graded by {grader}, which cannot give rewards; choose one whose answers are compared or \
         checked by a command, such as `context`, `math`, `choice`, `exact` or a `command`"
    )]
    Grader {
        /// The task.
        task: String,
        /// What grades it.
        grader: &'static str,
    },
    /// Sandboxes are needed, and there is nothing that makes them.
    #[error("mode `sandbox` needs a runtime; choose one, or mode `llm`")]
    NoRuntime,
    /// The task's grader runs commands, and there is nothing that makes sandboxes for them.
    #[error(
        "task `{task}` is graded by a command, which needs sandboxes even in mode `llm`, and none can be made here; \
         choose a task whose answers are compared"
    )]
    NoSandboxes {
        /// The task.
        task: String,
    },
    /// The directory of events cannot be used.
    #[error("cannot keep events in {path}")]
    Events {
        /// The directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Nothing at all worked.
    #[error("all {episodes} episodes failed on our side; the first: {cause}")]
    NothingPlayed {
        /// How many there were.
        episodes: usize,
        /// What failed.
        cause: String,
    },
    /// Sandboxes made ahead cannot be removed.
    #[error("cannot remove sandboxes")]
    Sandbox(#[source] sandbox::Error),
}

/// What went wrong and all its causes, on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(": ");
        words.push_str(&error.to_string());
        cause = error.source();
    }
    words
}
