//! What a daemon and its machine offer for the protection of sandboxes.

use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum};
use sandbox::Error;

use crate::{failure, seccomp::Users};

/// What a daemon offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Daemon {
    pub(crate) transport: Transport,
    pub(crate) disk: DiskQuota,
    pub(crate) filter: Filter,
    pub(crate) users: Users,
    pub(crate) cgroups: CgroupVersion,
    pub(crate) terminals: Terminals,
    pub(crate) ipc: IpcLimits,
}

/// How the daemon is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A socket of this machine: what the daemon has sent arrives even if it then drops the connection.
    Socket,
    Network,
}

impl Transport {
    /// Of a daemon at this address.
    pub(crate) fn of(address: &str) -> Self {
        if address.starts_with("unix://") { Self::Socket } else { Self::Network }
    }
}

/// Whether the daemon can limit what a container stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskQuota {
    Enforced,
    Unavailable,
}

/// Which system call filter containers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// The one of this runtime.
    Own,
    /// The daemon's.
    Default,
    /// None.
    None,
}

/// The version of the machine's control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CgroupVersion {
    V1,
    V2,
}

/// Whether the daemon can limit the terminals of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminals {
    Limited,
    Unlimited,
}

/// Whether the shared memory, queues and semaphores of a container have limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpcLimits {
    Set,
    /// The kernel's, which are far above any memory limit.
    Default,
}

/// The first version that understands all of the filter. Earlier ones ignore which error a refused call returns.
const KNOWS_ERRORS: [u32; 3] = [20, 10, 10];

impl Daemon {
    /// Reads what the daemon says about itself.
    pub(crate) fn new(info: &SystemInfo) -> Self {
        let options = info.security_options.as_deref().unwrap_or_default();
        let has = |name: &str| {
            let is = |option: &String| option.split(',').any(|part| part == name);
            options.iter().any(is)
        };
        let version = info.server_version.as_deref().unwrap_or_default();
        let users = match has("name=userns") || has("name=rootless") {
            true => Users::Mapped,
            false => Users::Shared,
        };
        Self {
            transport: Transport::Network,
            disk: disk(info),
            filter: match has("name=seccomp") {
                false => Filter::None,
                true if version_of(version) < KNOWS_ERRORS => Filter::Default,
                true => Filter::Own,
            },
            users,
            cgroups: match info.cgroup_version {
                Some(SystemInfoCgroupVersionEnum::_2) => CgroupVersion::V2,
                _ => CgroupVersion::V1,
            },
            terminals: Terminals::Limited,
            // Before Linux 6.9, root of a user namespace cannot write them, and no container would start.
            ipc: match users {
                Users::Mapped => IpcLimits::Default,
                Users::Shared => IpcLimits::Set,
            },
        }
    }

    /// The same without what the daemon refused with this error, if that is the reason.
    pub(crate) fn without_refused(&self, error: &Error) -> Option<Self> {
        let lesser = |change: fn(&mut Self)| {
            let mut lesser = self.clone();
            change(&mut lesser);
            (lesser != *self).then_some(lesser)
        };
        if failure::is_about(error, &["storage-opt"]) {
            lesser(|daemon| daemon.disk = DiskQuota::Unavailable)
        } else if failure::is_about(error, &["seccomp"]) {
            lesser(|daemon| daemon.filter = Filter::Default)
        } else if failure::is_about(error, &["/proc/sys", "sysctl"]) {
            lesser(|daemon| daemon.ipc = IpcLimits::Default)
        } else if failure::is_about(error, &["devpts", "volume"]) {
            lesser(|daemon| daemon.terminals = Terminals::Unlimited)
        } else {
            None
        }
    }
}

fn disk(info: &SystemInfo) -> DiskQuota {
    let xfs = info.driver_status.iter().flatten().any(
        |pair| matches!(&pair[..], [name, value] if name == "Backing Filesystem" && value == "xfs"),
    );
    match info.driver.as_deref() {
        Some("btrfs" | "zfs") => DiskQuota::Enforced,
        Some("overlay2") if xfs => DiskQuota::Enforced,
        _ => DiskQuota::Unavailable,
    }
}

/// The first three numbers of a version such as `20.10.24+dfsg1`.
fn version_of(text: &str) -> [u32; 3] {
    let mut parts = text.split(['.', '-', '+', '~']).map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_taken_at_its_word() {
        let info = |version: &str, options: &[&str]| SystemInfo {
            server_version: Some(version.into()),
            security_options: Some(options.iter().map(|option| (*option).into()).collect()),
            ..Default::default()
        };
        let plain = Daemon::new(&info("20.10.24+dfsg1", &["name=seccomp,profile=default"]));
        assert_eq!((plain.filter, plain.users), (Filter::Own, Users::Shared));
        assert_eq!(plain.ipc, IpcLimits::Set);
        let mapped = Daemon::new(&info("27.1.0", &["name=seccomp,profile=builtin", "name=userns"]));
        assert_eq!((mapped.filter, mapped.users), (Filter::Own, Users::Mapped));
        assert_eq!(mapped.ipc, IpcLimits::Default);
        let old = Daemon::new(&info("20.10.5", &["name=seccomp,profile=default"]));
        assert_eq!(old.filter, Filter::Default);
        assert_eq!(Daemon::new(&info("27.1.0", &["name=rootless"])).filter, Filter::None);
    }

    #[test]
    fn refused_kernel_parameters_are_left_out() {
        let plain = Daemon::new(&SystemInfo::default());
        assert_eq!(plain.ipc, IpcLimits::Set);
        for message in [
            "OCI runtime create failed: open /proc/sys/kernel/shmall: permission denied",
            "sysctl \"kernel.msgmni\" is not in a separate kernel namespace",
        ] {
            let refused = bollard::errors::Error::DockerResponseServerError {
                status_code: 500,
                message: message.into(),
            };
            let refused = failure::during("starting")(refused);
            let lesser = plain.without_refused(&refused).unwrap();
            assert_eq!(lesser, Daemon { ipc: IpcLimits::Default, ..plain.clone() });
            assert_eq!(lesser.without_refused(&refused), None, "refused twice for the same");
        }
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(version_of("20.10.9") < KNOWS_ERRORS && version_of("20.10.10") >= KNOWS_ERRORS);
        assert!(version_of("29.0") > KNOWS_ERRORS && version_of("dev") < KNOWS_ERRORS);
    }
}
