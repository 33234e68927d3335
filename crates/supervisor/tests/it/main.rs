//! The supervisor and its client, as a Rust program uses them: real sandboxes, a real socket, hostile clients.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod endures_hostile_clients;
mod support;
mod works_for_programs;
