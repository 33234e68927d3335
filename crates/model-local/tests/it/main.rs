//! A real model in this process. `LIS_TEST_GGUF` names the file of an instructed model (Qwen2.5-Coder 1.5B).
//!
//! Without it tests say `skip:`, and fail when `LIS_REQUIRE` names `gguf`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall panic, in helpers too")]

mod adapter;
mod forced;
mod many_at_once;
mod refuses_bad_files;
mod speaks;
mod support;
mod tiny;
