//! [`SharedModel`]: any model behind one type, for programs that choose the model while they run.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::{Error, Listener, Model, Permit, Request, Response, ToolSpec};

/// A shared model of any type. Clones share it.
#[derive(Clone)]
pub struct SharedModel(Arc<dyn Erased>);

impl SharedModel {
    /// Shares a model.
    pub fn new(model: impl Model) -> Self {
        Self(Arc::new(model))
    }
}

impl fmt::Debug for SharedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedModel").field(&self.0.name()).finish()
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// [`Model`] with boxed futures, which trait objects can have.
trait Erased: Send + Sync + 'static {
    fn name(&self) -> &str;
    fn tool_call_hint(&self, tools: &[ToolSpec]) -> &'static str;
    fn supports_shapes(&self) -> bool;
    fn permit(&self) -> Boxed<'_, Permit>;
    fn complete<'a>(
        &'a self,
        request: &'a Request<'a>,
        listener: &'a dyn Listener,
    ) -> Boxed<'a, Result<Response, Error>>;
}

impl<M: Model> Erased for M {
    fn name(&self) -> &str {
        Model::name(self)
    }

    fn tool_call_hint(&self, tools: &[ToolSpec]) -> &'static str {
        Model::tool_call_hint(self, tools)
    }

    fn supports_shapes(&self) -> bool {
        Model::supports_shapes(self)
    }

    fn permit(&self) -> Boxed<'_, Permit> {
        Box::pin(Model::permit(self))
    }

    fn complete<'a>(
        &'a self,
        request: &'a Request<'a>,
        listener: &'a dyn Listener,
    ) -> Boxed<'a, Result<Response, Error>> {
        Box::pin(Model::complete(self, request, listener))
    }
}

impl Model for SharedModel {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn tool_call_hint(&self, tools: &[ToolSpec]) -> &'static str {
        self.0.tool_call_hint(tools)
    }

    fn supports_shapes(&self) -> bool {
        self.0.supports_shapes()
    }

    async fn permit(&self) -> Permit {
        self.0.permit().await
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        self.0.complete(request, listener).await
    }
}
