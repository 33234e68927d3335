//! The tests of the native runtime in a virtual machine, for what this machine may lack: control groups of version 2, as root
//! and delegated to a user, and file systems with project quotas.
//!
//! The machine has Debian's kernel, and is emulated where the processor offers no virtualization. Its system is built once and
//! kept; each start begins with that. Tests travel on a second disk as an archive, and results on a third.

mod image;

use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::{
    attack::{self, Run},
    ordinary_user,
    paths::Paths,
    results::{Results, verdicts},
    run::run,
    test::cargo,
};

/// What the virtual machine runs: its name, the tests, and whether these are all attacks.
const RUNS: [(&str, &str, Coverage); 5] = [
    ("root", "all()", Coverage::All),
    ("user", "all()", Coverage::All),
    ("subids", "test(/^security::/)", Coverage::All),
    ("ext4", QUOTAS, Coverage::Some),
    ("xfs", QUOTAS, Coverage::Some),
];

/// The tests of disk limits.
const QUOTAS: &str = "test(/^security::(disk|project)::|^on_the_host::limits::(disk|full_disk)/)";

/// Whether a run has all attacks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// One that is missing was not tried.
    All,
    /// One that is missing was not meant to be tried.
    Some,
}

/// Memory of the virtual machine in MiB.
const MEMORY: &str = "4096";
/// Bytes of the disk with results, and of each disk for quotas. They are sparse.
const RESULTS_DISK: u64 = 256 << 20;
const QUOTA_DISK: u64 = 4 << 30;

/// Runs these tests in a virtual machine, all where none are named; prints the table of attacks and the numbers of tests.
pub(crate) fn vm(paths: &Paths, names: &[&str]) -> Result<ExitCode> {
    let unknown = names.iter().find(|name| !RUNS.iter().any(|(known, ..)| known == *name));
    if let Some(unknown) = unknown {
        bail!("`{unknown}` is not a run; write root, user, subids, ext4 or xfs");
    }
    image::require_programs()?;
    let runs: Vec<_> =
        RUNS.into_iter().filter(|(name, ..)| names.is_empty() || names.contains(name)).collect();
    let image = image::build(paths)?;
    let scratch = Scratch::create(&paths.target)?;
    let accelerator = Accelerator::find();
    let payload = payload(paths, &scratch.0, &runs, accelerator)?;
    let start = Instant::now();
    let results = boot(&image, &payload, &scratch.0, accelerator)?;
    eprintln!("the virtual machine ran for {} s", start.elapsed().as_secs());
    report(paths, &results, &runs)
}

