//! Reads answers in both protocols, event by event or as one document, and passes their tokens to the [`Collector`].
//!
//! A violation ends the exchange and is kept apart from the transport's errors: repeating the request does not mend it.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use model::{Error, EventSink, Progress};
use serde_json::Value;

use crate::{
    Api,
    collect::{Collector, Finish, InvalidResponse},
};

/// When a server last sent a token, of whatever response.
#[derive(Debug)]
pub(crate) struct LastToken(Mutex<Instant>);

impl LastToken {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    fn update(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn is_before(&self, instant: Instant) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) < instant
    }
}

/// Bytes of an answer besides its tokens, and those of each token of the prompt and of the response: ids, log-probabilities,
/// text, and the frame of an event of its own.
const ANSWER_BYTES: usize = 64 << 10;
const PROMPT_TOKEN_BYTES: usize = 16;
const TOKEN_BYTES: usize = 2 << 10;

/// The same in JSON values of one event: a server may repeat the prompt, and sends of a token its id, its log-probability,
/// its text, its position and the most likely others.
const EVENT_VALUES: usize = 1 << 10;
const PROMPT_TOKEN_VALUES: usize = 4;
const TOKEN_VALUES: usize = 64;

/// One attempt at a response.
pub(crate) struct Events<'a> {
    api: Api,
    sample: &'a mut Collector,
    /// The prompt that was sent.
    prompt: &'a [u32],
    prompt_seen: bool,
    finished: bool,
    violation: Option<InvalidResponse>,
    last_token: &'a LastToken,
}

impl<'a> Events<'a> {
    pub(crate) fn new(
        api: Api,
        sample: &'a mut Collector,
        prompt: &'a [u32],
        last_token: &'a LastToken,
    ) -> Self {
        sample.restart();
        let (prompt_seen, finished, violation) = (false, false, None);
        Self { api, sample, prompt, prompt_seen, finished, violation, last_token }
    }

    /// What is wrong with the answer, if anything.
    pub(crate) fn violation(self) -> Option<InvalidResponse> {
        self.violation
    }

    /// Takes an event; returns why the server ended the response, once it has.
    fn read(&mut self, json: &Value) -> Result<Option<Stopped>, InvalidResponse> {
        match self.api {
            Api::Completions => self.completion(json),
            Api::Generate => self.generated(json),
        }
    }

    /// A chunk of `/v1/completions`, or the whole response.
    fn completion(&mut self, json: &Value) -> Result<Option<Stopped>, InvalidResponse> {
        let choices = json.get("choices").and_then(Value::as_array);
        // The last chunk of a stream may have the usage alone.
        let Some(choice) = choices.and_then(|choices| choices.first()) else { return Ok(None) };
        let given = |name: &str| present(choice, name).or_else(|| present(json, name));
        if !self.prompt_seen {
            let ids =
                given("prompt_token_ids").ok_or(InvalidResponse::NoIds("prompt_token_ids"))?;
            self.check_prompt(&self.ids(ids, "prompt_token_ids")?)?;
        }
        let ids = present(choice, "token_ids").ok_or(InvalidResponse::NoIds("token_ids"))?;
        let ids = self.ids(ids, "token_ids")?;
        let values = match present(choice, "logprobs") {
            Some(logprobs) => {
                check_tokens(&ids, logprobs)?;
                let values = present(logprobs, "token_logprobs").and_then(Value::as_array);
                values.ok_or(InvalidResponse::NoLogprobs)?.iter().map(number).collect()
            }
            None if ids.is_empty() => Vec::new(),
            None => return Err(InvalidResponse::NoLogprobs),
        };
        self.sample.push(ids, values)?;
        Ok(present(choice, "finish_reason").and_then(Value::as_str).map(Stopped::of))
    }

