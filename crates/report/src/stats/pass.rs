//! pass@k: unbiased estimate of the probability that at least one of k attempts passes.

use serde::{Deserialize, Serialize};

/// Score from which an attempt passes.
pub const PASS: f64 = 1.0 - 1e-9;

/// pass@k over the problems of a task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassAt {
    /// Number of attempts.
    pub k: usize,
    /// Mean over problems.
    pub mean: f64,
    /// Problems with at least k attempts; others are excluded.
    pub problems: usize,
}

/// Probability that k of `attempts`, drawn without replacement, include one that passed: 1 − C(n−c, k)/C(n, k).
pub fn pass_at_k(attempts: usize, passed: usize, k: usize) -> Option<f64> {
    if k == 0 || k > attempts || passed > attempts {
        return None;
    }
    let failed = attempts - passed;
    if failed < k {
        return Some(1.0);
    }
    let none = (0..k).map(|at| (failed - at) as f64 / (attempts - at) as f64).product::<f64>();
    Some(1.0 - none)
}

/// pass@k for k from 1 to 16, for higher powers of two, and for the largest number of attempts.
pub fn pass_at(problems: &[Vec<f64>]) -> Vec<PassAt> {
    let most = problems.iter().map(Vec::len).max().unwrap_or(0);
    let counts: Vec<(usize, usize)> = problems
        .iter()
        .map(|scores| (scores.len(), scores.iter().filter(|score| **score >= PASS).count()))
        .collect();
    let powers = (5..usize::BITS).map(|bit| 1_usize << bit).take_while(|k| *k < most);
    let larger = (most > 16).then_some(most);
    let ks = (1..=most.min(16)).chain(powers).chain(larger);
    ks.filter_map(|k| {
        let chances = counts.iter().filter_map(|(n, c)| pass_at_k(*n, *c, k));
        let problems = counts.iter().filter(|(n, _)| *n >= k).count();
        super::mean(chances).map(|mean| PassAt { k, mean, problems })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts every way to draw.
    fn by_counting(attempts: usize, passed: usize, k: usize) -> f64 {
        let (mut all, mut with) = (0_u32, 0_u32);
        for drawn in 0_u32..1 << attempts {
            if drawn.count_ones() as usize == k {
                all += 1;
                with += u32::from(drawn & ((1 << passed) - 1) != 0);
            }
        }
        f64::from(with) / f64::from(all)
    }

    #[test]
    fn it_equals_the_share_of_samples_with_a_pass() {
        for attempts in 1..=8 {
            for passed in 0..=attempts {
                for k in 1..=attempts {
                    let exact = pass_at_k(attempts, passed, k).unwrap();
                    assert!((exact - by_counting(attempts, passed, k)).abs() < 1e-12);
                }
            }
        }
        assert_eq!(pass_at_k(3, 1, 4), None);
        assert_eq!(pass_at_k(3, 1, 0), None);
        assert_eq!(pass_at_k(3, 4, 1), None);
    }

    #[test]
    fn problems_with_too_few_attempts_are_left_out_and_counted() {
        let problems = [vec![1.0, 0.0], vec![0.0], vec![0.999_999_999_9, 1.0]];
        let found = pass_at(&problems);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].k, found[0].problems, found[0].mean), (1, 3, 0.5));
        assert_eq!((found[1].k, found[1].problems, found[1].mean), (2, 2, 1.0));
        assert_eq!(pass_at(&[]), []);
    }

    #[test]
    fn many_attempts_give_few_numbers() {
        let ks: Vec<usize> = pass_at(&[vec![0.0; 100]]).iter().map(|found| found.k).collect();
        assert_eq!(ks[14..], [15, 16, 32, 64, 100]);
        let ks: Vec<usize> = pass_at(&[vec![0.0; 64]]).iter().map(|found| found.k).collect();
        assert_eq!(ks[14..], [15, 16, 32, 64]);
    }
}
