//! The protection report of a native sandbox.

use sandbox::{Layer, LayerState, Protection};

use crate::{
    cgroup::CgroupVersion,
    plan::{NetworkPlan, Plan},
    spawner::{HostSupport, Storage, Users},
};

/// The report for one sandbox.
pub(crate) fn report(support: &HostSupport, plan: &Plan) -> Protection {
    use LayerState::{Enforced, Missing, Partial};
    let mut report = Protection::new("native");
    report.push(
        Layer::Namespaces,
        Enforced,
        "user, mount, pid, ipc, uts and cgroup namespaces of its own",
    );
    let (state, detail) = match support.users {
        Users::Shifted => {
            (Enforced, "users inside have no rights outside; layers are mounted id-mapped")
        }
        Users::Subordinate => {
            (Enforced, "root inside is the calling user; others are subordinate users")
        }
        Users::Single => (
            Partial,
            "root inside is the calling user and the only user; install uidmap and give the user a range \
             in /etc/subuid and /etc/subgid for more",
        ),
        Users::SameAsHost => (
            Partial,
            "root inside has the number of root outside, without its capabilities; Linux 5.19 or newer \
             would shift it",
        ),
    };
    report.push(Layer::Users, state, detail);
    report.push(
        Layer::SystemCalls,
        Enforced,
        "seccomp filter, no new privileges, small capability set",
    );
    let version = match support.cgroups {
        CgroupVersion::V2 => "cgroup v2",
        CgroupVersion::V1 => "cgroup v1",
        CgroupVersion::None => "this user may not create a cgroup",
    };
    let held = |controller: &str| support.controllers.iter().any(|name| name == controller);
    for (layer, controller, requested, otherwise) in [
        (
            Layer::MemoryLimit,
            "memory",
            plan.limits.memory.is_some(),
            "only each process's own data is limited",
        ),
        (
            Layer::ProcessLimit,
            "pids",
            plan.limits.pids.is_some(),
            "limited per user by the kernel's ucounts",
        ),
        (Layer::CpuLimit, "cpu", plan.limits.cpus.is_some(), "not limited"),
    ] {
        match (requested, held(controller)) {
            (false, _) => report.push(layer, Missing, "not requested"),
            (true, true) => report.push(layer, Enforced, version),
            (true, false) if controller == "cpu" => {
                report.push(layer, Missing, format!("{version}: {otherwise}"));
            }
            (true, false) => report.push(layer, Partial, format!("{version}: {otherwise}")),
        }
    }
    add_disk(&mut report, support, plan);
    match plan.network {
        NetworkPlan::Isolated => report.push(Layer::Network, Enforced, "loopback only"),
        NetworkPlan::Proxied => {
            report.push(Layer::Network, Enforced, "no network but a filtering HTTP(S) proxy");
        }
        NetworkPlan::Host => {
            report.push(Layer::Network, Missing, "the host's network, as requested")
        }
    }
    report
}

fn add_disk(report: &mut Protection, support: &HostSupport, plan: &Plan) {
    use LayerState::{Missing, Partial};
    match (plan.limits.disk, support.storage) {
        (None, _) => report.push(Layer::DiskLimit, Missing, "not requested"),
        (Some(_), Storage::Disk) => report.push(
            Layer::DiskLimit,
            Partial,
            "a single file cannot exceed it; all files are measured every 50 ms, and the command is killed",
        ),
        (Some(_), Storage::Memory) => report.push(
            Layer::DiskLimit,
            Partial,
            "measured every 50 ms; files are stored in memory because the state directory's file system \
             cannot hold an overlay",
        ),
    }
}
