//! Texts the way Python and its language libraries see them: characters, words, sentences, tags, syllables.
//!
//! Knows no constraint and no benchmark. Everything here ends in time linear in the text.

pub(crate) mod chars;
pub(crate) mod csv;
pub(crate) mod punkt;
pub(crate) mod strings;
pub(crate) mod syllables;
pub(crate) mod tagger;
pub(crate) mod treebank;

#[cfg(test)]
mod oracle_tests;
