//! What every sandbox guarantees, stated as tests that run over any runtime.
//!
//! A runtime's own test binary calls [`conformance_suite!`] with a function that makes a [`Harness`]; each
//! guarantee becomes one named test. The suite knows the traits alone: no runtime, no kernel feature.
#![expect(
    clippy::expect_used,
    reason = "this crate is nothing but tests; a failed expectation must fail the test"
)]

pub mod copies;
pub mod files;
pub mod fork;
pub mod freeze;
mod harness;
pub mod isolation;
pub mod lifecycle;
pub mod limits;
pub mod network;
pub mod output;
pub mod pool;
pub mod processes;
pub mod scripts;
pub mod shell_state;
mod suite;
mod support;

pub use harness::{Capabilities, Capability, Harness, Missing, RemoveImage, run, skip};
