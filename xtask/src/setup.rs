//! Installs what the tests need, by package name and only what is missing. Starts no service.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    llama, machine,
    places::Places,
    python, rootfs,
    run::{output, run, succeeds},
};

/// What proves that a package is there, and its name.
const NEEDED: [(&str, &str); 17] = [
    ("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
    ("bash", "bash"),
    ("curl", "curl"),
    ("docker-registry", "docker-registry"),
    ("dockerd", "docker.io"),
    ("gcc", "gcc"),
    ("git", "git"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("mmdebstrap", "mmdebstrap"),
    ("newuidmap", "uidmap"),
    ("perl", "perl"),
    ("pip3", "python3-pip"),
    ("ps", "procps"),
    ("python3", "python3"),
    ("setpriv", "util-linux"),
    ("xz", "xz-utils"),
];

/// The target that stands for macOS: checked, never run.
pub(crate) const MAC: &str = "aarch64-apple-darwin";

/// Prepares the machine. Costs next to nothing when everything is there.
pub(crate) fn setup(places: &Places) -> Result<()> {
    fs::create_dir_all(&places.cache)
        .with_context(|| format!("making {}", places.cache.display()))?;
    packages()?;
    toolchain(places)?;
    rootfs::make(places)?;
    llama::fetch(places)?;
    python::fetch(places)
}

fn packages() -> Result<()> {
    let there = |proof: &str| Path::new(proof).is_file() || machine::program(proof).is_some();
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(proof, _)| !there(proof)).map(|(_, package)| *package).collect();
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
