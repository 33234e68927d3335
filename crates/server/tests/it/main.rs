//! The server with real sandboxes, used by unedited clients of E2B's services and by hostile ones.
//!
//! `LIS_TEST_E2B` names a directory with the Python package `e2b`, `LIS_TEST_E2B_JS` one with the npm package,
//! `LIS_TEST_MCP`, `LIS_TEST_OPENAI`, `LIS_TEST_OPENENV` and `LIS_TEST_SCHEMATHESIS` ones with the Python packages of these
//! names, `LIS_TEST_MCP_CONFORMANCE` one with the npm package of MCP's conformance suite. Without them the tests that need
//! them are skipped visibly.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed expectation must fail the test")]

mod answers_chats;
mod can_be_operated;
mod endures_slow_clients;
mod environments;
mod keeps_its_description;
mod keeps_strangers_out;
mod keeps_tokens_apart;
mod leaves_nothing;
mod passes_chats_on;
mod pauses_sandboxes;
mod plays_environments;
mod plays_episodes;
mod reaches_programs;
mod refuses_unsupported;
mod repeats_requests;
mod runs_the_page;
mod serves_e2b_clients;
mod serves_mcp_clients;
mod serves_openenv_clients;
mod streams_chats;
mod support;
mod survives_bad_requests;
mod survives_full_disks;
