//! The store as its callers see it: a fake hub on this machine, a fake pip, real files.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests start programs and read their settings from the environment"
)]

mod fake_hub;
mod fake_pip;
mod keeps_adapters;
mod pulls_from_packages;
mod pulls_from_the_hub;
mod shares_one_store;
mod stores_files;
mod support;
mod survives_a_full_disk;
mod survives_a_kill;
