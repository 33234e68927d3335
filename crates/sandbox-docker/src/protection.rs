//! The protection report of a container.

use sandbox::{
    Layer,
    LayerState::{self, Enforced, Missing, Partial},
    Limits, Network, Protection, Spec,
};

use crate::{
    config::CAPABILITIES,
    daemon::{CgroupVersion, Daemon, DiskQuota, Filter, IpcLimits, Terminals},
    seccomp::Users,
};

/// Reports what a container of this specification enforces.
pub(crate) fn report(spec: &Spec, daemon: &Daemon) -> Protection {
    let mut report = Protection::new("docker");
    let mut push = |layer, (state, detail): (LayerState, String)| report.push(layer, state, detail);
    push(Layer::MemoryLimit, memory(&spec.limits, daemon));
    push(Layer::CpuLimit, limit(spec.limits.cpus.map(|cpus| format!("{cpus} cores"))));
    push(Layer::ProcessLimit, limit(spec.limits.pids.map(|pids| pids.to_string())));
    let first = "in the control group of the commands, which run at a lower priority; they can slow it down, \
                 speak in its place, and end it and so the sandbox";
    let unheld = match daemon.ipc {
        IpcLimits::Set => "",
        IpcLimits::Default => {
            "; shared memory that no process holds can end it too, because this daemon cannot limit it"
        }
    };
    push(Layer::FirstProcess, (Partial, format!("{first}{unheld}")));
    push(Layer::DiskLimit, disk(&spec.limits, daemon));
    push(
        Layer::Network,
        match spec.network {
            Network::Full => {
                (Missing, "full: Docker's bridge, with everything this machine can reach".into())
            }
            _ => (Enforced, "none: loopback only".into()),
        },
    );
    push(Layer::Namespaces, namespaces(daemon));
    push(Layer::UserNamespace, users(daemon));
    let kept = format!("all dropped but {}", CAPABILITIES.join(" "));
    push(Layer::Capabilities, (Enforced, kept));
    push(Layer::NoNewPrivileges, (Enforced, "set for every process".into()));
    push(Layer::Seccomp, filter(daemon));
    report
}

fn limit(value: Option<String>) -> (LayerState, String) {
    match value {
        Some(value) => (Enforced, format!("{value} (control group)")),
        None => (Missing, "not requested".into()),
    }
}

/// The kernel charges the buffers of netlink sockets to nobody, and with version 1 those of others neither.
fn memory(limits: &Limits, daemon: &Daemon) -> (LayerState, String) {
    let Some(memory) = limits.memory else { return limit(None) };
    let (version, sockets) = match daemon.cgroups {
        CgroupVersion::V1 => ("v1", "sockets"),
        CgroupVersion::V2 => ("v2", "netlink sockets"),
    };
    let detail =
        format!("{memory} (cgroup {version}, no swap); the buffers of {sockets} are not limited");
    (Partial, detail)
}

fn disk(limits: &Limits, daemon: &Daemon) -> (LayerState, String) {
    let Some(disk) = limits.disk else { return limit(None) };
    match daemon.disk {
        DiskQuota::Enforced => (Enforced, format!("{disk} (storage driver)")),
        DiskQuota::Unavailable => {
            let detail = format!(
                "{disk} for each file; all are measured by the daemon while commands run, which are killed past it; \
                 deleted files that are still open are not seen. overlay2 on xfs mounted with pquota has a quota"
            );
            (Partial, detail)
        }
    }
}

fn namespaces(daemon: &Daemon) -> (LayerState, String) {
    let own = "mount, pid, network, ipc, uts and cgroup of its own";
    match daemon.terminals {
        Terminals::Limited => (Enforced, format!("{own}; 64 terminals")),
        Terminals::Unlimited => {
            (Partial, format!("{own}; the machine's terminals are not limited"))
        }
    }
}

fn users(daemon: &Daemon) -> (LayerState, String) {
    match daemon.users {
        Users::Mapped => {
            let detail =
                "users inside are other users outside; all sandboxes of the daemon have the same";
            (Enforced, detail.into())
        }
        Users::Shared => {
            let detail = "users inside have the numbers of users outside, without their capabilities: what the \
                          kernel counts by user is shared with them and among sandboxes, event watches (epoll) \
                          without a limit. Start the daemon with --userns-remap or rootless";
            (Partial, detail.into())
        }
    }
}

fn filter(daemon: &Daemon) -> (LayerState, String) {
    let (state, detail) = match daemon.filter {
        Filter::Own => (Enforced, "the calls that the native runtime allows"),
        Filter::Default => {
            (Partial, "the daemon's default profile; Docker 20.10.10 or newer takes a stricter one")
        }
        Filter::None => (Missing, "the daemon or its machine has no seccomp"),
    };
    (state, detail.into())
}

#[cfg(test)]
mod tests {
    use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum};

    use super::*;

    #[test]
    fn what_does_not_hold_is_not_reported_as_enforced() {
        let plain = Daemon::new(&SystemInfo::default());
        let spec = Spec::default();
        let seen = |daemon: &Daemon, layer| report(&spec, daemon).state(&layer);
        for (layer, state) in [
            (Layer::DiskLimit, Partial),
            (Layer::MemoryLimit, Partial),
            (Layer::UserNamespace, Partial),
            (Layer::FirstProcess, Partial),
            (Layer::Seccomp, Missing),
            (Layer::ProcessLimit, Enforced),
            (Layer::Network, Enforced),
        ] {
            assert_eq!(seen(&plain, layer.clone()), state, "{layer}");
        }
        let best = Daemon::new(&SystemInfo {
            driver: Some("btrfs".into()),
            cgroup_version: Some(SystemInfoCgroupVersionEnum::_2),
            server_version: Some("28.0.1".into()),
            security_options: Some(vec![
                "name=seccomp,profile=builtin".into(),
                "name=userns".into(),
            ]),
            ..Default::default()
        });
        for layer in [Layer::DiskLimit, Layer::UserNamespace, Layer::Seccomp] {
            assert_eq!(seen(&best, layer.clone()), Enforced, "{layer}");
        }
        let first = |daemon: &Daemon| {
            let layers = report(&spec, daemon).layers;
            layers.into_iter().find(|one| one.layer == Layer::FirstProcess).unwrap().detail
        };
        assert!(first(&best).contains("shared memory") && !first(&plain).contains("shared memory"));
    }
}
