//! Sandboxes made of Linux namespaces, overlayfs, cgroups and seccomp, without a daemon.
//!
//! Three kinds of process take part, all running this crate's code: the caller ([`NativeRuntime`],
//! asynchronous), one single-threaded spawner that makes sandboxes ([`spawner_main`]), and PID 1 of each
//! sandbox. Data flows one way: a specification becomes a plan, the spawner applies the plan, PID 1
//! serves requests. Empty on systems other than Linux.
#![cfg(target_os = "linux")]
#![expect(
    unsafe_code,
    reason = "namespaces, clone3 and seccomp have no safe interface; see sys.rs and harden.rs"
)]

mod cgroup;
mod environ;
mod handle;
mod harden;
mod host_image;
mod init;
mod leftovers;
mod link;
mod mounts;
mod plan;
mod probe;
mod protection;
mod proxy;
mod pump;
mod runtime;
mod spawner;
mod sys;
mod wire;

pub use handle::NativeSandbox;
pub use probe::{Machine, probe};
pub use runtime::{Launcher, NativeOptions, NativeRuntime, list};
pub use spawner::spawner_main;
