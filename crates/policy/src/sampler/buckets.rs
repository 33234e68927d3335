//! The number of cache positions that a step reads: its longest sequence, rounded up, so that there are few different
//! steps to record.

/// The smallest view of the cache. The fused attention kernel needs multiples of 16.
const SHORTEST: usize = 256;

/// The smallest bucket with room for this many tokens: 256, 512, 768, 1024, 1536, 2048, 3072, ...
pub(super) fn bucket(tokens: usize) -> usize {
    if tokens <= SHORTEST {
        return SHORTEST;
    }
    let power = tokens.next_power_of_two();
    let between = power / 4 * 3;
    match tokens <= between && between > SHORTEST * 2 {
        true => between,
        false => power,
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn holds_what_it_must_and_wastes_less_than_half() {
        for tokens in 1..40_000 {
            let rounded = bucket(tokens);
            assert!(rounded >= tokens && rounded.is_multiple_of(16), "{tokens}: {rounded}");
            assert!(rounded <= 256 || rounded < 2 * tokens, "{tokens}: {rounded}");
        }
    }

    #[test]
    fn there_are_few() {
        let mut all: Vec<usize> = (1..=32_768).map(bucket).collect();
        all.dedup();
        assert_eq!(all[..7], [256, 512, 768, 1024, 1536, 2048, 3072]);
        assert_eq!(all.len(), 14);
    }
}
