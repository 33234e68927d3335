//! Which of the kept sequences a new conversation goes on from.
//!
//! Pure: sees lists of tokens and who is busy, and touches no cache.

use std::{
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hasher},
    iter,
};

use trajectory::Message;

/// What a conversation is known by, however its old turns are shown to the model: templates leave earlier
/// thinking out, and long results are shortened later. Its opening and every reply so far, as hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thread(Vec<u64>);

impl Thread {
    /// The conversation of these messages.
    pub(crate) fn of(messages: &[Message]) -> Self {
        let is_reply = |message: &Message| matches!(message, Message::Assistant(_));
        let first = messages.iter().position(is_reply).unwrap_or(messages.len());
        let (opening, rest) = messages.split_at(first);
        let replies = rest.iter().filter_map(|message| match message {
            // Clients may forget what was thought.
            Message::Assistant(it) => Some(hash(&(&it.text, &it.said, &it.calls))),
            _ => None,
        });
        Self(iter::once(hash(opening)).chain(replies).collect())
    }

    /// Whether this is `earlier` after at least one more reply.
    fn goes_on_from(&self, earlier: &Self) -> bool {
        let known = !earlier.0.is_empty() && self.0.len() > earlier.0.len();
        known && self.0.starts_with(&earlier.0)
    }
}

fn hash<T: fmt::Debug + ?Sized>(said: &T) -> u64 {
    let mut hashing = Hashing(DefaultHasher::new());
    // Nothing here can fail, and nothing of the text is kept.
    let _ = write!(hashing, "{said:?}");
    hashing.0.finish()
}

/// Hashes what is written into it.
struct Hashing(DefaultHasher);

