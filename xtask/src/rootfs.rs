//! The root file system of the tests: a small Debian from the machine's own package sources, built once and kept as
//! an archive and as a directory. Knows no runtime.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    download::{beside, once, remove},
    machine,
    paths::Paths,
    run::run,
};

/// Packages the tests use, beyond the smallest Debian.
const PACKAGES: &str = "ca-certificates,curl,iproute2,procps,python3";

/// Arguments with which `tar` unpacks the archive from standard input into the directory given next. Devices are left
/// out: only root could create them, and every runtime provides its own.
pub(crate) const UNPACK: [&str; 6] =
    ["--extract", "--numeric-owner", "--exclude=./dev/*", "--file", "-", "--directory"];

/// Builds archive and directory, unless those of the same recipe exist.
pub(crate) fn build(paths: &Paths) -> Result<()> {
    let codename = machine::codename()?;
    let recipe = format!("minbase {codename} {PACKAGES}\n");
    let archive = paths.rootfs_archive();
    if !built_by(&archive, &recipe) {
        // Under a temporary name first: the final name stands for a complete file.
        let partial = beside(&archive, ".partial");
        run(machine::as_root("mmdebstrap")?
            .args(["--quiet", "--variant=minbase", "--format=tar"])
            .arg(format!("--include={PACKAGES}"))
            .arg(&codename)
            .arg(&partial)
            .args(machine::apt_sources(&codename))
            .stdin(Stdio::null()))?;
        fs::rename(&partial, &archive).context("moving the new root file system into place")?;
        note(&archive, &recipe)?;
    }
    let dir = paths.rootfs_dir();
    if !built_by(&dir, &recipe) {
        remove(&dir)?;
        once(&dir, |to| {
            fs::create_dir(to).with_context(|| format!("creating {}", to.display()))?;
            let system = fs::File::open(&archive).context("opening the root file system")?;
            run(Command::new("tar").args(UNPACK).arg(to).stdin(system))
        })?;
        note(&dir, &recipe)?;
    }
    Ok(())
}

fn built_by(what: &Path, recipe: &str) -> bool {
    what.exists() && fs::read_to_string(stamp(what)).is_ok_and(|text| text == recipe)
}

fn note(what: &Path, recipe: &str) -> Result<()> {
    let stamp = stamp(what);
    fs::write(&stamp, recipe).with_context(|| format!("writing {}", stamp.display()))
}

/// The file beside an archive or directory that holds its recipe.
fn stamp(what: &Path) -> PathBuf {
    beside(what, ".recipe")
}
