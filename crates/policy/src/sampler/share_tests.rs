//! One slot prefills a common prefix, the others copy it, and nothing else is copied.

use tokio::sync::oneshot;

use super::*;
use sampling::{SampleRequest, SamplingParams};

/// A slot with the first `held` tokens of a conversation cached, and the others pending.
fn slot(conversation: u64, tokens: &[u32], held: usize) -> Slot {
    let mut slot = Slot::default();
    let params = SamplingParams { temperature: 0.0, top_p: 1.0, top_k: None, seed: 0 };
    let (to, _) = oneshot::channel();
    let tokens = tokens.to_vec().into();
    let ask = SampleRequest {
        conversation,
        tokens,
        max_tokens: 1,
        params,
        stop_tokens: Vec::new(),
        until: None,
    };
    slot.begin(ask, to, 1000, true);
    slot.take_pending(held);
    slot
}

fn text(shared: usize, own: u32) -> Vec<u32> {
    (0..shared as u32).chain([900 + own; 40]).collect()
}

#[test]
fn the_first_reads_and_the_others_wait_and_copy() {
    let mut slots: Vec<Slot> = (0..3).map(|n| slot(u64::from(n), &text(100, n), 0)).collect();
    assert!(share(&mut slots).is_empty());
    assert_eq!([0, 1, 2].map(|to| should_wait(&slots, to)), [false, true, true]);
    slots[0].take_pending(140);
    let parts = share(&mut slots);
    assert_eq!(parts, [(Span { from: 0, begin: 0, end: 100 }, vec![1, 2])].into());
    assert_eq!(slots[1].tokens, text(100, 1)[..100]);
    assert_eq!(slots[1].pending(), 40);
    assert_eq!([0, 1, 2].map(|to| should_wait(&slots, to)), [false; 3]);
}

#[test]
fn of_two_that_ask_the_same_the_last_token_is_left() {
    let mut slots = vec![slot(1, &text(100, 1), 140), slot(2, &text(100, 1), 0)];
    let parts = share(&mut slots);
    assert_eq!(parts, [(Span { from: 0, begin: 0, end: 139 }, vec![1])].into());
    assert_eq!(slots[1].pending(), 1);
}

#[test]
fn little_in_common_is_read_by_each() {
    let mut slots = vec![slot(1, &text(20, 1), 60), slot(2, &text(20, 2), 0)];
    assert!(share(&mut slots).is_empty());
    let slots = [slot(1, &text(20, 1), 0), slot(2, &text(20, 2), 0)];
    assert!(!should_wait(&slots, 1));
}

#[test]
fn what_came_after_the_common_part_is_not_copied() {
    let mut slots = vec![slot(1, &text(100, 1), 140), slot(2, &text(100, 2), 64)];
    let parts = share(&mut slots);
    assert_eq!(parts, [(Span { from: 0, begin: 64, end: 100 }, vec![1])].into());
}

#[test]
fn the_response_that_began_first_waits_for_nobody() {
    let mut slots: Vec<Slot> = (0..3).map(|n| slot(u64::from(n), &text(100, n), 0)).collect();
    for (slot, begun) in slots.iter_mut().zip([7, 9, 4]) {
        slot.begun = begun;
    }
    assert_eq!([0, 1, 2].map(|to| should_wait(&slots, to)), [true, true, false]);
}
