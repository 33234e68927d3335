//! The image store from outside: real registries, real archives, killed processes.
//!
//! What a test needs and does not find is said on a line that starts with `skip:`; a name in `LIS_REQUIRE`
//! turns that into a failure.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall panic, in helpers too")]
#![expect(clippy::print_stdout, reason = "skips are told on standard output")]

mod asks_who_we_are;
mod builds_a_system;
mod fake;
mod goes_on_after_a_cut;
mod imports_archives;
mod pulls_an_image;
mod refuses_bad_content;
mod registry;
mod shares_one_store;
mod support;
mod survives_a_kill;
