//! Steps feed what they should, where they should.

use tokio::sync::oneshot;

use super::*;
use crate::sampler::{Ask, Choice};

/// Slots whose conversations have so many tokens to evaluate.
fn seats(pending: &[usize]) -> Vec<Seat> {
    pending
        .iter()
        .map(|&pending| {
            let mut seat = Seat::default();
            if pending > 0 {
                let tokens = (1..=pending as u32).collect();
                let choice = Choice { temperature: 1.0, top_p: 1.0, top_k: None, seed: 3 };
                let (to, _) = oneshot::channel();
                let ask =
                    Ask { conversation: 1, tokens, most: 9, choice, ends: vec![], until: None };
                seat.begin(ask, to, 10_000, false);
            }
            seat
        })
        .collect()
}

#[test]
fn a_writing_step_feeds_one_token_of_each_that_has_few() {
    let mut seats = seats(&[1, 0, 3, 100]);
    let writing = writing(&mut seats, 77);
    let field = |number: usize| &writing.numbers[number * 4..(number + 1) * 4];
    assert_eq!(field(0), [1.0, 0.0, 1.0, 0.0]);
    assert_eq!(field(1), [0.0; 4]);
    assert_eq!(field(2), [0.0, 77.0, 0.0, 77.0], "idle slots write nowhere");
    assert_eq!(field(5), [0.0, 1.0, 0.0, 1.0]);
    let rows: Vec<_> = writing.rows.iter().map(|row| (row.index, row.seat, row.wanted)).collect();
    assert_eq!(rows, [(0, 0, true), (2, 2, false)], "what has more to come wants no token");
    assert_eq!(seats.iter().map(Seat::pending).collect::<Vec<_>>(), [0, 0, 2, 100]);
    assert_eq!(writing.looked, 256);
}

#[test]
fn new_text_is_padded_to_one_width() {
    let mut seats = seats(&[12, 5, 10]);
    let (reading, rows) = reading(&mut seats, &[], 99, |_, _| 10);
    assert_eq!((reading.slots, reading.width, reading.looked), (vec![2, 0], 12, 256));
    assert_eq!(reading.tokens[..12], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0]);
    assert_eq!(reading.places[8..13], [8, 9, 99, 99, 0]);
    assert_eq!(reading.positions[8..13], [8, 9, 9, 9, 0]);
    assert_eq!(reading.last, [9, 23]);
    assert!(rows.iter().all(|row| row.wanted));
}

#[test]
fn long_text_is_read_in_parts_and_not_too_much_at_once() {
    let mut seats = seats(&[1200, 1300, 20]);
    let few = |width: usize, _: usize| 1024 / width;
    let (first, rows) = reading(&mut seats, &[], 99, few);
    assert_eq!((first.slots, first.width, first.looked), (vec![2, 0], 512, 512));
    assert_eq!(rows.iter().map(|row| row.wanted).collect::<Vec<_>>(), [true, false]);
    let (second, _) = reading(&mut seats, &[], 99, few);
    assert_eq!((second.slots, second.positions[0], second.looked), (vec![0, 1], 512, 1024));
    let (alone, _) = reading(&mut seats, &[], 99, |_, _| 0);
    assert_eq!(alone.slots.len(), 1, "one is always read");
}
