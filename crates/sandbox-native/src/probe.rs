//! Inspects what this machine offers to native sandboxes. Starts nothing; at most it enables controllers of a control
//! group.

use std::{fs, path::Path};

use sandbox::{Layer, LayerReport, LayerState};

use crate::{
    cgroup::{CgroupVersion, Cgroups},
    spawner::{has_mount_rights, subordinate},
};

/// The result of [`probe()`].
#[derive(Clone, Debug, serde::Serialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// Whether sandboxes are created with root's rights.
    pub privileged: bool,
    /// Each capability, with advice where it is missing.
    pub capabilities: Vec<LayerReport>,
}

/// Inspects the machine.
pub fn probe() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let privileged = has_mount_rights();
    let mut found = Vec::new();
    let mut add = |layer, state, detail: String| found.push(LayerReport { layer, state, detail });

    add_namespaces(&mut add, privileged);
    let overlay = read("/proc/filesystems").lines().any(|line| line.ends_with("\toverlay"));
    match overlay {
        true => add(Layer::Overlay, LayerState::Enforced, "overlayfs is in the kernel".into()),
        false => add(
            Layer::Overlay,
            LayerState::Partial,
            "not loaded yet; `modprobe overlay` loads it, and the first mount by root does".into(),
        ),
    }
    let cgroups = Cgroups::detect();
    let controllers: Vec<_> =
        ["memory", "pids", "cpu"].into_iter().filter(|name| cgroups.has(name)).collect();
    let state = match controllers.len() {
        3 => LayerState::Enforced,
        0 => LayerState::Missing,
        _ => LayerState::Partial,
    };
    let advice = match state {
        LayerState::Enforced => "",
        _ => "; run as root, or let systemd delegate: systemd-run --user --scope -p Delegate=yes",
    };
    let found_controllers = cgroup_text(cgroups.version(), &controllers);
    add(Layer::Cgroups, state, format!("{found_controllers}{advice}"));
    let seccomp = Path::new("/proc/sys/kernel/seccomp/actions_avail").exists();
    let state = if seccomp { LayerState::Enforced } else { LayerState::Missing };
    add(Layer::Seccomp, state, "filters on system calls".into());
    add_id_maps(&mut add, privileged);
    let kernel = read("/proc/sys/kernel/osrelease");
    Machine { kernel, privileged, capabilities: found }
}

/// Which control groups can be used.
fn cgroup_text(version: CgroupVersion, controllers: &[&str]) -> String {
    let version = match version {
        CgroupVersion::V2 => "version 2",
        CgroupVersion::V1 => "version 1",
        CgroupVersion::None => return "this user may not create control groups".into(),
    };
    match controllers {
        [] => format!("{version}, but this user may use none of memory, pids and cpu"),
        _ => format!("{version}: {}", controllers.join(", ")),
    }
}

fn add_namespaces(add: &mut impl FnMut(Layer, LayerState, String), privileged: bool) {
    let number =
        |path: &str| fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let most = number("/proc/sys/user/max_user_namespaces");
    let clone = number("/proc/sys/kernel/unprivileged_userns_clone");
    let apparmor = number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    let (state, detail) = match (most, clone, apparmor) {
        (None | Some(0), ..) => (
            LayerState::Missing,
            "user namespaces are off; set sysctl user.max_user_namespaces=10000".to_owned(),
        ),
        (_, Some(0), _) if !privileged => (
            LayerState::Missing,
            "only root may make user namespaces; set sysctl kernel.unprivileged_userns_clone=1"
                .into(),
        ),
        (.., Some(1)) if !privileged => (
            LayerState::Missing,
            "AppArmor keeps ordinary users from user namespaces; set sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0"
                .into(),
        ),
        (Some(most), ..) => (LayerState::Enforced, format!("up to {most} user namespaces")),
    };
    add(Layer::Namespaces, state, detail);
}

fn add_id_maps(add: &mut impl FnMut(Layer, LayerState, String), privileged: bool) {
    let uid = rustix::process::geteuid().as_raw();
    let tools =
        ["/usr/bin/newuidmap", "/usr/bin/newgidmap"].iter().all(|tool| Path::new(tool).exists());
    let ranges =
        subordinate("/etc/subuid", uid).is_some() && subordinate("/etc/subgid", uid).is_some();
    match (privileged, tools, ranges) {
        (true, ..) => add(Layer::IdMaps, LayerState::Enforced, "root maps any range".into()),
        (false, true, true) => {
            add(Layer::IdMaps, LayerState::Enforced, "a range of subordinate users".into())
        }
        (false, false, _) => {
            add(
                Layer::IdMaps,
                LayerState::Partial,
                "one user only; install the package uidmap".into(),
            );
        }
        (false, true, false) => add(
            Layer::IdMaps,
            LayerState::Partial,
            "one user only; give this user 65536 ids: usermod --add-subuids 100000-165535 \
             --add-subgids 100000-165535 USER"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_are_described_even_if_there_are_none() {
        assert_eq!(cgroup_text(CgroupVersion::V1, &["memory", "cpu"]), "version 1: memory, cpu");
        for version in [CgroupVersion::V2, CgroupVersion::V1, CgroupVersion::None] {
            let text = cgroup_text(version, &[]);
            assert!(!text.trim_end().ends_with(':') && text.contains("this user"), "{text}");
        }
    }
}
