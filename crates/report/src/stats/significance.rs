//! Exact and Monte Carlo tests of paired differences, and the correction for many of them.

use seeded::SplitMix64;
use serde::{Deserialize, Serialize};

use super::SEED;

/// Nonzero differences up to which all signs are enumerated.
const ENUMERATED: usize = 16;

/// Random flips of the Monte Carlo test.
const ROUNDS: usize = 10_000;

/// Largest denominator of differences that count as multiples of a common unit.
const LARGEST_DENOMINATOR: u32 = 1_000;

/// Additions that the exact distribution of a sum may take.
const MOST_ADDITIONS: f64 = 5e7;

/// Test behind a p-value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// Exact McNemar test: every score is 0 or 1 and every problem has one attempt on each side.
    Mcnemar,
    /// Exact sign-flip permutation test on the problems' differences.
    SignFlipsExact,
    /// Monte Carlo sign-flip permutation test.
    SignFlips,
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

/// Two-sided p-value of the sign-flip permutation test on the sum of the differences.
///
/// Exact where the differences are multiples of a common unit, as means of passed and failed attempts are, and where few
/// are nonzero; a Monte Carlo estimate elsewhere.
pub fn sign_flips(differences: &[f64]) -> (f64, Test) {
    let moved: Vec<f64> = differences.iter().copied().filter(|d| d.abs() > 1e-12).collect();
    if moved.len() <= ENUMERATED {
        return (enumerated(&moved), Test::SignFlipsExact);
    }
    match multiples(&moved) {
        Some(multiples) => (convolved(&multiples), Test::SignFlipsExact),
        None => (sampled(&moved), Test::SignFlips),
    }
}

/// The p-value over all patterns of signs.
fn enumerated(moved: &[f64]) -> f64 {
    let patterns = 1_u64 << moved.len();
    let observed = at_least(moved);
    let extreme = (0..patterns).filter(|signs| signed_sum(moved, *signs).abs() >= observed);
    extreme.count() as f64 / patterns as f64
}

/// An estimate of the p-value from random signs.
fn sampled(moved: &[f64]) -> f64 {
    let mut random = SplitMix64::new(SEED ^ 1);
    let observed = at_least(moved);
    let mut sum =
        || moved.chunks(64).map(|chunk| signed_sum(chunk, random.next_u64())).sum::<f64>();
    let extreme = (0..ROUNDS).filter(|_| sum().abs() >= observed).count();
    // Counts the observed signs as one permutation; otherwise p could be 0.
    (extreme + 1) as f64 / (ROUNDS + 1) as f64
}

/// The observed size of the sum, less what rounding may add to an equal one.
fn at_least(moved: &[f64]) -> f64 {
    moved.iter().sum::<f64>().abs() - 1e-9
}

/// The differences as whole multiples of a common unit; `None` without one, or where their sums are too many.
fn multiples(moved: &[f64]) -> Option<Vec<i64>> {
    let least = moved.iter().map(|d| d.abs()).reduce(f64::min)?;
    let most = moved.iter().map(|d| d.abs()).sum::<f64>() / least;
    let whole = |number: f64| (number - number.round()).abs() < 1e-7;
    let fits = |denominator: &u32| moved.iter().all(|d| whole(d / least * f64::from(*denominator)));
    let denominator = f64::from((1..=LARGEST_DENOMINATOR).find(fits)?);
    let additions = most * denominator * moved.len() as f64;
    let multiple = |d: &f64| (d / least * denominator).round() as i64;
    (additions <= MOST_ADDITIONS).then(|| moved.iter().map(multiple).collect())
}

