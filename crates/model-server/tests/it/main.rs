//! The endpoint over real sockets, used by our own client, by OpenAI's Python package and by hostile clients.
//!
//! `LIS_TEST_OPENAI` names a directory with the Python package `openai`. Without it the tests that need it
//! print `skip:`, and fail when `LIS_REQUIRE` names `pip`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall panic, in helpers too")]

mod calls_tools;
mod continues_tokens;
mod keeps_a_place_for_others;
mod keeps_others_out;
mod queues_requests;
mod refuses_clearly;
mod serves_our_client;
mod serves_the_openai_package;
mod shuts_down;
mod streams;
mod support;
mod survives_hostile_clients;
