//! Chooses the cached sequence a prompt continues from.
//!
//! Pure: sees lists of tokens and which slots are busy, and touches no cache.

use std::{
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hasher},
    iter,
};

use trajectory::Message;

/// Identifies a conversation independently of how its old turns are rendered: templates omit earlier thinking, and
/// long results are shortened later. Hashes of its opening and of every response so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<u64>);

impl Fingerprint {
    /// The fingerprint of these messages.
    pub(crate) fn of(messages: &[Message]) -> Self {
        let is_response = |message: &Message| matches!(message, Message::Assistant(_));
        let first = messages.iter().position(is_response).unwrap_or(messages.len());
        let (opening, rest) = messages.split_at(first);
        let responses = rest.iter().filter_map(|message| match message {
            // Clients may omit the thinking.
            Message::Assistant(it) => Some(hash(&(&it.text, &it.raw, &it.calls))),
            _ => None,
        });
        Self(iter::once(hash(opening)).chain(responses).collect())
    }

    /// Whether this is the conversation `earlier` after at least one more response.
    fn continues(&self, earlier: &Self) -> bool {
        let known = !earlier.0.is_empty() && self.0.len() > earlier.0.len();
        known && self.0.starts_with(&earlier.0)
    }
}

fn hash<T: fmt::Debug + ?Sized>(value: &T) -> u64 {
    let mut writer = HashWriter(DefaultHasher::new());
    // Writing to a hasher cannot fail.
    let _ = write!(writer, "{value:?}");
    writer.0.finish()
}

/// Hashes the text written to it.
struct HashWriter(DefaultHasher);

impl fmt::Write for HashWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// A slot as [`choose`] sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotView<'a, T> {
    /// The tokens in its cache.
    pub(crate) tokens: &'a [T],
    /// The tokens that are evaluated next, in two parts.
    pub(crate) next: [&'a [T]; 2],
    /// The conversation they come from.
    pub(crate) fingerprint: &'a Fingerprint,
    /// Whether a response is generated in it.
    pub(crate) busy: bool,
    /// When it was last used, by the engine's clock.
    pub(crate) used: u64,
}

/// The slot for a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotChoice {
    /// The slot.
    pub(crate) slot: usize,
    /// The slot whose prefix is copied there first.
    pub(crate) copy_from: Option<usize>,
    /// How many prompt tokens are cached already.
    pub(crate) common: usize,
}

/// Copying a sequence costs about as much as evaluating this many tokens.
const COPY_COST: usize = 64;

/// The best slot for a prompt; `None` if it should wait: all slots are busy, or one is about to evaluate tokens that the
/// prompt begins with. Conversations that start together would each evaluate the same instructions.
///
/// A conversation that continues gets its own slot. One that only shares a prefix with another, such as the same
/// instructions, must not evict the other: it gets the least recently used slot. A longer common prefix in another slot
/// is copied.
pub(crate) fn choose<T: PartialEq>(
    prompt: &[T],
    fingerprint: &Fingerprint,
    slots: &[SlotView<'_, T>],
) -> Option<SlotChoice> {
    // The last token is always evaluated: its logits give the next one.
    let most = prompt.len().saturating_sub(1);
    let cached = |kept: &SlotView<'_, T>| common(prompt, kept.tokens).min(most);
    let soon = |kept: &SlotView<'_, T>| {
        let [first, second] = kept.next;
        common(prompt, kept.tokens.iter().chain(first).chain(second)).min(most)
    };
    let free = || slots.iter().enumerate().filter(|(_, kept)| !kept.busy);
    let (oldest, last) = free().min_by_key(|(_, kept)| (!kept.tokens.is_empty(), kept.used))?;
    let continued = free()
        .map(|(slot, kept)| (slot, cached(kept), kept))
        .filter(|(_, common, kept)| {
            let lost = kept.tokens.len() - common;
            fingerprint.continues(kept.fingerprint) || *common > 0 && lost < COPY_COST
        })
        .map(|(slot, common, _)| (slot, common))
        .max_by_key(|(_, common)| *common);
    let (slot, own) = continued.unwrap_or_else(|| (oldest, cached(last)));
    let all = slots.iter().enumerate().map(|(slot, kept)| (slot, cached(kept)));
    let best = all.max_by_key(|(_, common)| *common);
    let choice = match best.filter(|(_, common)| *common >= own + COPY_COST) {
        Some((from, common)) => SlotChoice { slot, copy_from: Some(from), common },
        None => SlotChoice { slot, copy_from: None, common: own },
    };
    let most_soon = slots.iter().map(soon).max().unwrap_or(0);
    (most_soon < choice.common + COPY_COST).then_some(choice)
}

