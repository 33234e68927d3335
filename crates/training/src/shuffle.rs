//! Endless shuffled epochs over a data set, without state: every position follows from the seed alone, so that a
//! resumed run draws what it would have drawn without the interruption.

use seeded::derive;

/// The indices of a data set, epoch after epoch, each epoch in an order of its own.
#[derive(Clone, Copy, Debug)]
pub struct ShuffledIndices {
    seed: u64,
    len: usize,
}

impl ShuffledIndices {
    /// Shuffled epochs over the indices `0..len`.
    pub fn new(seed: u64, len: usize) -> Self {
        Self { seed, len }
    }

    /// The indices at positions `start..start + count` of the endless sequence; none where `len` is 0.
    pub fn get(&self, start: u64, count: usize) -> Vec<usize> {
        let len = self.len as u64;
        if len == 0 {
            return Vec::new();
        }
        let mut epoch = start / len;
        let mut order = self.order(epoch);
        let index_at = |position: u64| {
            if position / len != epoch {
                epoch = position / len;
                order = self.order(epoch);
            }
            order[(position % len) as usize]
        };
        (start..).take(count).map(index_at).collect()
    }

    /// The order of one epoch (Fisher-Yates).
    fn order(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.len).collect();
        for last in (1..self.len).rev() {
            let other = derive(self.seed, &[epoch, last as u64]) % (last as u64 + 1);
            order.swap(last, other as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_is_a_permutation_of_its_own() {
        let indices = ShuffledIndices::new(7, 10);
        let epochs: Vec<Vec<usize>> = (0..3).map(|epoch| indices.get(epoch * 10, 10)).collect();
        for epoch in &epochs {
            let mut sorted = epoch.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        }
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
        assert_ne!(indices.get(0, 10), ShuffledIndices::new(8, 10).get(0, 10));
    }

    #[test]
    fn the_order_is_the_same_in_every_version() {
        // Recorded with the first version: a resumed run depends on it.
        assert_eq!(ShuffledIndices::new(7, 5).get(0, 10), [0, 3, 2, 4, 1, 3, 1, 2, 4, 0]);
    }

    #[test]
    fn reading_can_stop_anywhere_and_resume() {
        let indices = ShuffledIndices::new(1, 7);
        let whole = indices.get(0, 40);
        let parts = [indices.get(0, 5), indices.get(5, 11), indices.get(16, 24)].concat();
        assert_eq!(whole, parts);
        assert!(ShuffledIndices::new(1, 0).get(0, 3).is_empty());
    }
}
