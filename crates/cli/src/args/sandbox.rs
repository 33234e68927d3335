//! The arguments that describe a sandbox.

use std::time::Duration;

use clap::{Args, ValueEnum};
use sandbox::{ByteSize, DiskQuota, ImageRef, Network};
use serde::{Deserialize, Serialize};

use super::values::{self, Limit, Reserve, Variable};

/// The sandbox to create.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxArgs {
    /// Runtime that creates the sandbox
    #[arg(long, value_name = "RUNTIME", default_value_t, value_enum)]
    pub(crate) runtime: RuntimeKind,
    /// Root file system: `host` (this machine's programs, without its secrets), an image name, or a directory
    #[arg(long, value_name = "host|NAME|DIR", default_value = "host")]
    pub(crate) image: ImageRef,
    /// Memory limit of all processes together, such as 512M; `none` for no limit
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) memory: Limit<ByteSize>,
    /// CPU limit in cores, such as 0.5; `none` for no limit
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = values::cpus,
        allow_hyphen_values = true
    )]
    pub(crate) cpus: Limit<f64>,
    /// Maximum number of processes and threads; `none` for no limit
    #[arg(long, value_name = "N", default_value = "512", value_parser = values::pids, allow_hyphen_values = true)]
    pub(crate) pids: Limit<u32>,
    /// Limit of data written to files, such as 500M; `none` for no limit
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) disk: Limit<ByteSize>,
    /// How the disk limit is enforced: files are measured; or the kernel refuses more, by a project quota, on a file
    /// system of this size (both need root) or in memory. `auto` is project where that works, else measured
    #[arg(long, value_name = "auto|measured|project|strict|memory", default_value_t)]
    pub(crate) disk_quota: DiskQuota,
    /// Free disk space to leave on this machine, such as 5G: below it, no sandbox is created, and those that write are
    /// stopped. `auto` is 1G, or 1 % of the disk if that is less
    #[arg(long, value_name = "SIZE|auto|none", default_value = "auto", value_parser = values::reserve)]
    pub(crate) disk_reserve: Reserve,
    /// Network access: none; only these hosts over HTTP and HTTPS (`*.name` allows subdomains, `name:8080` another port);
    /// all public addresses over TCP; or the host's network
    #[arg(long, value_name = "none|allow=HOST,...|internet|full", default_value = "none")]
    pub(crate) network: Network,
    /// Environment variable; K alone copies its value from this environment; repeatable
    #[arg(long, value_name = "K=V", value_parser = values::variable)]
    pub(crate) env: Vec<Variable>,
    /// How long a request to the sandbox, such as copying files, may make no progress; it then fails, and the sandbox is
    /// removed
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::finite_time)]
    pub(crate) stall_timeout: Duration,
    /// Fail unless every requested protection is fully enforced (the disk limit may be partial)
    #[arg(long)]
    pub(crate) strict: bool,
}

/// A runtime of sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuntimeKind {
    /// Namespaces, overlayfs, control groups and seccomp; no daemon
    Native,
    /// A Docker daemon
    Docker,
}

impl Default for RuntimeKind {
    fn default() -> Self {
        if cfg!(target_os = "linux") { Self::Native } else { Self::Docker }
    }
}

impl RuntimeKind {
    /// Its name on the command line and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Docker => "docker",
        }
    }
}
