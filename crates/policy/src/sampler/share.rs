//! What conversations begin with in common is evaluated for one of them and copied to the others: who copies what from
//! whom, and who waits until there is something to copy. Refuses to know tensors.

use std::collections::BTreeMap;

use super::{plan::reads, seat::Seat};

/// Fewer tokens are sooner evaluated than copied or waited for.
const WORTH: usize = 32;

/// Keys and values of these places of one slot go to others.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) from: usize,
    pub(super) begin: usize,
    pub(super) end: usize,
}

/// What can be copied now, and to which slots. These hold it from now on.
pub(super) fn share(seats: &mut [Seat]) -> BTreeMap<Part, Vec<usize>> {
    let mut parts: BTreeMap<Part, Vec<usize>> = BTreeMap::new();
    let found: Vec<(usize, Part)> =
        (0..seats.len()).filter_map(|to| Some((to, part(seats, to)?))).collect();
    for (to, part) in found {
        if let Some(seat) = seats.get_mut(to) {
            seat.feed(part.end - part.begin);
        }
        parts.entry(part).or_default().push(to);
    }
    parts
}

/// The most that another slot holds of what this one is about to read. Its last token is left: its scores are wanted.
fn part(seats: &[Seat], to: usize) -> Option<Part> {
    let seat = seats.get(to).filter(|seat| reads(seat))?;
    let (begin, all) = (seat.tokens.len(), seat.tokens.len() + seat.pending());
    let others = seats
        .iter()
        .enumerate()
        .filter(|(from, other)| *from != to && promising(seat, |at| other.tokens.get(at).copied()));
    let (end, from) = others
        .map(|(from, other)| (common(&mut other.tokens.iter().copied(), seat), from))
        .max_by_key(|(common, from)| (*common, std::cmp::Reverse(*from)))?;
    let end = end.min(all - 1);
    (end >= begin + WORTH).then_some(Part { from, begin, end })
}

/// Whether a slot about to read does better to wait: one before it reads what this one can copy then.
pub(super) fn waits(seats: &[Seat], to: usize) -> bool {
    let Some(seat) = seats.get(to) else { return false };
    let before = seats.iter().take(to).filter(|other| reads(other));
    let mut promising = before.filter(|other| promising(seat, |at| other.token(at)));
    promising.any(|other| common(&mut other.all(), seat) >= seat.tokens.len() + WORTH)
}

/// Whether some tokens may have enough in common with what a slot is about to read: a glance, before all are compared.
fn promising(seat: &Seat, token: impl Fn(usize) -> Option<u32>) -> bool {
    let begin = seat.tokens.len();
    [begin + WORTH - 1, begin].into_iter().all(|at| {
        let other = token(at);
        other.is_some() && other == seat.token(at)
    })
}

/// How many tokens some have in common with all of a slot's, from the beginning.
fn common(some: &mut dyn Iterator<Item = u32>, seat: &Seat) -> usize {
    some.zip(seat.all()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
