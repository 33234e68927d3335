//! Fields some servers do not accept: learned from their refusals and left out from then on.
//!
//! Knows names of fields, not their meaning.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use serde_json::{Map, Value};

use crate::{overflow, refusal::Refusal};

/// What replaces a field a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// Nothing: the server chooses.
    Nothing,
    /// The same value under another name.
    Name(&'static str),
    /// Another value, in JSON.
    Value(&'static str),
    /// Nothing; the field belongs to the messages, not to the body.
    NothingInMessages,
}

/// A field that can be left out or replaced.
pub(crate) type Field = (&'static str, Replacement);

/// Names of fields a server refused.
pub(crate) type Refused = BTreeSet<&'static str>;

/// The fields one server refuses, for the lifetime of the client.
#[derive(Debug)]
pub(crate) struct Quirks {
    fields: &'static [Field],
    refused: Mutex<Refused>,
}

impl Quirks {
    pub(crate) fn new(fields: &'static [Field]) -> Self {
        Self { fields, refused: Mutex::default() }
    }

    /// Removes or replaces fields the server refused before. Returns their names.
    pub(crate) fn apply(&self, body: &mut Map<String, Value>) -> Refused {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known = |name| refused.contains(name);
        for (name, instead) in self.fields.iter().filter(|(name, _)| known(name)) {
            if *instead == Replacement::NothingInMessages {
                messages(body).for_each(|message| drop(message.remove(*name)));
            }
            let Some(value) = body.remove(*name) else { continue };
            match instead {
                // The other name may be refused as well; then the field is not sent.
                Replacement::Name(other) if !known(other) => {
                    body.insert((*other).to_owned(), value);
                }
                Replacement::Value(json) => {
                    body.insert((*name).to_owned(), serde_json::from_str(json).unwrap_or_default());
                }
                Replacement::Nothing | Replacement::Name(_) | Replacement::NothingInMessages => {}
            }
        }
        refused
    }

    /// Finds the field a refusal is about, if leaving it out is worth a try. `sent` is the refused body, from which
    /// `applied` was left out already; fields of `extra` are never left out.
    ///
    /// Calls run concurrently: what another one learned since this one was sent is new for this one.
    pub(crate) fn learn(
        &self,
        refusal: &Refusal,
        sent: &Map<String, Value>,
        applied: &Refused,
        extra: &Map<String, Value>,
    ) -> Option<&'static str> {
        let about_fields = matches!(refusal.status, 400 | 422);
        if !about_fields || overflow::recognize(refusal.status, &refusal.body).is_some() {
            return None;
        }
        let text: String = refusal.body.chars().take(4000).collect::<String>().to_lowercase();
        if !REFUSING.iter().any(|words| text.contains(words)) {
            return None;
        }
        let candidates = self.fields.iter().filter(|(name, instead)| {
            holds(sent, name, *instead) && !extra.contains_key(*name) && !applied.contains(name)
        });
        let candidates: Vec<_> = candidates.map(|(name, _)| *name).collect();
        let json: Value = serde_json::from_str(&refusal.body).unwrap_or_default();
        let named = json.pointer("/error/param").and_then(Value::as_str);
        let named = candidates.iter().find(|name| Some(**name) == named);
        // Without a `param`, the field named first in the message is meant.
        let first = || candidates.iter().filter_map(|name| Some((word(&text, name)?, name))).min();
        let name = *named.or_else(|| first().map(|(_, name)| name))?;
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        Some(name)
    }
}

/// Phrases with which servers reject a field.
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

fn holds(sent: &Map<String, Value>, name: &str, instead: Replacement) -> bool {
    if instead != Replacement::NothingInMessages {
        return sent.contains_key(name);
    }
    let messages = sent.get("messages").and_then(Value::as_array);
    messages.into_iter().flatten().any(|message| message.get(name).is_some())
}

/// The position of a name in a text, as a whole word.
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
        ("max_tokens", Replacement::Name("max_completion_tokens")),
        ("max_completion_tokens", Replacement::Name("max_tokens")),
        ("temperature", Replacement::Nothing),
        ("stream_options", Replacement::Nothing),
        ("top_k", Replacement::Nothing),
        ("thinking", Replacement::Value(r#"{"type":"adaptive"}"#)),
        ("reasoning", Replacement::NothingInMessages),
    ];

    fn refusal(status: u16, body: &str) -> Refusal {
        Refusal { status, body: body.into(), ..Refusal::default() }
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
            let learned =
                quirks.learn(&refusal(status, text), &body(), &Refused::new(), &Map::new());
            assert_eq!(learned, expected, "{text}");
        }
    }

    #[test]
    fn what_was_learned_is_applied_and_never_learned_twice() {
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
