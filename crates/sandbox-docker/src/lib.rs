//! Sandboxes of a Docker daemon, over its Engine API.
//!
//! Each sandbox is a container whose first process is a small script that exits when the caller does. Commands run by
//! `docker exec`; no program is installed in the container. What Docker cannot do is reported as
//! [`Unsupported`](sandbox::Error::Unsupported). Start reading at `runtime.rs`.
//!
//! ```no_run
//! use lis_sandbox_docker::{DockerOptions, DockerRuntime};
//! use sandbox::{ImageRef, Runtime, Sandbox, ShellCommand, Spec};
//!
//! # async fn example() -> Result<(), sandbox::Error> {
//! let runtime = DockerRuntime::connect(DockerOptions::default()).await?;
//! let spec = Spec { image: ImageRef::Name("debian:12".into()), ..Spec::default() };
//! let sandbox = runtime.create(&spec).await?;
//! let output = sandbox.shell(&ShellCommand::new("cat /etc/debian_version")).await?;
//! println!("{}", output.stdout.text());
//! sandbox.destroy().await?;
//! # Ok(())
//! # }
//! ```

mod config;
mod daemon;
mod deadline;
mod disk;
mod exec;
mod failure;
mod files;
mod fork;
mod keeper;
mod names;
mod owner;
mod process;
mod protection;
mod runtime;
mod sandbox_impl;
mod seccomp;
mod sentinel;
mod shell;
mod trees;

pub use runtime::{DockerOptions, DockerRuntime};
pub use sandbox_impl::DockerSandbox;
