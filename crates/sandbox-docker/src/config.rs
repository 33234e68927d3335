//! Turns a specification into the settings of a container, and reports what they enforce. Pure functions.

use std::{collections::HashMap, io, path::Path};

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig};
use sandbox::{Error, Feature, ImageRef, Layer, LayerState, Network, Protection, Spec};

use crate::owner::Owner;

/// Label of every container and image of this runtime.
pub(crate) const LABEL: &str = "llm-in-sandbox";
/// The process that created it; see [`Owner`].
pub(crate) const LABEL_OWNER: &str = "llm-in-sandbox.owner";
/// The image's name in the specification.
pub(crate) const LABEL_IMAGE: &str = "llm-in-sandbox.image";
/// Its kind: `sandbox`, `fork` or `snapshot`.
pub(crate) const LABEL_KIND: &str = "llm-in-sandbox.kind";

/// Directory of the shell's state in the container. In memory, so that forks and snapshots do not contain it.
pub(crate) const STATE_DIR: &str = "/run/llm-in-sandbox";

/// Capabilities of root in the container: enough for package managers, nothing that reaches the kernel.
const CAPABILITIES: [&str; 10] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
];

/// Processes of this runtime in the container, and threads that Docker needs for a moment to start a command.
const OWN_PROCESSES: i64 = 16;

/// Whether the daemon can limit what a container stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskQuota {
    Enforced,
    Unavailable,
}

/// The image that Docker uses for a specification.
pub(crate) fn image_name(image: &ImageRef, default: Option<&str>) -> Result<String, Error> {
    let refuse = |reason: &str, remedy: &str| {
        Err(Error::Unsupported {
            feature: Feature::Image(image.clone()),
            reason: reason.into(),
            remedy: remedy.into(),
        })
    };
    match (image, default) {
        (ImageRef::Name(name), _) => Ok(name.clone()),
        (ImageRef::Host, Some(default)) => Ok(default.to_owned()),
        (ImageRef::Host, None) => refuse(
            "containers cannot start from the machine's own programs",
            "name an image, for instance debian:12, or use the native runtime",
        ),
        (ImageRef::Dir(dir), _) => refuse(
            "Docker starts from images only",
            &format!("create one first: tar -C {} -c . | docker import - NAME", dir.display()),
        ),
    }
}

/// The container for a specification.
pub(crate) fn container(
    spec: &Spec,
    image: String,
    owner: &Owner,
    quota: DiskQuota,
) -> Result<ContainerCreateBody, Error> {
    let labels = HashMap::from([
        (LABEL.into(), "1".into()),
        (LABEL_OWNER.into(), owner.to_string()),
        (LABEL_IMAGE.into(), spec.image.to_string()),
        (LABEL_KIND.into(), "sandbox".into()),
    ]);
    Ok(ContainerCreateBody {
        image: Some(image),
        hostname: Some("sandbox".into()),
        user: Some("0:0".into()),
        working_dir: Some(utf8(&spec.workdir)?.to_owned()),
        entrypoint: Some(["bash", "--norc", "--noprofile", "-s"].map(Into::into).into()),
        cmd: Some(Vec::new()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        open_stdin: Some(true),
        // When this process dies, the container's first process sees the end of its input, and the container ends.
        stdin_once: Some(true),
        labels: Some(labels),
        host_config: Some(host_config(spec, quota)?),
        ..Default::default()
    })
}

fn host_config(spec: &Spec, quota: DiskQuota) -> Result<HostConfig, Error> {
    let limits = &spec.limits;
    let memory = limits.memory.map(|m| i64::try_from(m.0).unwrap_or(i64::MAX));
    let disk = limits.disk.filter(|_| quota == DiskQuota::Enforced);
    Ok(HostConfig {
        memory,
        memory_swap: memory,
        nano_cpus: limits.cpus.map(|cpus| (cpus * 1e9) as i64),
        pids_limit: limits.pids.map(|pids| i64::from(pids) + OWN_PROCESSES),
        storage_opt: disk.map(|d| HashMap::from([("size".into(), d.0.to_string())])),
        network_mode: Some(network_mode(&spec.network)?.into()),
        auto_remove: Some(true),
        cap_drop: Some(vec!["ALL".into()]),
        cap_add: Some(CAPABILITIES.map(Into::into).into()),
        security_opt: Some(vec!["no-new-privileges:true".into()]),
        log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
        tmpfs: Some(HashMap::from([(
            STATE_DIR.into(),
            "rw,noexec,nosuid,nodev,size=64m,mode=0700".into(),
        )])),
        ..Default::default()
    })
}

/// Fails where the disk limit cannot be enforced as requested.
pub(crate) fn check_quota(spec: &Spec, bounds_disk: bool) -> Result<(), Error> {
    let reason = match spec.disk_quota {
        sandbox::DiskQuota::Strict if !bounds_disk => "this daemon's storage has no quota",
        sandbox::DiskQuota::Memory => "a container's files are stored by the daemon",
        _ => return Ok(()),
    };
    Err(Error::Unsupported {
        feature: Feature::DiskQuota(spec.disk_quota),
        reason: reason.into(),
        remedy: "overlay2 on xfs mounted with pquota has the quota `strict`".into(),
    })
}

fn network_mode(network: &Network) -> Result<&'static str, Error> {
    match network {
        Network::None => Ok("none"),
        Network::Full => Ok("bridge"),
        Network::Allow(_) | Network::Internet => Err(Error::Unsupported {
            feature: Feature::Network(network.clone()),
            reason: "a Docker container without a network cannot reach the filtering proxy".into(),
            remedy: "use the native runtime, or the policy none or full".into(),
        }),
    }
}