    /// The response of `/generate`, which is requested whole: its events would repeat everything before them.
    fn generated(&mut self, json: &Value) -> Result<Option<Stopped>, InvalidResponse> {
        const PAIRS: &str = "output_token_logprobs";
        let info = present(json, "meta_info").ok_or(InvalidResponse::Field("meta_info"))?;
        let found = present(info, "prompt_tokens").and_then(Value::as_u64);
        let found = found.ok_or(InvalidResponse::Field("prompt_tokens"))?;
        let (sent, found) = (self.prompt.len(), usize::try_from(found).unwrap_or(usize::MAX));
        if found != sent {
            return Err(InvalidResponse::OtherPrompt { sent, found });
        }
        let pairs = present(info, PAIRS).and_then(Value::as_array);
        for pair in pairs.ok_or(InvalidResponse::NoLogprobs)? {
            let token = pair.get(1).and_then(Value::as_u64);
            let token = self.known(token.ok_or(InvalidResponse::Field(PAIRS))?)?;
            self.sample.push([token], pair.get(0).map(number))?;
        }
        let finish = present(info, "finish_reason").and_then(|finish| finish.get("type"));
        let finish = finish.and_then(Value::as_str);
        Ok(Some(Stopped::of(finish.ok_or(InvalidResponse::Field("finish_reason"))?)))
    }

    fn check_prompt(&mut self, found: &[u32]) -> Result<(), InvalidResponse> {
        if found != self.prompt {
            let (sent, found) = (self.prompt.len(), found.len());
            return Err(InvalidResponse::OtherPrompt { sent, found });
        }
        self.prompt_seen = true;
        Ok(())
    }

    fn ids(&self, ids: &Value, name: &'static str) -> Result<Vec<u32>, InvalidResponse> {
        let ids = ids.as_array().ok_or(InvalidResponse::Field(name))?;
        let id = |id: &Value| self.known(id.as_u64().ok_or(InvalidResponse::Field(name))?);
        ids.iter().map(id).collect()
    }

    fn known(&self, token: u64) -> Result<u32, InvalidResponse> {
        let vocabulary = self.sample.vocabulary();
        let known = u32::try_from(token).ok().filter(|token| (*token as usize) < vocabulary);
        known.ok_or(InvalidResponse::UnknownToken { token, vocabulary })
    }
}

