//! Reads the test log of a repository. The log is untrusted: it contains whatever the model's code prints.
//!
//! A test counts as passed only if the runner reports so where and how it reports results, and nothing contradicts it.
//! Code under test shares a process with the runner, so this makes forging hard, not impossible.

use std::collections::HashMap;

use serde_json::json;

use crate::Grade;

/// The most failed tests that are named.
const MAX_NAMED: usize = 20;

/// The format of a test log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestLogFormat {
    /// pytest with its short summary of all tests (`-rA`).
    Pytest,
    /// unittest or Django's runner, with a line for each test.
    Unittest,
    /// Sympy's own runner, with a line for each test.
    Sympy,
}

impl TestLogFormat {
    /// Their names in rows.
    pub const NAMES: [&str; 3] = ["pytest", "unittest", "sympy"];

    /// The format of that name, one of [`Self::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "pytest" => Self::Pytest,
            "unittest" => Self::Unittest,
            "sympy" => Self::Sympy,
            _ => return None,
        })
    }

    pub(super) fn of_command(command: &str) -> Self {
        match command {
            command if command.contains("unittest") || command.contains("runtests") => {
                Self::Unittest
            }
            command if command.contains("bin/test") => Self::Sympy,
            _ => Self::Pytest,
        }
    }
}

/// Which tests have to pass, and how their log is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestLog {
    /// Random text that starts and ends the part of the output that counts, so that code cannot forge it.
    pub marker: String,
    /// The format of the log.
    pub format: TestLogFormat,
    /// Tests that failed before the change and have to pass after it.
    pub fail_to_pass: Vec<String>,
    /// Tests that passed before the change and have to pass after it.
    pub pass_to_pass: Vec<String>,
    /// Files of the patch that configure the tests; only reported.
    pub test_config_changes: Vec<String>,
}

/// From good to bad: the worst status of a test counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Passed,
    Skipped,
    Failed,
}

/// The results in a log.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// By name.
    pub(super) tests: HashMap<String, Status>,
    /// Other names that rows use for a test: cut at a space, or the first line of a docstring.
    pub(super) aliases: HashMap<String, Status>,
    /// The runner's own count of tests that passed or ran. `None` where it did not finish.
    pub(super) total: Option<u64>,
}

impl TestLog {
    /// The grade, or why the tests could not be started.
    pub(crate) fn grade(&self, stdout: &str, exit_code: Option<i32>) -> Result<Grade, String> {
        if exit_code.is_none() {
            return Ok(self.unresolved("the tests ran out of time"));
        }
        let lines: Vec<&str> = stdout.lines().collect();
        let at =
            |word: &str| lines.iter().position(|line| *line == format!("{} {word}", self.marker));
        if at("unfit").is_some() {
            return Ok(self.unresolved("the change does not apply"));
        }
        if at("clash").is_some() {
            return Ok(self.unresolved("the tests do not fit on top of the change"));
        }
        let Some(start) = at("start") else {
            let last = stdout.trim_end().lines().next_back().unwrap_or_default();
            let last: String = last.chars().take(200).collect();
            return Err(format!("the repository could not be prepared; last line: {last:?}"));
        };
        let end = format!("{} end ", self.marker);
        let ending =
            lines.iter().rposition(|line| line.starts_with(&end)).filter(|end| *end > start);
        let Some(ending) = ending else {
            return Ok(self.unresolved("the tests broke off"));
        };
        let code: i32 = lines[ending][end.len()..].parse().unwrap_or(-1);
        let results = read(self.format, &lines[start + 1..ending]);
        Ok(self.decide(&results, code))
    }

