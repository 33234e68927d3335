//! Installs what builds and tests need, by package name and only what is missing. Starts no service.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    frameworks, llama, machine, npm,
    paths::Paths,
    python, rootfs,
    run::{output, run, succeeds},
    test::{self, cargo},
    torch, web,
};

/// A program or file of a package, and the package: what the build needs, and pip, which downloads models.
const TO_BUILD: [(&str, &str); 6] = [
    ("cmake", "cmake"),
    ("g++", "g++"),
    ("gcc", "gcc"),
    (LIBCLANG, "libclang-dev"),
    ("pip3", "python3-pip"),
    ("python3", "python3"),
];

/// A library below a directory with a version in its name.
const LIBCLANG: &str = "libclang.so";

/// A module that Debian's python3 lacks without its package, and virtual environments need.
const ENSUREPIP: &str = "ensurepip";

/// The same for what the tests need in addition.
const TO_TEST: [(&str, &str); 16] = [
    ("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
    ("bash", "bash"),
    ("chromium", "chromium"),
    ("curl", "curl"),
    ("docker-registry", "docker-registry"),
    ("dockerd", "docker.io"),
    (ENSUREPIP, "python3-venv"),
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

/// The macOS target: checked, never run.
pub(crate) const MAC: &str = "aarch64-apple-darwin";

/// Prepares the machine. Takes no time if everything is there.
pub(crate) fn setup(paths: &Paths) -> Result<()> {
    tools(paths)?;
    downloads(paths)?;
    if llama::lacks_models(paths) {
        test::build(paths)?;
    }
    llama::fetch_models(paths)
}

/// Installs what compiling the workspace and its tests needs.
pub(crate) fn tools(paths: &Paths) -> Result<()> {
    fs::create_dir_all(&paths.cache)
        .with_context(|| format!("creating {}", paths.cache.display()))?;
    packages(&[&TO_BUILD[..], &TO_TEST].concat())?;
    toolchain(paths)?;
    torch::fetch(paths)
}

/// Downloads what running the tests needs, except the models, which the built program downloads.
pub(crate) fn downloads(paths: &Paths) -> Result<()> {
    rootfs::build(paths)?;
    llama::fetch_server(paths)?;
    npm::fetch(paths)?;
    if web::is_possible() {
        web::install(paths)?;
    }
    python::fetch(paths)?;
    frameworks::fetch(paths)
}

/// Installs the program into cargo's `bin` directory, after installing what the build needs.
pub(crate) fn install(paths: &Paths) -> Result<()> {
    build_tools()?;
    run(cargo(paths, "install").args(["--locked", "--path", "crates/cli"]))
}

/// Installs the program that trains, which needs libtorch.
pub(crate) fn install_training(paths: &Paths) -> Result<()> {
    build_tools()?;
    torch::fetch(paths)?;
    run(cargo(paths, "install").args(["--locked", "--path", "crates/train"]))
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
    let installed = |file: &str| match file {
        LIBCLANG => has_libclang(),
        ENSUREPIP => succeeds(Command::new("python3").args(["-c", "import ensurepip"])),
        _ => Path::new(file).is_file() || machine::program(file).is_some(),
    };
    let missing: Vec<&str> =
        needed.iter().filter(|(file, _)| !installed(file)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if machine::program("apt-get").is_none() {
        bail!("apt-get not found; install these packages: {}", missing.join(" "));
    }
    run(machine::as_root("apt-get")?.args(["-q", "update"]).stdin(Stdio::null()))?;
    run(machine::as_root("env")?
        .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "install", "-y"])
        .arg("--no-install-recommends")
        .args(&missing)
        .stdin(Stdio::null()))
}

/// Whether the library is where Debian puts it, in any version, or in `LIBCLANG_PATH`.
fn has_libclang() -> bool {
    let given = env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let versions = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let usual = versions
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"))
        .map(|entry| entry.path().join("lib"));
    given.into_iter().chain(usual).any(|dir| dir.join(LIBCLANG).exists())
}

fn toolchain(paths: &Paths) -> Result<()> {
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
        // A debug build without self-update: it is built minutes faster, and the tests take the same time.
        run(Command::new("cargo")
            .args(["install", "cargo-nextest", "--locked", "--debug"])
            .args(["--no-default-features", "--features", "default-no-update"])
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", &paths.target))?;
    }
    Ok(())
}
