//! Paired comparison of two modes: each problem with the sandbox against the same problem without it.
//!
//! Problems are the independent units; repeats of a problem are averaged first.

use seeded::SplitMix64;
use serde::{Deserialize, Serialize};

use super::{SEED, Z_80, Z_975};

/// Random draws per bootstrap or permutation test, at most about.
const DRAWS: usize = 4_000_000;

/// Nonzero differences up to which the permutation test is exact.
const EXACT: usize = 16;

/// With at most this many nonzero differences no test reaches p < 0.05: the least p is 2 in 2^5.
const TOO_FEW: usize = 5;

/// Test behind a p-value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// Exact McNemar test: every score is 0 or 1 and every problem has one attempt per mode.
    Mcnemar,
    /// Exact sign-flip permutation test on the problems' differences.
    SignFlipsExact,
    /// Monte Carlo sign-flip permutation test.
    SignFlips,
}

/// Paired difference over problems attempted in both modes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// Number of problems.
    pub problems: usize,
    /// Mean over problems of the score with minus the score without a sandbox.
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
    /// Two-sided p-value under the null hypothesis that the sandbox changes nothing.
    pub p: f64,
    /// Test behind the p-value.
    pub test: Test,
    /// Minimum detectable effect at 5% significance and 80% power, from the observed standard error; for the McNemar test
    /// at least the effect with enough discordant pairs. Absent with too few problems to reach p < 0.05.
    #[serde(rename = "detectable")]
    pub minimum_detectable_effect: Option<f64>,
    /// Problems that scored higher with the sandbox.
    pub better: usize,
    /// Problems that scored lower.
    pub worse: usize,
}

/// Compares modes. Each pair holds a problem's scores without and with the sandbox; problems that lack either are
/// excluded. `None` where none remain.
pub fn paired(problems: &[(Vec<f64>, Vec<f64>)]) -> Option<Paired> {
    let both = |(without, with): &&(Vec<f64>, Vec<f64>)| !without.is_empty() && !with.is_empty();
    let problems: Vec<_> = problems.iter().filter(both).collect();
    let average = |scores: &[f64]| scores.iter().sum::<f64>() / scores.len() as f64;
    let differences: Vec<f64> =
        problems.iter().map(|(without, with)| average(with) - average(without)).collect();
    let difference = super::mean(differences.iter().copied())?;
    let se = standard_error(&differences, difference);
    let better = differences.iter().filter(|d| **d > 1e-12).count();
    let worse = differences.iter().filter(|d| **d < -1e-12).count();
    let single = |scores: &[f64]| matches!(scores, [score] if *score == 0.0 || *score == 1.0);
    let (p, test) = if problems.iter().all(|(a, b)| single(a) && single(b)) {
        (mcnemar(better, worse), Test::Mcnemar)
    } else {
        sign_flips(&differences)
    };
    let resamples = resamples(differences.len());
    let varies = se.filter(|se| *se > 1e-12);
    Some(Paired {
        problems: differences.len(),
        difference,
        se,
        normal: varies.map(|se| [difference - Z_975 * se, difference + Z_975 * se]),
        bootstrap: varies.and_then(|_| bootstrap(&differences, resamples)),
        resamples,
        p,
        test,
        minimum_detectable_effect: minimum_detectable_effect(differences.len(), varies, test),
        better,
        worse,
    })
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

/// Two-sided p-value of the exact McNemar test, from the counts of discordant pairs.
pub fn mcnemar(better: usize, worse: usize) -> f64 {
    let (pairs, fewer) = (better + worse, better.min(worse));
    // The logarithm of the probability of exactly `fewer`, then the rest of the tail as multiples of it.
    let choose: f64 = (0..fewer).map(|at| ((pairs - at) as f64 / (at + 1) as f64).ln()).sum();
    let exactly = (choose - pairs as f64 * std::f64::consts::LN_2).exp();
    let (mut share, mut tail) = (1.0, 1.0);
    for at in (1..=fewer).rev() {
        share *= at as f64 / (pairs - at + 1) as f64;
        tail += share;
    }
    (2.0 * exactly * tail).min(1.0)
}

/// Two-sided p-value of the sign-flip permutation test, exact with few nonzero differences.
pub fn sign_flips(differences: &[f64]) -> (f64, Test) {
    let moved: Vec<f64> = differences.iter().copied().filter(|d| d.abs() > 1e-12).collect();
    let observed = moved.iter().sum::<f64>().abs() - 1e-9;
    let sum = |bits: &mut dyn FnMut() -> u64| {
        let chunks = moved.chunks(64);
        chunks.map(|chunk| signed_sum(chunk, bits())).sum::<f64>().abs()
    };
    if moved.len() <= EXACT {
        let patterns = 1_u64 << moved.len();
        let extreme = (0..patterns).filter(|pattern| sum(&mut || *pattern) >= observed).count();
        return (extreme as f64 / patterns as f64, Test::SignFlipsExact);
    }
    let mut random = SplitMix64::new(SEED ^ 1);
    let rounds = resamples(moved.len());
    let extreme = (0..rounds).filter(|_| sum(&mut || random.next_u64()) >= observed).count();
    // Counts the observed signs as one permutation; otherwise p could be 0.
    ((extreme + 1) as f64 / (rounds + 1) as f64, Test::SignFlips)
}

/// Holm-corrected p-values, which control the family-wise error rate.
pub fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut adjusted = vec![1.0; values.len()];
    let mut least = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        least = least.max((values[at] * (values.len() - rank) as f64).min(1.0));
        adjusted[at] = least;
    }
    adjusted
}

