//! What the model did so far, as text for people: a step for each of its responses and each result of a tool.
//!
//! Everything in it was written by a model or by programs in its sandbox: control characters are left out, and long
//! results are shortened.

use ::episodes::EventReader;
use serde_json::Value;
use tokio::sync::mpsc;
use trajectory::{Arguments, Assistant, Content, Event, Message, ToolCall};

/// Most characters of a text that are shown: half of them from its start, half from its end.
const MAX_SHOWN: usize = 4000;
/// Steps that wait for a slow client.
const WAITING: usize = 16;

/// A step of an episode.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// As it is shown.
    pub(super) shown: String,
    /// What the model wrote besides tool calls.
    pub(super) said: Option<String>,
}

/// Follows the steps of an episode; the channel closes at its end.
pub(super) fn follow(mut events: EventReader) -> mpsc::Receiver<Step> {
    let (sender, steps) = mpsc::channel(WAITING);
    // In a task of its own: reading an event must not be interrupted half-way by a heartbeat.
    tokio::spawn(async move {
        while let Ok(Some(event)) = events.next().await {
            let step = event.line().ok().and_then(|line| step(&line.event));
            if let Some(step) = step
                && sender.send(step).await.is_err()
            {
                return;
            }
        }
    });
    steps
}

fn step(event: &Event) -> Option<Step> {
    let (shown, said) = match event {
        Event::Responded(response) => {
            (response_text(&response.message), response.message.text.trim())
        }
        Event::Observed(observed) => (observation(&observed.message), ""),
        Event::Retried { why, .. } => (format!("[the model is called again: {why}]"), ""),
        _ => return None,
    };
    let said = (!said.is_empty()).then(|| said.to_owned());
    let shown = plain(&shown);
    (!shown.is_empty() || said.is_some()).then(|| Step { shown: shown + "\n\n", said })
}

fn response_text(message: &Assistant) -> String {
    let calls = message.calls.iter().map(call);
    let texts = [shortened(message.reasoning.trim()), shortened(message.text.trim())];
    let all = texts.into_iter().chain(calls).filter(|text| !text.is_empty());
    all.collect::<Vec<_>>().join("\n")
}

fn call(call: &ToolCall) -> String {
    let arguments = match &call.arguments {
        Arguments::Object(map) => match (call.name.as_str(), map.get("command")) {
            ("execute_bash", Some(Value::String(command))) => {
                return format!("$ {}", shortened(command.trim()));
            }
            _ if map.is_empty() => String::new(),
            _ => format!(" {}", Value::Object(map.clone())),
        },
        Arguments::Malformed { malformed, .. } => format!(" {malformed}"),
    };
    format!("[{}{}]", call.name, shortened(&arguments))
}

fn observation(message: &Message) -> String {
    let content = match message {
        Message::Tool(result) => &result.content,
        Message::User { content } => content,
        Message::System { .. } | Message::Assistant(_) => return String::new(),
    };
    let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
    shortened(texts.join("\n").trim())
}

/// The start and the end of a long text.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX_SHOWN {
        return text.to_owned();
    }
    let head: String = text.chars().take(MAX_SHOWN / 2).collect();
    let tail: String = text.chars().skip(count - MAX_SHOWN / 2).collect();
    format!("{head}\n[… {} characters …]\n{tail}", count - MAX_SHOWN)
}

/// Without control characters other than line breaks and tabs.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trajectory::{Observed, Responded, Stop, ToolResult, Usage};

    use super::*;

    fn responded(text: &str, calls: Vec<ToolCall>) -> Event {
        let message = Assistant { text: text.into(), calls, ..Assistant::default() };
        Event::Responded(Box::new(Responded {
            turn: 1,
            message,
            stop: Stop::End,
            usage: Usage::default(),
            cost: None,
            millis: 1,
            from_cache: false,
        }))
    }

    #[test]
    fn responses_show_their_commands() {
        let arguments = Arguments::Object(json!({ "command": "ls" }).as_object().unwrap().clone());
        let bash = ToolCall { id: "1".into(), name: "execute_bash".into(), arguments };
        let step = step(&responded("I look.", vec![bash])).unwrap();
        assert_eq!(step.shown, "I look.\n$ ls\n\n");
        assert_eq!(step.said.as_deref(), Some("I look."));
    }

    #[test]
    fn results_are_bounded_and_harmless() {
        let content = vec![Content::text(format!("\u{1b}[31mred\r\n{}", "x".repeat(100_000)))];
        let (call_id, name) = ("1".into(), "execute_bash".into());
        let message = Message::Tool(ToolResult { call_id, name, content, is_error: false });
        let observed = Observed { turn: 1, message, exit_code: None, millis: 1 };
        let step = step(&Event::Observed(Box::new(observed))).unwrap();
        assert!(step.shown.starts_with("[31mred\nxxx") && step.shown.len() < 2 * MAX_SHOWN);
        assert!(step.shown.contains("96010 characters"), "{}", &step.shown[1990..2100]);
        assert_eq!(step.said, None);
    }
}
