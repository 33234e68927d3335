//! Why rollouts cannot be played at all. A single failed rollout is reported with the rollout.

use std::{io, path::PathBuf};

/// Rollouts cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// The caller cancelled them.
    #[error("the rollouts were cancelled")]
    Cancelled,
    /// The task's grader cannot give rewards.
    #[error(
        "task `{task}` is graded by {grader}, which cannot give rewards; choose a task with the grader `context`, `math`, \
         `choice`, `exact` or `command`"
    )]
    Grader {
        /// The task.
        task: String,
        /// Its grader.
        grader: &'static str,
    },
    /// Sandboxes are needed, and there is no runtime.
    #[error("mode `sandbox` needs a runtime; choose one, or mode `llm`")]
    NoRuntime,
    /// The task's grader runs commands, and there is no runtime.
    #[error(
        "task `{task}` is graded by a command, which needs sandboxes even in mode `llm`, and none can be created here; \
         choose a task whose grader needs no sandbox"
    )]
    NoSandboxes {
        /// The task.
        task: String,
    },
    /// The directory of events cannot be used.
    #[error("cannot write events to {path}")]
    Events {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Every rollout failed because of the infrastructure.
    #[error("all {episodes} episodes failed because of the infrastructure; the first: {cause}")]
    AllFailed {
        /// The number of rollouts.
        episodes: usize,
        /// What failed first.
        cause: String,
    },
    /// Sandboxes that were created ahead cannot be removed.
    #[error("cannot remove sandboxes")]
    Sandbox(#[source] sandbox::Error),
}
