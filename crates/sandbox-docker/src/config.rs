//! Turns a specification into the settings of a container. Pure functions.

use std::{collections::HashMap, io, path::Path};

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountType, MountVolumeOptions, MountVolumeOptionsDriverConfig, ResourcesUlimits,
};
use sandbox::{Error, Feature, ImageRef, Limits, Network, Spec};

use crate::{
    daemon::{Daemon, DiskQuota, Filter, IpcLimits, Terminals},
    owner::Owner,
    seccomp,
};

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
pub(crate) const CAPABILITIES: [&str; 10] = [
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

/// Files of `/proc` and `/sys` that tell about the machine or reach the kernel.
const HIDDEN: [&str; 14] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// What commands may only read. Files in `/dev` would be memory that no process holds.
const READ_ONLY: [&str; 7] = [
    "/dev",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/pressure",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The kernel starts no handler of core dumps for a process with this limit.
const CORE: i64 = 1;
/// Bytes in POSIX message queues: two of the usual size. Counted by user, as the next two; the machine's programs have
/// more and keep theirs.
const QUEUED_BYTES: i64 = 200_000;
/// Pending signals and POSIX timers.
const PENDING: i64 = 1024;
/// Open files of a process. With the 253 of a last message, descriptors in flight stay below 1,024, the usual limit of
/// the machine's programs, which may belong to a user with the same number.
const DESCRIPTORS: i64 = 768;

/// Where no memory limit is requested, files in memory are limited as if it were this.
const UNLIMITED: u64 = 2 << 30;

/// Processes of this runtime in the container, and threads that Docker needs for a moment to start a command.
const OWN_PROCESSES: i64 = 16;

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
    daemon: &Daemon,
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
        host_config: Some(host_config(spec, daemon)?),
        ..Default::default()
    })
}

