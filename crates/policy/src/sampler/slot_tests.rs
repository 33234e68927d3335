//! Requests get the right slots, and responses end when they should.

use super::*;

fn request(conversation: u64, tokens: &[u32]) -> SampleRequest {
    let params = SamplingParams { temperature: 0.0, top_p: 1.0, top_k: None, seed: 0 };
    SampleRequest {
        conversation,
        tokens: tokens.into(),
        max_tokens: 3,
        params,
        stop_tokens: vec![9],
        until: None,
    }
}

type Response = oneshot::Receiver<Result<Sampled, SampleError>>;

fn started(slot: &mut Slot, request: SampleRequest) -> (usize, Response) {
    let (to, response) = oneshot::channel();
    (slot.begin(request, to, 100, false), response)
}

#[test]
fn a_conversation_keeps_its_seat_and_the_oldest_idle_one_goes() {
    let mut slots: Vec<Slot> = (0..3).map(|_| Slot::default()).collect();
    assert_eq!(assign(7, &slots), Assignment::Slot(0));
    for (slot, (conversation, last_used)) in slots.iter_mut().zip([(1, 5), (2, 3), (3, 4)]) {
        slot.conversation = Some(conversation);
        slot.last_used = last_used;
    }
    assert_eq!(assign(3, &slots), Assignment::Slot(2));
    assert_eq!(assign(7, &slots), Assignment::Slot(1));
    let (_, _answer) = started(&mut slots[1], request(2, &[1]));
    assert_eq!(assign(2, &slots), Assignment::Wait, "one question of a conversation at a time");
    assert_eq!(assign(7, &slots), Assignment::Slot(2));
    slots[0].release();
    assert_eq!(assign(7, &slots), Assignment::Slot(0));
}

#[test]
fn a_response_in_progress_is_never_evicted() {
    let mut slots = [Slot::default()];
    let (_, _answer) = started(&mut slots[0], request(1, &[1]));
    assert_eq!(assign(2, &slots), Assignment::Wait);
}

#[test]
fn only_what_is_new_is_read() {
    let mut slot = Slot::default();
    let (read, mut response) = started(&mut slot, request(1, &[1, 2, 3]));
    assert_eq!((read, slot.take_pending(99)), (3, vec![1, 2, 3]));
    slot.push_token(4, -0.5, 0);
    assert_eq!(slot.take_pending(99), [4]);
    slot.push_token(9, -0.25, 0);
    let response = response.try_recv().unwrap().unwrap();
    assert_eq!(
        response,
        Sampled {
            tokens: vec![4, 9],
            logprobs: vec![-0.5, -0.25],
            versions: vec![0, 0],
            end: SampleEnd::Token
        }
    );
    assert_eq!(slot.tokens, [1, 2, 3, 4], "the last token was never evaluated");
    assert_eq!(started(&mut slot, request(1, &[1, 2, 3, 4, 9, 5])).0, 2);
    slot.running = None;
    assert_eq!(
        started(&mut slot, request(1, &[1, 2, 3])).0,
        1,
        "the scores after the last token are wanted"
    );
    slot.running = None;
    assert_eq!(started(&mut slot, request(1, &[1, 7, 3])).0, 2, "what differs is read again");
    slot.running = None;
    assert_eq!(started(&mut slot, request(2, &[1, 7, 3])).0, 3, "another conversation begins anew");
}

#[test]
fn a_reply_ends_at_its_length_or_where_the_listener_says() {
    let mut slot = Slot::default();
    let (_, mut response) = started(&mut slot, request(1, &[1]));
    for token in [2, 3, 4] {
        slot.take_pending(1);
        slot.push_token(token, -1.0, 0);
    }
    assert_eq!(response.try_recv().unwrap().unwrap().end, SampleEnd::Length);
    let until: Until = Box::new(|token: u32| if token == 3 { Flow::Stop } else { Flow::Continue });
    let (_, mut response) =
        started(&mut slot, SampleRequest { until: Some(until), ..request(1, &[1]) });
    for token in [2, 3] {
        slot.take_pending(1);
        slot.push_token(token, -1.0, 0);
    }
    let response = response.try_recv().unwrap().unwrap();
    assert_eq!((response.tokens, response.end), (vec![2, 3], SampleEnd::Until));
}

#[test]
fn the_context_bounds_a_reply() {
    let mut slot = Slot::default();
    let (to, mut response) = oneshot::channel();
    slot.begin(request(1, &[1, 2, 3]), to, 4, false);
    slot.take_pending(3);
    slot.push_token(5, -1.0, 0);
    let response = response.try_recv().unwrap().unwrap();
    assert_eq!((response.tokens, response.end), (vec![5], SampleEnd::Length));
}

#[test]
fn what_is_no_number_or_panics_is_an_error_of_its_reply_alone() {
    let mut slot = Slot::default();
    let (_, mut response) = started(&mut slot, request(1, &[1]));
    slot.push_token(2, f32::NAN, 0);
    assert!(matches!(response.try_recv().unwrap(), Err(SampleError::NotFinite)));
    let until: Until =
        Box::new(|_: u32| -> Flow { std::panic::resume_unwind(Box::new("on purpose")) });
    let (_, mut response) =
        started(&mut slot, SampleRequest { until: Some(until), ..request(1, &[1]) });
    slot.push_token(2, -1.0, 0);
    assert!(matches!(response.try_recv().unwrap(), Err(SampleError::Panicked)));
}

#[test]
fn new_weights_have_everything_read_again() {
    let mut slot = Slot::default();
    let (_, _answer) = started(&mut slot, request(1, &[1, 2, 3]));
    slot.take_pending(2);
    slot.invalidate();
    assert_eq!((slot.tokens.len(), slot.take_pending(99)), (0, vec![1, 2, 3]));
}

#[test]
fn who_leaves_frees_the_seat() {
    let mut slot = Slot::default();
    let (_, response) = started(&mut slot, request(1, &[1, 2]));
    slot.cancel_if_dropped();
    assert!(slot.running.is_some());
    drop(response);
    slot.cancel_if_dropped();
    assert!(slot.running.is_none());
}

#[test]
fn each_token_of_a_prompt_is_counted_once() {
    let mut slot = Slot::default();
    let tokens: Vec<u32> = (10..110).collect();
    let (_, _answer) = started(&mut slot, request(1, &tokens));
    // Copied, evicted, copied again: more is copied than there ever was to evaluate.
    let counted = [10, 0, 0].map(|expected| {
        slot.skip_pending(60);
        assert_eq!(slot.take_evaluated(), 0, "a copy is not evaluated");
        slot.take_pending(10);
        slot.invalidate();
        (slot.take_evaluated(), expected)
    });
    assert!(counted.iter().all(|(counted, expected)| counted == expected), "{counted:?}");
    slot.take_pending(100);
    assert_eq!(slot.take_evaluated(), 30);
    slot.push_token(4, -0.5, 0);
    slot.take_pending(1);
    assert_eq!(slot.take_evaluated(), 0, "a sampled token is not of the prompt");
    slot.invalidate();
    slot.take_pending(200);
    assert_eq!(slot.take_evaluated(), 0);
}
