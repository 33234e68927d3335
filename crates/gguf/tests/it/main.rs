//! Reading and writing GGUF files as a user of the crate does.

mod reads_a_real_file;
mod reads_every_kind;
mod refuses_hostile_files;
mod writes_what_it_reads;
