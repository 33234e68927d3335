//! What the model did so far, as text for people: its responses while they are generated, its tool calls, and their results.
//!
//! Everything in it was written by a model or by programs in its sandbox: control characters are left out, and long
//! results are shortened.

use ::episodes::{EventReader, OwnedDelta, Ready};
use serde_json::Value;
use tokio::sync::{
    broadcast::{self, error::RecvError, error::TryRecvError},
    mpsc,
};
use trajectory::{Arguments, Assistant, Content, Event, Message, ToolCall};

/// Most characters of a text that are shown: half of them from its start, half from its end.
const MAX_SHOWN: usize = 4000;
/// Steps that wait for a slow client.
const WAITING: usize = 16;

/// A step of an episode, or a piece of one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// As it is shown.
    pub(super) shown: String,
    /// What the model wrote besides tool calls.
    pub(super) said: Option<String>,
}

/// Follows the steps of an episode; the channel closes at its end. With `deltas`, responses are followed while they are
/// generated.
pub(super) fn follow(
    events: EventReader,
    deltas: Option<broadcast::Receiver<OwnedDelta>>,
) -> mpsc::Receiver<Step> {
    let (sender, steps) = mpsc::channel(WAITING);
    // In a task of its own: reading an event must not be interrupted half-way by a heartbeat.
    tokio::spawn(async move {
        let mut follower = Follower { events, deltas, response: Partial::default() };
        while let Some(steps) = follower.next().await {
            for step in steps {
                if sender.send(step).await.is_err() {
                    return;
                }
            }
        }
    });
    steps
}

struct Follower {
    events: EventReader,
    /// Absent where responses are shown once they are complete.
    deltas: Option<broadcast::Receiver<OwnedDelta>>,
    response: Partial,
}

/// What was shown of a response that is being generated.
#[derive(Debug, Default, PartialEq, Eq)]
struct Partial {
    last: Option<Kind>,
    /// Pieces are missing, because the client was too slow for them.
    has_gap: bool,
    /// No further piece follows.
    is_complete: bool,
}

/// A kind of text in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Text,
}

