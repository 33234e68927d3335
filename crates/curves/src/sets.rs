//! Validation sets: metrics `validation/SET/METRIC`, of which the main ones are drawn, with bands from standard errors; and
//! each set before and after.

use std::collections::{BTreeMap, BTreeSet};

use plot::{Bar, BarRow, Color, bars};

use crate::{Run, chart::MOST_RUNS};

/// Metrics of a set that have a chart; the others are in the table.
const DRAWN: [&str; 4] = ["success", "raw_reward_mean", "turns_mean", "response_tokens_mean"];

/// First parts of names below `validation/` that are not sets.
const NOT_SETS: [&str; 3] = ["end", "use", "seconds"];

/// Half the width of a 95% interval, in standard errors.
const Z_975: f64 = 1.96;

/// The validation set that a metric is about.
pub fn set_of(name: &str) -> Option<&str> {
    split(name).map(|(set, _)| set)
}

/// The set and the metric of a name.
pub(crate) fn split(name: &str) -> Option<(&str, &str)> {
    let (set, metric) = name.strip_prefix("validation/")?.split_once('/')?;
    (!NOT_SETS.contains(&set) && !set.is_empty()).then_some((set, metric))
}

/// Whether a metric has a chart.
pub(crate) fn is_drawn(name: &str) -> bool {
    split(name).is_none_or(|(_, metric)| DRAWN.contains(&metric))
}

/// Whether a metric is the standard error of another one.
pub(crate) fn is_standard_error(run: &Run, name: &str) -> bool {
    name.strip_suffix("_se").is_some_and(|of| run.metrics.contains_key(of))
}

/// The 95% confidence intervals of a metric, by step, where the run has its standard errors.
pub(crate) fn band(run: &Run, name: &str) -> Vec<(f64, [f64; 2])> {
    let (Some(values), Some(errors)) =
        (run.metrics.get(name), run.metrics.get(&format!("{name}_se")))
    else {
        return Vec::new();
    };
    let of_step =
        |(step, error): (&u64, &f64)| Some((*step as f64, interval(*values.get(step)?, *error)));
    errors.iter().filter_map(of_step).collect()
}

fn interval(mean: f64, error: f64) -> [f64; 2] {
    let half = Z_975 * error.abs();
    [(mean - half).max(0.0), (mean + half).min(1.0)]
}

/// Draws the success on every set of every run at its first and its last validation; `None` where there are no sets.
pub(crate) fn before_and_after(runs: &[Run]) -> Option<String> {
    let several = runs.len() > 1;
    let mut rows = Vec::new();
    for run in runs.iter().take(MOST_RUNS) {
        let sets: BTreeSet<&str> =
            run.metrics.keys().filter_map(|name| split(name)).map(|(set, _)| set).collect();
        for set in sets {
            let name = format!("validation/{set}/success");
            let Some(values) = run.metrics.get(&name) else { continue };
            rows.push(BarRow {
                group: if several { run.name.clone() } else { String::new() },
                label: set.to_owned(),
                bars: of_set(values, &band(run, &name)),
            });
        }
    }
    bars(&rows, "Success on each validation set, before and after training")
}

fn of_set(values: &BTreeMap<u64, f64>, band: &[(f64, [f64; 2])]) -> Vec<Bar> {
    let bar = |color, name, step: u64, value: f64| {
        let interval = band.iter().find(|(at, _)| *at == step as f64).map(|(_, ends)| *ends);
        Bar { color, name, value: value.clamp(0.0, 1.0), interval }
    };
    let first = values.first_key_value().map(|(step, value)| (*step, *value));
    let last = values.last_key_value().map(|(step, value)| (*step, *value));
    let first = first.filter(|_| values.len() > 1);
    let first = first.map(|(step, value)| bar(Color::Pale, "first validation", step, value));
    let last = last.map(|(step, value)| bar(Color::Series(0), "last validation", step, value));
    first.into_iter().chain(last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(metrics: &[(&str, &[(u64, f64)])]) -> Run {
        let metrics = metrics
            .iter()
            .map(|(name, numbers)| ((*name).to_owned(), numbers.iter().copied().collect()));
        Run { name: "r".into(), metrics: metrics.collect(), bad_lines: 0 }
    }

    #[test]
    fn names_have_a_set_and_a_metric() {
        assert_eq!(split("validation/gsm8k/use/files"), Some(("gsm8k", "use/files")));
        for name in
            ["validation/success", "validation/use/files", "validation/end/timeout", "success"]
        {
            assert_eq!(split(name), None, "{name}");
        }
        assert!(is_drawn("validation/gsm8k/success") && is_drawn("validation/use/files"));
        assert!(!is_drawn("validation/gsm8k/use/files"));
    }

    #[test]
    fn a_band_is_twice_the_standard_error_wide() {
        let name = "validation/gsm8k/success";
        let run = run(&[
            (name, &[(0, 0.5), (10, 0.99), (20, 0.7)]),
            ("validation/gsm8k/success_se", &[(0, 0.1), (10, 0.1)]),
        ]);
        let band = band(&run, name);
        assert_eq!(band.len(), 2);
        let [low, high] = band[0].1;
        assert!((low - 0.304).abs() < 1e-12 && (high - 0.696).abs() < 1e-12, "{low} {high}");
        assert_eq!(band[1].1[1], 1.0);
        assert!(is_standard_error(&run, "validation/gsm8k/success_se"));
        assert!(!is_standard_error(&run, name));
        let drawn = before_and_after(&[run]).unwrap();
        assert!(drawn.contains("gsm8k") && drawn.contains("first validation"), "{drawn}");
        assert!(drawn.contains("50.0%") && drawn.contains("70.0%"), "{drawn}");
        assert_eq!(before_and_after(&[]), None);
    }
}
