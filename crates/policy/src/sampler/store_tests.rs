//! Memory is allocated as pages are needed, within its limit, and a device that has none left is no failure. On the CPU:
//! what is in the pages does not matter here.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tch::TchError;

use super::*;
use crate::{Architecture, Output, Scaling};

/// A store for sequences of `context` tokens, of at most `limit` pages in chunks of `chunk`.
pub(in crate::sampler) fn store(
    slots: usize,
    context: usize,
    limit: usize,
    chunk: usize,
) -> PageStore {
    let shape = Shape {
        architecture: Architecture::Llama,
        hidden: 8,
        layers: 2,
        heads: 1,
        kv_heads: 1,
        head_dim: 8,
        intermediate: 8,
        vocabulary: 11,
        rope_theta: 10_000.0,
        rope_scaling: Scaling::None,
        norm_eps: 1e-5,
        output: Output::Tied,
        positions: 4096,
    };
    let options = (Kind::Float, Device::Cpu);
    let mut store = PageStore::new(&shape, options, slots, context, limit).unwrap();
    store.pages_per_chunk = chunk;
    store
}

/// Has the device run out of memory after this many chunks; the number can be changed later.
pub(in crate::sampler) fn with_memory(store: &mut PageStore, chunks: usize) -> Arc<AtomicUsize> {
    let left = Arc::new(AtomicUsize::new(chunks));
    store.allocate = Box::new({
        let left = Arc::clone(&left);
        move |sizes| {
            let take = |left: usize| left.checked_sub(1);
            match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
                Ok(_) => Tensor::f_zeros(sizes, (Kind::Float, Device::Cpu)),
                Err(_) => Err(TchError::Torch("CUDA out of memory".to_owned())),
            }
        }
    });
    left
}

/// The pages of a slot.
pub(in crate::sampler) fn pages(store: &PageStore, slot: usize) -> &[PageId] {
    store.lists.of(slot)
}

/// The pages that slots can still take.
pub(in crate::sampler) fn available(store: &PageStore) -> usize {
    store.lists.free() + store.growth()
}

#[test]
fn memory_follows_what_is_cached_up_to_the_limit() {
    let mut store = store(4, 3 * PAGE, 9, 2);
    assert!(store.chunks.is_empty());
    assert!(store.reserve(0, 0, PAGE, 0).unwrap());
    assert_eq!(store.chunks.len(), 1);
    assert!(store.reserve(1, 0, 3 * PAGE, 0).unwrap());
    assert!(store.reserve(2, 0, 3 * PAGE, 0).unwrap());
    assert_eq!((store.chunks.len(), available(&store)), (4, 1));
    assert!(!store.reserve(3, 0, 2 * PAGE, 0).unwrap(), "a fifth chunk is beyond the limit");
    assert!(!store.has_pages(3), "all or nothing");
    assert!(store.reserve(3, 0, PAGE, 0).unwrap());
}

#[test]
fn one_sequence_fits_whatever_the_limit() {
    let mut store = store(2, 5 * PAGE, 1, 1);
    assert!(store.reserve(0, 0, 5 * PAGE, 0).unwrap());
    assert_eq!(available(&store), 1, "and a page to copy to");
}

#[test]
fn pages_are_left_for_others() {
    let mut store = store(3, 2 * PAGE, 4, 1);
    assert!(store.reserve(0, 0, PAGE, 0).unwrap());
    assert!(!store.reserve(1, 0, 2 * PAGE, 2).unwrap());
    assert!(store.reserve(1, 0, 2 * PAGE, 1).unwrap());
    assert_eq!(available(&store), 1);
}

#[test]
fn a_device_without_memory_leaves_the_pages_there_are() {
    // A sequence may have more pages than there are.
    let mut store = store(3, 8 * PAGE, 20, 2);
    let left = with_memory(&mut store, 2);
    assert!(store.reserve(0, 0, 3 * PAGE, 0).unwrap());
    assert!(!store.reserve(1, 0, 2 * PAGE, 0).unwrap(), "no error");
    assert!(store.reserve(1, 0, PAGE, 0).unwrap());
    assert!(store.page(1, PAGE).unwrap().is_none());
    left.store(1, Ordering::Relaxed);
    assert_eq!(available(&store), 0, "the device is not asked again and again");
    store.clear();
    left.store(20, Ordering::Relaxed);
    assert_eq!(available(&store), 20, "the limit is the old one");
    assert!(store.reserve(0, 0, 8 * PAGE, 0).unwrap());
    assert!(store.reserve(1, 0, 8 * PAGE, 0).unwrap());
}

#[test]
fn other_errors_are_reported() {
    let mut store = store(1, PAGE, 4, 1);
    store.allocate = Box::new(|_| Err(TchError::Torch("illegal memory access".to_owned())));
    assert!(store.reserve(0, 0, PAGE, 0).is_err());
}

#[test]
fn a_shared_page_is_copied_with_its_numbers() {
    let mut store = store(2, 2 * PAGE, 6, 3);
    with_memory(&mut store, 2);
    store.reserve(0, 0, 10, 0).unwrap();
    let _ = store.view(0).unwrap().fill_(3.0);
    store.share(0, 1, 10).unwrap();
    let (own, copied) = (store.page(0, 3).unwrap(), store.page(1, 10).unwrap());
    assert_ne!(own, copied);
    for slot in [0, 1] {
        let page = store.view(pages(&store, slot)[0]).unwrap();
        assert_eq!(page.double_value(&[1, 0, 5, 2]), 3.0, "{slot}");
    }
}
