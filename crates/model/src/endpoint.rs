//! A model's server: its address, credentials and extra request fields.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::Secret;

/// A model at a server that implements one of the vendors' protocols.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The model's name at the server.
    pub model: String,
    /// The address up to and including the version, such as `http://localhost:8000/v1`.
    pub base_url: String,
    /// The API key.
    pub api_key: Option<Secret>,
    /// Further headers; their values are secrets too.
    pub headers: Vec<(String, Secret)>,
    /// Merged into the body of every request; overrides our fields.
    pub extra_body: Map<String, Value>,
    /// A server that sends nothing for this long has failed. Default: 10 minutes.
    pub silence: Duration,
}

impl Endpoint {
    /// A server without a key.
    pub fn new(model: impl Into<String>, base_url: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            base_url: base_url.into(),
            api_key: None,
            headers: Vec::new(),
            extra_body: Map::new(),
            // A large model may read a long prompt for minutes before its first token.
            silence: Duration::from_secs(600),
        }
    }

    /// Whether requests carry a key, in a header of ours or of the caller.
    pub(crate) fn has_key(&self) -> bool {
        let holds_key = |name: &str| {
            ["authorization", "x-api-key", "api-key"]
                .iter()
                .any(|key| name.eq_ignore_ascii_case(key))
        };
        let has_own = self.api_key.as_ref().is_some_and(|key| !key.reveal().is_empty());
        has_own || self.headers.iter().any(|(name, _)| holds_key(name))
    }

    /// The text with all secrets of this endpoint hidden.
    pub fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.api_key.iter().chain(self.headers.iter().map(|(_, value)| value)) {
            text = secret.hide(&text);
            // A server may repeat the key without its scheme, as in `Bearer KEY`.
            if let Some((_, key)) = secret.reveal().rsplit_once(' ') {
                text = Secret::new(key).hide(&text);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_header_is_hidden_with_and_without_its_scheme() {
        let headers = vec![("authorization".into(), Secret::new("Bearer key-1234"))];
        let endpoint = Endpoint { headers, ..Endpoint::new("m", "http://x/v1") };
        let shown = endpoint.hide("no key-1234 in Bearer key-1234");
        assert_eq!(shown, "no [hidden] in [hidden]");
    }
}
