//! The page and the SVG files: complete, self-contained, and safe with any name.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::svg;

fn run(name: &str, metrics: &[(&str, Vec<f64>)]) -> Run {
    let metrics = metrics.iter().map(|(name, numbers)| {
        ((*name).to_owned(), (1..).zip(numbers.iter().copied()).collect::<BTreeMap<u64, f64>>())
    });
    Run { name: name.into(), metrics: metrics.collect(), bad_lines: 0 }
}

fn rising(many: u32) -> Vec<f64> {
    (0..many).map(|at| f64::from(at) / f64::from(many)).collect()
}

/// Every element that is opened is closed, in order; attributes are quoted.
fn well_formed(markup: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = markup;
    while let Some(at) = rest.find('<') {
        let Some(end) = rest[at..].find('>') else { return false };
        let tag = &rest[at + 1..at + end];
        rest = &rest[at + end + 1..];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if !tag.matches('"').count().is_multiple_of(2) {
            return false;
        }
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) if open.pop() != Some(name) => return false,
            (false, false) => open.push(name),
            _ => {}
        }
    }
    open.is_empty()
}

#[test]
fn a_page_shows_every_metric_of_every_run() {
    let runs = [
        run(
            "first",
            &[("reward_mean", rising(30)), ("entropy", vec![2.0; 30]), ("use/files", rising(3))],
        ),
        run("second", &[("reward_mean", rising(2000)), ("validation/reward_mean", vec![0.5])]),
    ];
    let page = html(&runs, Smoothing::default());
    for text in [
        "first (to step 30)",
        "second (to step 2000)",
        ">Reward<",
        "Reward (validation)",
        ">Entropy<",
        "Sandbox use",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page.matches("<figure>").count(), 4);
    assert_eq!(page.matches("<polyline").count(), 5);
    assert!(
        !page.contains("http:")
            || page.matches("http:").count() == page.matches("http://www.w3.org/2000/svg").count()
    );
    assert!(!page.contains("https:") && page.len() < 1 << 20, "{}", page.len());
    assert_eq!(page, html(&runs, Smoothing::default()));
    for chart in charts(&runs, Smoothing::default()) {
        let file = svg(&chart);
        assert!(well_formed(&file), "{file}");
        assert!(
            file.contains("prefers-color-scheme:dark") && file.contains("<title>step 1: "),
            "{file}"
        );
    }
}

#[test]
fn validation_sets_have_bands_and_are_shown_before_and_after() {
    let runs = [run(
        "r",
        &[
            ("validation/gsm8k/success", vec![0.5, 0.6, 0.9]),
            ("validation/gsm8k/success_se", vec![0.05; 3]),
            ("validation/gsm8k/episodes", vec![300.0; 3]),
        ],
    )];
    let all = charts(&runs, Smoothing::default());
    let [chart] = &all[..] else { panic!("{all:?}") };
    assert_eq!((chart.title.as_str(), chart.series[0].band.len()), ("gsm8k: Success", 3));
    assert_eq!(chart.series[0].smooth, chart.series[0].raw, "few points are not smoothed");
    let file = svg(chart);
    assert!(file.contains("<polygon class=\"band s0\"") && well_formed(&file), "{file}");
    let page = html(&runs, Smoothing::default());
    assert!(page.contains("<h2>Validation sets</h2>") && page.contains("first validation"));
    assert!(!page.contains("success_se") && page.contains("gsm8k: Episodes"));
}

#[test]
fn points_lie_within_the_plot_whatever_the_numbers() {
    let extreme = [1e100, -1e100, 0.0, 1e-300, 5.0];
    for numbers in [vec![0.0], vec![1e-6; 3], extreme.to_vec(), vec![-1.0, -1.0], rising(1)] {
        let chart = charts(&[run("r", &[("x", numbers.clone())])], Smoothing::default()).remove(0);
        let file = svg(&chart);
        assert!(!file.contains("NaN") && !file.contains("inf"), "{numbers:?}: {file}");
        for position in file.split("cy=\"").skip(1) {
            let y: f64 = position.split('"').next().unwrap().parse().unwrap();
            assert!((30.0..220.0).contains(&y), "{numbers:?}: {y}");
        }
    }
}

#[test]
fn a_file_has_plain_colors_for_viewers_without_variables() {
    let chart = charts(&[run("r", &[("loss", rising(3))])], Smoothing::default()).remove(0);
    let file = svg(&chart);
    let variables: Vec<_> = file.match_indices(":var(").collect();
    assert!(variables.len() > 20);
    for (at, _) in variables {
        let before = &file[..at];
        let property = before.rsplit([';', '{']).next().unwrap();
        let plain =
            before[..at - property.len()].trim_end_matches(';').rsplit([';', '{']).next().unwrap();
        assert!(plain.starts_with(&format!("{property}:#")), "{plain} before {property}");
    }
}

#[test]
fn runs_beyond_the_palette_are_counted() {
    let runs: Vec<Run> =
        (0..MOST_RUNS + 2).map(|at| run(&format!("r{at}"), &[("loss", rising(3))])).collect();
    let page = html(&runs, Smoothing::default());
    assert!(page.contains("and 2 more, in the table only"));
    assert_eq!(page.matches("<polyline").count(), MOST_RUNS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_name_becomes_markup(name in "\\PC{0,20}", metric in "\\PC{1,20}", numbers in prop::collection::vec(-1e9..1e9, 1..6)) {
        let runs = [run(&format!("{name}</title><img onerror=x>\u{1}"), &[(&metric, numbers)])];
        let page = html(&runs, Smoothing::default());
        let control = '\u{1}';
        prop_assert!(!page.contains("<img") && !page.contains(control));
        let chart = charts(&runs, Smoothing::default()).remove(0);
        prop_assert!(well_formed(&svg(&chart)));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        prop_assert!(chart.file.chars().all(plain));
    }
}
