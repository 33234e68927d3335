//! Which pages of the cache belong to which slots. Slots with a common prefix share its pages; a shared page is copied
//! before a slot writes to it. Knows no tensors.

use crate::kernels::PAGE;

/// A page, by number.
pub(super) type PageId = u32;

/// The page that a token is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writable {
    /// The slot's own page.
    Own(PageId),
    /// The slot's own page `to`, to which `from` has to be copied first.
    Copied { from: PageId, to: PageId },
}

/// The pages of all slots.
#[derive(Debug)]
pub(super) struct PageLists {
    slots: Vec<Vec<PageId>>,
    /// How many slots have each page.
    owners: Vec<u32>,
    free: Vec<PageId>,
}

/// The number of pages of this many tokens.
pub(super) fn pages_of(tokens: usize) -> usize {
    tokens.div_ceil(PAGE)
}

impl PageLists {
    /// No pages yet.
    pub(super) fn new(slots: usize) -> Self {
        Self { slots: vec![Vec::new(); slots], owners: Vec::new(), free: Vec::new() }
    }

    /// The number of pages there are.
    pub(super) fn total(&self) -> usize {
        self.owners.len()
    }

    /// The number of unused pages.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// The pages of a slot, in order.
    pub(super) fn of(&self, slot: usize) -> &[PageId] {
        self.slots.get(slot).map_or(&[], Vec::as_slice)
    }

    /// Adds unused pages, which follow those there are.
    pub(super) fn add(&mut self, count: usize) {
        let first = self.owners.len();
        self.owners.resize(first + count, 0);
        // The first of them is used first.
        self.free.extend((first..first + count).rev().map(|page| page as PageId));
    }

    /// Drops all pages.
    pub(super) fn clear(&mut self) {
        self.slots.iter_mut().for_each(Vec::clear);
        self.owners.clear();
        self.free.clear();
    }

    /// Gives up the pages of a slot beyond this many tokens.
    pub(super) fn truncate(&mut self, slot: usize, tokens: usize) {
        let Some(pages) = self.slots.get_mut(slot) else { return };
        let kept = pages_of(tokens).min(pages.len());
        for page in pages.split_off(kept) {
            self.leave(page);
        }
    }

    /// Has `to` share the pages of the first tokens of `from`, in place of its own.
    pub(super) fn share(&mut self, from: usize, to: usize, tokens: usize) {
        let shared: Vec<PageId> = self.of(from).iter().copied().take(pages_of(tokens)).collect();
        for page in &shared {
            if let Some(owners) = self.owners.get_mut(*page as usize) {
                *owners += 1;
            }
        }
        self.truncate(to, 0);
        if let Some(pages) = self.slots.get_mut(to) {
            *pages = shared;
        }
    }

    /// The page of a slot that a token at this position is written to; `None` where there is no free page. The slot must
    /// have the pages of all positions before.
    pub(super) fn writable(&mut self, slot: usize, position: usize) -> Option<Writable> {
        let index = position / PAGE;
        let Some(&page) = self.slots.get(slot)?.get(index) else {
            let page = self.take()?;
            self.slots.get_mut(slot)?.push(page);
            return Some(Writable::Own(page));
        };
        if !self.is_shared(page) {
            return Some(Writable::Own(page));
        }
        let to = self.take()?;
        *self.slots.get_mut(slot)?.get_mut(index)? = to;
        self.leave(page);
        Some(Writable::Copied { from: page, to })
    }

    /// The pages that a slot takes when tokens `begin..end` are written, the copy of a shared page included. The slot must
    /// have the pages of all tokens before `begin`, and none after.
    pub(super) fn missing(&self, slot: usize, begin: usize, end: usize) -> usize {
        let pages = self.of(slot);
        let shared = pages.get(begin / PAGE).is_some_and(|page| self.is_shared(*page));
        pages_of(end).saturating_sub(pages.len()) + usize::from(shared && begin < end)
    }

    fn is_shared(&self, page: PageId) -> bool {
        self.owners.get(page as usize).is_some_and(|owners| *owners > 1)
    }

    fn take(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        *self.owners.get_mut(page as usize)? = 1;
        Some(page)
    }

    fn leave(&mut self, page: PageId) {
        let Some(owners) = self.owners.get_mut(page as usize) else { return };
        *owners = owners.saturating_sub(1);
        if *owners == 0 {
            self.free.push(page);
        }
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
