//! A model that is asked by so many at once and no more. Knows nothing of what it is asked.

use model::{Error, Listener, Model, Reply, Request};
use tokio::sync::{Semaphore, SemaphorePermit};

/// A model behind a gate.
#[derive(Debug)]
pub(crate) struct Gated<M> {
    model: M,
    places: Semaphore,
}

impl<M: Model> Gated<M> {
    /// Lets so many calls through at once.
    pub(crate) fn new(model: M, calls: usize) -> Self {
        Self { model, places: Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS)) }
    }

    /// Waits until one more may ask. The gate is never closed; were it, everybody could pass.
    pub(crate) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.acquire().await.ok()
    }

    /// The model itself, for who has a place.
    pub(crate) fn inner(&self) -> &M {
        &self.model
    }
}

impl<M: Model> Model for Gated<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn how_to_call(&self, tools: &[model::ToolSpec]) -> &'static str {
        self.model.how_to_call(tools)
    }

    fn can_be_held(&self) -> bool {
        self.model.can_be_held()
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        let _place = self.place().await;
        self.model.complete(request, listener).await
    }
}
