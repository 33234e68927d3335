//! Charts of one metric over all runs, smoothed and thinned; and the same as summary numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    Run, Smoothing,
    label::{Section, label},
    sets,
    smooth::thin,
};

/// Points drawn per run, at most about.
const MOST_POINTS: usize = 400;
/// Runs drawn in one chart: one for each color.
pub(crate) const MOST_RUNS: usize = plot::Color::SERIES;

/// One metric of all runs that have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Name of the metric.
    pub name: String,
    /// File name, unique among the charts.
    pub file: String,
    /// Title.
    pub title: String,
    /// Label of the vertical axis.
    pub axis: String,
    /// Runs.
    pub series: Vec<Series>,
    pub(crate) section: Section,
}

/// One run of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the run.
    pub run: String,
    /// Index of the run, which determines its color.
    pub at: usize,
    /// Steps and values; means of neighboring points where there are more than can be drawn.
    pub raw: Vec<(f64, f64)>,
    /// Steps and smoothed values; those of a validation with a standard error are not smoothed.
    pub smooth: Vec<(f64, f64)>,
    /// Steps with the ends of 95% confidence intervals, where the run has standard errors.
    pub band: Vec<(f64, [f64; 2])>,
}

/// One metric of one run in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Name of the metric.
    #[serde(rename = "figure")]
    pub metric: String,
    /// Title.
    pub title: String,
    /// Name of the run.
    pub run: String,
    /// First and last step with a value.
    pub steps: [u64; 2],
    /// Mean of the first tenth of the values, at least one.
    pub first: f64,
    /// Mean of the last tenth.
    pub last: f64,
    /// Smallest value.
    pub lowest: f64,
    /// Largest value.
    pub highest: f64,
}

/// Returns the charts of the first eight runs, in the order of the page.
pub fn charts(runs: &[Run], smoothing: Smoothing) -> Vec<Chart> {
    let runs = &runs[..runs.len().min(MOST_RUNS)];
    let mut charts: Vec<Chart> = ordered(runs)
        .into_iter()
        .filter(|(.., name)| sets::is_drawn(name))
        .map(|(section, title, axis, name)| {
            let each = runs.iter().enumerate();
            let series = each.filter_map(|(at, run)| Series::new(run, at, &name, smoothing));
            Chart { file: String::new(), title, axis, series: series.collect(), section, name }
        })
        .collect();
    name_files(&mut charts);
    charts
}

impl Series {
    /// The series of a run that has the metric.
    fn new(run: &Run, at: usize, name: &str, smoothing: Smoothing) -> Option<Self> {
        let numbers = run.metrics.get(name)?;
        let points: Vec<(f64, f64)> =
            numbers.iter().map(|(step, number)| (*step as f64, *number)).collect();
        let raw = thin(&points, MOST_POINTS);
        let band = sets::band(run, name);
        let smooth = match band.is_empty() {
            true => thin(&smoothing.smooth(&points), MOST_POINTS),
            false => raw.clone(),
        };
        Some(Self { run: run.name.clone(), at, raw, smooth, band })
    }
}

/// Summarizes every metric of every run, in the order of the charts.
pub fn summary(runs: &[Run]) -> Vec<Summary> {
    let metrics = ordered(runs).into_iter();
    let each = metrics.flat_map(|(_, title, _, name)| {
        let of_run = move |run: &Run| summarize(run, &name, &title);
        runs.iter().filter_map(of_run).collect::<Vec<_>>()
    });
    each.collect()
}

fn summarize(run: &Run, name: &str, title: &str) -> Option<Summary> {
    let by_step: &BTreeMap<u64, f64> = run.metrics.get(name)?;
    let values: Vec<f64> = by_step.values().copied().collect();
    let tenth = (values.len() / 10).max(1);
    // Divides first: the sum of large values may overflow.
    let mean = |values: &[f64]| values.iter().map(|value| value / values.len() as f64).sum::<f64>();
    Some(Summary {
        metric: name.to_owned(),
        title: title.to_owned(),
        run: run.name.clone(),
        steps: [*by_step.first_key_value()?.0, *by_step.last_key_value()?.0],
        first: mean(&values[..tenth]),
        last: mean(&values[values.len() - tenth..]),
        lowest: values.iter().copied().fold(f64::INFINITY, f64::min),
        highest: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// All metrics with their section, title, axis label and name, in the order of the page.
fn ordered(runs: &[Run]) -> Vec<(Section, String, String, String)> {
    let is_error = |name: &str| runs.iter().any(|run| sets::is_standard_error(run, name));
    let names = runs.iter().flat_map(|run| run.metrics.keys()).filter(|name| !is_error(name));
    let names: BTreeSet<&String> = names.collect();
    let mut labelled: Vec<_> = names.into_iter().map(|name| (label(name), name.clone())).collect();
    labelled.sort_by(|(a, one), (b, other)| {
        (a.section, a.position, one).cmp(&(b.section, b.position, other))
    });
    labelled
        .into_iter()
        .map(|(label, name)| (label.section, label.title, label.axis, name))
        .collect()
}

/// Derives plain, unique file names: names of metrics may hold anything.
fn name_files(charts: &mut [Chart]) {
    let mut taken = BTreeSet::new();
    for chart in charts {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' }
        };
        let base: String = chart.name.chars().take(80).map(plain).collect();
        let mut file = base.clone();
        let mut number = 1;
        while !taken.insert(file.clone()) {
            number += 1;
            file = format!("{base}-{number}");
        }
        chart.file = format!("{file}.svg");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, metrics: &[(&str, &[f64])]) -> Run {
        let metrics = metrics.iter().map(|(name, numbers)| {
            ((*name).to_owned(), (1..).zip(numbers.iter().copied()).collect::<BTreeMap<u64, f64>>())
        });
        Run { name: name.into(), metrics: metrics.collect(), bad_lines: 0 }
    }

    #[test]
    fn runs_share_a_chart() {
        let runs = [
            run("a", &[("lr", &[1.0]), ("reward_mean", &[0.0, 1.0, 0.5]), ("zz", &[1.0])]),
            run("b", &[("reward_mean", &[0.5]), ("validation/reward_mean", &[0.25])]),
        ];
        let charts = charts(&runs, Smoothing::default());
        let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["reward_mean", "validation/reward_mean", "lr", "zz"]);
        assert_eq!(charts[0].series.len(), 2);
        assert_eq!(charts[0].series[0].raw, [(1.0, 0.0), (2.0, 1.0), (3.0, 0.5)]);
        assert_eq!(
            (charts[1].series[0].at, charts[1].file.as_str()),
            (1, "validation-reward_mean.svg")
        );
    }

    #[test]
    fn file_names_are_unique() {
        let runs =
            [run("a", &[("a/b", &[1.0]), ("a-b", &[1.0]), ("A b", &[1.0]), ("../x", &[1.0])])];
        let charts = charts(&runs, Smoothing::default());
        let files: BTreeSet<&str> = charts.iter().map(|chart| chart.file.as_str()).collect();
        assert_eq!(files, BTreeSet::from(["---x.svg", "a-b-2.svg", "a-b-3.svg", "a-b.svg"]));
    }

    #[test]
    fn metrics_are_summarized() {
        let numbers: Vec<f64> = (0..20).map(f64::from).collect();
        let all = summary(&[run("a", &[("loss", &numbers)])]);
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].first, all[0].last, all[0].lowest, all[0].highest),
            (0.5, 18.5, 0.0, 19.0)
        );
        assert_eq!(all[0].steps, [1, 20]);
    }
}
