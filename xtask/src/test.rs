//! The checks and tests of the workspace, in order. What a step needs is provided by other modules.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::mpsc,
    thread,
};

use anyhow::{Context, Result, anyhow};

use crate::{
    daemon::{Daemon, IMAGE},
    frameworks, llama, machine, npm, ordinary_user,
    paths::Paths,
    python, python_package,
    report::{Beside, Report},
    run::{output, run, run_into, succeeds},
    setup, torch, web,
};

/// The crates that must build on macOS, where the native runtime is left out.
const ON_MAC: [&str; 10] = [
    "lis-trajectory",
    "lis-model",
    "lis-model-server",
    "lis-agent",
    "lis-sandbox",
    "lis-sandbox-docker",
    "lis-image",
    "lis-catalogue",
    "lis-supervisor",
    "llm-in-sandbox",
];

/// What a prepared machine must offer, so that no test skips itself unnoticed.
const REQUIRED: &str = "atif,docker,e2b,e2b-js,gguf,llama,math-verify,mcp,mcp-conformance,openenv,pip,registry,mmdebstrap,overlay,schemathesis,torch,transformers,userns,rootless";

/// The niceness of steps beside the tests: of those that compute, and of those that mostly wait and have time limits.
const COMPUTING: u8 = 19;
const WAITING: u8 = 5;

/// The fast checks: installs nothing and starts nothing.
pub(crate) fn check(paths: &Paths) -> ExitCode {
    let mut report = Report::default();
    lint(paths, &mut report);
    report.tests("unit tests", &paths.root, || {
        run(cargo(paths, "nextest")
            .arg("run")
            .args(torch::every_crate(paths))
            .args(["--lib", "--bins"])
            .env("LD_LIBRARY_PATH", torch::library_path(paths)?))
    });
    report.tests("architecture rules", &paths.root, || {
        run(cargo(paths, "nextest").args(["run", "--package", "xtask", "--test", "it"]))
    });
    report.close()
}

/// Everything. Downloads wait for the network while compilers compute; what needs compilers only runs beside the tests,
/// which mostly wait; what can fail early comes first.
pub(crate) fn test(paths: &Paths) -> Result<ExitCode> {
    setup::tools(paths)?;
    let mut report = Report::default();
    thread::scope(|scope| {
        let (building, built) = mpsc::channel::<()>();
        let downloads = scope.spawn(move || {
            setup::downloads(paths)?;
            // Nothing is ever sent: it returns when the other end is dropped.
            let _ = built.recv();
            llama::fetch_models(paths)
        });
        report.step("build", || build(paths));
        drop(building);
        lint(paths, &mut report);
        dependencies(paths, &mut report);
        downloads.join().map_err(|_| anyhow!("the downloads panicked"))?
    })?;
    match web::is_possible() {
        true => report.step("the page is built from its sources", || web::check(paths)),
        false => report.skip("no npm: the page is not checked"),
    }
    let daemon = Daemon::start()?;
    daemon.import(&paths.rootfs_archive())?;
    let root = machine::ids()?.0 == 0;
    let home = daemon.scratch().join("user");
    // Cargo locks the build directory, so all that the tests need of it is taken before others build there.
    let built = Built::below(daemon.scratch());
    let mut wheel = None;
    report.step("build of the tests", || {
        built.build(paths)?;
        wheel = Some(python_package::pack(paths)?);
        match root {
            true => ordinary_user::prepare(paths, &home, &ordinary_user::ALL),
            false => Ok(()),
        }
    });
    let temporary = daemon.temporary();
    thread::scope(|scope| {
        let (home, wheel) = (root.then_some(home.as_path()), wheel.as_deref());
        let (daemon, temporary) = (&daemon, temporary.as_path());
        let compilers = scope.spawn(move || beside_for_compilers(paths, temporary));
        let users = scope.spawn(move || beside_for_users(paths, daemon, temporary, wheel, home));
        report.tests("tests", &paths.root, || run_tests(paths, daemon, &built, root));
        for steps in [compilers, users] {
            report.add(steps.join().map_err(|_| anyhow!("a step beside the tests panicked"))?);
        }
        anyhow::Ok(())
    })?;
    report.step("the scratch directory is removed", || {
        drop(daemon);
        Ok(())
    });
    Ok(report.close())
}

/// Builds the program and all tests. The C++ of llama.cpp is optimized less, but for its kernels: that takes two minutes of a
/// processor off a first build.
pub(crate) fn build(paths: &Paths) -> Result<()> {
    run(cargo(paths, "nextest")
        .args(["run", "--no-run", "--cargo-quiet"])
        .args(torch::every_crate(paths))
        .env("CMAKE_CXX_FLAGS_RELEASE", "-O1 -DNDEBUG")
        .env("CMAKE_PROJECT_ggml_INCLUDE", paths.root.join("xtask/src/ggml.cmake")))
}

/// Beside the tests, at the lowest priority, what compiles; then the page, by which time the tests that need the machine for
/// themselves have ended.
fn beside_for_compilers<'a>(paths: &Paths, temporary: &'a Path) -> Beside<'a> {
    let mut beside = Beside::new(temporary);
    beside.step("documentation", COMPUTING, || documentation(paths));
    beside.step("builds on macOS", COMPUTING, || builds_on_mac(paths));
    beside.step("examples in the documentation", COMPUTING, || examples(paths));
    if web::is_possible() {
        let program = web::program(paths);
        beside.step("the page in a browser", WAITING, || web::test(paths, program.as_deref()));
    }
    beside
}