fn host_config(spec: &Spec, daemon: &Daemon) -> Result<HostConfig, Error> {
    let limits = &spec.limits;
    let memory = limits.memory.map(|m| i64::try_from(m.0).unwrap_or(i64::MAX));
    let disk = limits.disk.filter(|_| daemon.disk == DiskQuota::Enforced);
    let mut security = vec!["no-new-privileges:true".to_owned()];
    if daemon.filter == Filter::Own {
        security.push(format!("seccomp={}", seccomp::profile(daemon.users)));
    }
    Ok(HostConfig {
        memory,
        memory_swap: memory,
        nano_cpus: limits.cpus.map(|cpus| (cpus * 1e9) as i64),
        pids_limit: limits.pids.map(|pids| i64::from(pids) + OWN_PROCESSES),
        storage_opt: disk.map(|d| HashMap::from([("size".into(), d.0.to_string())])),
        ulimits: Some(ulimits(limits)),
        sysctls: (daemon.ipc == IpcLimits::Set).then(|| sysctls(limits)),
        network_mode: Some(network_mode(&spec.network)?.into()),
        ipc_mode: Some("private".into()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        auto_remove: Some(true),
        cap_drop: Some(vec!["ALL".into()]),
        cap_add: Some(CAPABILITIES.map(Into::into).into()),
        security_opt: Some(security),
        masked_paths: Some(HIDDEN.map(Into::into).into()),
        readonly_paths: Some(READ_ONLY.map(Into::into).into()),
        log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
        tmpfs: Some(files_in_memory(limits)),
        mounts: (daemon.terminals == Terminals::Limited).then(|| vec![terminals()]),
        ..Default::default()
    })
}

/// Limits of each process.
fn ulimits(limits: &Limits) -> Vec<ResourcesUlimits> {
    let mut all = vec![
        ("core", CORE),
        ("msgqueue", QUEUED_BYTES),
        ("nofile", DESCRIPTORS),
        // Some users may run before all others, for sound or measurements. Containers may not.
        ("nice", 0),
        ("rtprio", 0),
        ("sigpending", PENDING),
    ];
    if let Some(disk) = limits.disk {
        all.push(("fsize", i64::try_from(disk.0).unwrap_or(i64::MAX)));
    }
    let limit = |(name, value): (&str, i64)| ResourcesUlimits {
        name: Some(name.into()),
        soft: Some(value),
        hard: Some(value),
    };
    all.into_iter().map(limit).collect()
}

/// Memory that no process holds outlives all of them, so that the kernel would finally kill the first process for it. All
/// of it together has to be less than the memory limit: shared memory, messages, semaphores, and files in memory.
fn sysctls(limits: &Limits) -> HashMap<String, String> {
    let memory = limits.memory.map_or(UNLIMITED, |memory| memory.0);
    let pages = (memory / 8 / 4096).max(1);
    // With its bookkeeping a queue takes up to 1 MiB.
    let queues = (memory >> 26).clamp(1, 32);
    [
        ("kernel.shmall", pages.to_string()),
        ("kernel.msgmni", queues.to_string()),
        ("kernel.sem", "250 32000 100 128".into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// File systems in memory, by their place.
fn files_in_memory(limits: &Limits) -> HashMap<String, String> {
    let memory = limits.memory.map_or(UNLIMITED, |memory| memory.0);
    // An empty file takes up to 1 KiB of the kernel's memory.
    let options = |size: u64, mode: &str| {
        let files = (memory / 16 / 1024).clamp(256, 1 << 16);
        format!("rw,noexec,nosuid,nodev,size={size},nr_inodes={files},mode={mode}")
    };
    HashMap::from([
        (STATE_DIR.into(), options((memory / 8).min(64 << 20), "0700")),
        ("/dev/shm".into(), options(memory / 2, "1777")),
    ])
}

/// Terminals of the container's own, of which all users of the machine have a number together.
fn terminals() -> Mount {
    let options = [
        ("type", "devpts"),
        ("device", "devpts"),
        ("o", "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let driver = MountVolumeOptionsDriverConfig {
        name: Some("local".into()),
        options: Some(options.into()),
    };
    Mount {
        target: Some("/dev/pts".into()),
        typ: Some(MountType::VOLUME),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            driver_config: Some(driver),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Fails where the disk limit cannot be enforced as requested.
pub(crate) fn check_quota(spec: &Spec, daemon: &Daemon) -> Result<(), Error> {
    let reason = match spec.disk_quota {
        sandbox::DiskQuota::Project | sandbox::DiskQuota::Strict
            if daemon.disk == DiskQuota::Unavailable =>
        {
            "this daemon's storage has no quota"
        }
        sandbox::DiskQuota::Memory => "a container's files are stored by the daemon",
        _ => return Ok(()),
    };
    Err(Error::Unsupported {
        feature: Feature::DiskQuota(spec.disk_quota),
        reason: reason.into(),
        remedy: "overlay2 on xfs mounted with pquota has the quotas `project` and `strict`".into(),
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

#[cfg(test)]
mod tests {
    use bollard::models::SystemInfo;
    use sandbox::ByteSize;

    use super::*;

    fn created(spec: &Spec, disk: DiskQuota) -> HostConfig {
        let daemon = Daemon { disk, ..Daemon::new(&SystemInfo::default()) };
        container(spec, "i".into(), &Owner::current(), &daemon).unwrap().host_config.unwrap()
    }

    fn limits() -> Limits {
        Limits {
            memory: Some(ByteSize::mib(64)),
            cpus: Some(0.5),
            pids: Some(40),
            disk: Some(ByteSize::mib(100)),
        }
    }

    #[test]
    fn limits_become_settings() {
        let spec = Spec { limits: limits(), ..Spec::default() };
        let host = created(&spec, DiskQuota::Enforced);
        assert_eq!((host.memory, host.memory_swap), (Some(64 << 20), Some(64 << 20)));
        assert_eq!((host.nano_cpus, host.pids_limit), (Some(500_000_000), Some(56)));
        assert_eq!(host.storage_opt.unwrap()["size"], (100u64 << 20).to_string());
        assert_eq!(created(&spec, DiskQuota::Unavailable).storage_opt, None);
        let fsize = |spec: &Spec| {
            let all = created(spec, DiskQuota::Unavailable).ulimits.unwrap();
            all.into_iter().find(|l| l.name.as_deref() == Some("fsize")).and_then(|l| l.hard)
        };
        assert_eq!(fsize(&spec), Some(100 << 20));
        let unlimited = Limits { disk: None, ..limits() };
        assert_eq!(fsize(&Spec { limits: unlimited, ..Spec::default() }), None);
    }

    #[test]
    fn kernel_parameters_are_set_only_where_the_daemon_can() {
        let mapped =
            SystemInfo { security_options: Some(vec!["name=userns".into()]), ..Default::default() };
        for (info, set) in [(SystemInfo::default(), true), (mapped, false)] {
            let host = host_config(&Spec::default(), &Daemon::new(&info)).unwrap();
            assert_eq!(host.sysctls.is_some(), set);
        }
    }

    #[test]
    fn what_no_process_holds_is_less_than_the_memory() {
        for mib in [16, 64, 512, 8192] {
            let limits = Limits { memory: Some(ByteSize::mib(mib)), ..limits() };
            let number = |text: &str| text.parse::<u64>().unwrap();
            let control = sysctls(&limits);
            let files: u64 = files_in_memory(&limits)
                .values()
                .flat_map(|options| options.split(','))
                .filter_map(|option| option.split_once('='))
                .map(|(name, value)| match name {
                    "size" => number(value),
                    "nr_inodes" => number(value) << 10,
                    _ => 0,
                })
                .sum();
            let shared = number(&control["kernel.shmall"]) * 4096;
            let messages = number(&control["kernel.msgmni"]) << 20;
            assert!(files + shared + messages < mib << 20, "{files} {shared} {messages}");
        }
    }

    #[test]
    fn what_docker_cannot_do_names_a_remedy() {
        let owner = Owner::current();
        let daemon = Daemon::new(&SystemInfo::default());
        for policy in ["allow=a.com", "internet"] {
            let spec = Spec { network: policy.parse().unwrap(), ..Spec::default() };
            let refused = container(&spec, "i".into(), &owner, &daemon);
            let network = |feature: &Feature| *feature == Feature::Network(spec.network.clone());
            assert!(
                matches!(refused, Err(Error::Unsupported { feature, .. }) if network(&feature))
            );
        }
        assert!(matches!(image_name(&ImageRef::Host, None), Err(Error::Unsupported { .. })));
        assert_eq!(image_name(&ImageRef::Host, Some("d:1")).unwrap(), "d:1");
        assert!(image_name(&ImageRef::Dir("/x".into()), Some("d:1")).is_err());
    }
}
