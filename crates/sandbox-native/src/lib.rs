//! Sandboxes from Linux namespaces, overlayfs, cgroups and seccomp, without a daemon.
//!
//! Three kinds of process take part, all running code of this crate: the caller ([`NativeRuntime`], asynchronous), one
//! single-threaded spawner that creates sandboxes ([`spawner_main`]), and PID 1 of each sandbox. A specification becomes a
//! plan (`plan.rs`), the spawner applies the plan (`spawner/create.rs`), and PID 1 serves requests (`init.rs`). Start
//! reading at `runtime.rs` for the caller's side. Empty on systems other than Linux.
//!
//! ```no_run
//! use lis_sandbox_native::{Launcher, NativeOptions, NativeRuntime};
//! use sandbox::{Runtime, Sandbox, ShellCommand, Spec};
//!
//! # async fn example() -> Result<(), sandbox::Error> {
//! // A program whose `main` calls `spawner_main` and nothing else.
//! let launcher = Launcher::new("/usr/local/bin/my-spawner");
//! let options = NativeOptions { launcher, ..NativeOptions::new("/var/lib/my-sandboxes") };
//! let runtime = NativeRuntime::start(options).await?;
//! let sandbox = runtime.create(&Spec::default()).await?;
//! let output = sandbox.shell(&ShellCommand::new("echo $((6 * 7))")).await?;
//! assert_eq!(output.stdout.text(), "42\n");
//! sandbox.destroy().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`probe()`] inspects a machine without creating a sandbox:
//!
//! ```
//! let machine = lis_sandbox_native::probe();
//! assert!(machine.capabilities.iter().any(|found| found.layer == sandbox::Layer::Namespaces));
//! ```
#![cfg(target_os = "linux")]
#![expect(
    unsafe_code,
    reason = "namespaces, clone3 and seccomp have no safe interface; see sys.rs and harden.rs"
)]

mod cgroup;
mod diagnostics;
mod environ;
mod handle;
mod harden;
mod host_image;
mod init;
mod launch;
mod leftovers;
mod link;
mod machine;
mod mounts;
mod netlink;
mod plan;
mod probe;
mod protection;
mod proxy;
mod pump;
mod reexec;
mod remote;
mod reserve;
mod runtime;
mod spawner;
mod storage;
mod sys;
mod transfer;
mod wire;

pub use handle::{LayerStream, NativeSandbox};
pub use launch::{EarlySpawner, Launcher};
pub use probe::{Machine, probe};
pub use proxy::{HostNetwork, Pending, Upstream};
pub use reexec::{inherit_only_stdio, init};
pub use runtime::{NativeOptions, NativeRuntime, UNPACKED, list};
pub use spawner::spawner_main;
pub use storage::{Suitability, private_directory, suitability};
pub use sys::share_heaps;
