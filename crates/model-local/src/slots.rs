//! Which of the kept sequences a new conversation goes on from.
//!
//! Pure: sees lists of tokens and who is busy, and touches no cache.

/// A sequence as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<'a, T> {
    /// The tokens in its part of the cache.
    pub(crate) tokens: &'a [T],
    /// Somebody is writing in it.
    pub(crate) busy: bool,
    /// When it was last used, on a clock of the engine's own.
    pub(crate) used: u64,
}

/// Where a conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The sequence it gets.
    pub(crate) slot: usize,
    /// The sequence whose beginning is copied there first.
    pub(crate) copy_from: Option<usize>,
    /// How many tokens need not be evaluated again.
    pub(crate) common: usize,
}

/// Copying a sequence costs as much as evaluating about so many tokens.
const WORTH_A_COPY: usize = 64;

/// The best sequence for a prompt. Nothing where all are busy.
///
/// A conversation that goes on gets its own sequence. One that only begins like another, as all do that
/// share their instructions, must not cost the other its place: it gets the sequence unused for longest,
/// with a copy of the beginning.
pub(crate) fn choose<T: PartialEq>(prompt: &[T], slots: &[Kept<'_, T>]) -> Option<Choice> {
    // The last token is always evaluated: what follows it is what we want to know.
    let most = prompt.len().saturating_sub(1);
    let common = |kept: &Kept<'_, T>| common(prompt, kept.tokens).min(most);
    let free = || slots.iter().enumerate().filter(|(_, kept)| !kept.busy);
    let (oldest, last) = free().min_by_key(|(_, kept)| (!kept.tokens.is_empty(), kept.used))?;
    let goes_on = free()
        .map(|(slot, kept)| (slot, common(kept), kept.tokens.len()))
        .filter(|(_, common, length)| *common > 0 && length - common < WORTH_A_COPY)
        .map(|(slot, common, _)| (slot, common))
        .max_by_key(|(_, common)| *common);
    let (slot, own) = goes_on.unwrap_or_else(|| (oldest, common(last)));
    let all = slots.iter().enumerate().map(|(slot, kept)| (slot, common(kept)));
    let best = all.max_by_key(|(_, common)| *common);
    match best.filter(|(_, common)| *common >= own + WORTH_A_COPY) {
        Some((from, common)) => {
            let copy_from = (from != oldest).then_some(from);
            Some(Choice { slot: oldest, copy_from, common })
        }
        None => Some(Choice { slot, copy_from: None, common: own }),
    }
}

fn common<T: PartialEq>(one: &[T], other: &[T]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: bool = true;
    const FREE: bool = false;

    fn kept(tokens: &[u32], busy: bool, used: u64) -> Kept<'_, u32> {
        Kept { tokens, busy, used }
    }

    fn begins(length: u32, own: u32) -> Vec<u32> {
        (0..length).chain([own; 200]).collect()
    }

    #[test]
    fn a_conversation_goes_on_in_its_own_sequence() {
        let (one, other) = (begins(100, 1001), begins(100, 1002));
        let mut prompt = other.clone();
        prompt.extend([7, 8, 9]);
        let choice = choose(&prompt, &[kept(&one, FREE, 1), kept(&other, FREE, 2)]);
        assert_eq!(choice, Some(Choice { slot: 1, copy_from: None, common: 300 }));
    }

    #[test]
    fn the_last_token_is_evaluated_again() {
        let tokens = [1, 2, 3];
        let choice = choose(&tokens, &[kept(&tokens, FREE, 1)]).unwrap();
        assert_eq!(choice.common, 2);
    }

    #[test]
    fn a_new_conversation_takes_an_empty_sequence_and_copies_the_beginning() {
        let one = begins(100, 1001);
        for busy in [BUSY, FREE] {
            let choice = choose(&begins(100, 1002), &[kept(&one, busy, 1), kept(&[], FREE, 2)]);
            assert_eq!(choice, Some(Choice { slot: 1, copy_from: Some(0), common: 100 }));
        }
    }

    #[test]
    fn a_short_beginning_is_not_worth_a_copy() {
        let one = begins(10, 1001);
        let choice = choose(&begins(10, 1002), &[kept(&one, FREE, 1), kept(&[], FREE, 2)]);
        assert_eq!(choice, Some(Choice { slot: 1, copy_from: None, common: 0 }));
    }

    #[test]
    fn the_sequence_unused_for_longest_gives_way() {
        let (one, other) = (begins(0, 1001), begins(0, 1002));
        let choice = choose(&begins(0, 1003), &[kept(&one, FREE, 2), kept(&other, FREE, 1)]);
        assert_eq!(choice, Some(Choice { slot: 1, copy_from: None, common: 0 }));
    }

    #[test]
    fn nobody_is_interrupted() {
        let one = begins(100, 1001);
        assert_eq!(choose(&one, &[kept(&one, BUSY, 1)]), None);
        assert_eq!(choose::<u32>(&one, &[]), None);
    }
}
