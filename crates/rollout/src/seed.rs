//! Seeds that follow from what they are for, and from nothing else: not from who comes first.

/// The seed of one member of a group.
pub(crate) fn of_member(seed: u64, step: u64, problem: &str, member: u32) -> u64 {
    let problem = problem.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    [step, problem, u64::from(member)].into_iter().fold(mix(seed), with)
}

/// The seed of one reply of an episode.
pub(crate) fn of_turn(seed: u64, turn: u64) -> u64 {
    with(seed, turn)
}

/// A seed that follows from another and a number. Which is which matters: both may be the same small number.
fn with(seed: u64, number: u64) -> u64 {
    mix(seed.rotate_left(23).wrapping_add(mix(number)))
}

/// Spreads every bit over all of them (the finisher of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_member_of_every_group_has_its_own() {
        let mut seen = HashSet::new();
        for (seed, step) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for problem in ["", "a", "b", "ab", "ba"] {
                for member in 0..8 {
                    let seed = of_member(seed, step, problem, member);
                    for turn in 0..4 {
                        assert!(
                            seen.insert(of_turn(seed, turn)),
                            "{step} {problem} {member} {turn}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn seeds_stay_what_they_are() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(of_member(7, 3, "p", 2), of_member(7, 3, "p", 2));
    }
}
