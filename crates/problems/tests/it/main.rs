//! Benchmark tasks from their rows to their grades: real rows, a hub on this machine, graders in real sandboxes.
//!
//! What a machine lacks is skipped, said on a line that starts with `skip:`, and a name in `LIS_REQUIRE` turns
//! that into a failure.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod fetches_from_a_hub;
#[cfg(target_os = "linux")]
mod grades_in_a_sandbox;
mod reads_files_of_others;
mod reads_real_rows;
#[cfg(target_os = "linux")]
mod sandboxes;
mod support;
