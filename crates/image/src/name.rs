//! Names of images in the store, and their file names.
//!
//! A name is what the user typed; `reference` parses it for registries.

use std::fmt;

/// A valid name: it always maps to a single file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(String);

/// Why a name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty or too long.
    #[error("an image name has 1 to 200 characters, this one has {0}")]
    Length(usize),
    /// A reserved name.
    #[error("`{0}` is the name of the built-in image; choose another")]
    Reserved(String),
    /// A character that references cannot contain.
    #[error(
        "`{name}` contains {found:?}; an image name has letters, digits and . _ - : / @ + only"
    )]
    Character {
        /// The name as given.
        name: String,
        /// The offending character.
        found: char,
    },
    /// An empty, `.` or `..` part, or the start of a path or an option.
    #[error(
        "`{0}` looks like a path or an option; write a name such as base, python:3.12 or host:5000/team/tool:1"
    )]
    Shape(String),
}

/// Checks that a text can be the name of an image in the store.
pub fn check_name(text: &str) -> Result<(), NameError> {
    Name::new(text).map(drop)
}

impl Name {
    pub(crate) fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > 200 {
            return Err(NameError::Length(text.chars().count()));
        }
        if text == "host" {
            return Err(NameError::Reserved(text.to_owned()));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/@+".contains(c);
        if let Some(found) = text.chars().find(|&c| !plain(c)) {
            return Err(NameError::Character { name: text.to_owned(), found });
        }
        let path_part = text.split('/').any(|part| matches!(part, "" | "." | ".."));
        if path_part || text.starts_with(['.', '-', ':', '@', '+']) {
            return Err(NameError::Shape(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as one path component, with special characters escaped.
    pub(crate) fn file_name(&self) -> String {
        use fmt::Write;
        let mut text = String::with_capacity(self.0.len() + 8);
        for c in self.0.chars() {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                text.push(c);
            } else {
                // Writing to a string cannot fail.
                let _ = write!(text, "%{:02x}", u32::from(c));
            }
        }
        text.push_str(".json");
        text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_become_one_component_each_their_own() {
        let mut files = std::collections::BTreeSet::new();
        for text in
            ["base", "python:3.12", "localhost:5000/a/b:tag", "a/b", "a_b", "a@sha256:00", "A"]
        {
            let file = Name::new(text).unwrap().file_name();
            assert!(!file.contains(['/', ':']), "{file}");
            assert!(files.insert(file), "{text}");
        }
    }

    #[test]
    fn paths_options_and_special_characters_are_refused() {
        let long = "a".repeat(201);
        for bad in [
            "", "host", "..", "a/../b", "/a", "./a", "a//b", "a/", "-x", "a b", "a\0b", "ä",
            "a\\b", "a%2fb", &long,
        ] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }
}
