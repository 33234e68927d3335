//! Reads from a line of an events file only what the index needs. Long texts are skipped, not copied.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use trajectory::Usage;

use crate::{changes, text::one_line};

/// Characters of a call that the outline shows.
const CALL_CHARS: usize = 120;
/// Calls of a turn that the outline shows.
const MOST_CALLS: usize = 20;

/// An event, reduced.
#[derive(Debug, Deserialize)]
pub(super) struct LightEvent<'a> {
    #[serde(default)]
    pub(super) at: u64,
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(default)]
    pub(super) turn: Option<u32>,
    #[serde(default)]
    pub(super) usage: Option<Usage>,
    #[serde(default)]
    pub(super) cost: Option<f64>,
    #[serde(default)]
    pub(super) millis: u64,
    #[serde(default)]
    pub(super) exit_code: Option<i32>,
    #[serde(default)]
    pub(super) stop: Option<LightStop>,
    #[serde(default)]
    pub(super) message: LightMessage,
    #[serde(default)]
    pub(super) files: Counted,
}

/// The length of a list.
#[derive(Debug, Default)]
pub(super) struct Counted(pub(super) u32);

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Counted;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Counted, A::Error> {
                let mut count = 0_u32;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    count = count.saturating_add(1);
                }
                Ok(Counted(count))
            }
        }
        from.deserialize_any(List)
    }
}

/// A message, reduced to its calls.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LightMessage {
    pub(super) calls: LightCalls,
    pub(super) is_error: bool,
}

/// The first calls of a response, and the number of files they change.
#[derive(Debug, Default)]
pub(super) struct LightCalls {
    pub(super) shown: Vec<LightCall>,
    pub(super) total: u32,
    pub(super) files: u32,
}

/// A call in a few words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LightCall {
    pub(super) name: Box<str>,
    pub(super) text: Box<str>,
}

/// Why generation stopped: a name, or an object with one.
#[derive(Debug)]
pub(super) struct LightStop(pub(super) Box<str>);

impl<'de> Deserialize<'de> for LightStop {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Stop;
        impl<'de> Visitor<'de> for Stop {
            type Value = LightStop;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a reason")
            }
            fn visit_str<E>(self, text: &str) -> Result<LightStop, E> {
                Ok(LightStop(one_line(text, 40).into()))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LightStop, A::Error> {
                let mut stop = LightStop("other".into());
                while let Some((_, value)) = map.next_entry::<IgnoredAny, Cow<'de, str>>()? {
                    stop = LightStop(one_line(&value, 40).into());
                }
                Ok(stop)
            }
        }
        from.deserialize_any(Stop)
    }
}

impl<'de> Deserialize<'de> for LightCalls {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Calls;
        impl<'de> Visitor<'de> for Calls {
            type Value = LightCalls;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("calls")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LightCalls, A::Error> {
                let mut calls = LightCalls::default();
                while let Some(call) = seq.next_element::<ParsedCall>()? {
                    calls.total = calls.total.saturating_add(1);
                    calls.files = calls.files.saturating_add(call.arguments.files);
                    if calls.shown.len() < MOST_CALLS {
                        let name = one_line(&call.name, 60).into();
                        calls.shown.push(LightCall { name, text: call.arguments.text.into() });
                    }
                }
                Ok(calls)
            }
        }
        from.deserialize_any(Calls)
    }
}

#[derive(Deserialize)]
struct ParsedCall {
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: CallArguments,
}

/// The arguments of a call: its main one in a few words, and how many files it changes.
#[derive(Default)]
struct CallArguments {
    text: String,
    files: u32,
}

impl<'de> Deserialize<'de> for CallArguments {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Arguments;
        impl<'de> Visitor<'de> for Arguments {
            type Value = CallArguments;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("arguments")
            }
            fn visit_str<E>(self, text: &str) -> Result<CallArguments, E> {
                Ok(CallArguments { text: one_line(text, CALL_CHARS), files: 0 })
            }
            fn visit_unit<E>(self) -> Result<CallArguments, E> {
                Ok(CallArguments::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CallArguments, A::Error> {
                let (mut command, mut path, mut other) = (None, None, None);
                let mut files = 0;
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    match &*key {
                        "command" => {
                            let seen = map.next_value::<Command>()?;
                            files = seen.files;
                            command = Some(seen.text);
                        }
                        "path" => path = Some(map.next_value::<Start>()?.0),
                        _ if other.is_none() => other = Some(map.next_value::<Start>()?.0),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                // The editor's `command` is its operation.
                let edits = command.as_deref().is_some_and(changes::is_edit);
                Ok(match (command, path, other) {
                    (Some(command), Some(path), _) => CallArguments {
                        text: one_line(&format!("{command} {path}"), CALL_CHARS),
                        files: u32::from(edits),
                    },
                    (Some(command), None, _) => CallArguments { text: command, files },
                    (None, path, other) => {
                        CallArguments { text: path.or(other).unwrap_or_default(), files: 0 }
                    }
                })
            }
        }
        from.deserialize_any(Arguments)
    }
}

/// A command's first words, and the files that it obviously writes.
struct Command {
    text: String,
    files: u32,
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut files = 0;
        let text = start(from, |text| {
            files = u32::try_from(changes::of_command(text).len()).unwrap_or(u32::MAX);
        })?;
        Ok(Self { text, files })
    }
}

/// The start of a text; of anything else, nothing.
struct Start(String);

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        start(from, |_| {}).map(Start)
    }
}

fn start<'de, D: Deserializer<'de>>(from: D, look: impl FnMut(&str)) -> Result<String, D::Error> {
    struct Text<F>(F);
    impl<'de, F: FnMut(&str)> Visitor<'de> for Text<F> {
        type Value = String;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }
        fn visit_str<E>(mut self, text: &str) -> Result<String, E> {
            (self.0)(text);
            Ok(one_line(text, CALL_CHARS))
        }
        fn visit_bool<E>(self, value: bool) -> Result<String, E> {
            Ok(value.to_string())
        }
        fn visit_i64<E>(self, value: i64) -> Result<String, E> {
            Ok(value.to_string())
        }
        fn visit_u64<E>(self, value: u64) -> Result<String, E> {
            Ok(value.to_string())
        }
        fn visit_f64<E>(self, value: f64) -> Result<String, E> {
            Ok(value.to_string())
        }
        fn visit_unit<E>(self) -> Result<String, E> {
            Ok(String::new())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<String, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(String::new())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(String::new())
        }
    }
    from.deserialize_any(Text(look))
}