    fn decide(&self, results: &Results, code: i32) -> Grade {
        let known = |name: &str| match self.format {
            TestLogFormat::Unittest => results.status(&canonical(name)),
            TestLogFormat::Pytest | TestLogFormat::Sympy => results.status(name),
        };
        let passed = |name: &&String| known(name) == Some(Status::Passed);
        let failing: Vec<&String> = self
            .fail_to_pass
            .iter()
            .chain(&self.pass_to_pass)
            .filter(|name| !passed(name))
            .collect();
        let count = |names: &[String]| {
            format!("{} of {}", names.iter().filter(passed).count(), names.len())
        };
        let suspicion = self.suspicion(results, code);
        let resolved = failing.is_empty() && suspicion.is_none();
        Grade {
            score: f64::from(u8::from(resolved)),
            details: json!({
                "outcome": if resolved { "resolved" } else { "unresolved" },
                "why": suspicion,
                "fail_to_pass": count(&self.fail_to_pass),
                "pass_to_pass": count(&self.pass_to_pass),
                "not_passed": failing.iter().take(MAX_NAMED).collect::<Vec<_>>(),
                "test_machinery_changed": self.test_config_changes,
            }),
        }
    }

    /// A contradiction that an unmodified runner would not have printed.
    fn suspicion(&self, results: &Results, code: i32) -> Option<&'static str> {
        let passed = results.tests.values().filter(|status| **status == Status::Passed).count();
        let failed = results.tests.values().any(|status| *status == Status::Failed);
        match results.total {
            None => Some("the runner did not reach its end"),
            Some(total) if passed as u64 > total => Some("more tests are listed than ran"),
            _ if code != 0 && !failed => Some("the runner failed although no test did"),
            _ => None,
        }
    }

    fn unresolved(&self, why: &str) -> Grade {
        let details = json!({
            "outcome": "unresolved",
            "why": why,
            "test_machinery_changed": self.test_config_changes,
        });
        Grade { score: 0.0, details }
    }
}

impl Results {
    pub(super) fn status(&self, name: &str) -> Option<Status> {
        self.tests.get(name).or_else(|| self.aliases.get(name)).copied()
    }

    fn add(&mut self, name: &str, status: Status) {
        note(&mut self.tests, name, status);
    }

    fn alias(&mut self, name: &str, status: Status) {
        note(&mut self.aliases, name, status);
    }
}

fn note(results: &mut HashMap<String, Status>, name: &str, status: Status) {
    let known = results.entry(name.to_owned()).or_insert(status);
    *known = status.max(*known);
}

pub(super) fn read(format: TestLogFormat, lines: &[&str]) -> Results {
    let lines: Vec<String> = lines.iter().map(|line| without_colours(line)).collect();
    match format {
        TestLogFormat::Pytest => pytest(&lines),
        TestLogFormat::Unittest => unittest(&lines),
        TestLogFormat::Sympy => sympy(&lines),
    }
}

/// Only the last summary counts, and in it the names without the reasons after them.
fn pytest(lines: &[String]) -> Results {
    let mut results = Results::default();
    let heading =
        |line: &String| line.starts_with("==") && line.contains(" short test summary info ");
    let Some(start) = lines.iter().rposition(heading) else { return results };
    for line in &lines[start + 1..] {
        if let Some(summary) = summary(line) {
            results.total = total(summary, " passed");
            break;
        }
        let Some((word, rest)) = line.split_once(' ') else { continue };
        let name = rest.split(" - ").next().unwrap_or(rest).trim();
        match word {
            "PASSED" => results.add(rest.trim(), Status::Passed),
            "FAILED" | "ERROR" => results.add(name, Status::Failed),
            // The runner does not count these as passed.
            "XFAIL" => results.alias(name, Status::Passed),
            _ => continue,
        }
        if let Some((first, _)) = rest.split_once(' ') {
            let passed = matches!(word, "PASSED" | "XFAIL");
            let status = if passed { Status::Passed } else { Status::Failed };
            results.alias(first, status);
        }
    }
    results
}

/// The last line of a run: `== 3 passed, 1 failed in 0.12s ==`, without the frame in quiet runs.
fn summary(line: &str) -> Option<&str> {
    let inside = line.trim_matches(|char| "= ".contains(char));
    let counts = inside.starts_with(|char: char| char.is_ascii_digit()) && inside.contains(" in ");
    (counts || line.starts_with("==")).then_some(inside)
}

