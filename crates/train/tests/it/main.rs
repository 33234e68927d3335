//! The training program as users see it: tiny models, real sandboxes, kills, bad input.
//!
//! What a machine lacks is skipped, said on a line that starts with `skip:`, and a name in `LIS_REQUIRE` turns that into
//! a failure.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod explains_itself;
mod exports_what_was_learnt;
mod goes_on_after_kills;
mod learns_a_toy_task;
mod refuses_bad_input;
mod support;
