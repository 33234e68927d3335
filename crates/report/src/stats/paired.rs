//! Paired comparison: each problem on one side against the same problem on the other.
//!
//! The sides are two runs, or one run without and with the sandbox. Problems are the independent units; repeats of a
//! problem are averaged first.

use seeded::SplitMix64;
use serde::{Deserialize, Serialize};

use super::{SEED, Test, Z_80, Z_975, mcnemar, mean, sign_flips};

/// Random draws per bootstrap, at most about.
const DRAWS: usize = 4_000_000;

/// With at most this many nonzero differences no test reaches p < 0.05: the least p is 2 in 2^5.
const TOO_FEW: usize = 5;

/// Scores of one problem: those of the baseline, and those of the side compared with it.
pub type Scores = (Vec<f64>, Vec<f64>);

/// Paired difference over problems attempted on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// Number of problems.
    pub problems: usize,
    /// Mean over problems of the score minus the baseline's score.
    pub difference: f64,
    /// Standard error; absent with a single problem.
    pub se: Option<f64>,
    /// 95% confidence interval by normal approximation; absent, like the next, where all differences are equal and the
    /// standard error says nothing.
    pub normal: Option<[f64; 2]>,
    /// 95% percentile bootstrap interval over problems.
    pub bootstrap: Option<[f64; 2]>,
    /// Number of bootstrap resamples.
    pub resamples: usize,
    /// Two-sided p-value under the null hypothesis that both sides are alike.
    pub p: f64,
    /// Test behind the p-value.
    pub test: Test,
    /// Minimum detectable effect at 5% significance and 80% power, from the observed standard error; for the McNemar test
    /// at least the effect with enough discordant pairs. Absent with too few problems to reach p < 0.05.
    #[serde(rename = "detectable")]
    pub minimum_detectable_effect: Option<f64>,
    /// Problems that scored higher than in the baseline.
    pub better: usize,
    /// Problems that scored lower.
    pub worse: usize,
}

/// Compares two sides of one task. Problems without scores on both sides are excluded; `None` where none remain.
pub fn paired(problems: &[Scores]) -> Option<Paired> {
    paired_average(&[problems])
}

/// Compares two sides over several tasks: the difference is the unweighted mean of the tasks' differences, problems are
/// resampled within their task, and their signs are flipped with the weight they have in the mean. Tasks without a pair
/// are excluded; `None` where none remain.
pub fn paired_average(tasks: &[&[Scores]]) -> Option<Paired> {
    let both = |(base, other): &&Scores| !base.is_empty() && !other.is_empty();
    let tasks: Vec<Vec<&Scores>> =
        tasks.iter().map(|problems| problems.iter().filter(both).collect()).collect();
    let differences: Vec<Vec<f64>> = tasks
        .iter()
        .filter(|problems| !problems.is_empty())
        .map(|task| of_problems(task))
        .collect();
    let difference = mean(differences.iter().filter_map(|task| mean(task.iter().copied())))?;
    let se = standard_error_of_average(&differences);
    let all = || differences.iter().flatten().copied();
    let problems = all().count();
    let better = all().filter(|d| *d > 1e-12).count();
    let worse = all().filter(|d| *d < -1e-12).count();
    let single = |scores: &[f64]| matches!(scores, [score] if *score == 0.0 || *score == 1.0);
    let singles = tasks.iter().flatten().all(|(base, other)| single(base) && single(other));
    let (p, test) = match &differences[..] {
        [_] if singles => (mcnemar(better, worse), Test::Mcnemar),
        [task] => sign_flips(task),
        several => sign_flips(&weighted(several)),
    };
    let resamples = resamples(problems);
    let varies = se.filter(|se| *se > 1e-12);
    Some(Paired {
        problems,
        difference,
        se,
        normal: varies.map(|se| [difference - Z_975 * se, difference + Z_975 * se]),
        bootstrap: varies.and_then(|_| bootstrap(&differences, resamples)),
        resamples,
        p,
        test,
        minimum_detectable_effect: minimum_detectable_effect(problems, varies, test),
        better,
        worse,
    })
}

