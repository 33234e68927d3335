//! Names of sandboxes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest name in characters.
const MAX_LENGTH: usize = 63;

/// The name of a sandbox: 1 to 63 lower-case letters, digits, dots, underscores and hyphens, starting with a letter or a
/// digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// A text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a sandbox: a name has 1 to {MAX_LENGTH} of a-z, 0-9, `.`, `_` and `-`, and starts with a letter \
     or a digit"
)]
pub struct NameError(String);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let later = |c: char| first(c) || matches!(c, '.' | '_' | '-');
        match text.starts_with(first) && text.chars().all(later) && text.len() <= MAX_LENGTH {
            true => Ok(Self(text.to_owned())),
            false => Err(NameError(text.chars().take(2 * MAX_LENGTH).collect())),
        }
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        let longest = "a".repeat(63);
        for good in ["a", "0", "box", "my-box_2.old", "9-", longest.as_str()] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        let long = "a".repeat(64);
        for bad in
            ["", "-a", ".a", "_a", "A", "bOx", "a b", "a/b", "a:b", "ä", "a\n", "a\0", "..", &long]
        {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
            assert!(serde_json::from_value::<Name>(bad.into()).is_err(), "{bad:?}");
        }
    }
}
