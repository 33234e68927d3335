//! The pages of the cache in device memory. They are allocated in chunks as conversations grow, so that memory follows
//! what is cached; a page is found by its address, so that chunks can be added without touching recorded steps.

use tch::{Device, Kind, Tensor};

use crate::{
    error::{TchResult, out_of_memory},
    kernels::{PAGE, Pages},
    shape::Shape,
};

use super::pages::{PageId, PageLists, Writable, pages_of};

/// The size of a chunk in bytes, about.
const CHUNK_BYTES: usize = 1 << 29;

/// Allocates a tensor of these sizes.
type Allocate = Box<dyn Fn(&[i64]) -> TchResult<Tensor> + Send>;

/// Pages, and the table by which kernels find them.
pub(super) struct PageStore {
    lists: PageLists,
    /// Each `[layers, pages, 2 * kv_heads, PAGE, head_dim]`.
    chunks: Vec<Tensor>,
    allocate: Allocate,
    pages_per_chunk: usize,
    /// The maximum number of pages.
    limit: usize,
    /// Whether the device had no memory for another chunk. The others are used until all are dropped.
    exhausted: bool,
    /// The bytes of a page in one layer.
    page_bytes: usize,
    /// `[slots, max_pages]`: addresses of pages in the first layer.
    table: Tensor,
    max_pages: usize,
    shape: Shape,
}

impl PageStore {
    /// Without pages. At most `limit` are allocated; it must have room for one sequence of `context` tokens.
    pub(super) fn new(
        shape: &Shape,
        options: (Kind, Device),
        slots: usize,
        context: usize,
        limit: usize,
    ) -> TchResult<Self> {
        let max_pages = pages_of(context);
        let page_bytes = page_bytes(shape, options.0);
        let all = slots.saturating_mul(max_pages + 1).min(limit).max(1);
        let fitting = CHUNK_BYTES / (page_bytes * layers(shape)).max(1);
        Ok(Self {
            lists: PageLists::new(slots),
            chunks: Vec::new(),
            allocate: Box::new(move |sizes| Tensor::f_empty(sizes, options)),
            pages_per_chunk: fitting.clamp(1, all),
            limit: all,
            exhausted: false,
            page_bytes,
            table: Tensor::f_zeros([slots as i64, max_pages as i64], (Kind::Int64, options.1))?,
            max_pages,
            shape: shape.clone(),
        })
    }

