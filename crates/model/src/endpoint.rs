//! Where a model's server is, and what it needs to hear beside the conversation.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::Secret;

/// A server that speaks one of the vendors' protocols.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The model's name there.
    pub model: String,
    /// Up to and including the version, such as `http://localhost:8000/v1`.
    pub base_url: String,
    /// Who asks.
    pub api_key: Option<Secret>,
    /// Further headers; their values are secrets too.
    pub headers: Vec<(String, Secret)>,
    /// Merged into the body of every request, over what we wrote there.
    pub extra_body: Map<String, Value>,
    /// A server that says nothing for this long has failed.
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
            // A large model may think about a long prompt for minutes before its first word.
            silence: Duration::from_secs(600),
        }
    }

    /// A text without any of the secrets.
    pub fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.api_key.iter().chain(self.headers.iter().map(|(_, value)| value)) {
            text = secret.hide(&text);
            // Behind the name of a scheme, as in `Bearer KEY`, stands what a server may repeat alone.
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
