//! Shared by both protocols: request bodies and received calls.
//!
//! Pure functions over JSON. Knows no vendor's field names.

use std::{borrow::Cow, collections::HashSet};

use serde_json::{Map, Value, json};
use trajectory::{Arguments, Assistant, Content, Message, ToolCall, Usage};

use crate::{
    Request, ToolSpec,
    repair::{self, Ending},
};

/// Maximum calls in one response; more are an attack or a mistake.
pub(crate) const MAX_CALLS: usize = 256;
/// Maximum token count, so that sums cannot overflow.
pub(crate) const MAX_COUNT: u64 = 1 << 40;
/// Maximum bytes of an id: vendors' ids have about thirty, and none accepts longer ones.
const MAX_ID: usize = 64;

/// Maximum bytes of a tool name; longer ones are truncated and name no tool.
const MAX_NAME: usize = 128;

/// The stop reason where the server sends none: the response may be cut off.
pub(crate) const NO_REASON: &str = "unsaid";

/// A call while it is received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartialCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The arguments' JSON so far.
    pub(crate) arguments: String,
}

/// Received calls with unique ids and parsed arguments.
///
/// `ending` is that of the response. Calls may be streamed interleaved, so any of them may be cut off with it.
pub(crate) fn calls(
    partials: Vec<PartialCall>,
    request: &Request<'_>,
    ending: Ending,
) -> Vec<ToolCall> {
    let mut ids = CallIds::new(request.messages);
    let end = partials.len();
    let finished = partials.into_iter().enumerate().map(|(at, partial)| {
        let PartialCall { id, name, arguments } = partial;
        let (id, name) = (ids.unique(id), bounded_name(name));
        // Tools without parameters often get no arguments at all. Where another call follows, they are not cut off.
        let empty = arguments.trim().is_empty();
        let arguments = if empty && (ending == Ending::Finished || at + 1 < end) {
            Arguments::Object(Map::new())
        } else {
            repair::arguments(&arguments, schema(request.tools, &name), ending)
        };
        ToolCall { id, name, arguments }
    });
    finished.collect()
}

/// The call ids of a conversation. Some servers restart their numbering with every response.
pub(crate) struct CallIds<'a> {
    earlier: HashSet<&'a str>,
    new: HashSet<String>,
}

impl<'a> CallIds<'a> {
    pub(crate) fn new(messages: &'a [Message]) -> Self {
        let calls = messages.iter().flat_map(|message| match message {
            Message::Assistant(message) => message.calls.as_slice(),
            _ => &[],
        });
        Self { earlier: calls.map(|call| call.id.as_str()).collect(), new: HashSet::new() }
    }

    /// The server's id, or a new one where it is invalid or taken.
    pub(crate) fn unique(&mut self, id: String) -> String {
        let taken = |id: &str| self.earlier.contains(id) || self.new.contains(id);
        let count = self.earlier.len() + self.new.len();
        let usable = !id.is_empty() && id.len() <= MAX_ID && !taken(&id);
        let mut ours = (count + 1..).map(|number| format!("call_{number}"));
        let id = if usable { id } else { ours.find(|id| !taken(id)).unwrap_or_default() };
        self.new.insert(id.clone());
        id
    }
}

/// A tool name written by the model, truncated to the limit.
pub(crate) fn bounded_name(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME));
    name
}

fn schema<'a>(tools: &'a [ToolSpec], name: &str) -> &'a Value {
    tools.iter().find(|tool| tool.name == name).map_or(&Value::Null, |tool| &tool.parameters)
}

/// A call's arguments as they are sent back: always an object, because servers parse them.
pub(crate) fn arguments_object(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Object(map) => Value::Object(map.clone()),
        // Valid JSON that did not match the tool's schema is sent back unchanged.
        Arguments::Malformed { malformed, .. } => match serde_json::from_str(malformed) {
            Ok(Value::Object(map)) => Value::Object(map),
            _ => json!({ "malformed": malformed }),
        },
    }
}

/// A name or id reduced to characters all vendors accept.
pub(crate) fn safe_name(name: &str) -> Cow<'_, str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= 64 && name.chars().all(fine) {
        return Cow::Borrowed(name);
    }
    let name: String = name.chars().take(64).map(|c| if fine(c) { c } else { '_' }).collect();
    Cow::Owned(if name.is_empty() { "unnamed".into() } else { name })
}