/// Beside the tests, what waits as often as they do: the Python package, and the tests of an ordinary user with this home.
fn beside_for_users<'a>(
    paths: &Paths,
    daemon: &Daemon,
    temporary: &'a Path,
    wheel: Option<&Path>,
    home: Option<&Path>,
) -> Beside<'a> {
    let wheel = || wheel.context("there is no wheel");
    let mut beside = Beside::new(temporary);
    beside.step("framework adapters", WAITING, || frameworks::check(paths, wheel()?));
    beside.step("python package", WAITING, || python_package::step(paths, wheel()?, daemon));
    if let Some(home) = home {
        beside.tests("tests as an ordinary user", &ordinary_user::workspace(home), || {
            ordinary_user::run_prepared(paths, home, &ordinary_user::ALL)
        });
    }
    beside
}

fn documentation(paths: &Paths) -> Result<()> {
    let mut documentation = cargo(paths, "doc");
    documentation
        .args(["--workspace", "--no-deps", "--document-private-items", "--quiet"])
        .env("RUSTDOC", paths.root.join(".ci/rustdoc-check"))
        .env("RUSTDOCFLAGS", "-D warnings");
    as_clippy(&mut documentation)?;
    run(&mut documentation)
}

fn builds_on_mac(paths: &Paths) -> Result<()> {
    // llama.cpp is C++, and there is no compiler for it here.
    run(cargo(paths, "check")
        .args(["--no-default-features", "--target", setup::MAC])
        .args(ON_MAC.iter().flat_map(|name| ["-p", name])))
}

fn examples(paths: &Paths) -> Result<()> {
    run(cargo(paths, "test")
        .args(["--doc", "--workspace", "--quiet"])
        .env("LD_LIBRARY_PATH", torch::library_path(paths)?))
}

/// Sets what `cargo clippy -- -D warnings` sets: cargo then takes clippy's results for the crates of the workspace
/// instead of compiling them again.
fn as_clippy(command: &mut Command) -> Result<()> {
    let toolchain = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    command
        .env("RUSTC_WORKSPACE_WRAPPER", Path::new(toolchain.trim()).join("bin/clippy-driver"))
        .env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    Ok(())
}

fn run_tests(paths: &Paths, daemon: &Daemon, built: &Built, root: bool) -> Result<()> {
    let required = env::var("LIS_REQUIRE").unwrap_or_else(|_| match root {
        true => format!("root,cgroup,fuse,{REQUIRED}"),
        false => REQUIRED.to_owned(),
    });
    run(cargo(paths, "nextest")
        .args(["run", "--no-fail-fast"])
        .args(built.arguments())
        .env("TMPDIR", daemon.temporary())
        .env("DOCKER_HOST", daemon.host())
        .env("LIS_TEST_IMAGE", IMAGE)
        .env("LIS_TEST_ROOTFS", paths.rootfs_dir())
        .env("LIS_TEST_GGUF", llama::model(paths))
        .env("LIS_TEST_TINY_GGUF", llama::tiny(paths))
        .env("LIS_TEST_LLAMA", llama::server(paths))
        .env("LIS_TEST_ATIF", python::atif(paths))
        .env("LIS_TEST_OPENAI", python::openai(paths))
        .env("LIS_TEST_E2B", python::e2b(paths))
        .env("LIS_TEST_E2B_JS", npm::e2b(paths))
        .env("LIS_TEST_MCP", python::mcp(paths))
        .env("LIS_TEST_MCP_CONFORMANCE", npm::mcp_conformance(paths))
        .env("LIS_TEST_OPENENV", python::openenv(paths))
        .env("LIS_TEST_SCHEMATHESIS", python::schemathesis(paths))
        .env("LIS_TEST_MATH_VERIFY", python::math_verify(paths))
        .env("LIS_TEST_TRANSFORMERS", python::transformers(paths))
        .env("LD_LIBRARY_PATH", torch::library_path(paths)?)
        .env("LIS_REQUIRE", &required))
}

/// The built tests, as files that the test runner reads instead of calling cargo.
struct Built {
    binaries: PathBuf,
    metadata: PathBuf,
}

impl Built {
    fn below(dir: &Path) -> Self {
        Self { binaries: dir.join("binaries.json"), metadata: dir.join("metadata.json") }
    }

    fn build(&self, paths: &Paths) -> Result<()> {
        run_into(
            &self.binaries,
            cargo(paths, "nextest")
                .args(["list", "--workspace", "--list-type", "binaries-only"])
                .args(["--message-format", "json"]),
        )?;
        run_into(&self.metadata, cargo(paths, "metadata").args(["--format-version", "1"]))
    }

    fn arguments(&self) -> [&OsStr; 4] {
        let [binaries, metadata] = ["--binaries-metadata", "--cargo-metadata"].map(OsStr::new);
        [binaries, self.binaries.as_os_str(), metadata, self.metadata.as_os_str()]
    }
}

fn lint(paths: &Paths, report: &mut Report) {
    report.step("formatting", || run(cargo(paths, "fmt").args(["--all", "--check"])));
    report.step("clippy", || {
        run(cargo(paths, "clippy").args(torch::every_crate(paths)).args([
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    });
}

/// Licences, forbidden crates and sources, as `deny.toml` has them.
fn dependencies(paths: &Paths, report: &mut Report) {
    if !succeeds(Command::new("cargo").args(["deny", "--version"])) {
        return report.skip("cargo-deny is not installed: licences and sources are not checked");
    }
    report.step("dependencies", || {
        run(cargo(paths, "deny").args(["check", "bans", "licenses", "sources"]))
    });
}

/// Cargo in the workspace, with the build directory and libtorch always set: cargo builds again what was built under
/// other variables.
pub(crate) fn cargo(paths: &Paths, subcommand: &str) -> Command {
    let mut command = Command::new("cargo");
    command.arg(subcommand).current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target);
    torch::set_variables(&mut command, paths);
    command
}
