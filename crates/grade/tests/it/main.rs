//! The graders against verdicts of the official ones, and against texts that nobody means well with.
//!
//! Cases that lie beside the workspace are used where they are found; a missing one is said on a line that
//! starts with `skip:`, and a name in `LIS_REQUIRE` turns that into a failure.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its cases has failed")]
#![expect(clippy::print_stdout, reason = "skips and figures are said aloud")]

mod agrees_with_the_originals;
mod follows_instructions;
mod instructions;
mod mathematics;
mod support;
mod survives_hostile_answers;
