//! Fills the placeholders of a prompt by the rules of Python's `str.format`, as far as prompts use them.
//!
//! Names in braces are replaced, doubled braces become single ones, anything else in braces is an error. Filled-in
//! values are not templates themselves.

use super::{MAX_RENDERED, PromptError};

/// A prompt with placeholders, and its key in the config.
pub(super) struct Template<'a> {
    key: &'static str,
    text: &'a str,
}

/// The values of the placeholders.
pub(super) struct Values<'a> {
    /// Directories, for every prompt.
    pub(super) directories: &'a [(&'static str, String)],
    /// Values for this prompt alone.
    pub(super) own: &'a [(&'static str, &'a str)],
}

impl<'a> Template<'a> {
    pub(super) fn new(key: &'static str, text: &'a str) -> Self {
        Self { key, text }
    }

    /// Fills the template in one pass. The reference implementation replaces directories first and formats afterwards;
    /// wherever that succeeds, the result is the same.
    pub(super) fn fill(&self, values: &Values<'_>) -> Result<String, PromptError> {
        let mut filled = String::with_capacity(self.text.len());
        let mut rest = self.text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from_brace) = rest.split_at(at);
            filled.push_str(before);
            if let Some(after) = from_brace.strip_prefix("{{") {
                filled.push('{');
                rest = after;
            } else if let Some(after) = from_brace.strip_prefix("}}") {
                filled.push('}');
                rest = after;
            } else {
                let (value, after) = self.placeholder(from_brace, values)?;
                filled.push_str(value);
                rest = after;
            }
            if filled.len() > MAX_RENDERED {
                return Err(PromptError::Overflow { key: self.key });
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// The value of the placeholder that `text` starts with, and what follows it.
    fn placeholder<'v>(
        &self,
        text: &'a str,
        values: &'v Values<'_>,
    ) -> Result<(&'v str, &'a str), PromptError> {
        let line = self.line_of(text);
        let unmatched = |brace| PromptError::Brace { key: self.key, line, brace };
        let inner = text.strip_prefix('{').ok_or_else(|| unmatched('}'))?;
        let (name, after) = inner.split_once('}').ok_or_else(|| unmatched('{'))?;
        let value = values.get(name).ok_or_else(|| PromptError::Placeholder {
            key: self.key,
            line,
            placeholder: quoted(&text[..name.len() + 2]),
            known: values.names(),
        })?;
        Ok((value, after))
    }

    /// The line at which `rest`, a tail of the text, starts.
    fn line_of(&self, rest: &str) -> usize {
        let before = &self.text[..self.text.len() - rest.len()];
        before.matches('\n').count() + 1
    }
}

impl Values<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let own = self.own.iter().map(|(known, value)| (*known, *value));
        let directories = self.directories.iter().map(|(known, value)| (*known, value.as_str()));
        own.chain(directories).find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn names(&self) -> String {
        let own = self.own.iter().map(|(known, _)| *known);
        let names = own.chain(self.directories.iter().map(|(known, _)| *known));
        names.map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ")
    }
}

/// Text for an error message: in backticks, escaped, at most 60 characters.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let start: String = text.chars().take(SHOWN).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", start.escape_debug())
}