/// The path as text, for Docker's JSON interface.
pub(crate) fn utf8(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::Path {
        path: path.into(),
        source: io::Error::new(
            io::ErrorKind::InvalidInput,
            "Docker's interface cannot name it, because it is not UTF-8",
        ),
    })
}

/// Reports what a container of this specification enforces.
pub(crate) fn protection(spec: &Spec, quota: DiskQuota) -> Protection {
    use LayerState::{Enforced, Missing, Partial};
    let mut report = Protection::new("docker");
    let limits = &spec.limits;
    let mut limit = |layer: Layer, value: Option<String>, how: &str| match value {
        Some(value) => report.push(layer, Enforced, format!("{value} ({how})")),
        None => report.push(layer, Missing, "not requested"),
    };
    limit(Layer::MemoryLimit, limits.memory.map(|m| m.to_string()), "control group, no swap");
    limit(Layer::CpuLimit, limits.cpus.map(|c| format!("{c} cores")), "control group");
    limit(Layer::ProcessLimit, limits.pids.map(|p| p.to_string()), "control group");
    match (limits.disk, quota) {
        (None, _) => report.push(Layer::DiskLimit, Missing, "not requested"),
        (Some(disk), DiskQuota::Enforced) => {
            report.push(Layer::DiskLimit, Enforced, format!("{disk} (storage driver)"));
        }
        (Some(_), DiskQuota::Unavailable) => report.push(
            Layer::DiskLimit,
            Missing,
            "this daemon's storage has no quota; overlay2 on xfs mounted with pquota has",
        ),
    }
    match spec.network {
        Network::Full => report.push(
            Layer::Network,
            Missing,
            "full: Docker's bridge, with everything this machine can reach",
        ),
        _ => report.push(Layer::Network, Enforced, "none: loopback only"),
    }
    report.push(Layer::Namespaces, Enforced, "mount, pid, network, ipc and uts of its own");
    report.push(
        Layer::UserNamespace,
        Partial,
        "only where the daemon was started with --userns-remap or rootless",
    );
    report.push(
        Layer::Capabilities,
        Enforced,
        format!("all dropped but {}", CAPABILITIES.join(" ")),
    );
    report.push(Layer::NoNewPrivileges, Enforced, "set for every process");
    report.push(Layer::Seccomp, Enforced, "Docker's default profile, where the daemon has seccomp");
    report
}

#[cfg(test)]
mod tests {
    use sandbox::{ByteSize, Limits};

    use super::*;

    fn created(spec: &Spec, quota: DiskQuota) -> HostConfig {
        let body = container(spec, "i".into(), &Owner::current(), quota).unwrap();
        body.host_config.unwrap()
    }

    #[test]
    fn limits_become_settings() {
        let limits = Limits {
            memory: Some(ByteSize::mib(64)),
            cpus: Some(0.5),
            pids: Some(40),
            disk: Some(ByteSize::mib(100)),
        };
        let spec = Spec { limits, ..Spec::default() };
        let host = created(&spec, DiskQuota::Enforced);
        assert_eq!((host.memory, host.memory_swap), (Some(64 << 20), Some(64 << 20)));
        assert_eq!((host.nano_cpus, host.pids_limit), (Some(500_000_000), Some(56)));
        assert_eq!(host.storage_opt.unwrap()["size"], (100u64 << 20).to_string());
        assert_eq!(created(&spec, DiskQuota::Unavailable).storage_opt, None);
        let report = protection(&spec, DiskQuota::Unavailable);
        assert_eq!(report.state(&Layer::DiskLimit), LayerState::Missing);
        assert_eq!(report.state(&Layer::MemoryLimit), LayerState::Enforced);
    }

    #[test]
    fn what_docker_cannot_do_names_a_remedy() {
        let allow = Spec { network: "allow=a.com".parse().unwrap(), ..Spec::default() };
        let owner = Owner::current();
        let refused = container(&allow, "i".into(), &owner, DiskQuota::Unavailable);
        assert!(matches!(refused, Err(Error::Unsupported { .. })));
        assert!(matches!(image_name(&ImageRef::Host, None), Err(Error::Unsupported { .. })));
        assert_eq!(image_name(&ImageRef::Host, Some("d:1")).unwrap(), "d:1");
        assert!(image_name(&ImageRef::Dir("/x".into()), Some("d:1")).is_err());
    }
}
