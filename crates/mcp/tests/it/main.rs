//! Integration tests of the protocol over real sandboxes.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed expectation must fail the test"
)]

mod calls_tools;
mod leaves_nothing;
mod support;
mod survives_hostile_clients;