/// The texts of some parts, joined by line breaks.
pub(crate) fn joined_text(content: &[Content]) -> String {
    content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

/// Merges the user's extra fields into a body; nested objects are merged, other values replaced.
pub(crate) fn merge(body: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (body.get_mut(key), value) {
            (Some(Value::Object(body)), Value::Object(over)) => merge(body, over),
            _ => {
                body.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A token count in a server's answer.
pub(crate) fn count(value: Option<&Value>) -> u64 {
    value.and_then(Value::as_u64).unwrap_or_default().min(MAX_COUNT)
}

/// Estimated usage for servers that report none: four bytes per token.
pub(crate) fn estimate(request: &Request<'_>, message: &Assistant) -> Usage {
    let tokens = |bytes: usize| (bytes as u64).div_ceil(4);
    Usage {
        input: tokens(size(request)),
        output: tokens(message.size()),
        reasoning: tokens(message.reasoning.len()),
        estimated: true,
        ..Usage::default()
    }
}

/// The size of a request in bytes.
pub(crate) fn size(request: &Request<'_>) -> usize {
    let messages: usize = request.messages.iter().map(Message::size).sum();
    let tool = |tool: &ToolSpec| {
        tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
    };
    messages + request.tools.iter().map(tool).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sampling;

    fn partial(id: &str, name: &str, arguments: &str) -> PartialCall {
        PartialCall { id: id.into(), name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn calls_get_unique_ids_and_parsed_arguments() {
        let earlier = Message::Assistant(Assistant {
            calls: vec![ToolCall {
                id: "call_1".into(),
                name: "x".into(),
                arguments: Arguments::Object(Map::new()),
            }],
            ..Assistant::default()
        });
        let messages = [earlier];
        let sampling = Sampling::default();
        let request =
            Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens: 1 };
        let partials = vec![
            partial("a", "bash", r#"{"command":"ls"}"#),
            partial("", "submit", ""),
            partial("call_1", "submit", ""),
            partial("call_4", "submit", ""),
            partial("a", "bash", r#"{"command":"cut o"#),
        ];
        let made = calls(partials, &request, Ending::CutOff);
        let ids: Vec<_> = made.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["a", "call_3", "call_4", "call_5", "call_6"]);
        assert!(matches!(&made[0].arguments, Arguments::Object(map) if map["command"] == "ls"));
        assert_eq!(made[1].arguments, Arguments::Object(Map::new()));
        assert!(matches!(made[4].arguments, Arguments::Malformed { .. }));
    }

    #[test]
    fn interleaved_calls_may_each_be_cut_off() {
        let sampling = Sampling::default();
        let request = Request { messages: &[], tools: &[], sampling: &sampling, max_tokens: 1 };
        let partials = || {
            vec![
                partial("a", "edit", r#"{"command":"str_replace","old_str":"x""#),
                partial("b", "bash", r#"{"command":"ls"}"#),
            ]
        };
        let made = calls(partials(), &request, Ending::CutOff);
        assert!(matches!(made[0].arguments, Arguments::Malformed { .. }));
        assert!(matches!(made[1].arguments, Arguments::Object(_)));
        let made = calls(partials(), &request, Ending::Finished);
        assert!(matches!(made[0].arguments, Arguments::Object(_)));
    }

    #[test]
    fn names_are_truncated() {
        let sampling = Sampling::default();
        let request = Request { messages: &[], tools: &[], sampling: &sampling, max_tokens: 1 };
        let endless = partial("", &"ü".repeat(1 << 20), "{}");
        let made = calls(vec![endless], &request, Ending::Finished);
        assert_eq!(made[0].name, "ü".repeat(64));
    }

    #[test]
    fn nested_objects_are_merged() {
        let mut body = json!({"a": 1, "o": {"x": 1, "y": {"z": 2}}}).as_object().unwrap().clone();
        let over = json!({"o": {"y": {"w": 3}, "x": [9]}, "b": null}).as_object().unwrap().clone();
        merge(&mut body, &over);
        let expected = json!({"a": 1, "b": null, "o": {"x": [9], "y": {"z": 2, "w": 3}}});
        assert_eq!(Value::Object(body), expected);
    }

    #[test]
    fn names_are_sent_as_vendors_accept_them() {
        assert_eq!(safe_name("execute_bash"), "execute_bash");
        assert_eq!(safe_name("functions.bash <x>"), "functions_bash__x_");
        assert_eq!(safe_name(""), "unnamed");
        assert_eq!(safe_name(&"é".repeat(99)).len(), 64);
    }

    #[test]
    fn arguments_are_always_sent_as_an_object() {
        let sent = |malformed: &str| {
            let (malformed, why) = (malformed.to_owned(), String::new());
            arguments_object(&Arguments::Malformed { malformed, why })
        };
        assert_eq!(sent(r#"{"comand": "ls"}"#), json!({"comand": "ls"}));
        assert_eq!(sent(r#"{"command": "l"#), json!({"malformed": r#"{"command": "l"#}));
        assert_eq!(sent("[1]"), json!({"malformed": "[1]"}));
    }

    #[test]
    fn counts_are_bounded() {
        assert_eq!(count(Some(&json!(u64::MAX))), MAX_COUNT);
        assert_eq!(count(Some(&json!(-1))), 0);
        assert_eq!(count(None), 0);
    }
}
