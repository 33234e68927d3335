//! Where things are: the workspace, the cache directory, the build directory. Makes none of them.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// The directories every command works with.
pub(crate) struct Places {
    /// The workspace.
    pub(crate) root: PathBuf,
    /// What is made once and kept between runs.
    pub(crate) cache: PathBuf,
    /// What cargo builds.
    pub(crate) target: PathBuf,
}

impl Places {
    /// Reads the environment.
    pub(crate) fn find() -> Result<Self> {
        let manifest =
            env::var_os("CARGO_MANIFEST_DIR").context("start this as `cargo xtask COMMAND`")?;
        let root = Path::new(&manifest).parent().context("xtask lies in no workspace")?.to_owned();
        let directory = |name: &str| {
            env::var_os(name).filter(|value| !value.is_empty()).map(|value| root.join(value))
        };
        let cache = directory("LIS_CACHE")
            .or_else(|| Some(directory("XDG_CACHE_HOME")?.join("llm-in-sandbox")))
            .or_else(|| Some(directory("HOME")?.join(".cache/llm-in-sandbox")))
            .context("there is no HOME; say where to keep files with LIS_CACHE=DIR")?;
        let target = directory("CARGO_TARGET_DIR").unwrap_or_else(|| cache.join("target"));
        Ok(Self { root, cache, target })
    }

    /// The archive of the root file system the tests use.
    pub(crate) fn rootfs_archive(&self) -> PathBuf {
        self.cache.join("test-rootfs.tar")
    }

    /// The same root file system as a directory.
    pub(crate) fn rootfs_dir(&self) -> PathBuf {
        self.cache.join("test-rootfs")
    }
}
