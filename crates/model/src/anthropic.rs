//! Models behind Anthropic's messages API: tools, extended thinking, prompt caching.
//!
//! Signed thinking is stored in the history uninterpreted and sent back unchanged.

mod request;
mod stream;

use crate::{
    Endpoint, Error, Listener, Model, Request, Response,
    exchange::Client,
    http::{Http, KeyStyle},
    quirks::{Field, Quirks, Replacement},
};

/// A model behind an Anthropic messages server.
#[derive(Debug)]
pub struct Anthropic(Client);

/// Fields a model may refuse, and what is sent instead.
const FIELDS: &[Field] = &[
    ("temperature", Replacement::Nothing),
    ("top_p", Replacement::Nothing),
    ("top_k", Replacement::Nothing),
    ("stop_sequences", Replacement::Nothing),
    // Newer models choose their own thinking budget.
    ("thinking", Replacement::Value(r#"{"type":"adaptive"}"#)),
];

/// The protocol version.
const VERSION: &str = "2023-06-01";

impl Anthropic {
    /// A client of this server. Share one between episodes: they then share its connections.
    pub fn new(endpoint: Endpoint) -> Result<Self, Error> {
        let endpoint = Endpoint { base_url: versioned(&endpoint.base_url), ..endpoint };
        let mut http = Http::new(endpoint, "messages", KeyStyle::XApiKey)?;
        http.default_header("anthropic-version", VERSION);
        Ok(Self(Client::new(http, Quirks::new(FIELDS))))
    }

    /// The names of the server's models, as it lists them. Costs no tokens. Servers may list fewer than they have, or have
    /// no list.
    pub async fn models(&self) -> Result<Vec<String>, Error> {
        self.0.models().await
    }
}

impl Model for Anthropic {
    fn name(&self) -> &str {
        &self.0.endpoint().model
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let body = || request::body(&self.0.endpoint().model, request);
        self.0.complete(request, body, stream::EventAssembler::new(listener), listener).await
    }
}

/// Anthropic's own clients expect the address without the version; both work here.
fn versioned(base_url: &str) -> String {
    match lis_http::Url::parse(base_url.trim()) {
        Ok(mut url) if url.path() == "/" => {
            url.set_path("v1");
            url.into()
        }
        _ => base_url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_added_where_it_is_missing() {
        assert_eq!(versioned("https://x.example/"), "https://x.example/v1");
        assert_eq!(versioned("https://x.example"), "https://x.example/v1");
        assert_eq!(versioned("https://x.example?a=b"), "https://x.example/v1?a=b");
        assert_eq!(versioned("https://x.example/v1"), "https://x.example/v1");
        assert_eq!(versioned("https://x.example/proxy"), "https://x.example/proxy");
    }
}
