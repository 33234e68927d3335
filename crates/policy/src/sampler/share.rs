//! Prefix sharing: a common prefix of several conversations is evaluated for one of them and copied to the others. Decides
//! what is copied, and which slots wait for it. Knows no tensors.

use std::collections::BTreeMap;

use super::{plan::is_prefilling, slot::Slot};

/// The minimum length of a shared prefix: shorter ones are evaluated faster than copied.
const MIN_SHARED: usize = 32;

/// Cache positions `begin..end` of a slot, to be copied to others.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) from: usize,
    pub(super) begin: usize,
    pub(super) end: usize,
}

/// The spans that can be copied now, each with its target slots, which count them as cached from now on.
pub(super) fn share(slots: &mut [Slot]) -> BTreeMap<Span, Vec<usize>> {
    let mut spans: BTreeMap<Span, Vec<usize>> = BTreeMap::new();
    let found: Vec<(usize, Span)> =
        (0..slots.len()).filter_map(|to| Some((to, span(slots, to)?))).collect();
    for (to, span) in found {
        if let Some(slot) = slots.get_mut(to) {
            slot.skip_pending(span.end - span.begin);
        }
        spans.entry(span).or_default().push(to);
    }
    spans
}

/// The longest cached prefix in another slot of what this one is about to prefill. The last token is left out: its logits
/// are needed.
fn span(slots: &[Slot], to: usize) -> Option<Span> {
    let slot = slots.get(to).filter(|slot| is_prefilling(slot))?;
    let (begin, all) = (slot.tokens.len(), slot.tokens.len() + slot.pending());
    let others = slots
        .iter()
        .enumerate()
        .filter(|(from, other)| *from != to && promising(slot, |at| other.tokens.get(at).copied()));
    let (end, from) = others
        .map(|(from, other)| (common(&mut other.tokens.iter().copied(), slot), from))
        .max_by_key(|(common, from)| (*common, std::cmp::Reverse(*from)))?;
    let end = end.min(all - 1);
    (end >= begin + MIN_SHARED).then_some(Span { from, begin, end })
}

/// Whether a slot should wait with its prefill: one whose response began earlier is about to evaluate what this one can
/// then copy. The oldest never waits.
pub(super) fn should_wait(slots: &[Slot], to: usize) -> bool {
    let Some(slot) = slots.get(to) else { return false };
    let earlier = |(index, other): &(usize, &Slot)| (other.begun, *index) < (slot.begun, to);
    let before = slots.iter().enumerate().filter(earlier).map(|(_, other)| other);
    let mut promising = before
        .filter(|other| is_prefilling(other))
        .filter(|other| promising(slot, |at| other.token(at)));
    promising.any(|other| common(&mut other.all(), slot) >= slot.tokens.len() + MIN_SHARED)
}

/// A quick check whether tokens may share enough with what a slot is about to prefill, before all are compared.
fn promising(slot: &Slot, token: impl Fn(usize) -> Option<u32>) -> bool {
    let begin = slot.tokens.len();
    [begin + MIN_SHARED - 1, begin].into_iter().all(|at| {
        let other = token(at);
        other.is_some() && other == slot.token(at)
    })
}

/// The length of the common prefix of some tokens and all of a slot's.
fn common(tokens: &mut dyn Iterator<Item = u32>, slot: &Slot) -> usize {
    tokens.zip(slot.all()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
