//! Questions get the right slots, and replies end when they should.

use super::*;

fn ask(conversation: u64, tokens: &[u32]) -> Ask {
    let choice = Choice { temperature: 0.0, top_p: 1.0, top_k: None, seed: 0 };
    Ask { conversation, tokens: tokens.into(), most: 3, choice, ends: vec![9], until: None }
}

type Answer = oneshot::Receiver<Result<Sampled, SampleError>>;

fn seated(seat: &mut Seat, ask: Ask) -> (usize, Answer) {
    let (to, answer) = oneshot::channel();
    (seat.begin(ask, to, 100, false), answer)
}

#[test]
fn a_conversation_keeps_its_seat_and_the_oldest_idle_one_goes() {
    let mut seats: Vec<Seat> = (0..3).map(|_| Seat::default()).collect();
    assert_eq!(place(7, &seats), Place::Seat(0));
    for (seat, (conversation, used)) in seats.iter_mut().zip([(1, 5), (2, 3), (3, 4)]) {
        seat.conversation = Some(conversation);
        seat.used = used;
    }
    assert_eq!(place(3, &seats), Place::Seat(2));
    assert_eq!(place(7, &seats), Place::Seat(1));
    let (_, _answer) = seated(&mut seats[1], ask(2, &[1]));
    assert_eq!(place(2, &seats), Place::Later, "one question of a conversation at a time");
    assert_eq!(place(7, &seats), Place::Seat(2));
    seats[0].forget();
    assert_eq!(place(7, &seats), Place::Seat(0));
}

#[test]
fn nobody_is_thrown_out_while_being_answered() {
    let mut seats = [Seat::default()];
    let (_, _answer) = seated(&mut seats[0], ask(1, &[1]));
    assert_eq!(place(2, &seats), Place::Later);
}

#[test]
fn only_what_is_new_is_read() {
    let mut seat = Seat::default();
    let (read, mut answer) = seated(&mut seat, ask(1, &[1, 2, 3]));
    assert_eq!((read, seat.feed(99)), (3, vec![1, 2, 3]));
    seat.chosen(4, -0.5);
    assert_eq!(seat.feed(99), [4]);
    seat.chosen(9, -0.25);
    let reply = answer.try_recv().unwrap().unwrap();
    assert_eq!(
        reply,
        Sampled { tokens: vec![4, 9], logprobs: vec![-0.5, -0.25], end: SampleEnd::Token }
    );
    assert_eq!(seat.tokens, [1, 2, 3, 4], "the last token was never evaluated");
    assert_eq!(seated(&mut seat, ask(1, &[1, 2, 3, 4, 9, 5])).0, 2);
    seat.running = None;
    assert_eq!(
        seated(&mut seat, ask(1, &[1, 2, 3])).0,
        1,
        "the scores after the last token are wanted"
    );
    seat.running = None;
    assert_eq!(seated(&mut seat, ask(1, &[1, 7, 3])).0, 2, "what differs is read again");
    seat.running = None;
    assert_eq!(seated(&mut seat, ask(2, &[1, 7, 3])).0, 3, "another conversation begins anew");
}

#[test]
fn a_reply_ends_at_its_length_or_where_the_listener_says() {
    let mut seat = Seat::default();
    let (_, mut answer) = seated(&mut seat, ask(1, &[1]));
    for token in [2, 3, 4] {
        seat.feed(1);
        seat.chosen(token, -1.0);
    }
    assert_eq!(answer.try_recv().unwrap().unwrap().end, SampleEnd::Length);
    let until: Until = Box::new(|token: u32| if token == 3 { Flow::Stop } else { Flow::Continue });
    let (_, mut answer) = seated(&mut seat, Ask { until: Some(until), ..ask(1, &[1]) });
    for token in [2, 3] {
        seat.feed(1);
        seat.chosen(token, -1.0);
    }
    let reply = answer.try_recv().unwrap().unwrap();
    assert_eq!((reply.tokens, reply.end), (vec![2, 3], SampleEnd::Until));
}

#[test]
fn the_context_bounds_a_reply() {
    let mut seat = Seat::default();
    let (to, mut answer) = oneshot::channel();
    seat.begin(ask(1, &[1, 2, 3]), to, 4, false);
    seat.feed(3);
    seat.chosen(5, -1.0);
    let reply = answer.try_recv().unwrap().unwrap();
    assert_eq!((reply.tokens, reply.end), (vec![5], SampleEnd::Length));
}

#[test]
fn what_is_no_number_or_panics_is_an_error_of_its_reply_alone() {
    let mut seat = Seat::default();
    let (_, mut answer) = seated(&mut seat, ask(1, &[1]));
    seat.chosen(2, f32::NAN);
    assert!(matches!(answer.try_recv().unwrap(), Err(SampleError::NotFinite)));
    let until: Until =
        Box::new(|_: u32| -> Flow { std::panic::resume_unwind(Box::new("on purpose")) });
    let (_, mut answer) = seated(&mut seat, Ask { until: Some(until), ..ask(1, &[1]) });
    seat.chosen(2, -1.0);
    assert!(matches!(answer.try_recv().unwrap(), Err(SampleError::Panicked)));
}

#[test]
fn new_weights_have_everything_read_again() {
    let mut seat = Seat::default();
    let (_, _answer) = seated(&mut seat, ask(1, &[1, 2, 3]));
    seat.feed(2);
    seat.start_over();
    assert_eq!((seat.tokens.len(), seat.feed(99)), (0, vec![1, 2, 3]));
}

#[test]
fn who_leaves_frees_the_seat() {
    let mut seat = Seat::default();
    let (_, answer) = seated(&mut seat, ask(1, &[1, 2]));
    seat.leave_if_unwanted();
    assert!(seat.running.is_some());
    drop(answer);
    seat.leave_if_unwanted();
    assert!(seat.running.is_none());
}
