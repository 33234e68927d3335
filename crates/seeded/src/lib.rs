//! Reproducible pseudo-random numbers: SplitMix64 as a generator and as a stateless mixer.
//!
//! The same seed gives the same numbers on every machine and in every version, which a general-purpose crate does not
//! promise. Start at [`SplitMix64`] for a stream of numbers, at [`derive()`] for a number that follows from a seed and
//! some indices without any state. Not for secrets.
//!
//! Reference: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
//!
//! ```
//! use lis_seeded::{SplitMix64, derive};
//!
//! let mut rng = SplitMix64::new(derive(7, &[3, 1]));
//! assert!(rng.below(6) < 6);
//! assert!((0.0..1.0).contains(&rng.unit_f64()));
//! ```

/// The increment of SplitMix64: 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maps 64 bits to 64 bits, one to one, so that every input bit affects all output bits (one step of SplitMix64).
pub const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(GAMMA);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Derives a number from a seed and indices. The order of the indices matters; the seed and the first index are
/// interchangeable.
pub fn derive(seed: u64, indices: &[u64]) -> u64 {
    indices.iter().fold(mix(seed), |state, index| mix(state ^ mix(*index)))
}

/// The number from 0 (included) to 1 (excluded) that the 53 high bits represent.
pub fn unit_f64(bits: u64) -> f64 {
    (bits >> 11) as f64 * (-53f64).exp2()
}

/// The SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that starts at this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        let bits = mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        bits
    }

    /// A number from 0 (included) to `bound` (excluded), by multiplication; 0 where `bound` is 0.
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.next_u64() as u128 * bound as u128) >> 64) as usize
    }

    /// A number from 0 (included) to 1 (excluded).
    pub fn unit_f64(&mut self) -> f64 {
        unit_f64(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut rng = SplitMix64::new(1_234_567);
        assert_eq!(
            [rng.next_u64(), rng.next_u64(), rng.next_u64()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn numbers_below_a_bound_are_uniform() {
        let mut rng = SplitMix64::new(1);
        let mut counts = [0_u32; 7];
        (0..7000).for_each(|_| counts[rng.below(7)] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!((rng.below(0), rng.below(1)), (0, 0));
    }

    #[test]
    fn derived_numbers_depend_on_the_order_of_indices() {
        assert_eq!(derive(1, &[2, 3]), derive(1, &[2, 3]));
        assert_ne!(derive(1, &[2, 3]), derive(1, &[3, 2]));
        assert_eq!(derive(5, &[]), mix(5));
    }
}
