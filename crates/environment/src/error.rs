//! Why a request to a session is refused.

use std::{fmt, time::Duration};

/// A request is refused. The session, where there is one, is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such task is served.
    #[error("there is no task `{name}`; served are {served}")]
    UnknownTask {
        /// The name.
        name: String,
        /// The tasks that are served.
        served: String,
    },
    /// Several tasks are served, and the request names none.
    #[error("name a task; served are {served}")]
    NoTask {
        /// The tasks that are served.
        served: String,
    },
    /// The task has no such row.
    #[error("the task `{task}` has no row {row}")]
    UnknownRow {
        /// The task.
        task: String,
        /// The id or index.
        row: String,
    },
    /// There is no such session, or it is another client's.
    #[error("there is no session `{0}`")]
    UnknownSession(String),
    /// The session ended.
    #[error("the session is gone: {0}")]
    Gone(GoneReason),
    /// There are too many sessions.
    #[error("there are {sessions} sessions, and no more are allowed")]
    Busy {
        /// The limit.
        sessions: usize,
        /// When to try again.
        retry_after: Duration,
    },
    /// The session has no observation yet.
    #[error("the session is still starting")]
    Starting,
    /// A step has another number than the next one.
    #[error("step {got} is not next; the next step is {next}")]
    WrongStep {
        /// The number in the request.
        got: u32,
        /// The number of the next step.
        next: u32,
    },
    /// Another step is being executed.
    #[error("step {0} is still running")]
    Running(u32),
    /// A step was repeated with another message.
    #[error("step {0} was sent before with another message")]
    OtherMessage(u32),
    /// The episode is over.
    #[error("the episode is over after step {0}; ask for the score or reset")]
    Over(u32),
    /// There are no random numbers for an id.
    #[error("cannot read random numbers: {0}")]
    Random(String),
}

/// Why a session is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoneReason {
    /// The client closed it.
    Closed,
    /// No request came for the time of its lease.
    LeaseExpired(Duration),
    /// The server is shutting down.
    ShuttingDown,
    /// A defect of this program.
    Failed,
}

impl fmt::Display for GoneReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("it was closed"),
            Self::LeaseExpired(lease) => {
                write!(f, "its lease expired after {lease:?} without a request")
            }
            Self::ShuttingDown => f.write_str("the server is shutting down"),
            Self::Failed => f.write_str("it failed"),
        }
    }
}

impl GoneReason {
    /// The name in answers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::LeaseExpired(_) => "lease_expired",
            Self::ShuttingDown => "shutting_down",
            Self::Failed => "failed",
        }
    }
}
