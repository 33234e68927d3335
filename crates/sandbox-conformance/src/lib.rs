//! The guarantees of every sandbox, as tests that run over any runtime.
//!
//! A runtime's test binary calls [`conformance_suite!`] with a function that creates a [`Harness`]; each guarantee becomes
//! one named test. The suite uses the traits only and knows no particular runtime. `suite.rs` lists the guarantees, and
//! [`setting`] the environment variables of a test run.
//!
//! ```
//! use lis_sandbox_conformance::{Capabilities, Capability};
//!
//! // What a runtime cannot do is stated with the reason; the tests of it are then skipped visibly.
//! let mut caps = Capabilities::all();
//! caps.freeze = Capability::no("a container's files cannot become read-only later");
//! assert_eq!(caps.snapshot, Capability::Yes);
//! ```
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

pub use harness::{
    Capabilities, Capability, Harness, Missing, RemoveImage, patience, run, setting, skip,
};