/// A directory for the disks, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn create(above: &Path) -> Result<Self> {
        let dir = above.join(format!("vm-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Packs the tests, and what they need, for the virtual machine.
fn payload(
    paths: &Paths,
    scratch: &Path,
    runs: &[(&str, &str, Coverage)],
    accelerator: Accelerator,
) -> Result<PathBuf> {
    let dir = scratch.join("payload");
    let workspace = dir.join("workspace");
    fs::create_dir_all(&workspace).with_context(|| format!("creating {}", workspace.display()))?;
    run(cargo(paths, "nextest")
        .args(["archive", "--zstd-level", "1", "--package", "lis-sandbox-native"])
        .arg("--archive-file")
        .arg(dir.join("tests.tar.zst")))?;
    ordinary_user::copy_workspace(paths, &workspace)?;
    ordinary_user::copy_runner(&dir.join("cargo-nextest"))?;
    let rootfs = paths.rootfs_archive();
    fs::copy(&rootfs, dir.join("rootfs.tar"))
        .with_context(|| format!("reading {}; `cargo xtask setup` builds it", rootfs.display()))?;
    fs::write(dir.join("guest.sh"), include_str!("vm/guest.sh"))?;
    let lines = runs.iter().map(|(name, filter, _)| format!("{name} {filter}\n"));
    fs::write(dir.join("runs"), lines.collect::<String>())?;
    fs::write(dir.join("patience"), accelerator.patience())?;
    let packed = scratch.join("payload.tar");
    run(Command::new("tar")
        .arg("--create")
        .arg("--file")
        .arg(&packed)
        .arg("--directory")
        .arg(&dir)
        .arg("."))?;
    Ok(packed)
}

/// Starts the virtual machine and waits until it is off; returns the directory with its results.
fn boot(
    image: &image::Image,
    payload: &Path,
    scratch: &Path,
    accelerator: Accelerator,
) -> Result<PathBuf> {
    let results = sparse(scratch.join("results.img"), RESULTS_DISK)?;
    let quotas = [
        sparse(scratch.join("ext4.img"), QUOTA_DISK)?,
        sparse(scratch.join("xfs.img"), QUOTA_DISK)?,
    ];
    let mut qemu = Command::new("timeout");
    qemu.args(["--foreground", "--kill-after=30", accelerator.max_time(), "qemu-system-x86_64"])
        .args(["-accel", accelerator.option(), "-cpu", "max", "-smp", "2", "-m", MEMORY])
        .args(["-nographic", "-nodefaults", "-serial", "stdio", "-no-reboot", "-kernel"])
        .arg(&image.kernel)
        .args([
            "-append",
            "console=ttyS0 quiet panic=-1 root=/dev/nvme0n1 rw init=/sbin/lis-first",
        ]);
    let disks =
        [(&image.disk, ",snapshot=on"), (&payload.to_owned(), ",readonly=on"), (&results, "")];
    let disks = disks.into_iter().chain(quotas.iter().map(|disk| (disk, "")));
    for (i, (file, how)) in disks.enumerate() {
        // A comma in a name is written twice.
        let file = file.display().to_string().replace(',', ",,");
        qemu.arg("-drive")
            .arg(format!("file={file},format=raw,if=none,cache=unsafe,id=disk{i}{how}"))
            .arg("-device")
            .arg(format!("nvme,drive=disk{i},serial=disk{i}"));
    }
    run(qemu.stdin(Stdio::null())).with_context(|| {
        format!("the virtual machine failed, or ran for more than {}", accelerator.max_time())
    })?;
    if is_blank(&results)? {
        bail!("the virtual machine ended before it wrote its results");
    }
    let dir = scratch.join("results");
    fs::create_dir(&dir)?;
    run(Command::new("tar")
        .arg("--extract")
        .arg("--file")
        .arg(&results)
        .arg("--directory")
        .arg(&dir))
    .context("the results of the virtual machine are not whole")?;
    Ok(dir)
}

/// Whether an archive begins with zeroes, as a new disk: `tar` takes that for an empty one.
fn is_blank(disk: &Path) -> Result<bool> {
    let mut start = [0; 512];
    let read = File::open(disk).and_then(|mut file| file.read_exact(&mut start));
    read.with_context(|| format!("reading {}", disk.display()))?;
    Ok(start == [0; 512])
}

/// Creates an empty disk, which takes no space yet.
fn sparse(path: PathBuf, size: u64) -> Result<PathBuf> {
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    file.set_len(size)?;
    Ok(path)
}

/// What runs the virtual machine's processors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accelerator {
    /// The processors of this machine.
    Kvm,
    /// Emulation.
    Emulation,
}

impl Accelerator {
    /// Virtualization where this user and processor have it. Some machines have the device, but can run only guests made for
    /// it.
    fn find() -> Self {
        let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
        if processor && OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok() {
            return Self::Kvm;
        }
        eprintln!(
            "no virtualization here: the processors are emulated, and time limits of tests ten times as long"
        );
        Self::Emulation
    }

    /// For QEMU.
    fn option(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Emulation => "tcg,thread=multi,tb-size=1024",
        }
    }

    /// The longest time that the virtual machine may run, as `timeout` takes it. Emulated, two of the runs take an hour each.
    fn max_time(self) -> &'static str {
        match self {
            Self::Kvm => "2h",
            Self::Emulation => "6h",
        }
    }

    /// The factor of time limits of tests.
    fn patience(self) -> &'static str {
        match self {
            Self::Kvm => "1",
            Self::Emulation => "10",
        }
    }
}

/// Prints the attacks with the result of every run, and the number of tests of each.
fn report(
    paths: &Paths,
    results: &Path,
    runs: &[(&'static str, &str, Coverage)],
) -> Result<ExitCode> {
    let attacks = attack::native_attacks(paths)?;
    let mut shown = Vec::new();
    let mut lines = String::new();
    let mut failed = false;
    for (name, _, coverage) in runs {
        let file = results.join(format!("{name}.xml"));
        let (verdicts, coverage) = (verdicts(&file)?, *coverage);
        shown.push(Run { who: name, attacks: &attacks, verdicts, coverage });
        let counts = Results::read(&file)?;
        failed |= counts.failed > 0 || counts.passed == 0;
        let skipped: usize = counts.skips.values().sum();
        lines += &format!(
            "\n{name}: {} passed, {} failed, {skipped} skipped\n",
            counts.passed, counts.failed
        );
        for (reason, count) in &counts.skips {
            lines += &format!("  {count} skipped: {reason}\n");
        }
    }
    let (table, held) = attack::table(&shown);
    let mut out = std::io::stdout();
    out.write_all(table.as_bytes()).and_then(|()| out.write_all(lines.as_bytes()))?;
    Ok(if held && !failed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
