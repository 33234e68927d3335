//! Text processing equal to Python's and NLTK's: characters, words, sentences, part-of-speech tags, syllables.
//!
//! Independent of constraints and benchmarks. Linear in the length of the text.

pub(crate) mod chars;
pub(crate) mod csv;
pub(crate) mod punkt;
pub(crate) mod strings;
pub(crate) mod syllables;
pub(crate) mod tagger;
pub(crate) mod treebank;

#[cfg(test)]
mod oracle_tests;
