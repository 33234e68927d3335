//! Every event survives being written and read again.

use lis_trajectory::{
    Arguments, Assistant, Changed, ChangedFile, Content, Ended, Event, Fault, FileChange, Line,
    Message, Observed, Outcome, Responded, Spent, Started, Stop, ToolCall, ToolResult, Usage, read,
};
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Map, Value, json};

use crate::examples::call;

/// Any text: quotes, control characters, line ends of every kind, characters beyond the first plane.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{0,12}", any::<String>(), Just("a\nb\r\n\u{2028}c\u{0}\u{1b}[0m".to_owned())]
}

/// Names, with those our own format gives a meaning to.
fn key() -> impl Strategy<Value = String> {
    let ours = ["arguments", "malformed", "why", "kind", "role", "type", "v", "at", "outcome"];
    prop_oneof![text(), prop::sample::select(ours.to_vec()).prop_map(str::to_owned)]
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![-1e9..1e9, prop::num::f64::NORMAL | prop::num::f64::ZERO]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        number().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            map(inner).prop_map(Value::from)
        ]
    })
}

fn map(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    vec((key(), value), 0..4).prop_map(Map::from_iter)
}

fn arguments() -> impl Strategy<Value = Arguments> {
    prop_oneof![
        map(value()).prop_map(Arguments::Object),
        (text(), text()).prop_map(|(malformed, why)| Arguments::Malformed { malformed, why }),
    ]
}

fn tool_call() -> impl Strategy<Value = ToolCall> {
    let call = |(id, name, arguments)| ToolCall { id, name, arguments };
    (text(), text(), arguments()).prop_map(call)
}

fn assistant() -> impl Strategy<Value = Assistant> {
    let some = value().prop_filter("null is the absence of a value", |value| !value.is_null());
    let calls = (vec(tool_call(), 0..3), any::<bool>());
    (text(), text(), calls, option::of(text()), option::of(some)).prop_map(
        |(text, reasoning, (calls, then_submit), raw, opaque)| Assistant {
            text,
            reasoning,
            calls,
            then_submit,
            raw,
            opaque,
        },
    )
}

fn content() -> impl Strategy<Value = Vec<Content>> {
    let image = |(media_type, data)| Content::Image { media_type, data };
    vec(prop_oneof![text().prop_map(Content::text), (text(), text()).prop_map(image)], 0..3)
}

fn message() -> impl Strategy<Value = Message> {
    let result = |(call_id, name, content, is_error)| {
        Message::Tool(ToolResult { call_id, name, content, is_error })
    };
    prop_oneof![
        text().prop_map(|text| Message::System { text }),
        content().prop_map(|content| Message::User { content }),
        assistant().prop_map(Message::Assistant),
        (text(), text(), content(), any::<bool>()).prop_map(result),
    ]
}

fn usage() -> impl Strategy<Value = Usage> {
    (any::<[u64; 5]>(), any::<bool>()).prop_map(|(figures, estimated)| {
        let [input, cached, cache_writes, output, reasoning] = figures;
        Usage { input, cached, cache_writes, output, reasoning, estimated }
    })
}

fn spent() -> impl Strategy<Value = Spent> {
    (any::<u32>(), usage(), any::<[u64; 3]>(), option::of(number())).prop_map(
        |(turns, usage, [context, model_ms, tool_ms], cost)| Spent {
            turns,
            usage,
            context,
            cost,
            model_ms,
            tool_ms,
        },
    )
}

fn stop() -> impl Strategy<Value = Stop> {
    prop_oneof![
        Just(Stop::End),
        Just(Stop::ToolCalls),
        Just(Stop::Length),
        Just(Stop::Refusal),
        text().prop_map(Stop::Other),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Submitted),
        Just(Outcome::MaxTurns),
        Just(Outcome::MaxTokens),
        Just(Outcome::ContextFull),
        Just(Outcome::Deadline),
        Just(Outcome::Cost),
        Just(Outcome::NoToolCalls),
        Just(Outcome::Cancelled),
        text().prop_map(|cause| Outcome::Infrastructure { cause, fault: Fault::Sandbox }),
    ]
}

fn started() -> impl Strategy<Value = Started> {
    let texts = (text(), text(), text());
    (texts, vec(message(), 0..3), value(), value()).prop_map(
        |((problem_statement, model, program), messages, settings, protection)| Started {
            problem_statement,
            messages,
            model,
            settings,
            protection,
            program,
        },
    )
}

