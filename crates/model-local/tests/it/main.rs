//! A real model in this process. `LIS_TEST_GGUF` names the file of an instructed model (Qwen2.5-Coder 1.5B).
//!
//! Without it tests print `skip:`, and fail when `LIS_REQUIRE` names `gguf`.
#![expect(clippy::unwrap_used, reason = "tests and their helpers panic on failure")]

mod adapter;
mod concurrent;
mod constrained;
mod refuses_bad_files;
mod responds;
mod samples_tokens;
mod support;
mod tiny;
