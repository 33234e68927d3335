//! Tasks as trainers find them: folders that load as tasks, demonstrations that really solve them.
//!
//! What a machine lacks is skipped, said on a line that starts with `skip:`, and a name in `LIS_REQUIRE` turns
//! that into a failure.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod prepares_real_data;
#[cfg(target_os = "linux")]
mod sandboxes;
#[cfg(target_os = "linux")]
mod solves_by_demonstration;
mod support;