    /// What kernels need to find the pages of a layer.
    pub(super) fn layer(&self, layer: usize) -> Pages<'_> {
        let offset = layer * self.pages_per_chunk * self.page_bytes;
        Pages { table: &self.table, max_pages: self.max_pages as i64, layer: offset as i64 }
    }

    /// Whether a slot has pages.
    pub(super) fn has_pages(&self, slot: usize) -> bool {
        !self.lists.of(slot).is_empty()
    }

    /// Whether most pages are unused.
    pub(super) fn is_mostly_free(&self) -> bool {
        2 * self.lists.free() > self.lists.total()
    }

    /// Gives up the pages of a slot beyond this many tokens.
    pub(super) fn truncate(&mut self, slot: usize, tokens: usize) {
        self.lists.truncate(slot, tokens);
    }

    /// Drops all pages and their memory. What the device had no memory for is tried again afterwards.
    pub(super) fn clear(&mut self) {
        self.lists.clear();
        self.chunks.clear();
        self.exhausted = false;
    }

    /// Has `to` share the first tokens of `from`.
    pub(super) fn share(&mut self, from: usize, to: usize, tokens: usize) -> TchResult<()> {
        self.lists.share(from, to, tokens);
        let pages = self.lists.of(to);
        let addresses: Vec<i64> = pages.iter().map(|page| self.address(*page)).collect();
        let row = self.table.f_select(0, to as i64)?;
        row.f_narrow(0, 0, addresses.len() as i64)?.f_copy_(&Tensor::f_from_slice(&addresses)?)
    }

    /// Makes room for tokens `begin..end` of a slot, all or nothing, and only where `spare` more pages are left for others.
    pub(super) fn reserve(
        &mut self,
        slot: usize,
        begin: usize,
        end: usize,
        spare: usize,
    ) -> TchResult<bool> {
        // What lies beyond belonged to other tokens.
        self.lists.truncate(slot, begin);
        let own = self.lists.of(slot).len();
        let needed = self.lists.missing(slot, begin, end);
        while self.lists.free() < needed {
            if !self.grow()? {
                return Ok(false);
            }
        }
        // After growing, which may have failed.
        if self.lists.free() + self.growth() < needed + spare {
            return Ok(false);
        }
        for position in [begin].into_iter().chain((own * PAGE..end).step_by(PAGE)) {
            if self.page(slot, position)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The address of the page that a token of a slot is written to; `None` where there is no page.
    pub(super) fn page(&mut self, slot: usize, position: usize) -> TchResult<Option<i64>> {
        loop {
            match self.lists.writable(slot, position) {
                Some(Writable::Own(page)) => return Ok(Some(self.address(page))),
                Some(Writable::Copied { from, to }) => {
                    let (source, target) = (self.view(from)?, self.view(to)?);
                    target.shallow_clone().f_copy_(&source)?;
                    return Ok(Some(self.address(to)));
                }
                None if self.grow()? => {}
                None => return Ok(None),
            }
        }
    }

    /// Allocates another chunk; false where there is no room for it. A device without memory is no failure: the pages
    /// there are can be used in turn.
    fn grow(&mut self) -> TchResult<bool> {
        if self.growth() == 0 {
            return Ok(false);
        }
        let Shape { layers, kv_heads, head_dim, .. } = self.shape;
        // All chunks have the same size: the distance of layers is part of recorded steps.
        let sizes = [layers, self.pages_per_chunk as i64, 2 * kv_heads, PAGE as i64, head_dim];
        match (self.allocate)(&sizes) {
            Ok(chunk) => {
                self.chunks.push(chunk);
                self.lists.add(self.pages_per_chunk);
                Ok(true)
            }
            Err(error) if out_of_memory(&error) => {
                self.exhausted = true;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The number of pages that may still be allocated.
    fn growth(&self) -> usize {
        if self.exhausted {
            return 0;
        }
        let total = self.lists.total();
        let within = self.limit.saturating_sub(total) / self.pages_per_chunk;
        // Whatever the limit, there is room for one sequence, and one page to copy to.
        let least = (self.max_pages + 1).saturating_sub(total).div_ceil(self.pages_per_chunk);
        within.max(least) * self.pages_per_chunk
    }

    fn address(&self, page: PageId) -> i64 {
        let (chunk, index) = self.place(page);
        let base = self.chunks.get(chunk).map_or(0, |chunk| chunk.data_ptr() as i64);
        base + (index * self.page_bytes) as i64
    }

    /// A page in all layers.
    fn view(&self, page: PageId) -> TchResult<Tensor> {
        let (chunk, index) = self.place(page);
        let missing = || tch::TchError::Shape(format!("there is no page {page}"));
        self.chunks.get(chunk).ok_or_else(missing)?.f_select(1, index as i64)
    }

    fn place(&self, page: PageId) -> (usize, usize) {
        (page as usize / self.pages_per_chunk, page as usize % self.pages_per_chunk)
    }
}

/// The bytes of a page in all layers.
pub(super) fn page_memory(shape: &Shape, kind: Kind) -> u64 {
    (page_bytes(shape, kind) * layers(shape)) as u64
}

fn page_bytes(shape: &Shape, kind: Kind) -> usize {
    let numbers = 2 * shape.kv_heads * shape.head_dim;
    usize::try_from(numbers).unwrap_or_default() * PAGE * kind.elt_size_in_bytes()
}

fn layers(shape: &Shape) -> usize {
    usize::try_from(shape.layers).unwrap_or(1)
}

#[cfg(test)]
#[path = "store_tests.rs"]
pub(super) mod tests;