/// Quantile of sorted numbers, with linear interpolation.
pub(super) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let position = share * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    let (low, high, part) = (sorted.get(low)?, sorted.get(high)?, position.fract());
    Some(low + (high - low) * part)
}

fn standard_error(values: &[f64], mean: f64) -> Option<f64> {
    let count = values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt())
}

/// Number of resamples: fewer for more problems, to bound the time.
fn resamples(problems: usize) -> usize {
    (DRAWS / problems.max(1)).clamp(1_000, 10_000)
}

fn bootstrap(differences: &[f64], rounds: usize) -> Option<[f64; 2]> {
    let count = differences.len();
    if count < 2 {
        return None;
    }
    let mut random = SplitMix64::new(SEED);
    let mut draw = || (0..count).map(|_| differences[random.below(count)]).sum::<f64>();
    let mut means: Vec<f64> = (0..rounds).map(|_| draw() / count as f64).collect();
    means.sort_by(f64::total_cmp);
    Some([quantile(&means, 0.025)?, quantile(&means, 0.975)?])
}

fn signed_sum(values: &[f64], signs: u64) -> f64 {
    let signed = |(at, value): (usize, &f64)| if signs >> at & 1 == 1 { -value } else { *value };
    values.iter().enumerate().map(signed).sum()
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
    fn few_differences_are_tested_exactly() {
        let (p, test) = sign_flips(&[0.5, 0.25, 0.0, 0.75]);
        assert_eq!((p, test), (0.25, Test::SignFlipsExact));
        // 17 equal differences: only all-plus and all-minus are as extreme, 2 in 2^17.
        let (p, test) = sign_flips(&[0.5; 17]);
        assert_eq!(test, Test::SignFlips);
        assert!(p < 0.001, "{p}");
        let (p, _) = sign_flips(&[0.5, -0.5].repeat(50));
        assert!(p > 0.9, "{p}");
    }

    #[test]
    fn large_counts_do_not_underflow() {
        assert!(mcnemar(25_000, 25_000) > 0.99);
        let p = mcnemar(25_600, 24_400);
        // The normal approximation with continuity: z = 1199 / sqrt(50000) = 5.362, p = 8.2e-8.
        assert!((7e-8..1e-7).contains(&p), "{p}");
        assert_eq!(mcnemar(0, 0), 1.0);
        assert!(mcnemar(40_000, 0) < 1e-300);
    }
}
