//! libtorch, for the crates that train: from the package of PyTorch and a few of CUDA. Fetched once and kept in the cache
//! directory. Knows where it lies and what cargo must be told about it.

use std::{env, ffi::OsString, fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::{llama, places::Places, run::run};

/// The packages: PyTorch, the two it does not start without, and headers of CUDA. Others that PyTorch names are for GPUs
/// only, and gigabytes.
const PACKAGES: [&str; 4] = [
    "torch==2.11.0",
    "nvidia-cuda-crt==13.4.92",
    "nvidia-cuda-cupti==13.4.92",
    "nvidia-cuda-runtime==13.4.92",
];

/// Fetches it, unless it is there.
pub(crate) fn fetch(places: &Places) -> Result<()> {
    if said().is_some() || is_there(places) {
        return Ok(());
    }
    let to = directory(places);
    let partial = to.with_extension("partial");
    for dir in [&partial, &to] {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
        }
    }
    run(llama::pip()?
        .args(["install", "--quiet", "--no-deps", "--no-compile", "--target"])
        .arg(&partial)
        .args(PACKAGES))?;
    fs::rename(&partial, &to).context("moving PyTorch in place")
}

/// Tells cargo where libtorch lies, if it does.
pub(crate) fn tell(command: &mut Command, places: &Places) {
    if let Some(libtorch) = libtorch(places) {
        command.env("LIBTORCH", libtorch).env("LIBTORCH_CXX11_ABI", "1");
    }
}

/// Cargo's arguments for all crates that can be built: without libtorch, those that need none.
pub(crate) fn every_crate(places: &Places) -> &'static [&'static str] {
    match libtorch(places) {
        Some(_) => &["--workspace"],
        None => &[],
    }
}

/// The path on which tests find libtorch's libraries, before what is there already.
pub(crate) fn library_path(places: &Places) -> Result<OsString> {
    let ours = libtorch(places).map(|libtorch| libtorch.join("lib"));
    let others = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let others = env::split_paths(&others).filter(|path| !path.as_os_str().is_empty());
    env::join_paths(ours.into_iter().chain(others)).context("a path with a colon in it")
}

/// PyTorch's directory: the one the user names, or ours.
fn libtorch(places: &Places) -> Option<PathBuf> {
    said().or_else(|| is_there(places).then(|| directory(places).join("torch")))
}

fn said() -> Option<PathBuf> {
    env::var_os("LIBTORCH").filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_there(places: &Places) -> bool {
    PACKAGES.iter().all(|package| directory(places).join(proof(package)).exists())
}

/// What shows that a package is unpacked.
fn proof(package: &str) -> String {
    format!("{}.dist-info", package.replace('-', "_").replace("==", "-"))
}

fn directory(places: &Places) -> PathBuf {
    places.cache.join("torch")
}

#[cfg(test)]
mod tests {
    use super::proof;

    #[test]
    fn packages_prove_themselves_by_their_unpacked_names() {
        assert_eq!(proof("torch==2.11.0"), "torch-2.11.0.dist-info");
        assert_eq!(proof("nvidia-cuda-crt==13.4.92"), "nvidia_cuda_crt-13.4.92.dist-info");
    }
}
