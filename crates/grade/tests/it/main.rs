//! The graders against verdicts of the official ones, and against texts that nobody means well with.
//!
//! Cases that lie beside the workspace are used where they are found; a missing one is said on a line that
//! starts with `skip:`, and a name in `LIS_REQUIRE` turns that into a failure.

mod support;
