//! Seeds of rollouts and turns: derived from what they are for, never from scheduling.

use seeded::mix;

/// The seed of one member of a group.
pub(crate) fn of_member(seed: u64, step: u64, problem: &str, member: u32) -> u64 {
    let problem = problem.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    [step, problem, u64::from(member)].into_iter().fold(mix(seed), with)
}

/// The seed of one response of an episode.
pub(crate) fn of_turn(seed: u64, turn: u64) -> u64 {
    with(seed, turn)
}

/// A seed derived from another and a number. Not symmetric: both may be the same small number.
fn with(seed: u64, number: u64) -> u64 {
    mix(seed.rotate_left(23).wrapping_add(mix(number)))
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
        assert_eq!(of_member(7, 3, "p", 2), of_member(7, 3, "p", 2));
    }
}
