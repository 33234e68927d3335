//! The attacks on sandboxes, each with the promise it tries to break and its result on this machine.
//!
//! The promises are the doc comments of the tests, so the table cannot differ from what is tried.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};

use crate::{
    daemon::{Daemon, IMAGE},
    machine,
    ordinary_user::{self, Selection},
    paths::Paths,
    report::RESULTS,
    results::{Verdict, verdicts},
    run::run,
    test::cargo,
    vm::Coverage,
};

/// Where the attacks are: those on the native runtime, and those on containers.
const SOURCES: &str = "crates/sandbox-native/tests/it/security";
const DOCKER_SOURCES: &str = "crates/sandbox-docker/tests/it/security";

/// The tests that attack, and nothing else.
const ATTACKS: Selection = Selection {
    archived: &["--package", "lis-sandbox-native"],
    run: &["--filterset", "test(/^security::/)"],
    required: "",
    settings: &[],
};

/// Attacks sandboxes and prints a line for each attack.
pub(crate) fn attack(paths: &Paths) -> Result<ExitCode> {
    let native = native_attacks(paths)?;
    let docker = attacks(&paths.root.join(DOCKER_SOURCES))?;
    let mut runs = Vec::new();
    let root = machine::ids()?.0 == 0;
    let me = if root { "root" } else { "you" };
    let verdicts = results(&paths.root, || {
        let mut tests = cargo(paths, "nextest");
        tests.args(["run", "--no-fail-fast"]).args(ATTACKS.archived).args(ATTACKS.run);
        let rootfs = paths.rootfs_dir();
        if rootfs.exists() {
            tests.env("LIS_TEST_ROOTFS", rootfs);
        }
        run(&mut tests)
    })?;
    runs.push(Run::of_all(me, &native, verdicts));
    if root {
        let scratch = Scratch::create()?;
        let home = scratch.0.join("user");
        let workspace = ordinary_user::workspace(&home);
        let verdicts = results(&workspace, || ordinary_user::run_tests(paths, &home, &ATTACKS))?;
        runs.push(Run::of_all("user", &native, verdicts));
    }
    runs.push(Run::of_all("docker", &docker, on_docker(paths, &docker)?));
    let (text, held) = table(&runs);
    std::io::stdout().write_all(text.as_bytes()).context("printing the table")?;
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Attacks containers of a daemon of its own. Where none can be started, each attack is skipped.
fn on_docker(paths: &Paths, attacks: &[Attack]) -> Result<Verdicts> {
    let archive = paths.rootfs_archive();
    let started = match (machine::program("dockerd"), archive.exists()) {
        (Some(_), true) => Daemon::start().map_err(|error| format!("docker: {error}")),
        (None, _) => Err("docker: there is no dockerd".to_owned()),
        (_, false) => Err("docker: `cargo xtask setup` has not built the image".to_owned()),
    };
    let daemon = match started {
        Ok(daemon) => daemon,
        Err(missing) => {
            let skipped = || Verdict::Skipped(missing.clone());
            return Ok(attacks.iter().map(|attack| (attack.test.clone(), skipped())).collect());
        }
    };
    daemon.import(&archive)?;
    results(&paths.root, || {
        run(cargo(paths, "nextest")
            .args(["run", "--no-fail-fast", "--package", "lis-sandbox-docker"])
            .args(ATTACKS.run)
            .env("DOCKER_HOST", daemon.host())
            .env("LIS_TEST_IMAGE", IMAGE)
            .env("LIS_REQUIRE", "docker"))
    })
}

pub(crate) type Verdicts = BTreeMap<String, Verdict>;

/// The results of one run of the attacks.
pub(crate) struct Run<'a> {
    /// Who attacked, or where.
    pub(crate) who: &'static str,
    /// What was attacked.
    pub(crate) attacks: &'a [Attack],
    /// How each test ended, by its name.
    pub(crate) verdicts: Verdicts,
    /// Whether all attacks should be among them.
    pub(crate) coverage: Coverage,
}

