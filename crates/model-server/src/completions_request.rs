//! Parses and validates the body of a completions request, whose prompt is token ids.
//!
//! Unknown fields are ignored. Known fields that are not supported are refused instead of silently ignored.

use std::fmt;

use openai_wire::{
    ApiError, Fields, ValueBudget,
    parameters::{Delivery, delivery},
    wrong,
};
use sampling::SamplingParams;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, json};

/// A completions request.
#[derive(Debug)]
pub(crate) struct CompletionsRequest {
    /// The model's name; empty for the first one.
    pub(crate) model: String,
    pub(crate) prompt: Vec<u32>,
    pub(crate) max_tokens: usize,
    pub(crate) params: SamplingParams,
    /// Tokens that end the response.
    pub(crate) stop_tokens: Vec<u32>,
    /// Whether the model's own ends do so as well.
    pub(crate) ends: Ends,
    pub(crate) shown: Shown,
    pub(crate) delivery: Delivery,
}

/// Whether the model's own end tokens end a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Heeded,
    Ignored,
}

/// What a response contains besides its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The ids of the prompt and of the response.
    pub(crate) ids: bool,
    pub(crate) logprobs: bool,
    /// Log-probabilities name their tokens by id.
    pub(crate) names_as_ids: bool,
}

/// OpenAI's default.
const DEFAULT_MAX_TOKENS: usize = 16;
/// Maximum tokens that end a response.
const MAX_STOPS: usize = 256;
/// Maximum values of a request besides the ids of its prompt.
const MAX_VALUES: usize = 100_000;

/// Parses a body.
pub(crate) fn parse(body: &[u8]) -> Result<CompletionsRequest, ApiError> {
    let (parsed, value) = split(body)?;
    let fields = Fields::of(&value, "")?;
    reject_unsupported(&fields)?;
    let stop_tokens = ids(&fields, "stop_token_ids")?;
    if stop_tokens.len() > MAX_STOPS {
        let why = format_args!("must not be more than {MAX_STOPS}");
        return Err(fields.error("stop_token_ids", why));
    }
    Ok(CompletionsRequest {
        model: fields.text("model")?.unwrap_or_default().trim().to_owned(),
        prompt: prompt(&fields, parsed)?,
        max_tokens: max_tokens(&fields)?,
        params: params(&fields)?,
        stop_tokens,
        ends: if fields.flag("ignore_eos")? { Ends::Ignored } else { Ends::Heeded },
        shown: Shown {
            ids: fields.flag("return_token_ids")?,
            logprobs: logprobs(&fields)?,
            names_as_ids: fields.flag("return_tokens_as_token_ids")?,
        },
        delivery: delivery(&fields)?,
    })
}

/// The ids of the prompt and the other fields. Ids are parsed as such: a prompt is long, and a generic value takes many times
/// the memory of a number. Where the prompt is not a list of ids, it is left among the fields, to be named as wrong.
fn split(body: &[u8]) -> Result<(Option<Vec<u32>>, Value), ApiError> {
    let not_json =
        |error: serde_json::Error| ApiError::request(format_args!("is not JSON: {error}"));
    match serde_json::from_slice::<Prompt>(body) {
        Ok(Prompt { prompt }) => {
            ValueBudget::of(MAX_VALUES + prompt.len()).spend(body)?;
            let others = serde_json::from_slice(body).map_err(|error| match error.is_data() {
                true => ApiError::request("must be an object"),
                false => not_json(error),
            });
            let Others(fields) = others?;
            Ok((Some(prompt), Value::Object(fields)))
        }
        Err(error) => {
            ValueBudget::of(MAX_VALUES).spend(body).map_err(|too_many| match error.is_data() {
                true => ApiError::field("prompt", format_args!("cannot be read: {error}")),
                false => too_many,
            })?;
            Ok((None, serde_json::from_slice(body).map_err(not_json)?))
        }
    }
}

/// The prompt of a body, and nothing else of it.
#[derive(Deserialize)]
struct Prompt {
    prompt: Vec<u32>,
}

/// The fields of a body without its prompt.
struct Others(Map<String, Value>);