/// The p-value from the distribution of the sum. With the sum of the flipped sizes `t` and the sum of all sizes `all`, the
/// sum of the differences is `all - 2 t`.
fn convolved(multiples: &[i64]) -> f64 {
    let sizes: Vec<usize> = multiples.iter().map(|k| k.unsigned_abs() as usize).collect();
    let all: usize = sizes.iter().sum();
    let mut probabilities = vec![0.0_f64; all + 1];
    probabilities[0] = 1.0;
    let mut reached = 0;
    for size in sizes {
        reached += size;
        for at in (0..=reached).rev() {
            let flipped = if at >= size { probabilities[at - size] } else { 0.0 };
            probabilities[at] = (probabilities[at] + flipped) / 2.0;
        }
    }
    let observed = multiples.iter().sum::<i64>().unsigned_abs() as usize;
    let extreme = probabilities.iter().enumerate();
    let extreme = extreme.filter(|(flipped, _)| all.abs_diff(2 * flipped) >= observed);
    // Smaller probabilities than a number can hold are not 0.
    extreme.map(|(_, p)| p).sum::<f64>().clamp(f64::MIN_POSITIVE, 1.0)
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

fn signed_sum(values: &[f64], signs: u64) -> f64 {
    let signed = |(at, value): (usize, &f64)| if signs >> at & 1 == 1 { -value } else { *value };
    values.iter().enumerate().map(signed).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_differences_are_tested_exactly() {
        let (p, test) = sign_flips(&[0.5, 0.25, 0.0, 0.75]);
        assert_eq!((p, test), (0.25, Test::SignFlipsExact));
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

    #[test]
    fn known_values() {
        // Two-sided binomial tests with probability 1/2: 2 (1 + 10) / 2^10, 2 (1 + 8 + 28) / 2^8, 2 / 2^6.
        let known = [
            (9, 1, 22.0 / 1024.0),
            (2, 6, 74.0 / 256.0),
            (6, 0, 2.0 / 64.0),
            (0, 5, 2.0 / 32.0),
            (1, 1, 1.0),
        ];
        for (better, worse, p) in known {
            assert!((mcnemar(better, worse) - p).abs() < 1e-12, "{better} {worse}");
        }
        // Sums of ±3 ±2 ±1 reach 4 in 6, 4, -4, -6: four of eight.
        assert_eq!(sign_flips(&[0.3, 0.2, -0.1]).0, 0.5);
        // Equal sizes make the flips the McNemar test.
        for (better, worse) in [(9, 1), (2, 6), (5, 5), (16, 0)] {
            let differences = [vec![1.0; better], vec![-1.0; worse], vec![0.0; 3]].concat();
            let (p, test) = sign_flips(&differences);
            assert_eq!(test, Test::SignFlipsExact);
            assert!((p - mcnemar(better, worse)).abs() < 1e-12, "{better} {worse}");
        }
    }

    #[test]
    fn holm_multiplies_by_the_hypotheses_left() {
        let close = |found: Vec<f64>, expected: &[f64]| {
            assert_eq!(found.len(), expected.len());
            found.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{a} {b}"));
        };
        // 4 x 0.01, 3 x 0.02, 2 x 0.03 = 0.06, then 0.04, raised to the one before.
        close(holm(&[0.04, 0.01, 0.03, 0.02]), &[0.06, 0.04, 0.06, 0.06]);
        close(holm(&[0.5, 0.9]), &[1.0, 1.0]);
        close(holm(&[0.03]), &[0.03]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn multiples_of_a_unit_are_tested_exactly() {
        // 17 equal differences: only all-plus and all-minus are as extreme, 2 in 2^17.
        assert_eq!(sign_flips(&[0.5; 17]), (2.0 / 131_072.0, Test::SignFlipsExact));
        // Equal sizes are the McNemar test, however many.
        let differences = [vec![0.25; 300], vec![-0.25; 241]].concat();
        let (p, test) = sign_flips(&differences);
        assert_eq!(test, Test::SignFlipsExact);
        assert!((p - mcnemar(300, 241)).abs() < 1e-12, "{p}");
        // The distribution of the sum agrees with the enumeration of all signs, also where units are mixed.
        let mixed = [0.5, -0.25, 1.0 / 3.0, 0.75, -1.0, 2.0 / 3.0, 0.25, 1.0, 0.5, -1.0 / 3.0];
        let found = convolved(&multiples(&mixed).unwrap());
        assert!((found - enumerated(&mixed)).abs() < 1e-12, "{found}");
        // A shift too clear for a number: not 0.
        assert!(sign_flips(&vec![1.0; 3000]).0 > 0.0);
    }

    #[test]
    fn differences_without_a_unit_are_sampled() {
        let irregular: Vec<f64> = (1..=40).map(|at| f64::from(at).sqrt() * 0.1).collect();
        let (p, test) = sign_flips(&irregular);
        assert_eq!((p, test), (1.0 / 10_001.0, Test::SignFlips));
        let balanced: Vec<f64> =
            irregular.iter().enumerate().map(|(at, d)| if at % 2 == 0 { *d } else { -d }).collect();
        let (p, test) = sign_flips(&balanced);
        assert!(p > 0.5 && test == Test::SignFlips, "{p}");
        let (p, test) = sign_flips(&irregular[..16]);
        assert_eq!((p, test), (2.0 / 65_536.0, Test::SignFlipsExact));
    }
}
