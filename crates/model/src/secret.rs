//! Words that must not be seen: keys show neither in debug output nor in messages of servers.

use std::fmt;

/// A key. It can be used and hidden, not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// What stands where a secret stood.
const HIDDEN: &str = "[hidden]";

/// Shorter words occur by chance; a key of that length protects nothing.
const SHORTEST: usize = 4;

impl Secret {
    /// Takes a key, without the blanks around it.
    pub fn new(key: &str) -> Self {
        Self(key.trim().to_owned())
    }

    /// The key itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A text without the key.
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
