//! Who gets the pages of the cache when memory is short. Idle conversations lose theirs first, then responses to those that
//! began before them; these continue later, from the same tokens. The oldest response thus always advances, and every
//! response ends. Knows no tensors.

use sampling::SampleError;

use crate::error::TchResult;

use super::{
    plan::{is_decoding, is_prefilling},
    slot::Slot,
    store::PageStore,
};

/// The slots of a step.
pub(super) struct Reserved<T> {
    /// Each with what it has reserved.
    pub(super) chosen: Vec<(usize, T)>,
    /// Responses that lost their pages.
    pub(super) evictions: u64,
}

/// The slots of a decode step by their indices, and the addresses of the pages of their tokens. Responses that get no page
/// wait.
pub(super) fn decode(store: &mut PageStore, slots: &mut [Slot]) -> TchResult<Reserved<i64>> {
    let mut pool = Pool::new(store, slots);
    let mut decoding: Vec<usize> = pool.indices(is_decoding).collect();
    decoding.sort_unstable_by_key(|index| pool.age(*index));
    let mut chosen = Vec::with_capacity(decoding.len());
    for index in decoding {
        // It may have been evicted by an older one.
        if !pool.slots.get(index).is_some_and(is_decoding) {
            continue;
        }
        match pool.page(index)? {
            Some(page) => chosen.push((index, page)),
            None => pool.fail_if_oldest(index),
        }
    }
    // Only younger ones are evicted, and these come later: none of the chosen has lost its page.
    chosen.retain(|(index, _)| pool.store.has_pages(*index));
    chosen.sort_unstable_by_key(|(index, _)| *index);
    Ok(Reserved { chosen, evictions: pool.evictions })
}

/// Gives back the memory of all pages where most are of conversations that have ended. Those that continue are few, and
/// are evaluated again.
pub(super) fn give_back(store: &mut PageStore, slots: &mut [Slot]) {
    let ended = |slot: &&mut Slot| slot.conversation.is_none() && slot.running.is_none();
    slots.iter_mut().filter(ended).for_each(|slot| slot.tokens.clear());
    let pool = Pool::new(store, slots);
    if pool.store.is_mostly_free() {
        pool.store.clear();
        pool.slots.iter_mut().for_each(Slot::invalidate);
    }
}

/// The slots of a prefill of at most `limit` tokens, and how many tokens of each: the oldest response, then the shortest
/// texts. Each has room for all its pending tokens. Slots that are `waiting` are left out.
pub(super) fn prefill(
    store: &mut PageStore,
    slots: &mut [Slot],
    waiting: &[bool],
    limit: usize,
) -> TchResult<Reserved<usize>> {
    let mut pool = Pool::new(store, slots);
    let (mut chosen, mut left) = (Vec::new(), limit);
    let is_waiting = |index: usize| waiting.get(index).copied().unwrap_or_default();
    let oldest = pool.oldest().filter(|index| pool.slots.get(*index).is_some_and(is_prefilling));
    if let Some(index) = oldest {
        match pool.room_for_oldest(index)? {
            true => pool.choose(index, &mut chosen, &mut left),
            false => pool.fail_if_oldest(index),
        }
    }
    let mut others: Vec<usize> = pool
        .indices(is_prefilling)
        .filter(|index| Some(*index) != oldest && !is_waiting(*index))
        .collect();
    others.sort_unstable_by_key(|index| (pool.pending(*index), *index));
    for index in others {
        if left == 0 {
            break;
        }
        // Evaluated now, it would be evicted again as soon as the older ones need their next pages.
        let spare = pool.older_with_pages(index);
        if pool.room(index, spare)? {
            pool.choose(index, &mut chosen, &mut left);
        }
    }
    Ok(Reserved { chosen, evictions: pool.evictions })
}

/// The slots, and the pages they compete for.
struct Pool<'a> {
    store: &'a mut PageStore,
    slots: &'a mut [Slot],
    evictions: u64,
}

impl<'a> Pool<'a> {
    /// Returns pages of tokens that slots have no more.
    fn new(store: &'a mut PageStore, slots: &'a mut [Slot]) -> Self {
        for (index, slot) in slots.iter().enumerate() {
            store.truncate(index, slot.tokens.len() + slot.pending());
        }
        Self { store, slots, evictions: 0 }
    }

