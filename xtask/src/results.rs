//! Reads the results of the test runner: how many tests passed, failed and skipped themselves.
//!
//! The runner hides the output of passing tests, so without this a skipped test would look like a passed one.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};

/// Counted tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Tests that returned early, by the reason they printed.
    pub(crate) skips: BTreeMap<String, usize>,
}

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It returned early and printed why.
    Skipped(String),
}

/// Reads how each test ended, by its name, from a JUnit file.
pub(crate) fn verdicts(file: &Path) -> Result<BTreeMap<String, Verdict>> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("the test runner did not write {}", file.display()))?;
    Ok(cases(&text).map(|(name, verdict)| (name.to_owned(), verdict)).collect())
}

/// The test cases of a JUnit file: name and verdict.
fn cases(junit: &str) -> impl Iterator<Item = (&str, Verdict)> {
    junit.split("<testcase ").skip(1).map(|case| {
        let name = case.split_once("name=\"").map_or("", |(_, rest)| rest);
        let name = name.split_once('"').map_or(name, |(name, _)| name);
        let skip = case.lines().find_map(|line| {
            let (before, reason) = line.split_once("skip: ")?;
            let at_the_start = before.trim().is_empty() || before.ends_with('>');
            at_the_start.then_some(reason)
        });
        let verdict = match skip {
            _ if case.contains("<failure") || case.contains("<error") => Verdict::Failed,
            Some(reason) => Verdict::Skipped(plain(reason)),
            None => Verdict::Passed,
        };
        (name, verdict)
    })
}

impl Results {
    /// Reads a JUnit file.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("the test runner did not write {}", file.display()))?;
        Ok(Self::parse(&text))
    }

    /// Adds another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        for (reason, count) in other.skips {
            *self.skips.entry(reason).or_default() += count;
        }
    }

    fn parse(junit: &str) -> Self {
        let mut results = Self::default();
        for (_, verdict) in cases(junit) {
            match verdict {
                Verdict::Passed => results.passed += 1,
                Verdict::Failed => results.failed += 1,
                Verdict::Skipped(reason) => *results.skips.entry(reason).or_default() += 1,
            }
        }
        results
    }
}

/// Text without the escapes of XML, and without a closing tag that follows on the same line.
fn plain(text: &str) -> String {
    let text = text.split_once('<').map_or(text, |(text, _)| text);
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    pairs.iter().fold(text.trim().to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_passes_failures_and_skips() {
        let junit = r#"<testsuites tests="4" failures="1"><testsuite name="a">
            <testcase name="one" time="0.1"/>
            <testcase name="two"><failure type="test failure">skip: no</failure></testcase>
            <testcase name="three"><system-out>
running 1 test
skip: no &quot;docker&quot; here
test three ... ok
</system-out></testcase>
            <testcase name="four"><system-err>skip: not root</system-err></testcase>
            </testsuite></testsuites>"#;
        let skips = [("no \"docker\" here".to_owned(), 1), ("not root".to_owned(), 1)];
        let expected = Results { passed: 1, failed: 1, skips: skips.into() };
        assert_eq!(Results::parse(junit), expected);
        let names: Vec<_> = cases(junit).collect();
        assert_eq!(names[0], ("one", Verdict::Passed));
        assert_eq!(names[1], ("two", Verdict::Failed));
        assert_eq!(names[3], ("four", Verdict::Skipped("not root".into())));
    }

    #[test]
    fn runs_add_up() {
        let run =
            |reason: &str| Results { passed: 2, failed: 1, skips: [(reason.to_owned(), 1)].into() };
        let mut sum = run("a");
        sum.add(run("a"));
        sum.add(run("b"));
        let skips = [("a".to_owned(), 2), ("b".to_owned(), 1)];
        assert_eq!(sum, Results { passed: 6, failed: 3, skips: skips.into() });
    }
}
