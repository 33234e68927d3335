//! The statistics against scipy and statsmodels; `tests/oracle/make.py` computed the expected values.

use lis_report::stats::{self, Test};
use serde::Deserialize;

#[derive(Deserialize)]
struct Oracle {
    clusters: Vec<Clusters>,
    mcnemar: Vec<Discordant>,
    sign_flips: Vec<Flips>,
    intervals: Vec<Intervals>,
    holm: Vec<Adjusted>,
    pass_at_k: Vec<Passes>,
}

#[derive(Deserialize)]
struct Clusters {
    problems: Vec<Vec<f64>>,
    mean: f64,
    se: f64,
}

#[derive(Deserialize)]
struct Discordant {
    better: usize,
    worse: usize,
    p: f64,
}

#[derive(Deserialize)]
struct Flips {
    differences: Vec<f64>,
    exact: bool,
    p: f64,
}

#[derive(Deserialize)]
struct Intervals {
    differences: Vec<f64>,
    mean: f64,
    se: f64,
    normal: [f64; 2],
    bootstrap: [f64; 2],
    detectable: f64,
}

#[derive(Deserialize)]
struct Adjusted {
    p: Vec<f64>,
    holm: Vec<f64>,
}

#[derive(Deserialize)]
struct Passes {
    n: usize,
    c: usize,
    k: usize,
    pass: f64,
}

fn oracle() -> Oracle {
    serde_json::from_str(include_str!("../oracle/statistics.json")).unwrap()
}

fn close(one: f64, other: f64, within: f64) {
    assert!((one - other).abs() <= within, "{one} is not {other}");
}

#[test]
fn clustered_errors() {
    for case in oracle().clusters {
        let found = stats::clustered(&case.problems).unwrap();
        close(found.mean, case.mean, 1e-12);
        close(found.se.unwrap(), case.se, 1e-12);
    }
}

#[test]
fn mcnemars_test() {
    for case in oracle().mcnemar {
        let found = stats::mcnemar(case.better, case.worse);
        close(found, case.p, 1e-10 * case.p.max(1e-3));
    }
}

#[test]
fn flips_of_signs() {
    for case in oracle().sign_flips {
        let (found, test) = stats::sign_flips(&case.differences);
        assert!(!case.exact || test == Test::SignFlipsExact);
        // The oracle draws at random where there are too many patterns.
        close(found, case.p, if case.exact { 1e-12 } else { 0.015 });
    }
}

#[test]
fn intervals() {
    for case in oracle().intervals {
        let pairs: Vec<_> = case.differences.iter().map(|d| (vec![0.5], vec![0.5 + d])).collect();
        let found = stats::paired(&pairs).unwrap();
        close(found.difference, case.mean, 1e-12);
        let se = found.se.unwrap();
        close(se, case.se, 1e-12);
        close(found.minimum_detectable_effect.unwrap(), case.detectable, 1e-12);
        let (normal, drawn) = (found.normal.unwrap(), found.bootstrap.unwrap());
        for at in 0..2 {
            close(normal[at], case.normal[at], 1e-12);
            close(drawn[at], case.bootstrap[at], 0.08 * se);
        }
    }
}

#[test]
fn holms_correction() {
    for case in oracle().holm {
        let found = stats::holm(&case.p);
        found.iter().zip(&case.holm).for_each(|(one, other)| close(*one, *other, 1e-12));
    }
}

#[test]
fn chances_to_pass() {
    for case in oracle().pass_at_k {
        close(stats::pass_at_k(case.n, case.c, case.k).unwrap(), case.pass, 1e-10);
    }
}
