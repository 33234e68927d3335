//! Fields some servers do not take: learnt from their refusals, and left out from then on.
//!
//! Knows names of fields, not what they mean.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use serde_json::{Map, Value};

use crate::{failure::Failure, overflow};

/// What is sent instead of a field a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Nothing: the server chooses.
    Nothing,
    /// The same value under another name.
    Name(&'static str),
    /// Another value, in JSON.
    Value(&'static str),
    /// Nothing; and it is a field of the messages, not of the body.
    NothingInMessages,
}

/// A field that can be left out or replaced.
pub(crate) type Field = (&'static str, Instead);

/// Names of fields a server refused.
pub(crate) type Refused = BTreeSet<&'static str>;

/// What one server refuses, for as long as we talk to it.
#[derive(Debug)]
pub(crate) struct Quirks {
    fields: &'static [Field],
    refused: Mutex<Refused>,
}

impl Quirks {
    pub(crate) fn new(fields: &'static [Field]) -> Self {
        Self { fields, refused: Mutex::default() }
    }

    /// Leaves out or replaces what the server refused before. Gives what that is.
    pub(crate) fn apply(&self, body: &mut Map<String, Value>) -> Refused {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known = |name| refused.contains(name);
        for (name, instead) in self.fields.iter().filter(|(name, _)| known(name)) {
            if *instead == Instead::NothingInMessages {
                messages(body).for_each(|message| drop(message.remove(*name)));
            }
            let Some(value) = body.remove(*name) else { continue };
            match instead {
                // The other name may be refused as well; then nothing is left to send.
                Instead::Name(other) if !known(other) => {
                    body.insert((*other).to_owned(), value);
                }
                Instead::Value(json) => {
                    body.insert((*name).to_owned(), serde_json::from_str(json).unwrap_or_default());
                }
                Instead::Nothing | Instead::Name(_) | Instead::NothingInMessages => {}
            }
        }
        refused
    }

    /// Reads a refusal of what was sent, which was without `applied`. The field it is about, if leaving
    /// that out is worth a try.
    ///
    /// Many calls may be under way: what another one has learnt since this one was sent counts as news.
    pub(crate) fn learn(
        &self,
        failure: &Failure,
        sent: &Map<String, Value>,
        applied: &Refused,
        insisted: &Map<String, Value>,
    ) -> Option<&'static str> {
        let about_fields = matches!(failure.status, 400 | 422);
        if !about_fields || overflow::recognise(failure.status, &failure.body).is_some() {
            return None;
        }
        let text: String = failure.body.chars().take(4000).collect::<String>().to_lowercase();
        if !REFUSING.iter().any(|words| text.contains(words)) {
            return None;
        }
        let candidates = self.fields.iter().filter(|(name, instead)| {
            holds(sent, name, *instead) && !insisted.contains_key(*name) && !applied.contains(name)
        });
        let candidates: Vec<_> = candidates.map(|(name, _)| *name).collect();
        let json: Value = serde_json::from_str(&failure.body).unwrap_or_default();
        let named = json.pointer("/error/param").and_then(Value::as_str);
        let named = candidates.iter().find(|name| Some(**name) == named);
        // Without a field of its own, the one named first is the one complained about.
        let first = || candidates.iter().filter_map(|name| Some((word(&text, name)?, name))).min();
        let name = *named.or_else(|| first().map(|(_, name)| name))?;
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        Some(name)
    }
}

/// How servers say that they do not take something.
const REFUSING: &[&str] = &[
    "unsupported",
    "not support",
    "n't support",
    "unrecognized",
    "unknown",
    "unexpected",
    "not permitted",
    "not allowed",
    "is allowed for this model",
    "only the default",
    "deprecated",
    "cannot both be specified",
];

fn messages(body: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let messages = body.get_mut("messages").and_then(Value::as_array_mut);
    messages.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn holds(sent: &Map<String, Value>, name: &str, instead: Instead) -> bool {
    if instead != Instead::NothingInMessages {
        return sent.contains_key(name);
    }
    let messages = sent.get("messages").and_then(Value::as_array);
    messages.into_iter().flatten().any(|message| message.get(name).is_some())
}

/// Where a text has a name as a whole word.
fn word(text: &str, name: &str) -> Option<usize> {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(name).map(|(at, _)| at).find(|at| {
        !part(text[..*at].chars().next_back()) && !part(text[at + name.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FIELDS: &[Field] = &[
        ("max_tokens", Instead::Name("max_completion_tokens")),
        ("max_completion_tokens", Instead::Name("max_tokens")),
        ("temperature", Instead::Nothing),
        ("stream_options", Instead::Nothing),
        ("top_k", Instead::Nothing),
        ("thinking", Instead::Value(r#"{"type":"adaptive"}"#)),
        ("reasoning", Instead::NothingInMessages),
    ];

    fn refusal(status: u16, body: &str) -> Failure {
        Failure { status, body: body.into(), ..Failure::default() }
    }

    fn body() -> Map<String, Value> {
        let body = json!({"max_tokens": 5, "temperature": 0.5, "stream_options": {}, "top_k": 3});
        body.as_object().unwrap().clone()
    }

    #[test]
    fn servers_words_name_the_field() {
        let cases = [
            (
                400,
                r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}"#,
                Some("max_tokens"),
            ),
            (
                400,
                "litellm: Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
                Some("max_tokens"),
            ),
            (
                400,
                r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.","param":"temperature","code":"unsupported_value"}}"#,
                Some("temperature"),
            ),
            (
                400,
                r#"{"message":"invalid temperature: only 1 is allowed for this model"}"#,
                Some("temperature"),
            ),
            (
                400,
                r#"{"error":{"message":"Unrecognized request argument supplied: top_k"}}"#,
                Some("top_k"),
            ),
            (
                422,
                r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}"#,
                Some("stream_options"),
            ),
            (500, "unsupported: temperature", None),
            (400, "temperature must be between 0 and 2", None),
            (400, "unknown model my_top_k_model", None),
            (400, "this model does not support tools", None),
        ];
        for (status, text, expected) in cases {
            let quirks = Quirks::new(FIELDS);
            let learnt =
                quirks.learn(&refusal(status, text), &body(), &Refused::new(), &Map::new());
            assert_eq!(learnt, expected, "{text}");
        }
    }

    #[test]
    fn what_was_learnt_is_applied_and_never_learnt_twice() {
        let quirks = Quirks::new(FIELDS);
        let learn = |text: &str, sent: &Map<_, _>, applied: &Refused| {
            quirks.learn(&refusal(400, text), sent, applied, &Map::new())
        };
        let first = Refused::new();
        assert_eq!(learn("unsupported: max_tokens", &body(), &first), Some("max_tokens"));
        // Another call that was sent before that was known.
        assert_eq!(learn("unsupported: max_tokens", &body(), &first), Some("max_tokens"));
        let mut next = body();
        let applied = quirks.apply(&mut next);
        assert_eq!((next.get("max_tokens"), &next["max_completion_tokens"]), (None, &json!(5)));
        assert_eq!(learn("unsupported: max_tokens", &next, &applied), None);
        assert_eq!(
            learn("unsupported: max_completion_tokens", &next, &applied),
            Some("max_completion_tokens")
        );
        let mut next = body();
        quirks.apply(&mut next);
        assert!(!next.contains_key("max_tokens") && !next.contains_key("max_completion_tokens"));
        let mut thinking = json!({"thinking": {"type": "enabled"}}).as_object().unwrap().clone();
        let refused = "thinking.type.enabled is not supported";
        assert_eq!(learn(refused, &thinking, &first), Some("thinking"));
        let applied = quirks.apply(&mut thinking);
        assert_eq!(thinking["thinking"], json!({"type": "adaptive"}));
        assert_eq!(learn(refused, &thinking, &applied), None);
    }

    #[test]
    fn fields_of_messages_are_left_out_of_each() {
        let told = "messages.1.assistant.reasoning: property 'messages.1.assistant.reasoning' is unsupported";
        let quirks = Quirks::new(FIELDS);
        let learn = |sent: &Map<_, _>, applied: &Refused| {
            quirks.learn(&refusal(400, told), sent, applied, &Map::new())
        };
        assert_eq!(learn(&body(), &Refused::new()), None);
        let mut body =
            json!({"messages": [{"content": "a"}, {"reasoning": "b"}, {"reasoning": "c"}]});
        let body = body.as_object_mut().unwrap();
        assert_eq!(learn(body, &Refused::new()), Some("reasoning"));
        let applied = quirks.apply(body);
        assert_eq!(body["messages"], json!([{"content": "a"}, {}, {}]));
        assert_eq!(learn(body, &applied), None);
    }

    #[test]
    fn what_the_user_insists_on_is_not_dropped() {
        let insisted = json!({"temperature": 0.5}).as_object().unwrap().clone();
        let quirks = Quirks::new(FIELDS);
        let refused = refusal(400, "unsupported: temperature");
        assert_eq!(quirks.learn(&refused, &body(), &Refused::new(), &insisted), None);
    }
}