impl Follower {
    /// The next steps; `None` at the end of the episode.
    async fn next(&mut self) -> Option<Vec<Step>> {
        let pieces = async {
            match &mut self.deltas {
                // The next response is shown after the event that ends this one.
                Some(deltas) if !self.response.is_complete => deltas.recv().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // First: what the tools did comes before the response to it.
            () = self.events.ready() => {}
            piece = pieces => {
                let step = match piece {
                    Ok(piece) => self.response.add(Some(piece)),
                    Err(RecvError::Lagged(_)) => self.response.add(None),
                    Err(RecvError::Closed) => {
                        self.deltas = None;
                        None
                    }
                };
                return Some(step.into_iter().collect());
            }
        }
        match self.events.read_ready().await {
            Ok(Ready::Event(event)) => {
                let Ok(line) = event.line() else { return Some(Vec::new()) };
                Some(self.shown(&line.event))
            }
            Ok(Ready::Skipped) => Some(Vec::new()),
            Ok(Ready::End) | Err(_) => None,
        }
    }

    /// The steps that an event completes.
    fn shown(&mut self, event: &Event) -> Vec<Step> {
        let ends: fn(&OwnedDelta) -> bool = match event {
            Event::Responded(_) => |piece| *piece == OwnedDelta::Complete,
            Event::Retried { .. } => |piece| matches!(piece, OwnedDelta::Retry { .. }),
            event => return step(event).into_iter().collect(),
        };
        let mut steps = Vec::new();
        // Its pieces were sent before the event was written.
        while let (Some(deltas), false) = (&mut self.deltas, self.response.is_complete) {
            let piece = match deltas.try_recv() {
                Ok(piece) => Some(piece),
                Err(TryRecvError::Lagged(_)) => None,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
            self.response.is_complete = piece.as_ref().is_some_and(ends);
            steps.extend(self.response.add(piece));
        }
        steps.extend(self.response.finish(event));
        steps
    }
}

impl Partial {
    /// Adds a piece; `None` where pieces were lost.
    fn add(&mut self, piece: Option<OwnedDelta>) -> Option<Step> {
        let (kind, text) = match piece {
            Some(OwnedDelta::Reasoning(text)) => (Kind::Reasoning, text),
            Some(OwnedDelta::Text(text)) => (Kind::Text, text),
            // Calls are shown once they are complete, and events say that a call to the model is retried.
            Some(other) => {
                self.is_complete |= other == OwnedDelta::Complete;
                return None;
            }
            None => {
                self.has_gap = true;
                return None;
            }
        };
        let text = plain(&text);
        if self.has_gap || text.is_empty() {
            return None;
        }
        let before = self.last.replace(kind).filter(|before| *before != kind);
        let shown = before.map_or("", |_| "\n").to_owned() + &text;
        Some(Step { shown, said: None })
    }

    /// What is left to show when the response is complete, or void. The next response begins.
    fn finish(&mut self, event: &Event) -> Option<Step> {
        let Self { last, has_gap, is_complete } = std::mem::take(self);
        // Where the end was lost, so may be the beginning of the next one.
        self.has_gap = has_gap && !is_complete;
        let whole = step(event)?;
        let shown = match event {
            _ if last.is_none() => whole.shown,
            Event::Responded(response) if !has_gap => {
                let calls = plain(&calls_text(&response.message));
                if calls.is_empty() { "\n\n".into() } else { format!("\n{calls}\n\n") }
            }
            _ => format!("\n\n{}", whole.shown),
        };
        Some(Step { shown, said: whole.said })
    }
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
    let calls = calls_text(message);
    let texts = [shortened(message.reasoning.trim()), shortened(message.text.trim()), calls];
    let all = texts.into_iter().filter(|text| !text.is_empty());
    all.collect::<Vec<_>>().join("\n")
}

fn calls_text(message: &Assistant) -> String {
    message.calls.iter().map(call).collect::<Vec<_>>().join("\n")
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

    fn text(piece: &str) -> Option<OwnedDelta> {
        Some(OwnedDelta::Text(piece.into()))
    }

    /// What a client sees of a response of these pieces, with `None` where some were lost.
    fn streamed(pieces: Vec<Option<OwnedDelta>>, event: &Event) -> Vec<String> {
        let mut response = Partial::default();
        let mut steps: Vec<Step> =
            pieces.into_iter().filter_map(|piece| response.add(piece)).collect();
        steps.extend(response.finish(event));
        assert_eq!(response, Partial::default(), "the next response begins");
        steps.into_iter().map(|step| step.shown).collect()
    }

    #[test]
    fn pieces_are_shown_once_and_lost_ones_with_the_whole() {
        let arguments = Arguments::Object(json!({ "command": "ls" }).as_object().unwrap().clone());
        let bash = ToolCall { id: "1".into(), name: "execute_bash".into(), arguments };
        let event = responded("I look.", vec![bash]);
        let (call, end) = (OwnedDelta::Call("execute_bash".into()), Some(OwnedDelta::Complete));
        let thought = Some(OwnedDelta::Reasoning("Hm\u{1b}".into()));
        let pieces = vec![thought, text("I "), text("look."), Some(call), end.clone()];
        assert_eq!(streamed(pieces, &event), ["Hm", "\nI ", "look.", "\n$ ls\n\n"]);
        let lost = vec![text("I "), None, text("look."), end.clone()];
        assert_eq!(streamed(lost, &event), ["I ", "\n\nI look.\n$ ls\n\n"]);
        assert_eq!(streamed(vec![end.clone()], &event), ["I look.\n$ ls\n\n"]);
        assert_eq!(streamed(vec![text("4"), end], &responded("4", Vec::new())), ["4", "\n\n"]);
        let retried = Event::Retried { turn: 1, attempt: 1, wait_ms: 5, why: "cut off".into() };
        let again = "\n\n[the model is called again: cut off]\n\n";
        assert_eq!(streamed(vec![text("I ")], &retried), ["I ", again]);
    }

    #[test]
    fn a_lost_end_hides_the_beginning_of_the_next_response() {
        let mut response = Partial::default();
        response.add(None);
        response.finish(&responded("a", Vec::new()));
        assert_eq!(response.add(text("b")), None);
        let step = response.finish(&responded("bc", Vec::new())).unwrap();
        assert_eq!(step.shown, "bc\n\n");
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
