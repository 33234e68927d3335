//! The checks and tests of the workspace, in order. What a step needs is made by other modules.

use std::{
    env,
    process::{Command, ExitCode},
};

use anyhow::Result;

use crate::{
    daemon::{Daemon, IMAGE},
    llama, machine, ordinary_user,
    places::Places,
    python,
    report::Report,
    run::run,
    setup, torch,
};

/// The crates that must build on macOS, where the native runtime is left out.
const ON_MAC: [&str; 9] = [
    "trajectory",
    "model",
    "model-server",
    "agent",
    "sandbox",
    "sandbox-docker",
    "image",
    "catalogue",
    "llm-in-sandbox",
];

/// What a prepared machine must offer to the tests, so that none of them is skipped unseen.
const REQUIRED: &str = "docker,gguf,llama,math-verify,pip,registry,mmdebstrap,overlay,torch,transformers,userns,rootless";

/// The fast checks, with nothing installed and nothing started.
pub(crate) fn check(places: &Places) -> ExitCode {
    let mut report = Report::default();
    lint(places, &mut report);
    report.tests("unit tests", &places.root, || {
        run(cargo(places, "nextest")
            .arg("run")
            .args(torch::every_crate(places))
            .args(["--lib", "--bins"])
            .env("LD_LIBRARY_PATH", torch::library_path(places)?))
    });
    report.close()
}

/// Everything.
pub(crate) fn test(places: &Places) -> Result<ExitCode> {
    setup::setup(places)?;
    let mut report = Report::default();
    lint(places, &mut report);
    report.step("documentation", || {
        run(cargo(places, "doc")
            .args(["--workspace", "--no-deps", "--document-private-items", "--quiet"])
            .env("RUSTDOCFLAGS", "-D warnings"))
    });
    report.step("builds on macOS", || {
        let packages = ON_MAC.iter().flat_map(|name| ["-p", name]);
        // llama.cpp is C++, and there is no compiler for it here.
        run(cargo(places, "check")
            .args(["--no-default-features", "--target", setup::MAC])
            .args(packages))
    });
    report.step("examples in the documentation", || {
        run(cargo(places, "test").args(["--doc", "--workspace", "--quiet"]))
    });

    let daemon = Daemon::start()?;
    daemon.import(&places.rootfs_archive())?;
    let root = machine::ids()?.0 == 0;
    let required = env::var("LIS_REQUIRE").unwrap_or_else(|_| match root {
        true => format!("root,cgroup,{REQUIRED}"),
        false => REQUIRED.to_owned(),
    });
    report.tests("tests", &places.root, || {
        run(cargo(places, "nextest")
            .args(["run", "--workspace", "--no-fail-fast"])
            .env("DOCKER_HOST", daemon.host())
            .env("LIS_TEST_IMAGE", IMAGE)
            .env("LIS_TEST_ROOTFS", places.rootfs_dir())
            .env("LIS_TEST_GGUF", llama::model(places))
            .env("LIS_TEST_TINY_GGUF", llama::tiny(places))
            .env("LIS_TEST_LLAMA", llama::server(places))
            .env("LIS_TEST_OPENAI", python::openai(places))
            .env("LIS_TEST_MATH_VERIFY", python::math_verify(places))
            .env("LIS_TEST_TRANSFORMERS", python::transformers(places))
            .env("LD_LIBRARY_PATH", torch::library_path(places)?)
            .env("LIS_REQUIRE", &required))
    });
    if root {
        let home = daemon.scratch().join("user");
        let workspace = ordinary_user::workspace(&home);
        report.tests("tests as an ordinary user", &workspace, || {
            ordinary_user::run_tests(places, &home)
        });
    }
    report.step("the Docker daemon stops", || {
        drop(daemon);
        Ok(())
    });
    Ok(report.close())
}

fn lint(places: &Places, report: &mut Report) {
    report.step("formatting", || run(cargo(places, "fmt").args(["--all", "--check"])));
    report.step("clippy", || {
        run(cargo(places, "clippy").args(torch::every_crate(places)).args([
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    });
}

/// Cargo in the workspace. The build directory is always named: it need not be the default one. So is libtorch: a build
/// that is told another way would be made anew.
pub(crate) fn cargo(places: &Places, subcommand: &str) -> Command {
    let mut command = Command::new("cargo");
    command.arg(subcommand).current_dir(&places.root).env("CARGO_TARGET_DIR", &places.target);
    torch::tell(&mut command, places);
    command
}
