//! A model that is asked by so many at once and no more. Knows nothing of what it is asked.

use std::sync::Arc;

use model::{Error, Listener, Model, Place, Reply, Request};
use tokio::sync::Semaphore;

/// A model behind a gate.
#[derive(Debug)]
pub(crate) struct Gated<M> {
    model: M,
    places: Arc<Semaphore>,
}

impl<M: Model> Gated<M> {
    /// Lets so many calls through at once.
    pub(crate) fn new(model: M, calls: usize) -> Self {
        let places = Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS));
        Self { model, places: Arc::new(places) }
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

    /// The gate is never closed; were it, everybody could pass.
    async fn place(&self) -> Place {
        let held = Arc::clone(&self.places).acquire_owned().await;
        held.map_or_else(|_| Place::default(), Place::new)
    }

    /// For who has a place.
    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        self.model.complete(request, listener).await
    }
}
