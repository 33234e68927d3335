//! Installs what the tests need, by package name and only what is missing. Starts no service.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    llama, machine,
    places::Places,
    python, rootfs,
    run::{output, run, succeeds},
    test::cargo,
    torch,
};

/// What proves that a package is there, and its name: what building the program wants, and pip, one of the
/// ways models come by.
const TO_BUILD: [(&str, &str); 6] = [
    ("cmake", "cmake"),
    ("g++", "g++"),
    ("gcc", "gcc"),
    (LIBCLANG, "libclang-dev"),
    ("pip3", "python3-pip"),
    ("python3", "python3"),
];

/// A library whose place has a version in it.
const LIBCLANG: &str = "libclang.so";

/// What the tests want besides.
const TO_TEST: [(&str, &str); 14] = [
    ("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
    ("bash", "bash"),
    ("curl", "curl"),
    ("docker-registry", "docker-registry"),
    ("dockerd", "docker.io"),
    ("git", "git"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("mmdebstrap", "mmdebstrap"),
    ("newuidmap", "uidmap"),
    ("perl", "perl"),
    ("ps", "procps"),
    ("setpriv", "util-linux"),
    ("xz", "xz-utils"),
];

/// The target that stands for macOS: checked, never run.
pub(crate) const MAC: &str = "aarch64-apple-darwin";

/// Prepares the machine. Costs next to nothing when everything is there.
pub(crate) fn setup(places: &Places) -> Result<()> {
    fs::create_dir_all(&places.cache)
        .with_context(|| format!("making {}", places.cache.display()))?;
    packages(&[&TO_BUILD[..], &TO_TEST].concat())?;
    toolchain(places)?;
    rootfs::make(places)?;
    torch::fetch(places)?;
    llama::fetch(places)?;
    python::fetch(places)
}

/// Builds the program and puts it where cargo puts programs, after installing what that wants.
pub(crate) fn install(places: &Places) -> Result<()> {
    build_tools()?;
    run(cargo(places, "install").args(["--locked", "--path", "crates/cli"]))
}

/// The same for the program that trains, which needs libtorch.
pub(crate) fn install_training(places: &Places) -> Result<()> {
    build_tools()?;
    torch::fetch(places)?;
    run(cargo(places, "install").args(["--locked", "--path", "crates/train"]))
}

fn build_tools() -> Result<()> {
    match machine::program("apt-get") {
        Some(_) => packages(&TO_BUILD),
        None => {
            eprintln!("the build needs cmake, a C++ compiler and libclang");
            Ok(())
        }
    }
}

fn packages(needed: &[(&str, &str)]) -> Result<()> {
    let there = |proof: &str| match proof {
        LIBCLANG => has_libclang(),
        _ => Path::new(proof).is_file() || machine::program(proof).is_some(),
    };
    let missing: Vec<&str> =
        needed.iter().filter(|(proof, _)| !there(proof)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if machine::program("apt-get").is_none() {
        bail!("this is not a Debian machine; install by hand: {}", missing.join(" "));
    }
    run(machine::as_root("apt-get")?.args(["-q", "update"]).stdin(Stdio::null()))?;
    run(machine::as_root("env")?
        .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "install", "-y"])
        .arg("--no-install-recommends")
        .args(&missing)
        .stdin(Stdio::null()))
}

/// Whether the library is where Debian has it, of any version, or where the user says.
fn has_libclang() -> bool {
    let said = env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let versions = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let usual = versions
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"))
        .map(|entry| entry.path().join("lib"));
    said.into_iter().chain(usual).any(|dir| dir.join(LIBCLANG).exists())
}

fn toolchain(places: &Places) -> Result<()> {
    for (tool, component) in [("clippy", "clippy"), ("fmt", "rustfmt")] {
        if !succeeds(Command::new("cargo").args([tool, "--version"])) {
            run(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    let targets = output(Command::new("rustup").args(["target", "list", "--installed"]))
        .context("the checks for macOS need rustup")?;
    if !targets.lines().any(|line| line == MAC) {
        run(Command::new("rustup").args(["target", "add", MAC]))?;
    }
    if !succeeds(Command::new("cargo").args(["nextest", "--version"])) {
        // An unoptimised build without self-update: minutes less, and the tests take the same time.
        run(Command::new("cargo")
            .args(["install", "cargo-nextest", "--locked", "--debug"])
            .args(["--no-default-features", "--features", "default-no-update"])
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", &places.target))?;
    }
    Ok(())
}
