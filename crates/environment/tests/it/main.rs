//! Sessions with real sandboxes, without a server.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed expectation must fail the test")]

mod plays_sessions;
