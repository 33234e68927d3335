//! A model that is called only as long as a [`Meter`] allows it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use model::{
    Delta, Error, Listener, Model, Permit, Price, Request, Response, SharedModel, ToolSpec,
};
use trajectory::Usage;

use crate::Meter;

/// A model with a meter.
pub(crate) struct Metered {
    pub(crate) model: SharedModel,
    pub(crate) meter: Option<Arc<dyn Meter>>,
    pub(crate) price: Option<Price>,
}

/// Bytes of text that are counted as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// A call under way. Dropped before its end, it is charged for what it probably used.
struct Call<'a> {
    metered: &'a Metered,
    request: &'a Request<'a>,
    listener: &'a dyn Listener,
    /// Bytes of the response.
    received: AtomicU64,
    has_ended: bool,
}

impl Listener for Call<'_> {
    fn on_delta(&self, delta: Delta<'_>) {
        if let Delta::Reasoning(text) | Delta::Text(text) | Delta::Arguments(text) = delta {
            self.received.fetch_add(text.len() as u64, Ordering::Relaxed);
        }
        self.listener.on_delta(delta);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let Some(meter) = self.metered.meter.as_ref().filter(|_| !self.has_ended) else { return };
        let sent = serde_json::to_vec(self.request.messages).map_or(0, |text| text.len() as u64);
        let usage = Usage {
            input: sent / BYTES_PER_TOKEN,
            output: self.received.load(Ordering::Relaxed) / BYTES_PER_TOKEN,
            estimated: true,
            ..Usage::default()
        };
        meter.on_response(usage.total(), self.metered.price.map(|price| price.cost(&usage)));
    }
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
        let received = AtomicU64::new(0);
        let mut call = Call { metered: self, request, listener, received, has_ended: false };
        let answered = self.model.complete(request, &call).await;
        call.has_ended = true;
        answered
    }
}