impl<'a> Run<'a> {
    fn of_all(who: &'static str, attacks: &'a [Attack], verdicts: Verdicts) -> Self {
        Self { who, attacks, verdicts, coverage: Coverage::All }
    }
}

/// The attacks on the native runtime.
pub(crate) fn native_attacks(paths: &Paths) -> Result<Vec<Attack>> {
    attacks(&paths.root.join(SOURCES))
}

/// Runs the test runner in a workspace and reads how each test ended. That some failed is part of the result; any other
/// failure of the runner is an error.
fn results(workspace: &Path, work: impl FnOnce() -> Result<()>) -> Result<Verdicts> {
    let file = workspace.join(RESULTS);
    // Results of an earlier run must not be mistaken for this one's.
    let _ = fs::remove_file(&file);
    let done = work();
    judge(done, verdicts(&file))
}

/// The verdicts of a run, unless the runner failed for another reason than a failed test. Its own error tells more than
/// that it wrote nothing.
fn judge(done: Result<()>, verdicts: Result<Verdicts>) -> Result<Verdicts> {
    match verdicts {
        Ok(verdicts) if verdicts.values().any(|verdict| *verdict == Verdict::Failed) => {
            Ok(verdicts)
        }
        verdicts => done.and(verdicts),
    }
}

/// A directory that other users may enter, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn create() -> Result<Self> {
        let dir = PathBuf::from(format!("/var/tmp/lis-attack-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One attack: the test and what it promises.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Attack {
    test: String,
    promise: String,
}

/// The attacks in these sources that are tried on this architecture, by file.
fn attacks(sources: &Path) -> Result<Vec<Attack>> {
    let entries =
        fs::read_dir(sources).with_context(|| format!("reading {}", sources.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let module = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        found.extend(attacks_in(&module, &text));
    }
    Ok(found)
}

fn attacks_in(module: &str, source: &str) -> Vec<Attack> {
    let mut found = Vec::new();
    let (mut promise, mut is_test, mut is_here) = (String::new(), false, true);
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            promise = format!("{promise} {text}").trim_start().to_owned();
        } else if line == "#[test]" {
            is_test = true;
        } else if let Some(arch) = line.strip_prefix("#[cfg(target_arch = \"") {
            is_here = arch.strip_suffix("\")]") == Some(std::env::consts::ARCH);
        } else if !line.starts_with("#[") {
            let name = line.strip_prefix("fn ").and_then(|rest| rest.split_once('('));
            if let Some((name, _)) = name.filter(|_| is_test && is_here) {
                let test = format!("security::{module}::{name}");
                found.push(Attack { test, promise: std::mem::take(&mut promise) });
            }
            (promise, is_test, is_here) = (String::new(), false, true);
        }
    }
    found
}