impl fmt::Write for Hashing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// A sequence as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<'a, T> {
    /// The tokens in its part of the cache.
    pub(crate) tokens: &'a [T],
    /// The conversation they come from.
    pub(crate) thread: &'a Thread,
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
/// share their instructions, must not cost the other its place: it gets the sequence unused for longest.
/// What another sequence knows more of the beginning is copied.
pub(crate) fn choose<T: PartialEq>(
    prompt: &[T],
    thread: &Thread,
    slots: &[Kept<'_, T>],
) -> Option<Choice> {
    // The last token is always evaluated: what follows it is what we want to know.
    let most = prompt.len().saturating_sub(1);
    let common = |kept: &Kept<'_, T>| common(prompt, kept.tokens).min(most);
    let free = || slots.iter().enumerate().filter(|(_, kept)| !kept.busy);
    let (oldest, last) = free().min_by_key(|(_, kept)| (!kept.tokens.is_empty(), kept.used))?;
    let goes_on = free()
        .map(|(slot, kept)| (slot, common(kept), kept))
        .filter(|(_, common, kept)| {
            let lost = kept.tokens.len() - common;
            thread.goes_on_from(kept.thread) || *common > 0 && lost < WORTH_A_COPY
        })
        .map(|(slot, common, _)| (slot, common))
        .max_by_key(|(_, common)| *common);
    let (slot, own) = goes_on.unwrap_or_else(|| (oldest, common(last)));
    let all = slots.iter().enumerate().map(|(slot, kept)| (slot, common(kept)));
    let best = all.max_by_key(|(_, common)| *common);
    Some(match best.filter(|(_, common)| *common >= own + WORTH_A_COPY) {
        Some((from, common)) => Choice { slot, copy_from: Some(from), common },
        None => Choice { slot, copy_from: None, common: own },
    })
}

fn common<T: PartialEq>(one: &[T], other: &[T]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use trajectory::Assistant;

    use super::*;

    const BUSY: bool = true;
    const FREE: bool = false;

    /// A sequence nobody knows the conversation of.
    fn kept(tokens: &[u32], busy: bool, used: u64) -> Kept<'_, u32> {
        const STRANGE: &Thread = &Thread(Vec::new());
        Kept { tokens, thread: STRANGE, busy, used }
    }

    fn begins(length: u32, own: u32) -> Vec<u32> {
        (0..length).chain([own; 200]).collect()
    }

    fn chosen(prompt: &[u32], slots: &[Kept<'_, u32>]) -> Option<Choice> {
        choose(prompt, &Thread::default(), slots)
    }

    #[test]
    fn a_conversation_goes_on_in_its_own_sequence() {
        let (one, other) = (begins(100, 1001), begins(100, 1002));
        let mut prompt = other.clone();
        prompt.extend([7, 8, 9]);
        let choice = chosen(&prompt, &[kept(&one, FREE, 1), kept(&other, FREE, 2)]);
        assert_eq!(choice, Some(Choice { slot: 1, copy_from: None, common: 300 }));
    }

    /// A prompt of 400 tokens whose reply, 300 tokens of thinking, is not shown to the model again.
    #[test]
    fn a_conversation_whose_thinking_is_left_out_keeps_its_sequence() {
        let opening = |task: &str| vec![Message::user(task)];
        let reply = Message::Assistant(Assistant { text: "yes".into(), ..Assistant::default() });
        let tasks = ["one", "two", "three", "four"];
        let threads: Vec<_> = tasks.iter().map(|task| Thread::of(&opening(task))).collect();
        let mut held: Vec<_> = (1..=4).map(|own| begins(200, own * 1000)).collect();
        for tokens in &mut held {
            tokens.extend([7; 300]);
        }
        let slots: Vec<_> = (0..4)
            .map(|at| Kept { thread: &threads[at], ..kept(&held[at], FREE, at as u64) })
            .collect();
        for at in 0..4 {
            let mut messages = opening(tasks[at]);
            messages.extend([reply.clone(), Message::user("and then?")]);
            let mut prompt = held[at][..400].to_vec();
            prompt.extend([8; 30]);
            let choice = choose(&prompt, &Thread::of(&messages), &slots);
            assert_eq!(choice, Some(Choice { slot: at, copy_from: None, common: 400 }), "{at}");
            // Asked the same anew, it is another conversation: the first may still go on.
            let again = choose(&prompt[..400], &threads[at], &slots);
            assert!(again.is_some_and(|again| again.slot == 0), "{again:?}");
        }
    }

    #[test]
    fn a_conversation_is_known_by_its_opening_and_its_replies() {
        let say = |text: &str| {
            Message::Assistant(Assistant { text: text.into(), ..Assistant::default() })
        };
        let first = [Message::user("task")];
        let second = [Message::user("task"), say("a"), Message::user("a long result")];
        let short = [Message::user("task"), say("a"), Message::user("short"), say("b")];
        let other = [Message::user("task"), say("b"), Message::user("a long result"), say("b")];
        let [first, second, short, other] = [&first[..], &second, &short, &other].map(Thread::of);
        assert!(second.goes_on_from(&first) && short.goes_on_from(&second));
        assert!(short.goes_on_from(&first) && !other.goes_on_from(&second));
        assert!(!first.goes_on_from(&first) && !first.goes_on_from(&second));
        assert!(!first.goes_on_from(&Thread::default()));
    }

    #[test]
    fn a_sequence_that_goes_on_takes_in_what_another_knows_more() {
        let whole = begins(100, 1001);
        let slots = [kept(&whole, BUSY, 3), kept(&whole[..100], FREE, 2), kept(&[5; 9], FREE, 1)];
        let choice = chosen(&begins(100, 1001), &slots);
        assert_eq!(choice, Some(Choice { slot: 1, copy_from: Some(0), common: 299 }));
    }

    #[test]
    fn the_last_token_is_evaluated_again() {
        let tokens = [1, 2, 3];
        let choice = chosen(&tokens, &[kept(&tokens, FREE, 1)]).unwrap();
        assert_eq!(choice.common, 2);
    }

    #[test]
    fn a_new_conversation_takes_an_empty_sequence_and_copies_the_beginning() {
        let one = begins(100, 1001);
        for busy in [BUSY, FREE] {
            let choice = chosen(&begins(100, 1002), &[kept(&one, busy, 1), kept(&[], FREE, 2)]);
            assert_eq!(choice, Some(Choice { slot: 1, copy_from: Some(0), common: 100 }));
        }
    }

    #[test]
    fn a_short_beginning_is_not_worth_a_copy() {
        let one = begins(10, 1001);
        let choice = chosen(&begins(10, 1002), &[kept(&one, FREE, 1), kept(&[], FREE, 2)]);
        assert_eq!(choice, Some(Choice { slot: 1, copy_from: None, common: 0 }));
    }

    #[test]
    fn the_sequence_unused_for_longest_gives_way() {
        let (one, other) = (begins(0, 1001), begins(0, 1002));
        let choice = chosen(&begins(0, 1003), &[kept(&one, FREE, 2), kept(&other, FREE, 1)]);
        assert_eq!(choice, Some(Choice { slot: 1, copy_from: None, common: 0 }));
    }

    #[test]
    fn nobody_is_interrupted() {
        let one = begins(100, 1001);
        assert_eq!(chosen(&one, &[kept(&one, BUSY, 1)]), None);
        assert_eq!(chosen(&one, &[]), None);
    }
}
