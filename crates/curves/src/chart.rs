//! Charts: each figure of all runs over each other, thinned and smoothed; and what they come to in numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    Run, Smoothing,
    known::{Section, label},
    smooth::thin,
};

/// More points of a run are not drawn.
const MOST_POINTS: usize = 400;
/// More runs are not drawn over each other.
pub(crate) const MOST_RUNS: usize = 8;

/// One figure of all runs that have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The figure's own name.
    pub name: String,
    /// A name for a file, different from those of all other charts.
    pub file: String,
    /// What people call it.
    pub title: String,
    /// What the vertical axis counts.
    pub axis: String,
    /// The runs.
    pub series: Vec<Series>,
    pub(crate) section: Section,
}

/// One run of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The run's name.
    pub run: String,
    /// Which of the runs it is; decides about the colour.
    pub at: usize,
    /// Steps and numbers as they were, or the means of neighbours where there are very many.
    pub raw: Vec<(f64, f64)>,
    /// The same, smoothed.
    pub smooth: Vec<(f64, f64)>,
}

/// What a figure of a run comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The figure's own name.
    pub figure: String,
    /// What people call it.
    pub title: String,
    /// The run.
    pub run: String,
    /// The first step that has it, and the last.
    pub steps: [u64; 2],
    /// The mean of the first tenth of its numbers, at least one.
    pub first: f64,
    /// The mean of the last tenth.
    pub last: f64,
    /// The smallest number.
    pub lowest: f64,
    /// The largest.
    pub highest: f64,
}

/// The charts of some runs, of which the first few are drawn, in the order in which they are shown.
pub fn charts(runs: &[Run], smoothing: Smoothing) -> Vec<Chart> {
    let runs = &runs[..runs.len().min(MOST_RUNS)];
    let mut charts: Vec<Chart> = ordered(runs)
        .into_iter()
        .map(|(section, title, axis, name)| {
            let series = runs.iter().enumerate().filter_map(|(at, run)| {
                let points: Vec<(f64, f64)> = run
                    .figures
                    .get(&name)?
                    .iter()
                    .map(|(step, number)| (*step as f64, *number))
                    .collect();
                let smooth = thin(&smoothing.line(&points), MOST_POINTS);
                Some(Series { run: run.name.clone(), at, raw: thin(&points, MOST_POINTS), smooth })
            });
            Chart { file: String::new(), title, axis, series: series.collect(), section, name }
        })
        .collect();
    name_files(&mut charts);
    charts
}

/// Every figure of every run in numbers, in the order of the charts.
pub fn summary(runs: &[Run]) -> Vec<Summary> {
    let figures = ordered(runs).into_iter();
    let each = figures.flat_map(|(_, title, _, name)| {
        let of_run = move |run: &Run| summed(run, &name, &title);
        runs.iter().filter_map(of_run).collect::<Vec<_>>()
    });
    each.collect()
}

fn summed(run: &Run, name: &str, title: &str) -> Option<Summary> {
    let figure: &BTreeMap<u64, f64> = run.figures.get(name)?;
    let numbers: Vec<f64> = figure.values().copied().collect();
    let tenth = (numbers.len() / 10).max(1);
    let mean =
        |numbers: &[f64]| numbers.iter().map(|number| number / numbers.len() as f64).sum::<f64>();
    Some(Summary {
        figure: name.to_owned(),
        title: title.to_owned(),
        run: run.name.clone(),
        steps: [*figure.first_key_value()?.0, *figure.last_key_value()?.0],
        first: mean(&numbers[..tenth]),
        last: mean(&numbers[numbers.len() - tenth..]),
        lowest: numbers.iter().copied().fold(f64::INFINITY, f64::min),
        highest: numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// The names of all figures with their sections, titles and axes.
fn ordered(runs: &[Run]) -> Vec<(Section, String, String, String)> {
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.figures.keys()).collect();
    let mut labelled: Vec<_> = names.into_iter().map(|name| (label(name), name.clone())).collect();
    labelled.sort_by(|(a, one), (b, other)| {
        (a.section, a.place, one).cmp(&(b.section, b.place, other))
    });
    labelled
        .into_iter()
        .map(|(label, name)| (label.section, label.title, label.axis, name))
        .collect()
}

/// Names may hold anything; files get plain ones, numbered where they would be the same.
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

    fn run(name: &str, figures: &[(&str, &[f64])]) -> Run {
        let figures = figures.iter().map(|(name, numbers)| {
            ((*name).to_owned(), (1..).zip(numbers.iter().copied()).collect::<BTreeMap<u64, f64>>())
        });
        Run { name: name.into(), figures: figures.collect(), bad_lines: 0 }
    }

    #[test]
    fn runs_lie_over_each_other() {
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
    fn files_have_names_of_their_own() {
        let runs =
            [run("a", &[("a/b", &[1.0]), ("a-b", &[1.0]), ("A b", &[1.0]), ("../x", &[1.0])])];
        let charts = charts(&runs, Smoothing::default());
        let files: BTreeSet<&str> = charts.iter().map(|chart| chart.file.as_str()).collect();
        assert_eq!(files, BTreeSet::from(["---x.svg", "a-b-2.svg", "a-b-3.svg", "a-b.svg"]));
    }

    #[test]
    fn numbers_are_summed_up() {
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
