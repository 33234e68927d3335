//! Files of the first version load for ever; what this program cannot know is refused or passed over.

use lis_trajectory::{Arguments, Event, Line, Stop, Trajectory, VERSION, history, read};
use serde_json::Value;

use crate::examples::shown;

/// Every kind of event with every field, as version 1 wrote it. Never changed, only added to.
const FIRST: &str = include_str!("golden/v1.jsonl");
const FIRST_RECORD: &str = include_str!("golden/v1.trajectory.json");

#[test]
fn the_first_version_still_loads() {
    let lines = read(FIRST).unwrap();
    assert_eq!(lines.len(), FIRST.lines().count());
    assert!(lines.iter().all(|line| line.v == 1 && line.event != Event::Unknown));
    let Event::Responded(replied) = &lines[2].event else { panic!("{:?}", lines[2]) };
    assert!(
        matches!(&replied.message.calls[0].arguments, Arguments::Object(map) if map["command"] == "ls")
    );
    let Arguments::Malformed { malformed, why } = &replied.message.calls[1].arguments else {
        panic!("{replied:?}")
    };
    assert_eq!((&malformed[..], &why[..]), ("{'command': 'l", "the text ends inside a string"));
    let Event::Responded(last) = &lines[11].event else { panic!("{:?}", lines[11]) };
    assert_eq!(last.stop, Stop::Other("eos".into()));
}

#[test]
fn nothing_of_the_first_version_is_lost() {
    for (line, text) in read(FIRST).unwrap().iter().zip(FIRST.lines()) {
        // The short form of a usage is read as zeros, which are then written.
        if text.contains(r#""input":200,"output":1"#) {
            continue;
        }
        let before: Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(line).unwrap(), before);
    }
}

#[test]
fn the_first_version_still_makes_the_same_record() {
    let record = Trajectory::from_events(&read(FIRST).unwrap());
    assert_eq!(record, serde_json::from_str(FIRST_RECORD).unwrap());
    let (messages, turn) = history(&read(FIRST).unwrap());
    assert_eq!(turn, 2);
    assert_eq!(
        shown(&messages),
        [
            "system",
            "user: draw a map",
            "assistant: I look around.",
            "tool a: map.png",
            "tool b: the call is not understood",
            "assistant: Hmm",
            "user: Use a tool.",
        ]
    );
}

#[test]
fn an_unfinished_last_line_is_left_out() {
    let whole = read(FIRST).unwrap();
    assert_eq!(read(FIRST.trim_end()).unwrap(), &whole[..whole.len() - 1]);
    assert_eq!(read("").unwrap(), []);
    assert_eq!(read(r#"{"v":1,"at":1,"kind":"resumed","turn":1}"#).unwrap(), []);
}

#[test]
fn empty_lines_and_foreign_line_ends_do_no_harm() {
    let text = "\r\n{\"v\":1,\"at\":7,\"kind\":\"resumed\",\"turn\":1}\r\n\n  \n";
    assert_eq!(read(text).unwrap(), [Line::new(7, Event::Resumed { turn: 1 })]);
}

#[test]
fn unknown_kinds_and_fields_are_passed_over() {
    let text = concat!(
        r#"{"v":1,"at":5,"kind":"dreamt","turn":{"of":["sheep"]},"cost":null}"#,
        "\n",
        r#"{"v":1,"at":6,"kind":"resumed","turn":2,"mood":"good"}"#,
        "\n",
    );
    let expected = [Line::new(5, Event::Unknown), Line::new(6, Event::Resumed { turn: 2 })];
    assert_eq!(read(text).unwrap(), expected);
}

#[test]
fn a_newer_version_is_refused_by_its_number() {
    let newer = [
        format!(r#"{{"v":{},"at":1,"kind":"resumed","turn":1}}"#, VERSION + 1),
        format!(r#"{{"v":{},"when":"today","kind":"resumed","turn":"one"}}"#, VERSION + 1),
        r#"{"v":99999999999,"at":1,"kind":"resumed","turn":1}"#.to_owned(),
    ];
    for text in newer {
        let error = read(&format!("\n{text}\n")).unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.to_string().contains("newer"), "{error}");
    }
}

#[test]
fn a_line_that_is_no_event_is_refused() {
    let bad = [
        "hello",
        "[]",
        "null",
        "{}",
        r#"{"v":0,"at":1,"kind":"resumed","turn":1}"#,
        r#"{"v":-1,"at":1,"kind":"resumed","turn":1}"#,
        r#"{"v":1,"kind":"resumed","turn":1}"#,
        r#"{"v":1,"at":1,"turn":1}"#,
        r#"{"v":1,"at":1,"kind":"resumed"}"#,
        r#"{"v":1,"at":1,"kind":"resumed","turn":1} {}"#,
        r#"{"v":1,"at":1,"kind":"ended","outcome":"bliss","spent":{}}"#,
        r#"{"v":1,"at":1,"kind":"observed","turn":1,"message":{"role":"god"},"millis":1}"#,
    ];
    for line in bad {
        let error = read(&format!("{line}\n")).expect_err(line);
        assert_eq!(error.line, 1, "{line}");
    }
    let deep = format!("{}{}\n", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(read(&deep).unwrap_err().line, 1);
    let unknown = format!(r#"{{"v":1,"at":1,"kind":"x","y":{}"#, "[".repeat(100_000));
    assert_eq!(read(&(unknown + "\n")).unwrap_err().line, 1);
}