/// The table, and whether every attack was tried and every promise held. What a test skips on this machine, it says. Attacks
/// of the same name try to break the same promise, and share a row.
pub(crate) fn table(runs: &[Run<'_>]) -> (String, bool) {
    let mut attacks: Vec<&Attack> = Vec::new();
    for attack in runs.iter().flat_map(|run| run.attacks) {
        if attacks.iter().all(|known| known.test != attack.test) {
            attacks.push(attack);
        }
    }
    let mut text = String::new();
    let mut skips: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut held, mut broken, mut untried) = (0, 0, 0);
    for (row, Attack { test, promise }) in attacks.iter().enumerate() {
        let _ = writeln!(text, "\n{:>3}  {promise}\n     {test}", row + 1);
        for Run { who, attacks, verdicts, coverage } in runs {
            if attacks.iter().all(|attack| attack.test != *test) {
                continue;
            }
            let result = match verdicts.get(test) {
                Some(Verdict::Passed) => "held",
                Some(Verdict::Failed) => "BROKEN",
                Some(Verdict::Skipped(reason)) => {
                    *skips.entry(reason).or_default() += 1;
                    let _ = writeln!(text, "     {who}: not fully tried: {reason}");
                    continue;
                }
                None if *coverage == Coverage::Some => continue,
                None => "not tried",
            };
            match result {
                "held" => held += 1,
                "BROKEN" => broken += 1,
                _ => untried += 1,
            }
            let _ = writeln!(text, "     {who}: {result}");
        }
    }
    let skipped: usize = skips.values().sum();
    let _ = writeln!(
        text,
        "\n{held} held, {broken} broken, {skipped} not fully tried, {untried} not tried"
    );
    (text, broken == 0 && untried == 0 && held > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "//! A file.\n\n/// A helper.\nfn helper() {}\n\n/// Nothing leaves\n/// the sandbox.\n\
                          #[cfg(unix)]\n#[test]\nfn nothing_leaves() {\n}\n\n#[test]\nfn bare() {}\n";

    #[test]
    fn promises_are_the_comments_of_tests() {
        let found = attacks_in("links", SOURCE);
        let attack =
            |test: &str, promise: &str| Attack { test: test.into(), promise: promise.into() };
        assert_eq!(
            found,
            [
                attack("security::links::nothing_leaves", "Nothing leaves the sandbox."),
                attack("security::links::bare", ""),
            ]
        );
    }

    #[test]
    fn attacks_on_other_processors_are_left_out() {
        const ATTACK: &str = "#[test]\nfn calls() {\n";
        let source = |arch: &str| format!("#[cfg(target_arch = \"{arch}\")]\n{ATTACK}");
        assert_eq!(attacks_in("syscalls", &source("pdp11")).len(), 0);
        assert_eq!(attacks_in("syscalls", &source(std::env::consts::ARCH)).len(), 1);
        assert_eq!(attacks_in("syscalls", &(source("pdp11") + "}\n" + ATTACK)).len(), 1);
    }

    #[test]
    fn only_failed_tests_explain_a_runner_that_failed() {
        let verdicts = |verdict| Ok(Verdicts::from([("links::a".to_owned(), verdict)]));
        let failed = || Err(anyhow::anyhow!("the runner broke off"));
        assert!(judge(failed(), verdicts(Verdict::Failed)).is_ok());
        assert!(judge(Ok(()), verdicts(Verdict::Passed)).is_ok());
        for read in [verdicts(Verdict::Passed), Err(anyhow::anyhow!("no file"))] {
            let error = judge(failed(), read).unwrap_err();
            assert_eq!(error.to_string(), "the runner broke off");
        }
    }

    #[test]
    fn a_broken_promise_is_shown_and_fails() {
        let all = attacks_in("links", SOURCE);
        let (first, both) = (&all[..1], &all[..]);
        let verdict = |verdict| Verdicts::from([(all[0].test.clone(), verdict)]);
        let run = Run::of_all;
        let skipped = || Verdict::Skipped("no root file system".into());
        let root = || run("root", first, verdict(Verdict::Passed));
        let some = Run { coverage: Coverage::Some, ..run("xfs", both, Verdicts::new()) };
        let (text, held) = table(&[root(), run("user", first, verdict(skipped())), some]);
        assert!(held && text.contains("  1  Nothing leaves the sandbox.\n"), "{text}");
        assert!(
            text.contains("     root: held\n     user: not fully tried: no root file system\n"),
            "{text}"
        );
        assert!(text.ends_with("1 held, 0 broken, 1 not fully tried, 0 not tried\n"), "{text}");
        let (text, held) = table(&[run("root", first, verdict(Verdict::Failed))]);
        assert!(!held && text.contains("root: BROKEN"), "{text}");
        let (text, held) = table(&[run("root", both, verdict(Verdict::Passed))]);
        assert!(
            !held && text.ends_with("1 held, 0 broken, 0 not fully tried, 1 not tried\n"),
            "{text}"
        );
        let own = Verdicts::from([(all[1].test.clone(), Verdict::Passed)]);
        let (text, held) = table(&[root(), run("docker", &all[1..], own)]);
        assert!(
            held && text.ends_with("2 held, 0 broken, 0 not fully tried, 0 not tried\n"),
            "{text}"
        );
        let (text, _) = table(&[root(), run("docker", first, verdict(Verdict::Passed))]);
        assert!(text.contains("     root: held\n     docker: held\n"), "{text}");
    }
}