/// The number before a word in the last line of a runner.
fn total(line: &str, word: &str) -> Option<u64> {
    let Some((before, _)) = line.split_once(word) else { return Some(0) };
    before.rsplit(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}

fn unittest(lines: &[String]) -> Results {
    let mut results = Results::default();
    let (mut current, mut previous) = (None, "");
    for line in lines {
        if let Some(ran) = ran(line) {
            results.total = Some(results.total.unwrap_or(0).saturating_add(ran));
        } else if let Some(name) = heading(line) {
            results.add(&canonical(name), Status::Failed);
            if let Some(end) = name.find(')') {
                results.add(&canonical(&name[..=end]), Status::Failed);
            }
        } else if let Some((name, word)) = line.split_once(" ... ") {
            let test = if is_test(name) { name } else { previous };
            current = is_test(test).then(|| canonical(test));
            if let (Some(test), Some(status)) = (&current, verdict(word.trim())) {
                results.add(test, status);
                if is_test(previous) && !is_test(name) {
                    results.alias(name, status);
                }
            }
        } else if let (Some(test), Some(status)) = (&current, verdict(line.trim())) {
            // What a test prints comes between its name and its verdict, and may look like a verdict.
            results.add(test, status);
        }
        previous = line.as_str();
    }
    results
}

/// `Ran 3 tests in 0.1s`.
fn ran(line: &str) -> Option<u64> {
    line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok()
}

/// The test in the heading of a failure.
fn heading(line: &str) -> Option<&str> {
    line.strip_prefix("FAIL: ").or_else(|| line.strip_prefix("ERROR: "))
}

fn verdict(word: &str) -> Option<Status> {
    match word {
        "ok" | "expected failure" => Some(Status::Passed),
        "FAIL" | "ERROR" | "unexpected success" => Some(Status::Failed),
        word if word == "skipped" || word.starts_with("skipped ") => Some(Status::Skipped),
        _ => None,
    }
}

/// `test_name (module.Class)`.
fn is_test(name: &str) -> bool {
    let Some((method, class)) = name.split_once(' ') else { return false };
    let word = |text: &str| {
        !text.is_empty() && text.chars().all(|char| char.is_alphanumeric() || char == '_')
    };
    let class = class.strip_prefix('(').and_then(|class| class.strip_suffix(')'));
    word(method) && class.is_some_and(|class| class.split('.').all(word))
}

/// `test_name (module.Class)`, which is `test_name (module.Class.test_name)` since Python 3.11. Both are one name
/// here, so that a forged line in the other form cannot coexist with the true one.
fn canonical(test: &str) -> String {
    let (method, class) = test.split_once(' ').unwrap_or((test, ""));
    match class.strip_suffix(&format!(".{method})")) {
        Some(class) => format!("{method} {class})"),
        None => test.to_owned(),
    }
}

fn sympy(lines: &[String]) -> Results {
    let mut results = Results::default();
    let mut current = None;
    for line in lines {
        let inside = line.trim_matches(|char| "= ".contains(char));
        if let Some(rest) = inside.strip_prefix("tests finished:") {
            results.total = total(rest, " passed");
            continue;
        }
        if let Some((_, name)) = line.strip_prefix("__").and_then(|line| line.split_once(".py:")) {
            results.add(name.trim_matches(|char| "_ ".contains(char)), Status::Failed);
            continue;
        }
        // The last line of a file has the verdict of the file after that of the test.
        let mut words =
            line.split_whitespace().filter(|word| !matches!(*word, "[OK]" | "[FAIL]")).peekable();
        if let Some(name) = words.next_if(|word| word.starts_with("test_")) {
            current = Some(name);
        }
        let status = match words.last() {
            Some("ok") => Status::Passed,
            Some("F" | "E") => Status::Failed,
            Some("s" | "f" | "w" | "X" | "T" | "K") => Status::Skipped,
            _ => continue,
        };
        if let Some(test) = current {
            results.add(test, status);
        }
    }
    results
}

fn without_colours(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        clean.push_str(before);
        let end = after.find(|char: char| !(char.is_ascii_digit() || char == ';'));
        rest = end.map_or("", |end| after[end..].strip_prefix('m').unwrap_or(&after[end..]));
    }
    clean.push_str(rest);
    clean
}
