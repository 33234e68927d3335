//! A runtime that is started again when it has ended, for what creates sandboxes later: pools and rollouts.

use std::sync::Arc;

use runtimes::AnySandbox;
use sandbox::{Error, Runtime, SandboxInfo, Spec};

use crate::{
    engine::{Process, RuntimeKey},
    failure::Failure,
};

/// A runtime of a process.
pub(crate) struct Renewed {
    process: Arc<Process>,
    key: RuntimeKey,
}

impl Renewed {
    /// Starts the runtime, so that its failure is reported with its own exception.
    pub(crate) async fn start(process: &Arc<Process>, key: &RuntimeKey) -> Result<Self, Failure> {
        process.runtime(key).await?;
        Ok(Self { process: Arc::clone(process), key: key.clone() })
    }
}

impl Runtime for Renewed {
    type Sandbox = AnySandbox;

    async fn create(&self, spec: &Spec) -> Result<AnySandbox, Error> {
        self.process.create(&self.key, spec).await.map_err(Failure::into_error)
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>, Error> {
        self.process.runtime(&self.key).await.map_err(Failure::into_error)?.list().await
    }

    async fn prune(&self) -> Result<Vec<SandboxInfo>, Error> {
        self.process.runtime(&self.key).await.map_err(Failure::into_error)?.prune().await
    }
}