    fn indices(&self, which: fn(&Slot) -> bool) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().filter(move |(_, slot)| which(slot)).map(|(index, _)| index)
    }

    /// The order of responses: smaller for those that began earlier.
    fn age(&self, index: usize) -> (u64, usize) {
        (self.slots.get(index).map_or(0, |slot| slot.begun), index)
    }

    /// The response that began first.
    fn oldest(&self) -> Option<usize> {
        self.indices(|slot| slot.running.is_some()).min_by_key(|index| self.age(*index))
    }

    fn older_with_pages(&self, index: usize) -> usize {
        let older = |other: &usize| self.age(*other) < self.age(index);
        let with_pages = |other: &usize| self.store.has_pages(*other);
        self.indices(|slot| slot.running.is_some()).filter(older).filter(with_pages).count()
    }

    fn pending(&self, index: usize) -> usize {
        self.slots.get(index).map_or(0, Slot::pending)
    }

    fn choose(&self, index: usize, chosen: &mut Vec<(usize, usize)>, left: &mut usize) {
        let part = self.pending(index).min(*left);
        *left -= part;
        chosen.push((index, part));
    }

    /// The address of the page of a slot's next token, if need be taken from others; `None` where there is none.
    fn page(&mut self, index: usize) -> TchResult<Option<i64>> {
        loop {
            let position = self.slots.get(index).map_or(0, |slot| slot.tokens.len());
            if let Some(page) = self.store.page(index, position)? {
                return Ok(Some(page));
            }
            if !self.evict_idle() && !self.evict_younger(index) {
                return Ok(None);
            }
        }
    }

    /// Makes room for all pending tokens of a slot, if need be by evicting idle conversations, so that `spare` pages are
    /// left.
    fn room(&mut self, index: usize, spare: usize) -> TchResult<bool> {
        let Some(slot) = self.slots.get(index) else { return Ok(false) };
        let (begin, end) = (slot.tokens.len(), slot.tokens.len() + slot.pending());
        while !self.store.reserve(index, begin, end, spare)? {
            if !self.evict_idle() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same for the oldest response, for which all others may be evicted.
    fn room_for_oldest(&mut self, index: usize) -> TchResult<bool> {
        while !self.room(index, 0)? {
            if !self.evict_younger(index) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Evicts the slot without a response that was used least recently; false where there is none with pages.
    fn evict_idle(&mut self) -> bool {
        let store = &self.store;
        let idle = self
            .slots
            .iter_mut()
            .enumerate()
            .filter(|(index, slot)| slot.running.is_none() && store.has_pages(*index))
            .min_by_key(|(_, slot)| (slot.conversation.is_some(), slot.last_used));
        let Some((index, slot)) = idle else { return false };
        slot.tokens.clear();
        self.store.truncate(index, 0);
        true
    }

    /// Evicts the youngest of the responses that began after this one, which is evaluated again later; false where there
    /// is none with pages.
    fn evict_younger(&mut self, index: usize) -> bool {
        let own = self.age(index);
        let younger = |other: &usize| self.age(*other) > own && self.store.has_pages(*other);
        let youngest = self
            .indices(|slot| slot.running.is_some())
            .filter(younger)
            .max_by_key(|other| self.age(*other));
        let Some(youngest) = youngest else { return false };
        if let Some(slot) = self.slots.get_mut(youngest) {
            slot.invalidate();
        }
        self.store.truncate(youngest, 0);
        self.evictions += 1;
        true
    }

    /// Fails a response for which no page is left although it is the oldest: waiting would not help.
    fn fail_if_oldest(&mut self, index: usize) {
        if self.oldest() != Some(index) {
            return;
        }
        if let Some(slot) = self.slots.get_mut(index) {
            let tokens = slot.tokens.len() + slot.pending();
            let why = format!("out of memory: the cache has no room for {tokens} tokens");
            slot.fail(SampleError::Failed(why.into()));
        }
        self.store.truncate(index, 0);
    }
}

#[cfg(test)]
#[path = "reserve_tests.rs"]
mod tests;
