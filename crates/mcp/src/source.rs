//! [`SandboxSource`]: where the sandbox of a session comes from.

use std::future::Future;

use sandbox::{Error, Sandbox};

/// Creates the sandbox of a session, and another where that one was lost.
pub trait SandboxSource: Send + Sync + 'static {
    /// The kind of sandbox.
    type Sandbox: Sandbox;
    /// What is held as long as the sandbox exists, such as a concurrency permit.
    type Permit: Send + Sync + 'static;

    /// Creates a sandbox that is ready for tool calls. Dropping the future leaves nothing behind.
    fn create(
        &self,
    ) -> impl Future<Output = Result<(Self::Sandbox, Self::Permit), CreateError>> + Send;
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// A limit is reached; a later call may succeed. The text says which.
    #[error("{0}")]
    Refused(String),
    /// The sandbox could not be created or filled.
    #[error(transparent)]
    Sandbox(#[from] Error),
}