impl EventSink for Events<'_> {
    fn push(&mut self, json: &Value) -> Result<Progress, Error> {
        let before = self.sample.tokens().len();
        let read = self.read(json);
        if self.sample.tokens().len() > before {
            self.last_token.update();
        }
        let stopped = match read {
            Ok(stopped) => stopped,
            Err(violation) => {
                self.violation = Some(violation);
                return Ok(Progress::Cancel);
            }
        };
        let finish = match stopped {
            Some(Stopped::By(finish)) => finish,
            // The sample may have ended before the server's response.
            _ if self.sample.is_ended() => return Ok(Progress::Cancel),
            Some(Stopped::Aborted(why)) => {
                return Err(Error::Cut(format!("the server ended it: {why}")));
            }
            None => return Ok(Progress::More),
        };
        self.finished = true;
        match self.sample.finish(finish) {
            Ok(()) => Ok(Progress::Done),
            Err(violation) => {
                self.violation = Some(violation);
                Ok(Progress::Cancel)
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.finished
    }

    fn is_empty(&self) -> bool {
        self.sample.tokens().is_empty()
    }

    fn generated(&self) -> Option<usize> {
        Some(self.sample.received())
    }

    fn max_bytes(&self) -> usize {
        let prompt = self.prompt.len().saturating_mul(PROMPT_TOKEN_BYTES);
        let response = self.sample.remaining().saturating_mul(TOKEN_BYTES);
        ANSWER_BYTES.saturating_add(prompt).saturating_add(response)
    }

    fn max_values(&self) -> usize {
        let prompt = self.prompt.len().saturating_mul(PROMPT_TOKEN_VALUES);
        let response = self.sample.remaining().saturating_mul(TOKEN_VALUES);
        EVENT_VALUES.saturating_add(prompt).saturating_add(response)
    }
}

/// How a server's response ended.
enum Stopped {
    By(Finish),
    /// The server was stopped, or gave up.
    Aborted(String),
}

impl Stopped {
    fn of(reason: &str) -> Self {
        match reason {
            "stop" => Self::By(Finish::Stop),
            "length" => Self::By(Finish::Length),
            other => Self::Aborted(other.chars().take(40).collect()),
        }
    }
}

/// Where the log-probabilities name their tokens by id, these must be the tokens.
fn check_tokens(ids: &[u32], logprobs: &Value) -> Result<(), InvalidResponse> {
    let names = present(logprobs, "tokens").and_then(Value::as_array);
    for (&token, name) in ids.iter().zip(names.into_iter().flatten()) {
        let named = name.as_str().and_then(|name| name.strip_prefix("token_id:"));
        if let Some(other) = named.filter(|named| *named != token.to_string()) {
            let other = other.chars().take(20).collect();
            return Err(InvalidResponse::OtherToken { token, other });
        }
    }
    Ok(())
}

/// A number; NaN where there is none, as servers send `null` for it.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn present<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    value.get(name).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use sampling::SampleEnd;
    use serde_json::json;

    use super::*;
    use crate::collect::Limits;

    const PROMPT: [u32; 2] = [3, 4];

    /// What comes of these events: the sample's end or the violation.
    fn read(api: Api, events: &[Value]) -> Result<SampleEnd, InvalidResponse> {
        let limits = Limits { prompt: 2, max_tokens: 3, context: 100, vocabulary: 50 };
        let mut sample = Collector::new(limits, vec![7], None);
        let last_token = LastToken::new();
        let mut sink = Events::new(api, &mut sample, &PROMPT, &last_token);
        for event in events {
            if sink.push(event).unwrap() != Progress::More {
                break;
            }
        }
        match sink.violation() {
            Some(violation) => Err(violation),
            None => Ok(sample.take().unwrap().end),
        }
    }

    fn chunk(fields: Value) -> Value {
        json!({ "choices": [fields] })
    }

    #[test]
    fn a_document_is_one_event() {
        let logprobs =
            json!({ "tokens": ["token_id:1", "token_id:7"], "token_logprobs": [-1, -0.5] });
        let whole = chunk(json!({
            "prompt_token_ids": PROMPT, "token_ids": [1, 7], "logprobs": logprobs, "finish_reason": "stop"
        }));
        assert_eq!(read(Api::Completions, &[whole]), Ok(SampleEnd::Token));
    }

    #[test]
    fn what_a_server_gets_wrong_is_named() {
        let logprobs = json!({ "token_logprobs": [-1.0] });
        for (fields, violation) in [
            (json!({ "token_ids": [1] }), InvalidResponse::NoIds("prompt_token_ids")),
            (json!({ "prompt_token_ids": PROMPT }), InvalidResponse::NoIds("token_ids")),
            (
                json!({ "prompt_token_ids": [2, 3, 4], "token_ids": [1] }),
                InvalidResponse::OtherPrompt { sent: 2, found: 3 },
            ),
            (json!({ "prompt_token_ids": PROMPT, "token_ids": [1] }), InvalidResponse::NoLogprobs),
            (
                json!({ "prompt_token_ids": PROMPT, "token_ids": [-1], "logprobs": logprobs }),
                InvalidResponse::Field("token_ids"),
            ),
            (
                json!({ "prompt_token_ids": PROMPT, "token_ids": [1_u64 << 40], "logprobs": logprobs }),
                InvalidResponse::UnknownToken { token: 1 << 40, vocabulary: 50 },
            ),
            (
                json!({
                    "prompt_token_ids": PROMPT, "token_ids": [1],
                    "logprobs": { "token_logprobs": [-1.0], "tokens": ["token_id:2"] }
                }),
                InvalidResponse::OtherToken { token: 1, other: "2".into() },
            ),
            (
                json!({
                    "prompt_token_ids": PROMPT, "token_ids": [1, 2], "logprobs": logprobs,
                    "finish_reason": "stop"
                }),
                InvalidResponse::Lengths { tokens: 2, logprobs: 1 },
            ),
        ] {
            assert_eq!(
                read(Api::Completions, &[chunk(fields.clone())]),
                Err(violation),
                "{fields}"
            );
        }
    }

    #[test]
    fn generate_answers_with_pairs() {
        let answer = |prompt: u64, pairs: Value| {
            let finish = json!({ "type": "stop", "matched": 7 });
            json!({ "meta_info": {
                "prompt_tokens": prompt, "output_token_logprobs": pairs, "finish_reason": finish
            }})
        };
        let pairs = json!([[-0.5, 1, null], [-0.25, 7, null]]);
        assert_eq!(read(Api::Generate, &[answer(2, pairs.clone())]), Ok(SampleEnd::Token));
        let violation = InvalidResponse::OtherPrompt { sent: 2, found: 3 };
        assert_eq!(read(Api::Generate, &[answer(3, pairs)]), Err(violation));
        let violation = InvalidResponse::Field("output_token_logprobs");
        assert_eq!(read(Api::Generate, &[answer(2, json!([[-0.5]]))]), Err(violation));
    }
}
