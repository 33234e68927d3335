//! Numbers that look random and are the same everywhere: a seed and some labels decide all of them.
//!
//! Knows nothing of what is chosen. Good enough for tasks, not for secrets.

use sha2::{Digest, Sha256};

/// A small generator of numbers (Steele's SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice of their own for each list of labels.
    pub(crate) fn new(seed: u64, labels: &[&str]) -> Self {
        Self(mixed(seed, labels))
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `most`, without the latter; 0 where there is nothing below it.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        match most {
            0 => 0,
            most => (self.next() % most as u64) as usize,
        }
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low).max(0).unsigned_abs().saturating_add(1)) as i64
    }

    /// Whether something happens that happens once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these, of which there must be some.
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Puts things into another order.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            things.swap(at, self.below(at + 1));
        }
    }

    /// So many different ones of these, fewer where there are not as many, in any order.
    pub(crate) fn several<T: Clone>(&mut self, from: &[T], many: usize) -> Vec<T> {
        let mut all = from.to_vec();
        self.shuffle(&mut all);
        all.truncate(many);
        all
    }
}

/// One number for a seed and labels; where two lists of labels differ, so do the numbers.
pub(crate) fn mixed(seed: u64, labels: &[&str]) -> u64 {
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
            let mut dice = Dice::new(seed, labels);
            [dice.next(), dice.next()]
        };
        assert_eq!(numbers(1, &["a", "b"]), numbers(1, &["a", "b"]));
        assert_ne!(numbers(1, &["a", "b"]), numbers(2, &["a", "b"]));
        assert_ne!(numbers(1, &["a", "b"]), numbers(1, &["ab"]));
        assert_ne!(numbers(1, &["a", "b"]), numbers(1, &["b", "a"]));
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut dice = Dice::new(7, &[]);
        let thrown: Vec<i64> = (0..1000).map(|_| dice.between(-2, 3)).collect();
        assert_eq!((thrown.iter().min(), thrown.iter().max()), (Some(&-2), Some(&3)));
        assert_eq!((dice.between(5, 5), dice.below(0), dice.below(1)), (5, 0, 0));
        assert!((0..1000).any(|_| dice.once_in(10)) && !(0..1000).all(|_| dice.once_in(10)));
    }

    #[test]
    fn several_are_different_ones() {
        let mut dice = Dice::new(7, &[]);
        let mut some = dice.several(&[1, 2, 3, 4, 5], 3);
        some.sort_unstable();
        some.dedup();
        assert_eq!(some.len(), 3);
        assert_eq!(dice.several(&[1, 2], 5).len(), 2);
    }
}
