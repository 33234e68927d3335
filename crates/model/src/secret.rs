//! Secrets: API keys that appear neither in debug output nor in servers' messages.

use std::fmt;

/// An API key. Its debug output is redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Replaces a secret in a text.
const HIDDEN: &str = "[hidden]";

/// Shorter texts occur by chance, and a key of that length protects nothing.
const SHORTEST: usize = 4;

impl Secret {
    /// A key, trimmed.
    pub fn new(key: &str) -> Self {
        Self(key.trim().to_owned())
    }

    /// The key itself, for sending it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The text with the key replaced by `[hidden]`.
    pub fn hide(&self, text: &str) -> String {
        if self.0.len() < SHORTEST {
            return text.to_owned();
        }
        text.replace(&self.0, HIDDEN)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_neither_printed_nor_echoed() {
        let secret = Secret::new(" sk-12345\n");
        assert_eq!(format!("{secret:?}"), HIDDEN);
        assert_eq!(secret.hide("bad key sk-12345!"), "bad key [hidden]!");
        assert_eq!(Secret::new("").hide("as it is"), "as it is");
        assert_eq!(Secret::new("a").hide("banana"), "banana");
    }
}
