//! The sampler against servers that answer as vLLM documents it, and against servers that lie, stall and die.
//!
//! `LIS_TEST_LLAMA` names a directory with the Python package `xllamacpp`, and `LIS_TEST_TINY_GGUF` a tiny model. Without
//! them the test that needs them prints `skip:`, and fails when `LIS_REQUIRE` names `llama`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall panic, in helpers too")]

mod real_llama;
mod refuses_lies;
mod samples;
mod speaks_with_our_server;
mod survives_failures;
mod vllm;
