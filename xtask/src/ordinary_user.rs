//! The tests of the native runtime again, as a user without rights and without an account.
//!
//! That user cannot read the build directory, so the built tests are passed on in the runner's archive.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{machine, paths::Paths, rootfs, run::run, test::cargo};

/// Which tests run, as arguments of the test runner.
pub(crate) struct Selection {
    /// What is built and passed on.
    pub(crate) archived: &'static [&'static str],
    /// Which of these run.
    pub(crate) run: &'static [&'static str],
    /// What they must find here, so that no test skips itself unnoticed; separated by commas.
    pub(crate) required: &'static str,
    /// Settings of the tests, as `NAME=VALUE`.
    pub(crate) settings: &'static [&'static str],
}

/// Settings that are passed on if they are set.
const PASSED_ON: [&str; 3] = ["LIS_SIEGE", "LIS_KILL_ROUNDS", "LIS_SEED"];

/// The tests of sandboxes and of the program. They are selected from a build of the whole workspace: built alone, they
/// have other features, and llama.cpp would be built again.
///
/// All run that start sandboxes, or whose files and processes have the rights of the user. Left out is what is the same for
/// every user: parsing, formatting and computing, pages, transcripts and models that are kept, how benchmarks grow and are
/// graded, the program's own memory, rows of data whose sandboxes other tests start as well, and what needs a model or a
/// daemon that this user lacks.
pub(crate) const ALL: Selection = Selection {
    archived: &[
        "--workspace",
        "--filterset",
        "package(lis-sandbox-native) | package(llm-in-sandbox)",
    ],
    run: &[
        "--filterset",
        "package(lis-sandbox-native) | package(llm-in-sandbox) & not (\
         kind(bin) & not test(/^(commands::(run|sandbox)|settings|episode_pages)::/) \
         | test(/^(accepts_the_reference|completes_commands|follows_the_tutorial|grades|keeps_models)::/) \
         | test(/^(makes_training_data|reads_transcripts|real_model|replays|reports|stays_small|trains|uses_docker)::/) \
         | test(/^benchmarks::(checks_first|compares|grows|keeps_the_adapter|real_rows|regrades|takes_away)::/))",
    ],
    required: "overlay,userns,rootless",
    settings: &[],
};

/// How often a benchmark is killed: as root it is killed more often, and the moments do not depend on the user.
const KILLS: u32 = 10;

/// The built tests, below the user's home.
const ARCHIVE: &str = "tests.tar.zst";

/// The test runner, below the user's home.
const RUNNER: &str = "cargo-nextest";

/// A user and group id that own nothing on this machine.
const USER: u32 = 12345;

/// The copy of the workspace below the user's home.
pub(crate) fn workspace(home: &Path) -> PathBuf {
    home.join("workspace")
}

/// The root file system of the tests below the user's home.
fn rootfs(home: &Path) -> PathBuf {
    home.join("rootfs")
}

/// Runs the tests with everything they need below `home`, which is created.
pub(crate) fn run_tests(paths: &Paths, home: &Path, tests: &Selection) -> Result<()> {
    prepare(paths, home, tests)?;
    run_prepared(paths, home, tests)
}

/// Creates `home` with the built tests and all they need. This alone calls cargo, and so waits while other steps build.
pub(crate) fn prepare(paths: &Paths, home: &Path, tests: &Selection) -> Result<()> {
    fs::create_dir(home).with_context(|| format!("creating {}", home.display()))?;
    run(cargo(paths, "nextest")
        .args(["archive", "--zstd-level", "1"])
        .args(tests.archived)
        .arg("--archive-file")
        .arg(home.join(ARCHIVE)))?;
    let (workspace, rootfs) = (workspace(home), rootfs(home));
    for dir in [&home.join("tmp"), &home.join("built"), &rootfs, &workspace] {
        fs::create_dir(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    copy_workspace(paths, &workspace)?;
    copy_runner(&home.join(RUNNER))?;
    run(Command::new("chown").args(["--recursive", &format!("{USER}:{USER}")]).arg(home))?;
    // Opened here, because the user may not read its directory. Without it, tests skip themselves visibly.
    match fs::File::open(paths.rootfs_archive()) {
        Ok(system) => run(as_user(home).arg("tar").args(rootfs::UNPACK).arg(&rootfs).stdin(system)),
        Err(_) => Ok(()),
    }
}

/// Runs the tests that [`prepare`] put below `home`.
pub(crate) fn run_prepared(paths: &Paths, home: &Path, tests: &Selection) -> Result<()> {
    let workspace = workspace(home);
    let mut command = as_user(home);
    if paths.rootfs_archive().exists() {
        command.arg(variable("LIS_TEST_ROOTFS", &rootfs(home)));
    }
    for name in PASSED_ON {
        if let Ok(value) = env::var(name) {
            command.arg(format!("{name}={value}"));
        }
    }
    run(command
        .args(tests.settings)
        .arg(format!("LIS_REQUIRE={}", tests.required))
        .arg(format!("LIS_KILLS={KILLS}"))
        .arg(variable("LIS_SHARED", &paths.root.join("../shared")))
        // Where snapshots are; the path they were built at may not be readable.
        .arg(variable("INSTA_WORKSPACE_ROOT", &workspace))
        .arg(home.join(RUNNER))
        .args(["nextest", "run", "--no-fail-fast", "--archive-file"])
        .arg(home.join(ARCHIVE))
        .arg("--extract-to")
        .arg(home.join("built"))
        .arg("--workspace-remap")
        .arg(&workspace)
        .args(tests.run))
}

/// Copies what tests read of the workspace.
pub(crate) fn copy_workspace(paths: &Paths, to: &Path) -> Result<()> {
    run(Command::new("cp")
        .arg("--recursive")
        .args([".config", "Cargo.toml", "README.md", "crates", "docs", "examples"])
        .arg(to)
        .current_dir(&paths.root))
}

/// Copies the test runner.
pub(crate) fn copy_runner(to: &Path) -> Result<()> {
    fs::copy(runner_program()?, to).context("copying the test runner").map(drop)
}

/// `env` as the user with an empty environment: variables and a program follow.
fn as_user(home: &Path) -> Command {
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

/// `NAME=VALUE`.
fn variable(name: &str, value: &Path) -> OsString {
    let mut text = OsString::from(format!("{name}="));
    text.push(value);
    text
}

/// The test runner's program, where cargo finds it.
fn runner_program() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join("cargo-nextest")).find(|p| p.is_file());
    found.context("cargo-nextest is not in PATH; run `cargo xtask setup`")
}
