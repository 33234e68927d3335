//! The conversation follows from the events, up to the last turn that is complete.

use lis_trajectory::{Event, Outcome, compacted, history};
use serde_json::json;

use crate::examples::{answered, bash, call, ended, lines, reminded, replied, shown, started};

fn remembered(events: impl IntoIterator<Item = Event>) -> (Vec<String>, u32) {
    let (messages, turn) = history(&lines(events));
    // What everything starts with is checked once, below.
    (shown(&messages).into_iter().skip(2).collect(), turn)
}

#[test]
fn nothing_happened_yet() {
    let (messages, turn) = history(&lines([started()]));
    assert_eq!(
        (shown(&messages), turn),
        (vec!["system".into(), "user: count the files".into()], 0)
    );
    assert_eq!(history(&[]), (vec![], 0));
}

#[test]
fn replies_and_their_results_follow_in_order() {
    let (messages, turn) = remembered([
        started(),
        replied(1, "look", vec![bash("a", "ls"), bash("b", "pwd")]),
        answered(1, "a", "one file"),
        answered(1, "b", "/testbed"),
        Event::Compacted { turn: 2, messages: 3 },
        replied(2, "well", vec![]),
        reminded(2, "use a tool"),
        Event::Saved { turn: 2, image: "x".into() },
    ]);
    assert_eq!(turn, 2);
    assert_eq!(
        messages,
        [
            "assistant: look",
            "tool a: one file",
            "tool b: /testbed",
            "assistant: well",
            "user: use a tool"
        ]
    );
}

#[test]
fn a_turn_somebody_died_in_is_left_out() {
    let first =
        || vec![started(), replied(1, "look", vec![bash("a", "ls")]), answered(1, "a", "one file")];
    let complete = (vec!["assistant: look".to_owned(), "tool a: one file".to_owned()], 1);
    assert_eq!(remembered(first()), complete);
    let mut waiting = first();
    waiting.push(replied(2, "more", vec![bash("b", "ls"), bash("c", "ls")]));
    assert_eq!(remembered(waiting.clone()), complete);
    waiting.push(answered(2, "b", "half of it"));
    assert_eq!(remembered(waiting.clone()), complete);
    waiting.push(answered(2, "c", "the rest"));
    assert_eq!(remembered(waiting).1, 2);
    let mut talking = first();
    talking.push(replied(2, "hm", vec![]));
    assert_eq!(remembered(talking), complete);
}

#[test]
fn a_resumed_episode_forgets_what_came_after() {
    let (messages, turn) = remembered([
        started(),
        replied(1, "one", vec![bash("a", "ls")]),
        answered(1, "a", "first"),
        replied(2, "two", vec![bash("b", "ls")]),
        answered(2, "b", "second"),
        replied(3, "lost", vec![bash("c", "ls")]),
        Event::Resumed { turn: 1 },
        replied(2, "anew", vec![bash("d", "ls")]),
        answered(2, "d", "third"),
        Event::Resumed { turn: 2 },
        replied(3, "last", vec![call("e", "submit", json!({}))]),
        ended(Outcome::Submitted),
    ]);
    assert_eq!(turn, 2);
    assert_eq!(messages, ["assistant: one", "tool a: first", "assistant: anew", "tool d: third"]);
}

#[test]
fn resuming_before_the_first_turn_starts_over() {
    let (messages, turn) = remembered([
        started(),
        replied(1, "lost", vec![bash("a", "ls"), bash("b", "ls")]),
        answered(1, "a", "half"),
        Event::Resumed { turn: 0 },
        replied(1, "anew", vec![bash("c", "ls")]),
        answered(1, "c", "whole"),
    ]);
    assert_eq!((messages, turn), (vec!["assistant: anew".into(), "tool c: whole".into()], 1));
}

#[test]
fn what_was_shortened_is_shortened_again() {
    let shortened = |turn, messages| Event::Compacted { turn, messages };
    let turn = |turn| [replied(turn, "go", vec![bash("a", "ls")]), answered(turn, "a", "one file")];
    let mut events = vec![started()];
    events.extend(turn(1));
    assert_eq!(compacted(&lines(events.clone())), 0);
    events.push(shortened(2, 3));
    assert_eq!(compacted(&lines(events.clone())), 0, "the turn it was decided for is not complete");
    events.extend(turn(2));
    events.extend(turn(3));
    assert_eq!(compacted(&lines(events.clone())), 3);
    events.push(shortened(4, 5));
    events.extend(turn(4));
    assert_eq!(compacted(&lines(events.clone())), 5);
    events.push(Event::Resumed { turn: 3 });
    assert_eq!(compacted(&lines(events.clone())), 3);
    events.extend(turn(4));
    events.extend(turn(5));
    assert_eq!(compacted(&lines(events)), 3, "what a dead process decided is forgotten");
}