fn replied() -> impl Strategy<Value = Responded> {
    let figures = (any::<u32>(), usage(), option::of(number()), any::<u64>());
    (figures, assistant(), stop(), any::<bool>()).prop_map(
        |((turn, usage, cost, millis), message, stop, from_cache)| Responded {
            turn,
            message,
            stop,
            usage,
            cost,
            millis,
            from_cache,
        },
    )
}

fn observed() -> impl Strategy<Value = Observed> {
    (any::<u32>(), message(), option::of(any::<i32>()), any::<u64>()).prop_map(
        |(turn, message, exit_code, millis)| Observed { turn, message, exit_code, millis },
    )
}

fn changed() -> impl Strategy<Value = Changed> {
    let change = prop_oneof![
        Just(FileChange::Created),
        Just(FileChange::Modified),
        Just(FileChange::Deleted)
    ];
    let file = (text(), change, any::<u64>(), option::of(text()), option::of(text())).prop_map(
        |(path, change, size, text, before)| ChangedFile { path, change, size, text, before },
    );
    (any::<u32>(), text(), vec(file, 0..3), any::<bool>()).prop_map(
        |(turn, directory, files, incomplete)| Changed { turn, directory, files, incomplete },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let retried = |(turn, attempt, wait_ms, why)| Event::Retried { turn, attempt, wait_ms, why };
    prop_oneof![
        started().prop_map(|it| Event::Started(Box::new(it))),
        (any::<u32>(), any::<u32>(), any::<u64>(), text()).prop_map(retried),
        replied().prop_map(|it| Event::Responded(Box::new(it))),
        observed().prop_map(|it| Event::Observed(Box::new(it))),
        (any::<u32>(), any::<usize>())
            .prop_map(|(turn, messages)| Event::Compacted { turn, messages }),
        (any::<u32>(), text()).prop_map(|(turn, image)| Event::Saved { turn, image }),
        changed().prop_map(|it| Event::Changed(Box::new(it))),
        any::<u32>().prop_map(|turn| Event::Resumed { turn }),
        value().prop_map(|settings| Event::Reconfigured { settings }),
        (outcome(), spent()).prop_map(|(outcome, spent)| Event::Ended(Ended { outcome, spent })),
    ]
}

fn written(lines: &[Line]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
}

#[test]
fn a_model_cannot_pass_its_arguments_off_as_malformed() {
    let arguments = json!({"command": "ls", "malformed": "ls", "why": "because"});
    for arguments in [arguments, json!({"malformed": "ls", "why": "because"})] {
        let before = call("a", "execute_bash", arguments);
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<ToolCall>(&text).unwrap(), before);
    }
    let number = r#"{"id": "a", "name": "execute_bash", "arguments": 7}"#;
    assert!(serde_json::from_str::<ToolCall>(number).is_err());
}

#[test]
fn absurd_figures_of_a_server_add_up_to_the_most_there_is() {
    let absurd = Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() };
    let mut sum = Usage { input: 1, reasoning: 2, estimated: true, ..absurd };
    sum += absurd;
    assert_eq!(sum, Usage { reasoning: 2, estimated: true, ..absurd });
    assert_eq!(sum.total(), u64::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn lines_come_back_as_they_were(events in vec((any::<u64>(), event()), 0..4)) {
        let lines: Vec<Line> = events.into_iter().map(|(at, event)| Line::new(at, event)).collect();
        prop_assert_eq!(read(&written(&lines)).unwrap(), lines);
    }

    #[test]
    fn a_killed_process_costs_no_more_than_its_last_line(
        events in vec(event(), 1..4),
        share in 0.0..1.0,
    ) {
        let lines: Vec<Line> = events.into_iter().map(|event| Line::new(1, event)).collect();
        let text = written(&lines);
        let mut cut = (text.len() as f64 * share) as usize;
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let whole = text[..cut].matches('\n').count();
        prop_assert_eq!(read(&text[..cut]).unwrap(), &lines[..whole]);
    }

    #[test]
    fn garbage_is_refused_and_named(
        before in vec(event(), 0..3),
        garbage in "[^\n\r{]{1,20}".prop_filter("blank", |text| !text.trim().is_empty()),
    ) {
        let before: Vec<Line> = before.into_iter().map(|event| Line::new(1, event)).collect();
        let error = read(&(written(&before) + &garbage + "\n")).unwrap_err();
        prop_assert_eq!(error.line, before.len() + 1);
    }
}