/// The difference of each problem, over the means of its repeats.
fn of_problems(problems: &[&Scores]) -> Vec<f64> {
    let average = |scores: &[f64]| scores.iter().sum::<f64>() / scores.len() as f64;
    problems.iter().map(|(base, other)| average(other) - average(base)).collect()
}

/// Standard error of the mean over independent tasks; `None` where a task has a single problem.
fn standard_error_of_average(tasks: &[Vec<f64>]) -> Option<f64> {
    let squares: Option<f64> = tasks.iter().map(|task| Some(standard_error(task)?.powi(2))).sum();
    Some(squares?.sqrt() / tasks.len() as f64)
}

/// Differences of all tasks, scaled so that their plain mean is the mean over tasks.
fn weighted(tasks: &[Vec<f64>]) -> Vec<f64> {
    let share = tasks.iter().map(Vec::len).sum::<usize>() as f64 / tasks.len() as f64;
    let scaled = |task: &Vec<f64>| {
        let weight = share / task.len() as f64;
        task.iter().map(move |difference| difference * weight).collect::<Vec<_>>()
    };
    tasks.iter().flat_map(scaled).collect()
}

fn minimum_detectable_effect(problems: usize, se: Option<f64>, test: Test) -> Option<f64> {
    let from_se = se.map(|se| (Z_975 + Z_80) * se).filter(|_| problems > TOO_FEW);
    match test {
        // With few discordant pairs the observed standard error is too small for larger effects.
        Test::Mcnemar => Some(least_discordant_share(problems)?.max(from_se.unwrap_or(0.0))),
        Test::SignFlipsExact | Test::SignFlips => from_se,
    }
}

/// Share of problems that must differ, all in one direction, for more than [`TOO_FEW`] discordant pairs with 80%
/// probability.
fn least_discordant_share(problems: usize) -> Option<f64> {
    if problems <= TOO_FEW {
        return None;
    }
    let count = problems as f64;
    let too_few = |share: f64| {
        let mut exactly = (count * (-share).ln_1p()).exp();
        let mut sum = exactly;
        for at in 0..TOO_FEW {
            exactly *= (count - at as f64) / (at as f64 + 1.0) * share / (1.0 - share);
            sum += exactly;
        }
        sum
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if too_few(middle) > 0.2 { low = middle } else { high = middle }
    }
    Some(high)
}

/// Quantile of sorted numbers, with linear interpolation.
pub(super) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let position = share * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    let (low, high, part) = (sorted.get(low)?, sorted.get(high)?, position.fract());
    Some(low + (high - low) * part)
}

fn standard_error(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = mean(values.iter().copied())?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt())
}

/// Number of resamples: fewer for more problems, to bound the time.
fn resamples(problems: usize) -> usize {
    (DRAWS / problems.max(1)).clamp(1_000, 10_000)
}

