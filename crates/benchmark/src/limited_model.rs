//! A model with a bound on concurrent calls.

use std::sync::Arc;

use model::{Error, Listener, Model, Permit, Request, Response};
use tokio::sync::Semaphore;

/// A model with a bound on concurrent calls.
#[derive(Debug)]
pub(crate) struct LimitedModel<M> {
    model: M,
    permits: Arc<Semaphore>,
}

impl<M: Model> LimitedModel<M> {
    /// Allows `calls` calls at once.
    pub(crate) fn new(model: M, calls: usize) -> Self {
        let permits = Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS));
        Self { model, permits: Arc::new(permits) }
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
        self.model.complete(request, listener).await
    }
}
