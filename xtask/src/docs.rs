//! The documentation: pages that are generated from the program, and the crates' own, with a front page.

use std::{fs, io::Write as _};

use anyhow::{Context, Result};

use crate::{paths::Paths, run::run, test::cargo, torch};

/// The crate whose page lists all others in reading order.
const FRONT: &str = "lis/index.html";

/// The tests that compare the option tables of `docs/` with the program, and write them if `LIS_BLESS` is set, and that write
/// man pages into `LIS_MAN`.
const GENERATED: &str = "package(llm-in-sandbox) & test(/options_in_the_docs|has_a_man_page/)";

/// Regenerates what is generated, builds the crates' documentation and prints where it is.
pub(crate) fn docs(paths: &Paths) -> Result<()> {
    let man = paths.target.join("man");
    // Of the whole workspace, as the tests are: built alone, the program has other features and is built again.
    run(cargo(paths, "nextest")
        .arg("run")
        .args(torch::every_crate(paths))
        .args(["--lib", "--bins", "--filterset", GENERATED])
        .env("LD_LIBRARY_PATH", torch::library_path(paths)?)
        .env("LIS_MAN", &man)
        .env("LIS_BLESS", "1"))?;
    run(cargo(paths, "doc").args(torch::every_crate(paths)).args(["--no-deps", "--quiet"]))?;
    let index = paths.target.join("doc/index.html");
    let redirect = format!("<!doctype html><meta http-equiv=refresh content=\"0; url={FRONT}\">\n");
    fs::write(&index, redirect).with_context(|| format!("writing {}", index.display()))?;
    let pages = paths.root.join("docs");
    let text = format!(
        "crates: file://{}\npages:  {}\nman:    {}\n",
        index.display(),
        pages.display(),
        man.display()
    );
    std::io::stdout().write_all(text.as_bytes()).context("printing the address")
}
