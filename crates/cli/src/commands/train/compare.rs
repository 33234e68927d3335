//! `train compare`: validation results of training runs, problem by problem.

use std::path::Path;

use anyhow::Result;
use report::{
    stats::Test,
    validation::{
        Breakdown, CompareOptions, Compared, Comparison, Difference, Metric, Point, Step, compare,
        markdown,
    },
};
use serde_json::Value;

use super::{
    args::{ByArg, CompareArgs, MetricArg},
    episodes, one_line,
};
use crate::{
    console::output,
    exit::{self, Exit, UsageError},
};

/// Runs `train compare`.
pub(super) fn run(args: &CompareArgs) -> Result<Exit> {
    if !args.side_by_side.is_empty() {
        return episodes::run(args);
    }
    let options = CompareOptions {
        metric: args.metric.into(),
        by: args.by.map(Breakdown::from),
        sets: args.set.clone(),
        analyses: args.analyses,
    };
    let mut comparisons = Vec::new();
    for [base, other] in points(args) {
        let found = compare(&base, &other, &options);
        comparisons.push(found.map_err(|error| UsageError(exit::describe(&error.into())))?);
    }
    match args.json {
        true => output::print_json(&comparisons)?,
        false => {
            let texts: Vec<String> = comparisons.iter().map(text).collect();
            output::print(&texts.join("\n\n"))?;
        }
    }
    for found in &comparisons {
        note_losses(found);
    }
    Ok(Exit::Done)
}

/// The first and the last validation of a single run; otherwise each run with the first.
pub(super) fn points(args: &CompareArgs) -> Vec<[Point; 2]> {
    match &args.runs[..] {
        [run] => {
            let last = Point::parse(run, Step::Last);
            vec![[Point { step: Step::First, ..last.clone() }, last]]
        }
        runs => {
            let mut points = runs.iter().map(|run| Point::parse(run, Step::Last));
            let Some(base) = points.next() else { return Vec::new() };
            points.map(|other| [base.clone(), other]).collect()
        }
    }
}

fn text(found: &Comparison) -> String {
    let mut lines = vec![match found.base == found.other {
        true => format!("{}: first and second are steps of this run", shown(&found.base)),
        false => format!("first: {}\nsecond: {}", shown(&found.base), shown(&found.other)),
    }];
    lines.extend(settings(&found.sets));
    lines.push(output::table(&rows(found)));
    let mut tests: Vec<&str> = found.sets.iter().map(|set| name(set.score.test)).collect();
    tests.sort_unstable();
    tests.dedup();
    let corrected = if found.sets.len() > 1 { ", Holm-corrected over sets" } else { "" };
    lines.push(format!(
        "Brackets: 95% bootstrap intervals of the paired difference. P: {}{corrected}.",
        tests.join(", ")
    ));
    for set in found.sets.iter().filter(|set| !set.groups.is_empty()) {
        lines.push(String::new());
        lines.push(groups(set, found.metric));
    }
    let analyses = markdown(found);
    if !analyses.is_empty() {
        lines.extend([String::new(), analyses.trim_end().to_owned()]);
    }
    lines.join("\n")
}

fn shown(path: &Path) -> String {
    one_line(&path.display().to_string())
}

fn name(test: Test) -> &'static str {
    match test {
        Test::Mcnemar => "exact McNemar test",
        Test::SignFlipsExact => "exact sign-flip test",
        Test::SignFlips => "sign-flip test with random signs",
    }
}

