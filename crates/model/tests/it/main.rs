//! Clients of both protocols against a server that speaks them, and fails in every way it knows.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall panic, in helpers too")]

mod clients;
mod keeps_secrets;
mod learns_from_refusals;
mod receives_a_response;
mod retries;
mod shares_connections;
mod survives_faults;
mod survives_hostile_servers;
