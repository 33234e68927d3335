//! The page's data, as a browser asks for it: without a socket, over real directories.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod exports_episodes;
mod follows_what_runs;
mod keeps_strangers_out;
mod opens_foreign_files;
mod shows_benchmarks;
mod shows_episodes;
mod shows_training;
mod stays_fast;
mod support;
mod survives_hostile_files;
