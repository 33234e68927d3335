//! Vocabularies: the same tokens as llama.cpp, the same text after decoding, and errors for malformed files.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod equals_llama_cpp;
mod makes_tokens;
mod refuses_bad_files;
mod saves_its_files;
mod support;
