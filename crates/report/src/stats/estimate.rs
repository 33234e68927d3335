//! Means over problems with their standard errors. Attempts at one problem are not independent, so each problem counts once,
//! by the mean of its attempts.

use serde::{Deserialize, Serialize};

use super::Z_975;

/// A mean with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean over problems of the mean of their attempts.
    pub mean: f64,
    /// Standard error of the mean over problems; absent with a single problem.
    pub se: Option<f64>,
    /// 95% confidence interval, clipped to 0 and 1: ±1.96 standard errors; the Wilson interval where all problems scored
    /// alike and the standard error is 0.
    pub interval: Option<[f64; 2]>,
    /// Number of problems.
    pub problems: usize,
    /// Number of attempts.
    pub attempts: usize,
}

/// Mean over problems; each inner list holds the scores of the attempts at one problem. `None` without scores.
///
/// Every problem has the same weight, however many of its attempts are valid, as in paired comparisons. With equally many
/// attempts per problem the mean is that of all attempts, and the standard error the cluster-robust one of a regression
/// on a constant with the factor G/(G-1) for G problems.
pub fn clustered(problems: &[Vec<f64>]) -> Option<Estimate> {
    let means: Vec<f64> =
        problems.iter().filter_map(|scores| mean(scores.iter().copied())).collect();
    let center = mean(means.iter().copied())?;
    let count = means.len() as f64;
    let squares: f64 = means.iter().map(|mean| (mean - center).powi(2)).sum();
    let se = (means.len() > 1).then(|| (squares / (count * (count - 1.0))).sqrt());
    let interval = se.map(|se| interval(center, se, count));
    let attempts = problems.iter().map(Vec::len).sum();
    Some(Estimate { mean: center, se, interval, problems: means.len(), attempts })
}

fn interval(mean: f64, se: f64, problems: f64) -> [f64; 2] {
    let (center, half_width) = if se < 1e-12 { wilson(mean, problems) } else { (mean, Z_975 * se) };
    let low = if mean == 0.0 { 0.0 } else { (center - half_width).max(0.0) };
    let high = if mean == 1.0 { 1.0 } else { (center + half_width).min(1.0) };
    [low, high]
}

/// Center and half-width of the Wilson interval.
fn wilson(mean: f64, problems: f64) -> (f64, f64) {
    let square = Z_975 * Z_975;
    let spread = mean * (1.0 - mean) / problems + square / (4.0 * problems * problems);
    let shrunk = 1.0 + square / problems;
    ((mean + square / (2.0 * problems)) / shrunk, Z_975 * spread.sqrt() / shrunk)
}

/// Arithmetic mean; `None` without values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0_u64);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}

/// Median; `None` without values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    super::paired::quantile(&values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_clusters_give_the_standard_error_of_problem_means() {
        let problems = [vec![1.0, 0.0], vec![1.0, 1.0], vec![0.0, 0.0]];
        let estimate = clustered(&problems).unwrap();
        assert_eq!((estimate.mean, estimate.problems, estimate.attempts), (0.5, 3, 6));
        // The problems' means are 0.5, 1 and 0: standard deviation 0.5, over the root of 3.
        assert!((estimate.se.unwrap() - 0.5 / 3.0_f64.sqrt()).abs() < 1e-15);
    }

    #[test]
    fn a_problem_counts_once_however_often_it_was_attempted() {
        let problems = [vec![1.0; 16], vec![0.0], vec![], vec![1.0, 0.0]];
        let estimate = clustered(&problems).unwrap();
        assert_eq!((estimate.mean, estimate.problems, estimate.attempts), (0.5, 3, 19));
        assert!((estimate.se.unwrap() - 0.5 / 3.0_f64.sqrt()).abs() < 1e-15);
    }

    #[test]
    fn little_data_claims_no_precision() {
        assert_eq!(clustered(&[]), None);
        assert_eq!(clustered(&[vec![]]), None);
        let one = clustered(&[vec![1.0, 0.0, 1.0, 1.0]]).unwrap();
        assert_eq!((one.mean, one.se, one.problems), (0.75, None, 1));
    }

    #[test]
    fn equal_scores_get_a_wilson_interval() {
        let none = clustered(&vec![vec![0.0; 4]; 40]).unwrap();
        // statsmodels: proportion_confint(0, 40, method="wilson").
        let [low, high] = none.interval.unwrap();
        assert!(low == 0.0 && (high - 0.087_621_601_197_286_68).abs() < 1e-12, "{high}");
        let all = clustered(&vec![vec![1.0]; 40]).unwrap().interval.unwrap();
        assert!((all[0] + high - 1.0).abs() < 1e-12 && all[1] == 1.0);
        let half = clustered(&vec![vec![1.0, 0.0]; 40]).unwrap().interval.unwrap();
        // statsmodels: proportion_confint(20, 40, method="wilson").
        assert!(
            (half[0] - 0.351_995_269_334_653_86).abs() < 1e-12
                && (half[0] + half[1] - 1.0).abs() < 1e-12
        );
        let most = clustered(&[vec![1.0], vec![1.0], vec![0.9]]).unwrap().interval.unwrap();
        assert_eq!(most[1], 1.0);
    }

    #[test]
    fn repeats_do_not_reduce_the_standard_error() {
        let once = [vec![1.0], vec![0.0], vec![0.0], vec![1.0], vec![1.0]];
        let often: Vec<Vec<f64>> = once.iter().map(|scores| scores.repeat(16)).collect();
        let (once, often) = (clustered(&once).unwrap(), clustered(&often).unwrap());
        assert!((once.se.unwrap() - often.se.unwrap()).abs() < 1e-12);
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
