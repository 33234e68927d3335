//! A model with a bound on concurrent calls, and an end for all of them where its server refuses the key.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use model::{Error, Listener, Model, Permit, Request, Response};
use tokio::sync::Semaphore;
use trajectory::error_chain;

use crate::breaker::Breaker;

/// A model with a bound on concurrent calls.
#[derive(Debug)]
pub(crate) struct LimitedModel<M> {
    model: M,
    permits: Arc<Semaphore>,
    breaker: Option<Arc<Breaker>>,
    /// A call succeeded, so the key is right.
    has_succeeded: AtomicBool,
}

impl<M: Model> LimitedModel<M> {
    /// Allows `calls` calls at once.
    pub(crate) fn new(model: M, calls: usize) -> Self {
        let permits = Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS));
        let (permits, has_succeeded) = (Arc::new(permits), AtomicBool::new(false));
        Self { model, permits, breaker: None, has_succeeded }
    }

    /// Ends the run where the server refuses the key: no other call could succeed.
    pub(crate) fn breaking(self, breaker: &Arc<Breaker>) -> Self {
        Self { breaker: Some(Arc::clone(breaker)), ..self }
    }

    fn check_key(&self, error: &Error) {
        let (Error::Key { status, .. } | Error::NoKey { status, .. }) = error else { return };
        // Some servers refuse the content of one request with 403.
        let may_be_content = *status == 403 && self.has_succeeded.load(Ordering::Relaxed);
        if let Some(breaker) = self.breaker.as_ref().filter(|_| !may_be_content) {
            breaker.trip(error_chain(error));
        }
    }
}

impl<M: Model> Model for LimitedModel<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn tool_call_hint(&self, tools: &[model::ToolSpec]) -> &'static str {
        self.model.tool_call_hint(tools)
    }

    fn supports_shapes(&self) -> bool {
        self.model.supports_shapes()
    }

    /// The semaphore is never closed; were it, every call would be allowed.
    async fn permit(&self) -> Permit {
        let held = Arc::clone(&self.permits).acquire_owned().await;
        held.map_or_else(|_| Permit::default(), Permit::new)
    }

    /// Expects the caller to hold a permit.
    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let completed = self.model.complete(request, listener).await;
        match &completed {
            Ok(_) => self.has_succeeded.store(true, Ordering::Relaxed),
            Err(error) => self.check_key(error),
        }
        completed
    }
}
