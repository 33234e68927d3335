//! The image store as its callers see it: real registries, real archives, killed processes.
//!
//! A test that lacks something prints a line that starts with `skip:`; a name in `LIS_REQUIRE` makes that a failure.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking, helpers included")]
#![expect(clippy::print_stdout, reason = "skips are printed to standard output")]

mod authenticates;
mod builds_a_system;
mod fake;
mod imports_archives;
mod pulls_an_image;
mod refuses_bad_content;
mod registry;
mod resumes_after_a_cut;
mod shares_one_store;
mod support;
mod survives_a_kill;
