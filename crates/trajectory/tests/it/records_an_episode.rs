//! The record of an episode: a step for each call, whatever becomes of it.

use lis_trajectory::{Arguments, Assistant, Event, Outcome, Stop, Trajectory};
use serde_json::{Value, json};

use crate::examples::{answered, bash, broken, call, ended, lines, reminded, replied, started};

fn record(events: impl IntoIterator<Item = Event>) -> Trajectory {
    Trajectory::from_events(&lines(events))
}

/// Thought, function, observation.
fn told(record: &Trajectory) -> Vec<(&str, &str, &str)> {
    record
        .steps
        .iter()
        .map(|step| (&step.thought[..], &step.action.function[..], &step.observation[..]))
        .collect()
}

#[test]
fn every_call_of_a_turn_is_a_step() {
    let calls = vec![bash("a", "ls"), bash("b", "pwd"), call("c", "submit", json!({}))];
    let record = record([
        started(),
        replied(1, "look", calls),
        answered(1, "a", "one file"),
        answered(1, "b", "/testbed"),
        answered(1, "c", "done"),
        ended(Outcome::Submitted),
    ]);
    assert_eq!(
        told(&record),
        [
            ("look", "execute_bash", "one file"),
            ("", "execute_bash", "/testbed"),
            ("", "submit", "done"),
        ]
    );
    let [first, second, _] = &record.steps[..] else { panic!("{record:?}") };
    assert_eq!(first.reasoning_content, "thinking of look");
    assert_eq!(first.action.parameters, json!({"command": "ls"}));
    assert_eq!(first.metadata["exec_time"], json!(1.5));
    assert_eq!(first.metadata["usage"]["input"], 100);
    assert_eq!(second.reasoning_content, "");
    assert_eq!(second.metadata["exec_time"], json!(0.0), "the model was waited for once");
    assert_eq!(second.metadata["tool_time"], json!(0.25));
    assert!(!second.metadata.contains_key("usage"), "its tokens were spent once");
    let numbers: Vec<&Value> = record.steps.iter().map(|step| &step.metadata["step"]).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn metadata_is_recorded() {
    let record = record([started(), ended(Outcome::MaxTurns)]);
    assert_eq!(record.problem_statement, "count the files");
    assert_eq!(record.steps, []);
    let expected = [
        ("total_steps", json!(0)),
        ("model", json!("some-model")),
        ("program", json!("0.1.0")),
        ("settings", json!({"max_turns": 100})),
        ("protection", json!({"seccomp": true})),
        ("outcome", json!("max_turns")),
        ("started", json!(1000)),
        ("ended", json!(2000)),
    ];
    for (name, value) in expected {
        assert_eq!(record.metadata[name], value, "{name}");
    }
    assert_eq!(record.metadata["spent"]["context"], 110);
    assert_eq!(record.metadata["messages"].as_array().unwrap().len(), 2);
}

#[test]
fn a_turn_without_a_call_is_a_step_without_a_function() {
    let record = record([started(), replied(1, "I would", vec![]), reminded(1, "use a tool")]);
    assert_eq!(told(&record), [("I would", "", "use a tool")]);
    assert_eq!(record.steps[0].action.parameters, json!({}));
    assert_eq!(record.calls().count(), 0, "there is nothing to do again");
    assert!(!record.metadata.contains_key("outcome"), "it has not ended");
}

#[test]
fn a_call_without_a_result_is_a_step_without_an_observation() {
    let calls = || vec![bash("a", "ls"), bash("b", "sleep 9999")];
    let half = record([started(), replied(1, "look", calls()), answered(1, "a", "one file")]);
    assert_eq!(told(&half), [("look", "execute_bash", "one file"), ("", "execute_bash", "")]);
    assert!(!half.steps[1].metadata.contains_key("tool_time"));
    let none = record([started(), replied(1, "look", calls()), ended(Outcome::Cancelled)]);
    assert_eq!(told(&none), [("look", "execute_bash", ""), ("", "execute_bash", "")]);
    let talk = record([started(), replied(1, "I would", vec![]), ended(Outcome::NoToolCalls)]);
    assert_eq!(told(&talk), [("I would", "", "")]);
}

#[test]
fn a_response_that_was_cut_off_is_marked() {
    let mut event = replied(1, "on and on", vec![]);
    if let Event::Responded(replied) = &mut event {
        replied.stop = Stop::Length;
    }
    let record = record([started(), event]);
    assert_eq!(record.steps[0].metadata["cut_off"], true);
}

#[test]
fn a_resumed_episode_tells_each_turn_once() {
    let record = record([
        started(),
        replied(1, "look", vec![bash("a", "ls")]),
        answered(1, "a", "one file"),
        replied(2, "lost", vec![bash("b", "rm -r ."), bash("c", "ls")]),
        answered(2, "b", "gone"),
        Event::Resumed { turn: 1 },
        replied(2, "again", vec![bash("d", "wc -l")]),
        answered(2, "d", "3"),
        ended(Outcome::Submitted),
    ]);
    assert_eq!(
        told(&record),
        [("look", "execute_bash", "one file"), ("again", "execute_bash", "3")]
    );
    assert_eq!(record.steps[1].metadata["step"], 2);
    assert_eq!(record.metadata["total_steps"], 2);
}

#[test]
fn only_the_last_end_of_a_resumed_episode_counts() {
    let again = || {
        [
            started(),
            replied(1, "look", vec![bash("a", "ls")]),
            answered(1, "a", "one file"),
            ended(broken("the server is gone")),
            Event::Resumed { turn: 1 },
        ]
    };
    let running = record(again());
    for name in ["outcome", "cause", "spent", "ended"] {
        assert!(!running.metadata.contains_key(name), "{name}");
    }
    assert_eq!(running.steps.len(), 1);
    let settings = serde_json::json!({"turns": 9});
    let more = [Event::Reconfigured { settings: settings.clone() }, ended(Outcome::Submitted)];
    let done = record(again().into_iter().chain(more));
    assert_eq!(done.metadata["settings"], settings);
    assert_eq!(done.metadata["outcome"], "submitted");
    assert!(!done.metadata.contains_key("cause"));
}

#[test]
fn an_end_that_is_our_fault_names_its_cause() {
    let record = record([started(), ended(broken("the disk is full"))]);
    assert_eq!(record.metadata["outcome"], "infrastructure");
    assert_eq!(record.metadata["cause"], "the disk is full");
}

#[test]
fn malformed_calls_are_recorded_and_stay_malformed() {
    let mut event = replied(1, "oops", vec![bash("a", "ls")]);
    if let Event::Responded(replied) = &mut event {
        let Assistant { calls, .. } = &mut replied.message;
        calls[0].arguments =
            Arguments::Malformed { malformed: "{\"comm".into(), why: "it ends early".into() };
    }
    let record = record([started(), event, answered(1, "a", "not understood")]);
    assert_eq!(record.steps[0].action.parameters, "{\"comm");
    let again = record.calls().next().unwrap();
    assert!(
        matches!(&again.arguments, Arguments::Malformed { malformed, .. } if malformed == "{\"comm")
    );
}

#[test]
fn events_in_an_unexpected_order_do_no_harm() {
    let nonsense = [
        answered(1, "a", "out of nowhere"),
        Event::Unknown,
        Event::Resumed { turn: 9 },
        replied(3, "hm", vec![]),
        reminded(3, "one"),
        reminded(3, "two"),
    ];
    let record = record(nonsense);
    assert_eq!(told(&record), [("", "", "out of nowhere"), ("hm", "", "one"), ("", "", "two")]);
}
