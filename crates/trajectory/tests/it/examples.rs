//! Events to build episodes from, as short as the tests allow.

use lis_trajectory::{
    Arguments, Assistant, Content, Ended, Event, Fault, Line, Message, Observed, Outcome,
    Responded, Spent, Started, Stop, ToolCall, ToolResult, Usage,
};
use serde_json::{Value, json};

/// Lines one second apart.
pub(crate) fn lines(events: impl IntoIterator<Item = Event>) -> Vec<Line> {
    events.into_iter().zip(1..).map(|(event, at)| Line::new(at * 1000, event)).collect()
}

pub(crate) fn started() -> Event {
    Event::Started(Box::new(Started {
        problem_statement: "count the files".into(),
        messages: vec![
            Message::System { text: "you have a computer".into() },
            Message::user("count the files"),
        ],
        model: "some-model".into(),
        settings: json!({"max_turns": 100}),
        protection: json!({"seccomp": true}),
        program: "0.1.0".into(),
    }))
}

/// A response that took 1.5 seconds.
pub(crate) fn replied(turn: u32, text: &str, calls: Vec<ToolCall>) -> Event {
    let stop = if calls.is_empty() { Stop::End } else { Stop::ToolCalls };
    let message = Assistant {
        text: text.into(),
        reasoning: format!("thinking of {text}"),
        calls,
        ..Assistant::default()
    };
    let usage = Usage { input: 100, output: 10, ..Usage::default() };
    Event::Responded(Box::new(Responded {
        turn,
        message,
        stop,
        usage,
        cost: None,
        millis: 1500,
        from_cache: false,
    }))
}

pub(crate) fn bash(id: &str, command: &str) -> ToolCall {
    call(id, "execute_bash", json!({"command": command}))
}

pub(crate) fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    let arguments = arguments.as_object().unwrap().clone();
    ToolCall { id: id.into(), name: name.into(), arguments: Arguments::Object(arguments) }
}

/// A result that took a quarter of a second.
pub(crate) fn answered(turn: u32, id: &str, text: &str) -> Event {
    let message = Message::Tool(ToolResult {
        call_id: id.into(),
        name: "execute_bash".into(),
        content: vec![Content::text(text)],
        is_error: false,
    });
    Event::Observed(Box::new(Observed { turn, message, exit_code: Some(0), millis: 250 }))
}

pub(crate) fn reminded(turn: u32, text: &str) -> Event {
    let message = Message::user(text);
    Event::Observed(Box::new(Observed { turn, message, exit_code: None, millis: 0 }))
}

pub(crate) fn ended(outcome: Outcome) -> Event {
    Event::Ended(Ended { outcome, spent: Spent { turns: 2, context: 110, ..Spent::default() } })
}

pub(crate) fn broken(cause: &str) -> Outcome {
    Outcome::Infrastructure { cause: cause.into(), fault: Fault::Unknown }
}

/// What each message of a history shows, in a word or two.
pub(crate) fn shown(messages: &[Message]) -> Vec<String> {
    let text = |content: &[Content]| content[0].as_text().unwrap().to_owned();
    let show = |message: &Message| match message {
        Message::System { .. } => "system".into(),
        Message::User { content } => format!("user: {}", text(content)),
        Message::Assistant(said) => format!("assistant: {}", said.text),
        Message::Tool(result) => format!("tool {}: {}", result.call_id, text(&result.content)),
    };
    messages.iter().map(show).collect()
}
