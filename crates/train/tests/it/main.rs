//! The training program as users see it: tiny models, real sandboxes, kills, bad input.
//!
//! Tests that need a capability the machine lacks print a line that starts with `skip:`; its name in `LIS_REQUIRE`
//! turns that into a failure.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod carries_stragglers;
mod collects_episodes;
mod explains_itself;
mod exports_models;
mod learns_a_toy_task;
mod measures_sets;
mod rejects_bad_input;
mod resumes_after_kills;
mod resumes_older_runs;
mod samples_from_a_server;
mod support;
