//! The protection report of a native sandbox.

use sandbox::{DiskQuota, Layer, LayerState, Protection};

use crate::{
    cgroup::CgroupVersion,
    init::Relay,
    plan::{NetworkPlan, Plan},
    spawner::{CrashHandler, HostSupport, Storage, Users},
};

/// The report for one sandbox; `relay` says how programs reach public addresses, where they may.
pub(crate) fn report(support: &HostSupport, plan: &Plan, relay: Option<&Relay>) -> Protection {
    use LayerState::{Enforced, Missing, Partial};
    let mut report = Protection::new("native");
    report.push(
        Layer::Namespaces,
        Enforced,
        "user, mount, pid, ipc, uts and cgroup namespaces of its own",
    );
    let (state, detail) = users(support);
    report.push(Layer::Users, state, detail);
    let (state, detail) = system_calls(support);
    report.push(Layer::SystemCalls, state, detail);
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
            (true, true) if controller == "memory" && !support.limits_sockets => report.push(
                layer,
                Partial,
                format!("{version}: the buffers of sockets are not limited by this kernel"),
            ),
            (true, true) if controller == "memory" && support.cgroups == CgroupVersion::V1 => {
                report.push(layer, Enforced, "cgroup v1; a quarter more for the buffers of sockets")
            }
            (true, true) => report.push(layer, Enforced, version),
            (true, false) if controller == "cpu" => {
                report.push(layer, Missing, format!("{version}: {otherwise}"));
            }
            (true, false) => report.push(layer, Partial, format!("{version}: {otherwise}")),
        }
    }
    add_first_process(&mut report, held("cpu") && held("memory"));
    match support.can_freeze {
        true => report.push(Layer::Pause, Enforced, format!("{version}: all processes are frozen in one step")),
        false => report.push(
            Layer::Pause,
            Partial,
            "signals, repeated until all processes are found stopped; a pause that a sandbox prevents fails",
        ),
    }
    add_disk(&mut report, support, plan);
    match plan.network {
        NetworkPlan::Isolated => report.push(Layer::Network, Enforced, "loopback only"),
        NetworkPlan::Proxied => {
            report.push(Layer::Network, Enforced, "no network but a filtering HTTP(S) proxy");
        }
        NetworkPlan::Internet => report.push(Layer::Network, Enforced, public_addresses(relay)),
        NetworkPlan::Host => {
            report.push(Layer::Network, Missing, "the host's network, as requested")
        }
    }
    report
}

/// How public addresses, and nothing else, are reached. What is missing limits programs, not the protection.
fn public_addresses(relay: Option<&Relay>) -> String {
    let parts =
        "public addresses only, through a filtering proxy (HTTP, CONNECT, SOCKS5), a resolver";
    match relay {
        Some(Relay::All) => format!("{parts} and a relay of all TCP connections"),
        Some(Relay::OnlyV4(why)) => {
            format!("{parts} and a relay of TCP connections over IPv4; none over IPv6: {why}")
        }
        Some(Relay::Missing(why)) => {
            format!(
                "{parts}; programs have to use its variables, no relay without nftables tproxy: {why}"
            )
        }
        None => parts.into(),
    }
}

/// Who the users of a sandbox are.
fn users(support: &HostSupport) -> (LayerState, &'static str) {
    use LayerState::{Enforced, Partial};
    match support.users {
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
    }
}

/// What keeps commands from the kernel's riskier parts.
fn system_calls(support: &HostSupport) -> (LayerState, &'static str) {
    use LayerState::{Enforced, Partial};
    match support.crash_handler {
        CrashHandler::NotStarted => {
            (Enforced, "seccomp filter, no new privileges, small capability set")
        }
        CrashHandler::Started => (
            Partial,
            "a crash inside starts this machine's program for core dumps; raise your hard limit on core \
             dumps above 0",
        ),
    }
}

fn add_first_process(report: &mut Protection, separate: bool) {
    match separate {
        true => report.push(
            Layer::FirstProcess,
            LayerState::Enforced,
            "control group of its own: commands can neither starve it nor have it killed",
        ),
        false => report.push(
            Layer::FirstProcess,
            LayerState::Partial,
            "no control group of its own: commands run at a lower priority, and are killed first when memory \
             runs out",
        ),
    }
}

fn add_disk(report: &mut Protection, support: &HostSupport, plan: &Plan) {
    use LayerState::{Enforced, Missing, Partial};
    match (plan.limits.disk, support.storage) {
        (None, _) => report.push(Layer::DiskLimit, Missing, "not requested"),
        (Some(_), _) if plan.disk_quota == DiskQuota::Project => report.push(
            Layer::DiskLimit,
            Enforced,
            "project quota: the kernel counts the blocks and files of the sandbox, deleted ones that are in use included",
        ),
        (Some(_), _) if plan.disk_quota == DiskQuota::Strict => {
            report.push(Layer::DiskLimit, Enforced, "a file system of its own, of this size")
        }
        (Some(_), _) if plan.disk_quota == DiskQuota::Memory => report.push(
            Layer::DiskLimit,
            Enforced,
            "a file system in memory, of this size; what is written counts as memory",
        ),
        (Some(_), Storage::Disk) => report.push(
            Layer::DiskLimit,
            Partial,
            "files are measured while commands run, which are killed past it; deleted files that are only \
             mapped or on their way between processes are not seen",
        ),
        (Some(_), Storage::Memory) => report.push(
            Layer::DiskLimit,
            Partial,
            "measured as files are written; they are stored in memory because the state directory's file \
             system cannot hold an overlay",
        ),
    }
}