/// Percentile interval of the mean over tasks; problems are resampled within their task.
fn bootstrap(tasks: &[Vec<f64>], rounds: usize) -> Option<[f64; 2]> {
    let mut random = SplitMix64::new(SEED);
    let mut draw = |task: &[f64]| {
        let count = task.len();
        (0..count).map(|_| task[random.below(count)]).sum::<f64>() / count as f64
    };
    let mut round = || tasks.iter().map(|task| draw(task)).sum::<f64>() / tasks.len() as f64;
    let mut means: Vec<f64> = (0..rounds).map(|_| round()).collect();
    means.sort_by(f64::total_cmp);
    Some([quantile(&means, 0.025)?, quantile(&means, 0.975)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn singles(without: &[f64], with: &[f64]) -> Vec<(Vec<f64>, Vec<f64>)> {
        without.iter().zip(with).map(|(a, b)| (vec![*a], vec![*b])).collect()
    }

    #[test]
    fn one_attempt_each_way_is_mcnemars_case() {
        let pairs = singles(&[0.0, 0.0, 0.0, 1.0, 1.0, 0.0], &[1.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
        let found = paired(&pairs).unwrap();
        assert_eq!((found.better, found.worse, found.test), (4, 1, Test::Mcnemar));
        assert!((found.p - 0.375).abs() < 1e-12, "{}", found.p);
        assert!((found.difference - 0.5).abs() < 1e-12);
        let parts = singles(&[0.5, 0.0], &[1.0, 1.0]);
        assert_eq!(paired(&parts).unwrap().test, Test::SignFlipsExact);
    }

    #[test]
    fn equal_scores_have_no_interval() {
        let same = paired(&singles(&[1.0, 0.0], &[1.0, 0.0])).unwrap();
        assert_eq!((same.p, same.minimum_detectable_effect, same.normal), (1.0, None, None));
        let same = paired(&singles(&[1.0; 40], &[1.0; 40])).unwrap();
        assert_eq!(
            (same.normal, same.minimum_detectable_effect),
            (None, least_discordant_share(40))
        );
        let one = paired(&singles(&[0.0], &[1.0])).unwrap();
        assert_eq!((one.se, one.bootstrap, one.p), (None, None, 1.0));
        assert_eq!(paired(&[(vec![], vec![1.0])]), None);
        assert_eq!(paired(&[]), None);
    }

    #[test]
    fn the_minimum_detectable_effect_is_within_reach_of_the_test() {
        // Shares at which a binomial variable is at least 6 with 80% probability.
        for (problems, share) in [
            (6, 0.963_492_483_998_996_1),
            (40, 0.190_463_788_405_037_17),
            (500, 0.015_766_036_916_001_702),
        ] {
            assert!((least_discordant_share(problems).unwrap() - share).abs() < 1e-9, "{problems}");
        }
        assert_eq!(least_discordant_share(5), None);
        assert!(least_discordant_share(1_000_000).unwrap() < 1e-5);
        // One discordant pair of 40: the standard error alone would promise 7 points.
        let mut with = [0.0; 40];
        with[0] = 1.0;
        let found = paired(&singles(&[0.0; 40], &with)).unwrap();
        assert!(found.se.unwrap() < 0.026);
        assert_eq!(found.minimum_detectable_effect, least_discordant_share(40));
        // With many discordant pairs the standard error decides.
        let many: Vec<f64> = (0..40).map(|at| f64::from(at % 2)).collect();
        let found = paired(&singles(&many, &[many.as_slice(), &[0.0]].concat()[1..])).unwrap();
        assert!(
            (found.minimum_detectable_effect.unwrap() - (Z_975 + Z_80) * found.se.unwrap()).abs()
                < 1e-12
        );
    }

    #[test]
    fn the_average_weighs_tasks_equally() {
        // Differences: first task 1 and 0, mean 0.5; second task 1, -1, 0 and 0, mean 0.
        let one = singles(&[0.0, 1.0], &[1.0, 1.0]);
        let two = singles(&[0.0, 1.0, 0.0, 1.0], &[1.0, 0.0, 0.0, 1.0]);
        let found = paired_average(&[&one, &two]).unwrap();
        assert_eq!((found.problems, found.better, found.worse), (6, 2, 1));
        assert!((found.difference - 0.25).abs() < 1e-12);
        // Variances of the means: 0.5 / 2 = 0.25 and (2 / 3) / 4 = 1/6; the root of their sum, halved.
        let se = (0.25_f64 + 1.0 / 6.0).sqrt() / 2.0;
        assert!((found.se.unwrap() - se).abs() < 1e-12);
        // Weighted 2 to 1: of the eight sums ±2 ±1 ±1, six are at least the observed 2 in size.
        assert_eq!((found.p, found.test), (0.75, Test::SignFlipsExact));
        assert_eq!(paired_average(&[&one, &[]]).unwrap(), paired(&one).unwrap());
        assert_eq!(paired_average(&[&[], &[]]), None);
        assert_eq!(paired_average(&[]), None);
    }

    #[test]
    fn repeats_are_averaged_within_the_problem() {
        // Differences 0.5, 0 and -0.25: no sum ±0.5 ±0.25 is smaller than the observed 0.25.
        let problems = vec![
            (vec![0.0, 1.0], vec![1.0]),
            (vec![1.0], vec![1.0, 1.0, 1.0]),
            (vec![1.0, 1.0], vec![1.0, 1.0, 0.0, 1.0]),
        ];
        let found = paired(&problems).unwrap();
        assert!((found.difference - 0.25 / 3.0).abs() < 1e-12);
        assert_eq!((found.p, found.test), (1.0, Test::SignFlipsExact));
    }
}
