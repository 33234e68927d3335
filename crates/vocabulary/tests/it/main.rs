//! Vocabularies: the same tokens as others make, the same text again, and nothing that hostile files could break.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod equals_llama_cpp;
mod keeps_its_files;
mod makes_tokens;
mod refuses_bad_files;
mod support;
