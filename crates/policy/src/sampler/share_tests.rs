//! One reads what several begin with, the others copy it, and nobody copies what is not theirs.

use tokio::sync::oneshot;

use super::*;
use crate::sampler::{Ask, Choice};

/// A slot that holds the first so many of a conversation's tokens and is to read the others.
fn seat(conversation: u64, tokens: &[u32], held: usize) -> Seat {
    let mut seat = Seat::default();
    let choice = Choice { temperature: 0.0, top_p: 1.0, top_k: None, seed: 0 };
    let (to, _) = oneshot::channel();
    let tokens = tokens.to_vec().into();
    let ask = Ask { conversation, tokens, most: 1, choice, ends: Vec::new(), until: None };
    seat.begin(ask, to, 1000, true);
    seat.feed(held);
    seat
}

fn text(shared: usize, own: u32) -> Vec<u32> {
    (0..shared as u32).chain([900 + own; 40]).collect()
}

#[test]
fn the_first_reads_and_the_others_wait_and_copy() {
    let mut seats: Vec<Seat> = (0..3).map(|n| seat(u64::from(n), &text(100, n), 0)).collect();
    assert!(share(&mut seats).is_empty());
    assert_eq!([0, 1, 2].map(|to| waits(&seats, to)), [false, true, true]);
    seats[0].feed(140);
    let parts = share(&mut seats);
    assert_eq!(parts, [(Part { from: 0, begin: 0, end: 100 }, vec![1, 2])].into());
    assert_eq!(seats[1].tokens, text(100, 1)[..100]);
    assert_eq!(seats[1].pending(), 40);
    assert_eq!([0, 1, 2].map(|to| waits(&seats, to)), [false; 3]);
}

#[test]
fn of_two_that_ask_the_same_the_last_token_is_left() {
    let mut seats = vec![seat(1, &text(100, 1), 140), seat(2, &text(100, 1), 0)];
    let parts = share(&mut seats);
    assert_eq!(parts, [(Part { from: 0, begin: 0, end: 139 }, vec![1])].into());
    assert_eq!(seats[1].pending(), 1);
}

#[test]
fn little_in_common_is_read_by_each() {
    let mut seats = vec![seat(1, &text(20, 1), 60), seat(2, &text(20, 2), 0)];
    assert!(share(&mut seats).is_empty());
    let seats = [seat(1, &text(20, 1), 0), seat(2, &text(20, 2), 0)];
    assert!(!waits(&seats, 1));
}

#[test]
fn what_came_after_the_common_part_is_not_copied() {
    let mut seats = vec![seat(1, &text(100, 1), 140), seat(2, &text(100, 2), 64)];
    let parts = share(&mut seats);
    assert_eq!(parts, [(Part { from: 0, begin: 64, end: 100 }, vec![1])].into());
}
