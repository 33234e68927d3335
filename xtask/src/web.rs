//! The page: builds its bundle from `web/src`, checks that the one in `web/dist` is what the sources give, and tests it in
//! a browser.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    machine,
    paths::Paths,
    run::{run, succeeds},
};

/// Builds the bundle into `web/dist`.
pub(crate) fn build(paths: &Paths) -> Result<()> {
    install(paths)?;
    run(node(paths)?.args(["build.mjs"]))
}

/// Checks types, that `web/dist` has exactly what a build gives, and, as every build does, that the bundle is not too large.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    install(paths)?;
    run(node(paths)?.args(["node_modules/typescript/bin/tsc", "--noEmit"]))?;
    let fresh = paths.cache.join("web-dist");
    run(node(paths)?.args(["build.mjs", "--quiet", "--to"]).arg(&fresh))?;
    let differing = differences(&read(&dir(paths).join("dist"))?, &read(&fresh)?);
    if !differing.is_empty() {
        bail!(
            "`web/dist` is not what `web/src` gives: {}; run `cargo xtask web`",
            differing.join(", ")
        );
    }
    Ok(())
}

/// Tests the page in Chromium with made-up records, and where `program` is given, its `view` on real ones and its `serve` with
/// sandboxes and a model of the tests.
pub(crate) fn test(paths: &Paths, program: Option<&Path>) -> Result<()> {
    install(paths)?;
    let Some(chromium) = machine::program("chromium") else {
        bail!("chromium not found; install the package `chromium`");
    };
    run(node(paths)?.arg("tests/run.mjs").env("CHROMIUM", &chromium))?;
    let Some(program) = program else { return Ok(()) };
    for more in [&[][..], &["--serve"]] {
        run(node(paths)?
            .args(["tests/run.mjs", "--program"])
            .arg(program)
            .args(more)
            .env("CHROMIUM", &chromium))?;
    }
    Ok(())
}

/// The program, if it is built.
pub(crate) fn program(paths: &Paths) -> Option<PathBuf> {
    Some(paths.target.join("debug/llm-in-sandbox")).filter(|program| program.is_file())
}

/// Whether this machine can build and test the page.
pub(crate) fn is_possible() -> bool {
    machine::program("npm").is_some() && machine::program("node").is_some()
}

fn dir(paths: &Paths) -> PathBuf {
    paths.root.join("web")
}

/// Installs the packages of the lockfile, unless they are there.
pub(crate) fn install(paths: &Paths) -> Result<()> {
    let web = dir(paths);
    let installed = web.join("node_modules/.installed");
    let lock = fs::read_to_string(web.join("package-lock.json"))
        .context("reading web/package-lock.json")?;
    if fs::read_to_string(&installed).is_ok_and(|earlier| earlier == lock)
        && succeeds(
            Command::new("node")
                .arg("node_modules/esbuild/bin/esbuild")
                .arg("--version")
                .current_dir(&web),
        )
    {
        return Ok(());
    }
    let Some(npm) = machine::program("npm") else {
        bail!("npm not found; install Node.js with npm")
    };
    run(Command::new(npm).current_dir(&web).args(["ci", "--silent", "--no-audit", "--no-fund"]))?;
    fs::write(&installed, lock).with_context(|| format!("writing {}", installed.display()))
}

fn node(paths: &Paths) -> Result<Command> {
    let Some(node) = machine::program("node") else { bail!("node not found; install Node.js") };
    let mut command = Command::new(node);
    command.current_dir(dir(paths));
    Ok(command)
}

type Files = BTreeMap<String, Vec<u8>>;

fn read(dir: &Path) -> Result<Files> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    entries
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
        })
        .collect()
}

/// Names of files that only one side has, or whose content differs.
fn differences(checked_in: &Files, built: &Files) -> Vec<String> {
    let names =
        checked_in.keys().chain(built.keys().filter(|name| !checked_in.contains_key(*name)));
    names.filter(|name| checked_in.get(*name) != built.get(*name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        all.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn differences_are_seen() {
        let checked_in = files(&[("app.js", "1"), ("old.js", ""), ("app.css", "a")]);
        let built = files(&[("app.js", "2"), ("new.js", ""), ("app.css", "a")]);
        assert_eq!(differences(&checked_in, &built), ["app.js", "old.js", "new.js"]);
        assert!(differences(&built, &built).is_empty());
    }
}