impl<'de> Deserialize<'de> for Others {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Others;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Others, A::Error> {
                let mut fields = Map::new();
                while let Some(key) = all.next_key::<String>()? {
                    if key == "prompt" {
                        all.next_value::<IgnoredAny>()?;
                    } else {
                        fields.insert(key, all.next_value()?);
                    }
                }
                Ok(Others(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// Rejects known fields that are not supported.
fn reject_unsupported(fields: &Fields<'_>) -> Result<(), ApiError> {
    for key in ["n", "best_of"] {
        if fields.integer(key)?.is_some_and(|count| count != 1) {
            return Err(fields.error(key, "only 1 is supported"));
        }
    }
    if fields.flag("echo")? {
        return Err(fields.error("echo", "is not supported"));
    }
    // What changes the distribution would make the log-probabilities wrong.
    let neutral = [
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
        ("min_p", 0.0),
        ("repetition_penalty", 1.0),
    ];
    for (key, neutral) in neutral {
        if fields.number(key, -10.0, 10.0)?.is_some_and(|value| value != neutral) {
            return Err(fields.error(key, format_args!("only {neutral} is supported")));
        }
    }
    if fields.get("logit_bias").is_some_and(|bias| *bias != json!({})) {
        return Err(fields.error("logit_bias", "is not supported"));
    }
    if fields.get("stop").is_some_and(|stop| *stop != json!([])) {
        return Err(fields.error("stop", "is not supported; use stop_token_ids"));
    }
    if fields.get("suffix").is_some_and(|suffix| suffix != "") {
        return Err(fields.error("suffix", "is not supported"));
    }
    Ok(())
}

fn prompt(fields: &Fields<'_>, parsed: Option<Vec<u32>>) -> Result<Vec<u32>, ApiError> {
    let prompt = match parsed {
        Some(parsed) => parsed,
        None => {
            if let Value::String(_) = fields.need("prompt")? {
                let why = "must be a list of token ids; /v1/chat/completions takes text";
                return Err(fields.error("prompt", why));
            }
            ids(fields, "prompt")?
        }
    };
    if prompt.is_empty() {
        return Err(fields.error("prompt", "must not be empty"));
    }
    Ok(prompt)
}

fn ids(fields: &Fields<'_>, key: &str) -> Result<Vec<u32>, ApiError> {
    let id = |(at, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| wrong(&format!("{key}[{at}]"), "a token id", value))
    };
    fields.list(key)?.iter().enumerate().map(id).collect()
}

fn max_tokens(fields: &Fields<'_>) -> Result<usize, ApiError> {
    match fields.integer("max_tokens")? {
        None => Ok(DEFAULT_MAX_TOKENS),
        Some(number) if number < 1 => Err(fields.error("max_tokens", "must be at least 1")),
        Some(number) => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
    }
}

fn params(fields: &Fields<'_>) -> Result<SamplingParams, ApiError> {
    // For other servers, -1 or 0 means no limit.
    let top_k = match fields.integer("top_k")? {
        Some(number) if number < -1 => return Err(fields.error("top_k", "must not be negative")),
        None | Some(-1 | 0) => None,
        Some(number) => Some(usize::try_from(number).unwrap_or(usize::MAX)),
    };
    let top_p = fields.number("top_p", 0.0, 1.0)?.unwrap_or(1.0);
    if top_p == 0.0 {
        return Err(fields.error("top_p", "must be above 0"));
    }
    let temperature = fields.number("temperature", 0.0, 100.0)?.unwrap_or(1.0);
    // OpenAI allows negative seeds.
    let seed = fields.integer("seed")?.map(|seed| seed as u64);
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    Ok(SamplingParams { temperature, top_p, top_k, seed })
}

fn logprobs(fields: &Fields<'_>) -> Result<bool, ApiError> {
    match fields.integer("logprobs")? {
        None => Ok(false),
        // One more than the sampled token's is optional: there may be up to that many.
        Some(0 | 1) => Ok(true),
        Some(_) => {
            Err(fields.error("logprobs", "only those of sampled tokens (0 or 1) are supported"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: Value) -> String {
        let error = parse(body.to_string().as_bytes()).unwrap_err().json();
        error["error"]["param"].as_str().unwrap().to_owned()
    }

    #[test]
    fn the_smallest_request_has_openais_defaults() {
        let request = parse(br#"{"prompt": [1, 2]}"#).unwrap();
        assert_eq!((request.prompt, request.max_tokens), (vec![1, 2], 16));
        let SamplingParams { temperature, top_p, top_k, .. } = request.params;
        assert_eq!((temperature, top_p, top_k), (1.0, 1.0, None));
        assert_eq!(request.shown, Shown { ids: false, logprobs: false, names_as_ids: false });
        assert_eq!((request.ends, request.delivery), (Ends::Heeded, Delivery::Whole));
    }

    #[test]
    fn what_would_be_ignored_is_refused_by_name() {
        for (more, param) in [
            (json!({ "prompt": "text" }), "prompt"),
            (json!({ "prompt": [] }), "prompt"),
            (json!({ "prompt": [-1] }), "prompt[0]"),
            (json!({ "prompt": [[1]] }), "prompt[0]"),
            (json!({ "prompt": [1u64 << 40] }), "prompt[0]"),
            (json!({ "stop": ["x"] }), "stop"),
            (json!({ "stop_token_ids": ["x"] }), "stop_token_ids[0]"),
            (json!({ "n": 2 }), "n"),
            (json!({ "echo": true }), "echo"),
            (json!({ "logprobs": 5 }), "logprobs"),
            (json!({ "min_p": 0.1 }), "min_p"),
            (json!({ "repetition_penalty": 1.1 }), "repetition_penalty"),
            (json!({ "temperature": -1 }), "temperature"),
            (json!({ "top_p": 0 }), "top_p"),
            (json!({ "max_tokens": 0 }), "max_tokens"),
        ] {
            let mut body = json!({ "prompt": [1] });
            for (key, value) in more.as_object().unwrap() {
                body[key] = value.clone();
            }
            assert_eq!(refused(body), param, "{more}");
        }
        assert_eq!(refused(json!({})), "prompt");
    }

    #[test]
    fn a_prompt_may_be_longer_than_a_chat() {
        let long = format!("{{\"prompt\": [{}1]}}", "1,".repeat(1 << 17));
        assert_eq!(parse(long.as_bytes()).unwrap().prompt.len(), (1 << 17) + 1);
        let wrong = parse(long.replace("1]", "-1]").as_bytes()).unwrap_err().json();
        assert_eq!(wrong["error"]["param"], "prompt");
    }

    #[test]
    fn only_the_prompt_may_be_long() {
        let values = "{\"\":0},".repeat(MAX_VALUES / 2);
        for key in ["x", "stop", "logit_bias"] {
            let body = format!("{{\"prompt\": [1], \"{key}\": [{values}0]}}");
            let error = parse(body.as_bytes()).unwrap_err().json();
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains("values"), "{key}: {message}");
        }
        // Of a prompt that is repeated, the last counts, as of any other field.
        let twice = parse(br#"{"prompt": [1], "prompt": [2]}"#).unwrap();
        assert_eq!(twice.prompt, [2]);
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        for body in ["", "[1]", "[[1]]", "7", "{\"prompt\": [1]", "{\"prompt\": [1]} x"] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
