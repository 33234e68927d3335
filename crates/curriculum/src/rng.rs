//! Random choices for synthetic tasks: a seed and a list of labels determine all of them, so that the same seed gives
//! the same tasks on every machine and in every version.

use seeded::SplitMix64;
use sha2::{Digest, Sha256};

/// A seeded generator with the choices tasks are built from.
#[derive(Clone, Debug)]
pub(crate) struct Rng(SplitMix64);

impl Rng {
    /// An independent generator for each list of labels.
    pub(crate) fn new(seed: u64, labels: &[&str]) -> Self {
        Self(SplitMix64::new(hash_labels(seed, labels)))
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 (included) to `bound` (excluded); 0 where `bound` is 0. By remainder: published tasks depend on
    /// it, and bounds are small.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        match bound {
            0 => 0,
            bound => (self.next() % bound as u64) as usize,
        }
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low).max(0).unsigned_abs().saturating_add(1)) as i64
    }

    /// True with probability 1 / `n`.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of the items; panics where there are none.
    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// Permutes the items (Fisher-Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Up to `count` different items, in random order.
    pub(crate) fn sample<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut all = items.to_vec();
        self.shuffle(&mut all);
        all.truncate(count);
        all
    }
}

/// Hashes a seed and labels to a number; each label counts with its length, so `["a", "b"]` and `["ab"]` differ.
pub(crate) fn hash_labels(seed: u64, labels: &[&str]) -> u64 {
    let mut digest = Sha256::new_with_prefix(seed.to_le_bytes());
    for label in labels {
        digest.update((label.len() as u64).to_le_bytes());
        digest.update(label);
    }
    let bytes = digest.finalize();
    bytes.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_labels_give_the_same_numbers() {
        let numbers = |seed, labels: &[&str]| {
            let mut rng = Rng::new(seed, labels);
            [rng.next(), rng.next()]
        };
        assert_eq!(numbers(1, &["a", "b"]), numbers(1, &["a", "b"]));
        assert_ne!(numbers(1, &["a", "b"]), numbers(2, &["a", "b"]));
        assert_ne!(numbers(1, &["a", "b"]), numbers(1, &["ab"]));
        assert_ne!(numbers(1, &["a", "b"]), numbers(1, &["b", "a"]));
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut rng = Rng::new(7, &[]);
        let drawn: Vec<i64> = (0..1000).map(|_| rng.between(-2, 3)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&-2), Some(&3)));
        assert_eq!((rng.between(5, 5), rng.below(0), rng.below(1)), (5, 0, 0));
        assert!((0..1000).any(|_| rng.one_in(10)) && !(0..1000).all(|_| rng.one_in(10)));
    }

    #[test]
    fn sampled_items_are_different() {
        let mut rng = Rng::new(7, &[]);
        let mut items = rng.sample(&[1, 2, 3, 4, 5], 3);
        items.sort_unstable();
        items.dedup();
        assert_eq!(items.len(), 3);
        assert_eq!(rng.sample(&[1, 2], 5).len(), 2);
    }
}
