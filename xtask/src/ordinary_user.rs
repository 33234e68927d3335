//! The tests of the native runtime once more, as a user without any power or account.
//!
//! The user cannot read the home of whoever builds, so the built tests travel in the runner's archive.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{machine, places::Places, rootfs, run::run, test::cargo};

/// The packages whose tests run. They are chosen from what the whole workspace builds: packages that are built by
/// themselves have other features, and llama.cpp would be built once more.
const PACKAGES: &str = "package(sandbox-native) | package(llm-in-sandbox)";

/// What the user's tests must find here, so that none of them is skipped unseen.
const REQUIRED: &str = "overlay,userns,rootless";

/// A user and group that own nothing on this machine.
const USER: u32 = 12345;

/// Where the copy of the workspace lies below the user's home.
pub(crate) fn workspace(home: &Path) -> PathBuf {
    home.join("workspace")
}

/// Runs the tests with everything they need below `home`, which is made.
pub(crate) fn run_tests(places: &Places, home: &Path) -> Result<()> {
    let workspace = workspace(home);
    let rootfs = home.join("rootfs");
    let archive = home.join("tests.tar.zst");
    for dir in [home, &home.join("tmp"), &home.join("built"), &rootfs, &workspace] {
        fs::create_dir(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    run(cargo(places, "nextest")
        .args(["archive", "--workspace", "--zstd-level", "1", "--filterset", PACKAGES])
        .arg("--archive-file")
        .arg(&archive))?;
    run(Command::new("cp")
        .arg("--recursive")
        .args([".config", "Cargo.toml", "crates"])
        .arg(&workspace)
        .current_dir(&places.root))?;
    let runner = home.join("cargo-nextest");
    fs::copy(runner_program()?, &runner).context("copying the test runner")?;
    run(Command::new("chown").args(["--recursive", &format!("{USER}:{USER}")]).arg(home))?;

    // The archive is opened here, for the user may not see where it lies.
    let system = fs::File::open(places.rootfs_archive()).context("opening the root file system")?;
    run(as_user(home).arg("tar").args(rootfs::UNPACK).arg(&rootfs).stdin(system))?;
    run(as_user(home)
        .arg(format!("LIS_TEST_ROOTFS={}", rootfs.display()))
        .arg(format!("LIS_REQUIRE={REQUIRED}"))
        .arg(&runner)
        .args(["nextest", "run", "--no-fail-fast", "--archive-file"])
        .arg(&archive)
        .arg("--extract-to")
        .arg(home.join("built"))
        .arg("--workspace-remap")
        .arg(&workspace))
}

/// `env` as the user with an empty environment: variables and a program follow.
fn as_user(home: &Path) -> Command {
    let variable = |name: &str, value: &Path| {
        let mut text = OsString::from(format!("{name}="));
        text.push(value);
        text
    };
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &USER.to_string(), "--regid", &USER.to_string(), "--clear-groups"])
        .args(["env", "--ignore-environment"])
        .arg(format!("PATH={}", machine::program_path()))
        .arg(variable("HOME", home))
        .arg(variable("LLM_IN_SANDBOX_HOME", &home.join("data")))
        .arg(variable("TMPDIR", &home.join("tmp")))
        .current_dir(home);
    command
}

/// The test runner's own program, wherever cargo finds it.
fn runner_program() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join("cargo-nextest")).find(|p| p.is_file());
    found.context("there is no cargo-nextest in PATH; run `cargo xtask setup`")
}