/// The settings that differ, which may explain a difference better than training does.
fn settings(sets: &[Compared]) -> Option<String> {
    let heading = ["SET", "SETTING", "FIRST", "SECOND"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    for set in sets {
        rows.extend(set.settings.iter().map(|change| {
            let [first, second] = &change.values;
            vec![one_line(&set.set), one_line(&change.key), value(first), value(second)]
        }));
    }
    let some = rows.len() > 1;
    some.then(|| format!("The sets were not measured alike:\n{}\n", output::table(&rows)))
}

fn value(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    one_line(&text.chars().take(60).collect::<String>())
}

fn rows(found: &Comparison) -> Vec<Vec<String>> {
    let metric = heading_of(found.metric);
    let heading = ["SET", "STEPS", "N", metric, "DIFFERENCE", "P", "TURNS", "TOKENS"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for set in &found.sets {
        let [first, second] = set.steps;
        rows.push(vec![
            one_line(&set.set),
            format!("{first}, {second}"),
            set.score.problems.to_string(),
            percentages(&set.score),
            points_of(&set.score),
            p_value(set.score.p_corrected),
            means(&set.turns, 2),
            means(&set.response_tokens, 0),
        ]);
    }
    if let Some(average) = &found.average {
        rows.push(vec![
            "mean of sets".to_owned(),
            String::new(),
            average.problems.to_string(),
            percentages(average),
            points_of(average),
            p_value(average.p),
        ]);
    }
    rows
}

fn heading_of(metric: Metric) -> &'static str {
    match metric {
        Metric::Score => "SCORE",
        Metric::Success => "SUCCESS",
        Metric::Reward => "REWARD",
    }
}

/// A set by kind or level of problem; its p-values are corrected over these.
fn groups(set: &Compared, metric: Metric) -> String {
    let heading = ["N", heading_of(metric), "DIFFERENCE", "P"].map(str::to_owned);
    let mut rows = vec![[&[one_line(&set.set)], &heading[..]].concat()];
    rows.extend(set.groups.iter().map(|group| {
        vec![
            one_line(&group.group),
            group.score.problems.to_string(),
            percentages(&group.score),
            points_of(&group.score),
            p_value(group.score.p_corrected),
        ]
    }));
    output::table(&rows)
}

fn percentages(found: &Difference) -> String {
    let [first, second] = found.means.map(|mean| 100.0 * mean);
    format!("{first:.1}% -> {second:.1}%")
}

/// A difference in percentage points, with its interval.
fn points_of(found: &Difference) -> String {
    let bounds = found.interval.map_or_else(String::new, |[low, high]| {
        format!(" [{:+.1}, {:+.1}]", 100.0 * low, 100.0 * high)
    });
    format!("{:+.1}{bounds}", 100.0 * found.difference)
}

fn means(found: &Difference, digits: usize) -> String {
    let [first, second] = found.means;
    let bounds = found
        .interval
        .map_or_else(String::new, |[low, high]| format!(" [{low:+.digits$}, {high:+.digits$}]"));
    format!("{first:.digits$} -> {second:.digits$}{bounds}")
}

fn p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

fn note_losses(found: &Comparison) {
    for set in &found.left_out {
        output::note(&format!(
            "validation set {} is left out: the runs have no two measurements of it with common problems",
            one_line(set)
        ));
    }
    for set in &found.sets {
        let [first, second] = set.unpaired;
        if first + second > 0 {
            output::note(&format!(
                "{}: {first} problems of the first and {second} of the second are not in the other, and left out",
                one_line(&set.set)
            ));
        }
        let [first, second] = set.analyses.as_ref().map_or([0, 0], |found| found.unread);
        if first + second > 0 {
            output::note(&format!(
                "{}: the events of {first} episodes of the first and {second} of the second cannot be read; tables that need \
                 them leave these out",
                one_line(&set.set)
            ));
        }
        let [first, second] = set.failed;
        if first + second > 0 {
            output::note(&format!(
                "{}: {first} episodes of the first and {second} of the second failed as infrastructure, and have no score",
                one_line(&set.set)
            ));
        }
    }
}

impl From<MetricArg> for Metric {
    fn from(metric: MetricArg) -> Self {
        match metric {
            MetricArg::Score => Self::Score,
            MetricArg::Success => Self::Success,
            MetricArg::Reward => Self::Reward,
        }
    }
}

impl From<ByArg> for Breakdown {
    fn from(by: ByArg) -> Self {
        match by {
            ByArg::Kind => Self::Kind,
            ByArg::Level => Self::Level,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shown_with_their_intervals() {
        let found = Difference {
            problems: 200,
            means: [0.12, 0.455],
            difference: 0.335,
            interval: Some([0.26, 0.41]),
            p: 1e-9,
            p_corrected: 2e-9,
            test: Test::Mcnemar,
            better: 70,
            worse: 3,
        };
        assert_eq!(percentages(&found), "12.0% -> 45.5%");
        assert_eq!(points_of(&found), "+33.5 [+26.0, +41.0]");
        assert_eq!(
            means(&Difference { means: [4.39, 3.2], interval: None, ..found }, 2),
            "4.39 -> 3.20"
        );
        assert_eq!([p_value(2e-9), p_value(0.04)], ["<0.001", "0.040"]);
    }

    #[test]
    fn a_single_run_is_compared_with_its_own_beginning() {
        let args = |runs: &[&str]| CompareArgs {
            runs: runs.iter().map(Into::into).collect(),
            metric: MetricArg::Score,
            by: None,
            set: Vec::new(),
            analyses: false,
            side_by_side: Vec::new(),
            page: None,
            json: false,
        };
        let steps = |runs: &[&str]| {
            points(&args(runs))
                .into_iter()
                .map(|pair| pair.map(|point| point.step))
                .collect::<Vec<_>>()
        };
        assert_eq!(steps(&["a"]), [[Step::First, Step::Last]]);
        assert_eq!(steps(&["a@7"]), [[Step::First, Step::At(7)]]);
        assert_eq!(
            steps(&["a", "b@3", "c"]),
            [[Step::Last, Step::At(3)], [Step::Last, Step::Last]]
        );
    }
}
