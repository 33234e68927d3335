//! The directories: workspace, cache, builds. Creates none of them.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// The directories every command uses.
pub(crate) struct Paths {
    /// The workspace.
    pub(crate) root: PathBuf,
    /// Downloads and other files that are kept between runs.
    pub(crate) cache: PathBuf,
    /// Cargo's build directory.
    pub(crate) target: PathBuf,
}

impl Paths {
    /// Reads the environment.
    pub(crate) fn find() -> Result<Self> {
        let manifest =
            env::var_os("CARGO_MANIFEST_DIR").context("start this as `cargo xtask COMMAND`")?;
        let root = Path::new(&manifest).parent().context("xtask is not in a workspace")?.to_owned();
        let directory = |name: &str| {
            env::var_os(name).filter(|value| !value.is_empty()).map(|value| root.join(value))
        };
        let cache = directory("LIS_CACHE")
            .or_else(|| Some(directory("XDG_CACHE_HOME")?.join("llm-in-sandbox")))
            .or_else(|| Some(directory("HOME")?.join(".cache/llm-in-sandbox")))
            .context("HOME is not set; set LIS_CACHE to a directory for downloads")?;
        let target = directory("CARGO_TARGET_DIR").unwrap_or_else(|| cache.join("target"));
        Ok(Self { root, cache, target })
    }

    /// The root file system of the tests, as an archive.
    pub(crate) fn rootfs_archive(&self) -> PathBuf {
        self.cache.join("test-rootfs.tar")
    }

    /// The same root file system as a directory.
    pub(crate) fn rootfs_dir(&self) -> PathBuf {
        self.cache.join("test-rootfs")
    }
}