fn common<'a, T: PartialEq + 'a>(prompt: &[T], tokens: impl IntoIterator<Item = &'a T>) -> usize {
    prompt.iter().zip(tokens).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use trajectory::Assistant;

    use super::*;

    const BUSY: bool = true;
    const FREE: bool = false;

    /// A slot of an unknown conversation.
    fn view(tokens: &[u32], busy: bool, used: u64) -> SlotView<'_, u32> {
        const UNKNOWN: &Fingerprint = &Fingerprint(Vec::new());
        SlotView { tokens, next: [&[], &[]], fingerprint: UNKNOWN, busy, used }
    }

    fn begins(length: u32, own: u32) -> Vec<u32> {
        (0..length).chain([own; 200]).collect()
    }

    fn chosen(prompt: &[u32], slots: &[SlotView<'_, u32>]) -> Option<SlotChoice> {
        choose(prompt, &Fingerprint::default(), slots)
    }

    #[test]
    fn a_conversation_continues_in_its_own_slot() {
        let (one, other) = (begins(100, 1001), begins(100, 1002));
        let mut prompt = other.clone();
        prompt.extend([7, 8, 9]);
        let choice = chosen(&prompt, &[view(&one, FREE, 1), view(&other, FREE, 2)]);
        assert_eq!(choice, Some(SlotChoice { slot: 1, copy_from: None, common: 300 }));
    }

    /// A prompt of 400 tokens whose response, 300 tokens of thinking, is not shown to the model again.
    #[test]
    fn a_conversation_whose_thinking_is_omitted_keeps_its_slot() {
        let opening = |task: &str| vec![Message::user(task)];
        let response = Message::Assistant(Assistant { text: "yes".into(), ..Assistant::default() });
        let tasks = ["one", "two", "three", "four"];
        let fingerprints: Vec<_> =
            tasks.iter().map(|task| Fingerprint::of(&opening(task))).collect();
        let mut held: Vec<_> = (1..=4).map(|own| begins(200, own * 1000)).collect();
        for tokens in &mut held {
            tokens.extend([7; 300]);
        }
        let slots: Vec<_> = (0..4)
            .map(|at| SlotView {
                fingerprint: &fingerprints[at],
                ..view(&held[at], FREE, at as u64)
            })
            .collect();
        for at in 0..4 {
            let mut messages = opening(tasks[at]);
            messages.extend([response.clone(), Message::user("and then?")]);
            let mut prompt = held[at][..400].to_vec();
            prompt.extend([8; 30]);
            let choice = choose(&prompt, &Fingerprint::of(&messages), &slots);
            assert_eq!(choice, Some(SlotChoice { slot: at, copy_from: None, common: 400 }), "{at}");
            // The same request again is another conversation: the first may still continue.
            let again = choose(&prompt[..400], &fingerprints[at], &slots);
            assert!(again.is_some_and(|again| again.slot == 0), "{again:?}");
        }
    }

    #[test]
    fn a_conversation_is_identified_by_its_opening_and_responses() {
        let say = |text: &str| {
            Message::Assistant(Assistant { text: text.into(), ..Assistant::default() })
        };
        let first = [Message::user("task")];
        let second = [Message::user("task"), say("a"), Message::user("a long result")];
        let short = [Message::user("task"), say("a"), Message::user("short"), say("b")];
        let other = [Message::user("task"), say("b"), Message::user("a long result"), say("b")];
        let [first, second, short, other] =
            [&first[..], &second, &short, &other].map(Fingerprint::of);
        assert!(second.continues(&first) && short.continues(&second));
        assert!(short.continues(&first) && !other.continues(&second));
        assert!(!first.continues(&first) && !first.continues(&second));
        assert!(!first.continues(&Fingerprint::default()));
    }

    #[test]
    fn a_continued_slot_copies_a_longer_prefix_of_another() {
        let whole = begins(100, 1001);
        let slots = [view(&whole, BUSY, 3), view(&whole[..100], FREE, 2), view(&[5; 9], FREE, 1)];
        let choice = chosen(&begins(100, 1001), &slots);
        assert_eq!(choice, Some(SlotChoice { slot: 1, copy_from: Some(0), common: 299 }));
    }

    #[test]
    fn the_last_token_is_evaluated_again() {
        let tokens = [1, 2, 3];
        let choice = chosen(&tokens, &[view(&tokens, FREE, 1)]).unwrap();
        assert_eq!(choice.common, 2);
    }

    #[test]
    fn a_new_conversation_takes_an_empty_sequence_and_copies_the_beginning() {
        let one = begins(100, 1001);
        for busy in [BUSY, FREE] {
            let choice = chosen(&begins(100, 1002), &[view(&one, busy, 1), view(&[], FREE, 2)]);
            assert_eq!(choice, Some(SlotChoice { slot: 1, copy_from: Some(0), common: 100 }));
        }
    }

    #[test]
    fn a_short_beginning_is_not_worth_a_copy() {
        let one = begins(10, 1001);
        let choice = chosen(&begins(10, 1002), &[view(&one, FREE, 1), view(&[], FREE, 2)]);
        assert_eq!(choice, Some(SlotChoice { slot: 1, copy_from: None, common: 0 }));
    }

    #[test]
    fn the_sequence_unused_for_longest_gives_way() {
        let (one, other) = (begins(0, 1001), begins(0, 1002));
        let choice = chosen(&begins(0, 1003), &[view(&one, FREE, 2), view(&other, FREE, 1)]);
        assert_eq!(choice, Some(SlotChoice { slot: 1, copy_from: None, common: 0 }));
    }

    #[test]
    fn a_beginning_that_another_prompt_is_evaluating_is_waited_for() {
        let one = begins(200, 1001);
        let at = |evaluated: usize| {
            let (next, last) = (&one[evaluated.min(150)..150], &one[evaluated.max(150)..]);
            let running = SlotView { next: [next, last], ..view(&one[..evaluated], BUSY, 1) };
            chosen(&begins(200, 1002), &[running, view(&[], FREE, 0)])
        };
        assert_eq!(at(0), None);
        assert_eq!(at(100), None);
        let copied = |common| Some(SlotChoice { slot: 1, copy_from: Some(0), common });
        // What is left is not worth it.
        assert_eq!(at(140), copied(140));
        assert_eq!(at(250), copied(200));
        // Neither is what the own slot has.
        let held = begins(200, 1003);
        let slots = [SlotView { next: [&one, &[]], ..view(&[], BUSY, 2) }, view(&held, FREE, 1)];
        let choice = chosen(&begins(200, 1003), &slots);
        assert_eq!(choice, Some(SlotChoice { slot: 1, copy_from: None, common: 399 }));
    }

    #[test]
    fn busy_slots_are_not_interrupted() {
        let one = begins(100, 1001);
        assert_eq!(chosen(&one, &[view(&one, BUSY, 1)]), None);
        assert_eq!(chosen(&one, &[]), None);
    }
}
