//! Models behind Anthropic's messages API: tools, extended thinking, prompt caching.
//!
//! Signed thinking travels through the history unread and goes back as it came.

mod request;
mod stream;

use crate::{
    Endpoint, Error, Listener, Model, Reply, Request,
    http::{Http, KeyStyle},
    quirks::{Field, Instead, Quirks},
    talk,
};

/// A model behind a messages server.
#[derive(Debug)]
pub struct Anthropic {
    http: Http,
    quirks: Quirks,
}

/// What a model may refuse without the request losing its sense.
const FIELDS: &[Field] = &[
    ("temperature", Instead::Nothing),
    ("top_p", Instead::Nothing),
    ("top_k", Instead::Nothing),
    ("stop_sequences", Instead::Nothing),
    // Newer models decide themselves how long to think.
    ("thinking", Instead::Value(r#"{"type":"adaptive"}"#)),
];

/// The version of the protocol spoken here.
const VERSION: &str = "2023-06-01";

impl Anthropic {
    /// A client of this server. One is enough for any number of episodes: they share its connections.
    pub fn new(endpoint: Endpoint) -> Result<Self, Error> {
        let endpoint = Endpoint { base_url: versioned(&endpoint.base_url), ..endpoint };
        let mut http = Http::new(endpoint, "messages", KeyStyle::XApiKey)?;
        http.default_header("anthropic-version", VERSION);
        Ok(Self { http, quirks: Quirks::new(FIELDS) })
    }
}

impl Model for Anthropic {
    fn name(&self) -> &str {
        &self.http.endpoint().model
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        talk::unforced(request)?;
        let build = || request::body(&self.http.endpoint().model, request);
        let answer = talk::ask(&self.http, &self.quirks, build, listener).await?;
        let mut gathering = stream::Gathering::new(listener);
        talk::read(&self.http, answer, &mut gathering).await?;
        Ok(gathering.reply(request))
    }
}

/// The vendor's own programs want this address without the version; here both work.
fn versioned(base_url: &str) -> String {
    match reqwest::Url::parse(base_url.trim()) {
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
