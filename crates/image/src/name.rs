//! Names of images in the store, and the file names that stand for them.
//!
//! A name is what the user typed. What a registry makes of it is the business of `reference`.

use std::fmt;

/// A checked name: it can be a file name below the store and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(String);

/// The name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or too much.
    #[error("an image name has 1 to 200 characters, this one has {0}")]
    Length(usize),
    /// The word means something else.
    #[error("`{0}` is the name of the built-in image; choose another")]
    Reserved(String),
    /// A character that no reference may hold.
    #[error("`{name}` holds {found:?}; an image name is made of letters, digits and . _ - : / @ +")]
    Character {
        /// The name as given.
        name: String,
        /// The offending character.
        found: char,
    },
    /// An empty, `.` or `..` part, or a start that reads as a path or an option.
    #[error(
        "`{0}` reads as a path or an option; write a name such as base, python:3.12 or host:5000/team/tool:1"
    )]
    Shape(String),
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
        let odd_part = text.split('/').any(|part| matches!(part, "" | "." | ".."));
        if odd_part || text.starts_with(['.', '-', ':', '@', '+']) {
            return Err(NameError::Shape(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as one path component: what a file name may not or should not hold is escaped.
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
    fn paths_options_and_odd_characters_are_refused() {
        let long = "a".repeat(201);
        for bad in [
            "", "host", "..", "a/../b", "/a", "./a", "a//b", "a/", "-x", "a b", "a\0b", "ä",
            "a\\b", "a%2fb", &long,
        ] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }
}
