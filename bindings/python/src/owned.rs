//! What belongs to one process, is used by several threads at once, and is closed once.

use std::{pin::Pin, sync::Arc};

use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use crate::{engine::Process, failure::Failure};

/// A value that can be closed.
pub(crate) struct Owned<T> {
    process: Arc<Process>,
    /// `None` once it is closed.
    value: RwLock<Option<T>>,
    /// Cancelled when it is closed: operations that run then fail.
    closed: CancellationToken,
    /// What it is, for messages.
    name: String,
}

/// An operation on a value.
pub(crate) type Using<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

impl<T> Owned<T> {
    /// A value of this process.
    pub(crate) fn new(process: &Arc<Process>, value: T, name: String) -> Self {
        Self {
            process: Arc::clone(process),
            value: RwLock::new(Some(value)),
            closed: process.closing().child_token(),
            name,
        }
    }

    /// The process it belongs to.
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Cancelled when it is closed.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Whether it cannot be used: it is closed, or belongs to another process, whose locks may be held forever here.
    pub(crate) fn is_closed(&self) -> bool {
        !self.process.is_own() || self.closed.is_cancelled()
    }

    /// Whether closing it is not this process's to do, or is done by the end of the process.
    pub(crate) fn is_left_alone(&self) -> bool {
        !self.process.is_own() || self.process.closing().is_cancelled()
    }

    fn gone(&self) -> Failure {
        Failure::closed(format!("{} is closed", self.name))
    }

    /// Uses the value, until the operation ends or the value is closed.
    pub(crate) async fn using<R, F>(&self, operation: F) -> Result<R, Failure>
    where
        F: for<'a> FnOnce(&'a T) -> Using<'a, R> + Send,
    {
        let guard = tokio::select! {
            biased;
            () = self.closed.cancelled() => return Err(self.gone()),
            guard = self.value.read() => guard,
        };
        let value = guard.as_ref().ok_or_else(|| self.gone())?;
        tokio::select! {
            biased;
            ended = operation(value) => ended,
            () = self.closed.cancelled() => Err(self.gone()),
        }
    }

    /// Closes it: ends what uses it, then passes the value to `end`. A concurrent call waits for that.
    pub(crate) async fn close<F>(&self, end: impl FnOnce(T) -> F + Send) -> Result<(), Failure>
    where
        F: Future<Output = Result<(), sandbox::Error>> + Send,
    {
        self.closed.cancel();
        let mut value = self.value.write().await;
        match value.take() {
            Some(value) => Ok(end(value).await?),
            None => Ok(()),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.closed.cancel();
        let _entered = self.process.handle().enter();
        drop(self.value.get_mut().take());
    }
}
