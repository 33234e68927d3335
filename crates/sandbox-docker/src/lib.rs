//! Sandboxes made by a Docker daemon, over its Engine API.
//!
//! Each sandbox is one container whose first process is a small script of ours that dies with us. Commands
//! run by `docker exec`; no helper program is put inside. What Docker cannot do is reported, never faked.

mod config;
mod exec;
mod failure;
mod files;
mod fork;
mod keeper;
mod names;
mod owner;
mod process;
mod runtime;
mod sandbox_impl;
mod sentinel;
mod shell;
mod trees;

pub use runtime::{DockerOptions, DockerRuntime};
pub use sandbox_impl::DockerSandbox;
