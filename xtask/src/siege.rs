//! The long attacks: many sandboxes at once, half of them hostile, and kills at random moments of everything.
//!
//! They are tests of the program that skip themselves, or do less, unless `LIS_SLOW` is set; their output is the result.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::{
    machine,
    ordinary_user::{self, Selection},
    paths::Paths,
    run::run,
    test::cargo,
};

const SIEGE: Selection = Selection {
    archived: &["--package", "llm-in-sandbox"],
    run: &[
        "--filterset",
        "package(llm-in-sandbox) \
         & test(/::(under_siege|in_every_phase)::|random_moment_kills_of_a_server/)",
        "--success-output",
        "final",
    ],
    required: "userns",
    settings: &["LIS_SLOW=1"],
};

/// Runs them here, and where that is root again as a user without rights.
pub(crate) fn siege(paths: &Paths) -> Result<()> {
    let settings = SIEGE.settings.iter().filter_map(|setting| setting.split_once('='));
    let here = run(cargo(paths, "nextest")
        .args(["run", "--no-fail-fast"])
        .args(SIEGE.archived)
        .args(SIEGE.run)
        .envs(settings)
        .env("LIS_REQUIRE", SIEGE.required));
    if machine::ids()?.0 != 0 {
        return here;
    }
    let scratch = Scratch(env::temp_dir().join(format!("lis-siege-{}", std::process::id())));
    fs::create_dir(&scratch.0).with_context(|| format!("creating {}", scratch.0.display()))?;
    let there = ordinary_user::run_tests(paths, &scratch.0.join("user"), &SIEGE);
    here.and(there)
}

/// A directory that is removed in the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
