//! libtorch, for the crates that train: from the packages of PyTorch and CUDA, downloaded once into the cache directory.
//! Knows where it is and which variables cargo needs.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{download, llama, paths::Paths, run::run};

/// PyTorch, the two packages it does not start without, and headers of CUDA. The other dependencies of PyTorch are
/// for GPUs only, and gigabytes.
const PACKAGES: [&str; 4] = [
    "torch==2.11.0",
    "nvidia-cuda-crt==13.4.92",
    "nvidia-cuda-cupti==13.4.92",
    "nvidia-cuda-runtime==13.4.92",
];

/// Downloads it, unless it is there.
pub(crate) fn fetch(paths: &Paths) -> Result<()> {
    if given().is_some() || is_there(paths) {
        return Ok(());
    }
    let to = directory(paths);
    // Of other versions.
    download::remove(&to)?;
    download::once(&to, |to| {
        run(llama::pip()?
            .args(["install", "--quiet", "--no-deps", "--no-compile", "--target"])
            .arg(to)
            .args(PACKAGES))
    })
}

/// Sets the variables by which cargo finds libtorch, if there is one.
pub(crate) fn set_variables(command: &mut Command, paths: &Paths) {
    if let Some(libtorch) = libtorch(paths) {
        command.env("LIBTORCH", libtorch).env("LIBTORCH_CXX11_ABI", "1");
    }
}

/// Cargo's arguments that select all crates that can be built: without libtorch, the default members.
pub(crate) fn every_crate(paths: &Paths) -> &'static [&'static str] {
    match libtorch(paths) {
        Some(_) => &["--workspace"],
        None => &[],
    }
}

/// `LD_LIBRARY_PATH` with the libraries of libtorch in front.
pub(crate) fn library_path(paths: &Paths) -> Result<OsString> {
    let ours = libtorch(paths).map(|libtorch| libtorch.join("lib"));
    let others = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let others = env::split_paths(&others).filter(|path| !path.as_os_str().is_empty());
    env::join_paths(ours.into_iter().chain(others))
        .context("a directory of LD_LIBRARY_PATH contains a colon")
}

/// The directory of PyTorch: the user's `LIBTORCH`, else the downloaded one.
fn libtorch(paths: &Paths) -> Option<PathBuf> {
    given().or_else(|| is_there(paths).then(|| directory(paths).join("torch")))
}

/// The directory that Python finds PyTorch in.
pub(crate) fn packages(paths: &Paths) -> Option<PathBuf> {
    libtorch(paths)?.parent().map(Path::to_owned)
}

fn given() -> Option<PathBuf> {
    env::var_os("LIBTORCH").filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_there(paths: &Paths) -> bool {
    PACKAGES.iter().all(|package| directory(paths).join(proof(package)).exists())
}

/// The directory that shows that a package is unpacked.
fn proof(package: &str) -> String {
    format!("{}.dist-info", package.replace('-', "_").replace("==", "-"))
}

fn directory(paths: &Paths) -> PathBuf {
    paths.cache.join("torch")
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
