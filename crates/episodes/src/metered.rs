//! A model that is called only as long as a [`Meter`] allows it.

use std::sync::Arc;

use model::{Error, Listener, Model, Permit, Request, Response, SharedModel, ToolSpec};

use crate::Meter;

/// A model with a meter.
pub(crate) struct Metered {
    pub(crate) model: SharedModel,
    pub(crate) meter: Option<Arc<dyn Meter>>,
}

impl Model for Metered {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn tool_call_hint(&self, tools: &[ToolSpec]) -> &'static str {
        self.model.tool_call_hint(tools)
    }

    fn supports_shapes(&self) -> bool {
        self.model.supports_shapes()
    }

    async fn permit(&self) -> Permit {
        self.model.permit().await
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        if let Some(meter) = &self.meter {
            meter.check().map_err(Error::Settings)?;
        }
        self.model.complete(request, listener).await
    }
}
