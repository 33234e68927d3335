//! The test kit itself: what it promises to other tests, seen through a client that knows only bytes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall panic, in helpers too")]

mod client;
mod fails_on_demand;
mod follows_a_script;
mod holds_many_conversations;
mod implements_both_protocols;
mod runs_as_a_program;
