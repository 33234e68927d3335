//! The graders against verdicts of the official ones, and against hostile texts.
//!
//! Shared cases beside the workspace are used where they exist; a missing file prints a line that starts with `skip:`, and
//! fails where `LIS_REQUIRE` names it.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its cases has failed")]
#![expect(clippy::print_stdout, reason = "skips and figures are said aloud")]

mod agrees_with_the_originals;
mod follows_instructions;
mod instructions;
mod mathematics;
mod support;
mod survives_hostile_answers;
