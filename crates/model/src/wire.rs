//! What both protocols share about the bodies they send and the calls they receive.
//!
//! Pure functions over JSON. Knows no vendor's field names.

use std::{borrow::Cow, collections::HashSet};

use serde_json::{Map, Value, json};
use trajectory::{Arguments, Assistant, Content, Message, ToolCall, Usage};

use crate::{
    Request, ToolSpec,
    repair::{self, Complete},
};

/// More calls in one reply are an attack or a mistake.
pub(crate) const MAX_CALLS: usize = 256;
/// No count of tokens is larger; sums of such numbers cannot overflow.
const MAX_COUNT: u64 = 1 << 40;
/// Vendors' ids have about thirty characters, and none takes longer ones.
const MAX_ID: usize = 64;

/// No tool has a longer name; what is longer is cut, and names no tool either.
const MAX_NAME: usize = 128;

/// Why a reply ended whose server does not say why: it may be cut off.
pub(crate) const UNSAID: &str = "unsaid";

/// A call while it is being received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partial {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The arguments' JSON so far.
    pub(crate) arguments: String,
}

/// Received calls as the agent knows them: with ids that are unique, and arguments understood.
///
/// `complete` is about the reply. Calls may have been written by turns, so that any of them may be cut off
/// with it.
pub(crate) fn calls(
    partials: Vec<Partial>,
    request: &Request<'_>,
    complete: Complete,
) -> Vec<ToolCall> {
    let mut ids = Ids::new(request.messages);
    let end = partials.len();
    let finished = partials.into_iter().enumerate().map(|(at, partial)| {
        let Partial { id, name, arguments } = partial;
        let (id, name) = (ids.unique(id), bounded(name));
        // A tool without arguments often gets none at all. Where another call follows, that is no cut.
        let nothing = arguments.trim().is_empty();
        let arguments = if nothing && (complete == Complete::Whole || at + 1 < end) {
            Arguments::Object(Map::new())
        } else {
            repair::arguments(&arguments, schema(request.tools, &name), complete)
        };
        ToolCall { id, name, arguments }
    });
    finished.collect()
}

/// The ids of the calls of a conversation. Some servers begin to count anew with every reply.
pub(crate) struct Ids<'a> {
    earlier: HashSet<&'a str>,
    new: HashSet<String>,
}

impl<'a> Ids<'a> {
    pub(crate) fn new(messages: &'a [Message]) -> Self {
        let calls = messages.iter().flat_map(|message| match message {
            Message::Assistant(said) => said.calls.as_slice(),
            _ => &[],
        });
        Self { earlier: calls.map(|call| call.id.as_str()).collect(), new: HashSet::new() }
    }

    /// The server's id where it is one, and one of ours where it is not or another call has it.
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

/// A name the model gave to a tool.
pub(crate) fn bounded(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME));
    name
}

fn schema<'a>(tools: &'a [ToolSpec], name: &str) -> &'a Value {
    tools.iter().find(|tool| tool.name == name).map_or(&Value::Null, |tool| &tool.parameters)
}

/// A call's arguments as they go back: always an object, because servers parse them.
pub(crate) fn sent_arguments(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Object(map) => Value::Object(map.clone()),
        // Proper JSON that did not suit the tool goes back as it was.
        Arguments::Malformed { malformed, .. } => match serde_json::from_str(malformed) {
            Ok(Value::Object(map)) => Value::Object(map),
            _ => json!({ "malformed": malformed }),
        },
    }
}

/// A name or an id with the characters all vendors accept.
pub(crate) fn sent_name(name: &str) -> Cow<'_, str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= 64 && name.chars().all(fine) {
        return Cow::Borrowed(name);
    }
    let name: String = name.chars().take(64).map(|c| if fine(c) { c } else { '_' }).collect();
    Cow::Owned(if name.is_empty() { "unnamed".into() } else { name })
}

/// The texts of some parts, joined.
pub(crate) fn text_of(content: &[Content]) -> String {
    content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

/// Puts what the user wants in a body over what we wrote there; objects are merged, not replaced.
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

/// A number of tokens in a server's answer.
pub(crate) fn count(value: Option<&Value>) -> u64 {
    value.and_then(Value::as_u64).unwrap_or_default().min(MAX_COUNT)
}

/// The tokens of a call whose server counts none: four bytes each.
pub(crate) fn estimate(request: &Request<'_>, said: &Assistant) -> Usage {
    let tokens = |bytes: usize| (bytes as u64).div_ceil(4);
    Usage {
        input: tokens(size(request)),
        output: tokens(said.size()),
        reasoning: tokens(said.reasoning.len()),
        estimated: true,
        ..Usage::default()
    }
}

/// How many bytes a server has to read.
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

    fn partial(id: &str, name: &str, arguments: &str) -> Partial {
        Partial { id: id.into(), name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn calls_get_unique_ids_and_understood_arguments() {
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
        let made = calls(partials, &request, Complete::CutOff);
        let ids: Vec<_> = made.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["a", "call_3", "call_4", "call_5", "call_6"]);
        assert!(matches!(&made[0].arguments, Arguments::Object(map) if map["command"] == "ls"));
        assert_eq!(made[1].arguments, Arguments::Object(Map::new()));
        assert!(matches!(made[4].arguments, Arguments::Malformed { .. }));
    }

    #[test]
    fn of_calls_written_by_turns_each_may_be_cut_off() {
        let sampling = Sampling::default();
        let request = Request { messages: &[], tools: &[], sampling: &sampling, max_tokens: 1 };
        let partials = || {
            vec![
                partial("a", "edit", r#"{"command":"str_replace","old_str":"x""#),
                partial("b", "bash", r#"{"command":"ls"}"#),
            ]
        };
        let made = calls(partials(), &request, Complete::CutOff);
        assert!(matches!(made[0].arguments, Arguments::Malformed { .. }));
        assert!(matches!(made[1].arguments, Arguments::Object(_)));
        let made = calls(partials(), &request, Complete::Whole);
        assert!(matches!(made[0].arguments, Arguments::Object(_)));
    }

    #[test]
    fn names_are_not_longer_than_names_are() {
        let sampling = Sampling::default();
        let request = Request { messages: &[], tools: &[], sampling: &sampling, max_tokens: 1 };
        let endless = partial("", &"ü".repeat(1 << 20), "{}");
        let made = calls(vec![endless], &request, Complete::Whole);
        assert_eq!(made[0].name, "ü".repeat(64));
    }

    #[test]
    fn merging_goes_into_objects() {
        let mut body = json!({"a": 1, "o": {"x": 1, "y": {"z": 2}}}).as_object().unwrap().clone();
        let over = json!({"o": {"y": {"w": 3}, "x": [9]}, "b": null}).as_object().unwrap().clone();
        merge(&mut body, &over);
        let expected = json!({"a": 1, "b": null, "o": {"x": [9], "y": {"z": 2, "w": 3}}});
        assert_eq!(Value::Object(body), expected);
    }

    #[test]
    fn names_go_out_as_vendors_accept_them() {
        assert_eq!(sent_name("execute_bash"), "execute_bash");
        assert_eq!(sent_name("functions.bash <x>"), "functions_bash__x_");
        assert_eq!(sent_name(""), "unnamed");
        assert_eq!(sent_name(&"é".repeat(99)).len(), 64);
    }

    #[test]
    fn arguments_go_out_as_an_object_whatever_they_are() {
        let sent = |malformed: &str| {
            let (malformed, why) = (malformed.to_owned(), String::new());
            sent_arguments(&Arguments::Malformed { malformed, why })
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
