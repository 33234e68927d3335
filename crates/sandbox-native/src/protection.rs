//! What a native sandbox enforces, said honestly.

use sandbox::{LayerState, Protection};

use crate::{
    cgroup::CgroupVersion,
    plan::{NetworkPlan, Plan},
    spawner::{Facts, Storage, Users},
};

/// The report for one sandbox.
pub(crate) fn report(facts: &Facts, plan: &Plan) -> Protection {
    use LayerState::{Enforced, Missing, Partial};
    let mut report = Protection::new("native");
    report.push(
        "namespaces",
        Enforced,
        "user, mount, pid, ipc, uts and cgroup namespaces of its own",
    );
    let (state, detail) = match facts.users {
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
    report.push("users", state, detail);
    report.push(
        "system calls",
        Enforced,
        "seccomp filter, no new privileges, small capability set",
    );
    let version = match facts.cgroups {
        CgroupVersion::V2 => "cgroup v2",
        CgroupVersion::V1 => "cgroup v1",
        CgroupVersion::None => "no cgroup may be made by this user",
    };
    let held = |controller: &str| facts.controllers.iter().any(|name| name == controller);
    for (name, controller, asked, otherwise) in [
        (
            "memory limit",
            "memory",
            plan.limits.memory.is_some(),
            "only each process's own data is limited",
        ),
        (
            "process limit",
            "pids",
            plan.limits.pids.is_some(),
            "limited per user by the kernel's ucounts",
        ),
        ("cpu limit", "cpu", plan.limits.cpus.is_some(), "not limited"),
    ] {
        match (asked, held(controller)) {
            (false, _) => report.push(name, Missing, "none was asked for"),
            (true, true) => report.push(name, Enforced, version),
            (true, false) if controller == "cpu" => {
                report.push(name, Missing, format!("{version}: {otherwise}"));
            }
            (true, false) => report.push(name, Partial, format!("{version}: {otherwise}")),
        }
    }
    add_disk(&mut report, facts, plan);
    match plan.network {
        NetworkPlan::Isolated => report.push("network", Enforced, "loopback only"),
        NetworkPlan::Proxied => {
            report.push("network", Enforced, "no network but a filtering HTTP(S) proxy");
        }
        NetworkPlan::Host => report.push("network", Missing, "the host's network, as asked"),
    }
    report
}

fn add_disk(report: &mut Protection, facts: &Facts, plan: &Plan) {
    use LayerState::{Missing, Partial};
    match (plan.limits.disk, facts.storage) {
        (None, _) => report.push("disk limit", Missing, "none was asked for"),
        (Some(_), Storage::Disk) => report.push(
            "disk limit",
            Partial,
            "a single file cannot pass it; many files are measured every 50 ms and the command is killed",
        ),
        (Some(_), Storage::Memory) => report.push(
            "disk limit",
            Partial,
            "measured every 50 ms; files are kept in memory because the state directory's file system \
             cannot hold an overlay",
        ),
    }
}
