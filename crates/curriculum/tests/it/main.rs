//! Folders load as tasks, and demonstrations solve them in real sandboxes.
//!
//! Tests that need a capability the machine lacks print a line that starts with `skip:`; its name in `LIS_REQUIRE` turns
//! that into a failure.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod prepares_real_data;
#[cfg(target_os = "linux")]
mod sandboxes;
#[cfg(target_os = "linux")]
mod solves_by_demonstration;
mod support;
