//! The system of the virtual machine: a small Debian with its kernel, from this machine's own package sources. Built once.

use std::{fs, path::PathBuf, process::Stdio};

use anyhow::{Context, Result, bail};

use crate::{machine, paths::Paths, run::run};

/// What the system has beyond the smallest Debian. This kernel has ext4 and NVMe disks built in, so it starts without an
/// initial RAM disk.
const PACKAGES: &str = "ca-certificates,curl,e2fsprogs,git,iproute2,kmod,linux-image-cloud-amd64,perl,procps,python3,uidmap,\
                        xfsprogs";
/// The size of its disk, which is sparse.
const SIZE: u64 = 10 << 30;
const FIRST: &str = include_str!("first.sh");

/// Programs of this machine, with the Debian package of each.
const PROGRAMS: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mmdebstrap", "mmdebstrap"),
    ("mke2fs", "e2fsprogs"),
    ("tar", "tar"),
];

/// Fails where a program is missing, and names the packages.
pub(super) fn require_programs() -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the virtual machine is an x86_64");
    }
    let missing = PROGRAMS.iter().filter(|(program, _)| machine::program(program).is_none());
    let missing: Vec<_> = missing.map(|(_, package)| *package).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => bail!(
            "programs are missing; run `apt-get install --no-install-recommends {}` as root",
            missing.join(" ")
        ),
    }
}

/// A bootable system.
pub(super) struct Image {
    pub(super) disk: PathBuf,
    pub(super) kernel: PathBuf,
}

/// Builds the system, unless that of the same recipe exists.
pub(super) fn build(paths: &Paths) -> Result<Image> {
    let dir = paths.cache.join("vm");
    let image = Image { disk: dir.join("disk.img"), kernel: dir.join("vmlinuz") };
    let codename = machine::codename()?;
    let recipe = format!("minbase {codename} {PACKAGES} {SIZE}\n{FIRST}");
    // Written last: it stands for a complete image.
    let stamp = dir.join("recipe");
    if fs::read_to_string(&stamp).is_ok_and(|built| built == recipe) {
        return Ok(image);
    }
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let _ = fs::remove_file(&stamp);
    let (first, tree) = (dir.join("first.sh"), dir.join("system"));
    fs::write(&first, FIRST).with_context(|| format!("writing {}", first.display()))?;
    run(machine::as_root("rm")?.args(["--recursive", "--force"]).arg(&tree))?;
    run(machine::as_root("mmdebstrap")?
        .args(["--quiet", "--variant=minbase", "--format=directory"])
        .arg(format!("--include={PACKAGES}"))
        .arg(format!("--customize-hook=upload '{}' /sbin/lis-first", first.display()))
        .arg("--customize-hook=chmod 755 \"$1/sbin/lis-first\"")
        .arg(format!("--customize-hook=download /vmlinuz '{}'", image.kernel.display()))
        .arg("--customize-hook=rm --recursive \"$1/boot\" && mkdir \"$1/boot\"")
        .arg(&codename)
        .arg(&tree)
        .args(machine::apt_sources(&codename))
        .stdin(Stdio::null()))?;
    let _ = fs::remove_file(&image.disk);
    super::sparse(image.disk.clone(), SIZE)?;
    run(machine::as_root("mke2fs")?
        .args(["-q", "-F", "-t", "ext4", "-m", "0", "-d"])
        .arg(&tree)
        .arg(&image.disk))?;
    run(machine::as_root("rm")?.args(["--recursive", "--force"]).arg(&tree))?;
    fs::write(&stamp, recipe).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(image)
}
