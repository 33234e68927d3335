//! Reading and writing GGUF files as a user of the crate does.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking and read from the environment what the machine has"
)]

mod reads_a_real_file;
mod reads_every_kind;
mod refuses_hostile_files;
mod writes_what_it_reads;
