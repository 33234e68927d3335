//! The endpoint over real sockets, asked by our own client, by OpenAI's Python package and by nobody's friend.
//!
//! `LIS_TEST_OPENAI` names a directory with the Python package `openai`. Without it the tests that need it
//! say `skip:`, and fail when `LIS_REQUIRE` names `pip`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall panic, in helpers too")]

mod answers_our_client;
mod answers_the_openai_package;
mod calls_tools;
mod comes_to_an_end;
mod keeps_others_out;
mod refuses_clearly;
mod streams;
mod support;
mod survives_hostile_clients;
mod takes_turns;
