//! Steps evaluate the right tokens at the right positions.

use tokio::sync::oneshot;

use super::*;
use sampling::{SampleRequest, SamplingParams};

/// Slots with these numbers of pending tokens.
fn slots(pending: &[usize]) -> Vec<Slot> {
    pending
        .iter()
        .map(|&pending| {
            let mut slot = Slot::default();
            if pending > 0 {
                let tokens = (1..=pending as u32).collect();
                let params = SamplingParams { temperature: 1.0, top_p: 1.0, top_k: None, seed: 3 };
                let (to, _) = oneshot::channel();
                let ask = SampleRequest {
                    conversation: 1,
                    tokens,
                    max_tokens: 9,
                    params,
                    stop_tokens: vec![],
                    until: None,
                };
                slot.begin(ask, to, 10_000, false);
            }
            slot
        })
        .collect()
}

#[test]
fn a_writing_step_feeds_one_token_of_each_that_has_few() {
    let mut slots = slots(&[1, 0, 3, 100]);
    let decode = decode(&mut slots, 77);
    let field = |number: usize| &decode.numbers[number * 4..(number + 1) * 4];
    assert_eq!(field(0), [1.0, 0.0, 1.0, 0.0]);
    assert_eq!(field(1), [0.0; 4]);
    assert_eq!(field(2), [0.0, 77.0, 0.0, 77.0], "idle slots write nowhere");
    assert_eq!(field(5), [0.0, 1.0, 0.0, 1.0]);
    let rows: Vec<_> = decode.rows.iter().map(|row| (row.index, row.slot, row.sampled)).collect();
    assert_eq!(rows, [(0, 0, true), (2, 2, false)], "what has more to come wants no token");
    assert_eq!(slots.iter().map(Slot::pending).collect::<Vec<_>>(), [0, 0, 2, 100]);
    assert_eq!(decode.view, 256);
}

#[test]
fn new_text_is_padded_to_one_width() {
    let mut slots = slots(&[12, 5, 10]);
    let (prefill, rows) = prefill(&mut slots, &[], 99, |_, _| 10);
    assert_eq!((prefill.slots, prefill.width, prefill.view), (vec![2, 0], 12, 256));
    assert_eq!(prefill.tokens[..12], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0]);
    assert_eq!(prefill.cells[8..13], [8, 9, 99, 99, 0]);
    assert_eq!(prefill.positions[8..13], [8, 9, 9, 9, 0]);
    assert_eq!(prefill.last, [9, 23]);
    assert!(rows.iter().all(|row| row.sampled));
}

#[test]
fn long_text_is_read_in_parts_and_not_too_much_at_once() {
    let mut slots = slots(&[1200, 1300, 20]);
    let few = |width: usize, _: usize| 1024 / width;
    let (first, rows) = prefill(&mut slots, &[], 99, few);
    assert_eq!((first.slots, first.width, first.view), (vec![2, 0], 512, 512));
    assert_eq!(rows.iter().map(|row| row.sampled).collect::<Vec<_>>(), [true, false]);
    let (second, _) = prefill(&mut slots, &[], 99, few);
    assert_eq!((second.slots, second.positions[0], second.view), (vec![0, 1], 512, 1024));
    let (alone, _) = prefill(&mut slots, &[], 99, |_, _| 0);
    assert_eq!(alone.slots.len(), 1, "one is always read");
}
