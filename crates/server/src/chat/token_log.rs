//! The tokens of passed-on answers, one JSON object a line.
//!
//! Texts and credentials are not recorded. Everything the model's server sends is bounded and checked.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use openai_wire::ValueBudget;
use serde_json::{Map, Value, json};
use trajectory::Usage;

/// Most bytes of an answer that are read for its tokens. A longer one is passed on, and recorded without them.
const MAX_ANSWER: usize = 64 << 20;
/// Most JSON values of one event or document.
const MAX_VALUES: usize = 4 << 20;
/// Bytes of text that are counted as one token where the model's server counts none.
const BYTES_PER_TOKEN: u64 = 4;
/// Most choices of one answer.
const MAX_CHOICES: usize = 128;

/// The file.
#[derive(Debug)]
pub(super) struct TokenLog {
    path: PathBuf,
    max_bytes: u64,
    /// One line at a time.
    writing: Mutex<()>,
}

impl TokenLog {
    pub(super) fn new(path: PathBuf, max_bytes: u64) -> Self {
        Self { path, max_bytes, writing: Mutex::new(()) }
    }

    /// Appends a line. A failure is logged: the client has its answer already.
    pub(super) fn append(&self, line: &Value) {
        let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.write(&format!("{line}\n")) {
            tracing::error!("recording tokens: {error}");
        }
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let length = fs::metadata(&self.path).map_or(0, |about| about.len());
        if length > 0 && length + line.len() as u64 > self.max_bytes {
            fs::rename(&self.path, older(&self.path))?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.append(true).read(true).create(true).mode(0o600).open(&self.path)?;
        let mut line = Cow::Borrowed(line);
        if is_torn(&file)? {
            // A part of a line, as after a full disk, must not make the next one unreadable.
            line.to_mut().insert(0, '\n');
        }
        file.write_all(line.as_bytes())
    }
}

/// Whether the last line of a file has no end.
fn is_torn(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [b'\n'];
    file.read_at(&mut byte, last)?;
    Ok(byte != [b'\n'])
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// One request and its answer.
#[derive(Debug)]
pub(super) struct Exchange {
    caller: String,
    path: &'static str,
    model: String,
    begun: Instant,
    at: u64,
    status: u16,
    shape: Shape,
    /// What was received and not read yet.
    unread: Vec<u8>,
    received: usize,
    /// Bytes of the request.
    sent: usize,
    /// Tokens of the answer, estimated from its text.
    generated: u64,
    /// Tokens of the prompt that the model's server had read before.
    cached: u64,
    /// The whole answer arrived.
    complete: bool,
    /// Why there are no tokens although an answer was received.
    problem: Option<&'static str>,
    prompt_token_ids: Value,
    choices: Vec<Choice>,
    usage: Value,
}

/// How an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Whole,
    Events,
}

/// The tokens of one choice.
#[derive(Debug, Default)]
struct Choice {
    index: u64,
    token_ids: Vec<u32>,
    logprobs: Vec<f64>,
    finish_reason: Value,
}

impl Exchange {
    pub(super) fn new(caller: &str, path: &'static str, model: &str, sent: usize) -> Self {
        Self {
            caller: caller.to_owned(),
            path,
            model: model.chars().take(256).collect(),
            begun: Instant::now(),
            at: openai_wire::now(),
            status: 0,
            shape: Shape::Whole,
            unread: Vec::new(),
            received: 0,
            sent,
            generated: 0,
            cached: 0,
            complete: false,
            problem: None,
            prompt_token_ids: Value::Null,
            choices: Vec::new(),
            usage: Value::Null,
        }
    }

    /// The head of the answer has arrived.
    pub(super) fn begin(&mut self, status: u16, content_type: &[u8]) {
        self.status = status;
        if content_type.starts_with(b"text/event-stream") {
            self.shape = Shape::Events;
        }
    }

    /// More of the answer has arrived.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.received += piece.len();
        if self.problem.is_some() {
            return;
        }
        if self.received > MAX_ANSWER {
            self.problem = Some("the answer is too long");
            self.unread = Vec::new();
            return;
        }
        self.unread.extend_from_slice(piece);
        if self.shape == Shape::Events {
            self.read_events();
        }
    }

    fn read_events(&mut self) {
        let Some(end) = self.unread.iter().rposition(|byte| *byte == b'\n') else { return };
        let rest = self.unread.split_off(end + 1);
        let lines = std::mem::replace(&mut self.unread, rest);
        for line in lines.split(|byte| *byte == b'\n') {
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            let data = data.trim_ascii();
            if data != b"[DONE]" {
                self.read(data);
            }
        }
    }

    /// The whole answer has arrived.
    pub(super) fn complete(&mut self) {
        self.complete = true;
        if self.shape == Shape::Whole && self.problem.is_none() {
            let document = std::mem::take(&mut self.unread);
            self.read(&document);
        }
    }

    /// Reads an event or the whole document.
    fn read(&mut self, json: &[u8]) {
        if ValueBudget::of(MAX_VALUES).spend(json).is_err() {
            self.problem = Some("the answer has too many values");
            return;
        }
        let Ok(json) = serde_json::from_slice::<Value>(json) else {
            self.problem = Some("the answer is not JSON");
            return;
        };
        if let Some(usage) = json.get("usage").filter(|usage| usage.is_object()) {
            self.usage = counts(usage);
            self.cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        }
        self.read_prompt(&json);
        for choice in json["choices"].as_array().into_iter().flatten() {
            self.read_prompt(choice);
            self.read_choice(choice);
        }
    }

    fn read_prompt(&mut self, from: &Value) {
        if self.prompt_token_ids.is_null()
            && let Some(ids) = ids(&from["prompt_token_ids"])
        {
            self.prompt_token_ids = json!(ids);
        }
    }

    fn read_choice(&mut self, from: &Value) {
        let delta = &from["delta"];
        let texts = [&delta["content"], &delta["reasoning_content"], &from["text"]];
        let bytes: usize = texts.iter().filter_map(|text| text.as_str()).map(str::len).sum();
        self.generated = self.generated.saturating_add((bytes as u64 / BYTES_PER_TOKEN).max(1));
        let index = from["index"].as_u64().unwrap_or(0);
        let at = match self.choices.iter().position(|choice| choice.index == index) {
            Some(at) => at,
            None if self.choices.len() == MAX_CHOICES => {
                self.problem = Some("the answer has too many choices");
                return;
            }
            None => {
                self.choices.push(Choice { index, ..Choice::default() });
                self.choices.len() - 1
            }
        };
        let Some(choice) = self.choices.get_mut(at) else { return };
        choice.token_ids.extend(ids(&from["token_ids"]).unwrap_or_default());
        choice.logprobs.extend(logprobs(&from["logprobs"]));
        if let Some(reason) = from["finish_reason"].as_str() {
            choice.finish_reason = json!(reason.chars().take(64).collect::<String>());
        }
    }

    /// The tokens that were used: as the model's server counts them, else estimated. A request that was refused used none.
    pub(super) fn used(&self) -> Usage {
        let count = |name: &str| self.usage[name].as_u64().unwrap_or(0);
        let (input, output) = (count("prompt_tokens"), count("completion_tokens"));
        let total = count("total_tokens").max(input.saturating_add(output));
        if total > 0 {
            let output = output.max(total.saturating_sub(input));
            let cached = self.cached.min(input);
            return Usage { input, output, cached, ..Usage::default() };
        }
        if self.status >= 400 {
            return Usage::default();
        }
        let output = match self.shape {
            Shape::Events => self.generated,
            Shape::Whole => self.received as u64 / BYTES_PER_TOKEN,
        };
        let input = self.sent as u64 / BYTES_PER_TOKEN;
        Usage { input, output, estimated: true, ..Usage::default() }
    }

    /// The line that records it.
    pub(super) fn line(&self) -> Value {
        let choices = self.choices.iter().map(|choice| {
            let is_whole = choice.logprobs.len() == choice.token_ids.len();
            json!({
                "index": choice.index,
                "token_ids": choice.token_ids,
                // Where their number differs it is unknown which token has which.
                "logprobs": is_whole.then_some(&choice.logprobs),
                "finish_reason": choice.finish_reason,
            })
        });
        json!({
            "v": 1,
            "at": self.at,
            "millis": u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            "caller": self.caller,
            "path": self.path,
            "model": self.model,
            "status": self.status,
            "complete": self.complete,
            "problem": self.problem,
            "prompt_token_ids": self.prompt_token_ids,
            "choices": choices.collect::<Vec<_>>(),
            "usage": self.usage,
        })
    }
}

/// Token ids; `None` where there is no list of them.
fn ids(value: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    value.as_array()?.iter().map(id).collect()
}

/// The log-probabilities, as chat completions (`content`) or completions (`token_logprobs`) have them.
fn logprobs(value: &Value) -> Vec<f64> {
    let chat = value["content"].as_array().into_iter().flatten();
    let plain = value["token_logprobs"].as_array().into_iter().flatten();
    let chat = chat.filter_map(|token| token["logprob"].as_f64());
    chat.chain(plain.filter_map(Value::as_f64)).collect()
}

/// The numbers of a usage object.
fn counts(usage: &Value) -> Value {
    let mut counts = Map::new();
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        if let Some(count) = usage[name].as_u64() {
            counts.insert(name.into(), json!(count));
        }
    }
    Value::Object(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(kind: &[u8], pieces: &[&[u8]]) -> Value {
        let mut exchange = Exchange::new("ann", "/v1/chat/completions", "m", 400);
        exchange.begin(200, kind);
        pieces.iter().for_each(|piece| exchange.push(piece));
        exchange.complete();
        exchange.line()
    }

    #[test]
    fn tokens_of_a_stream_are_joined_however_it_is_cut() {
        let events = concat!(
            r#"data: {"prompt_token_ids":[1,2],"choices":[{"index":0,"delta":{"content":"hi"},"token_ids":[5],"logprobs":{"content":[{"logprob":-0.5}]}}]}"#,
            "\n\n: comment\n\n",
            r#"data: {"choices":[{"index":0,"delta":{},"token_ids":[6],"logprobs":{"content":[{"logprob":-1.0}]},"finish_reason":"stop"}]}"#,
            "\n\n",
            r#"data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"x":"y"}}"#,
            "\n\ndata: [DONE]\n\n"
        );
        for size in [1, 7, 1000] {
            let pieces: Vec<&[u8]> = events.as_bytes().chunks(size).collect();
            let line = exchange(b"text/event-stream; charset=utf-8", &pieces);
            assert_eq!(line["prompt_token_ids"], json!([1, 2]));
            let choice = json!({
                "index": 0, "token_ids": [5, 6], "logprobs": [-0.5, -1.0], "finish_reason": "stop"
            });
            assert_eq!(line["choices"], json!([choice]));
            let usage = json!({"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4});
            assert_eq!(line["usage"], usage);
            assert!(!line.to_string().contains("hi"), "{line}");
        }
    }

    #[test]
    fn a_completion_is_read_whole_and_lies_are_not_recorded() {
        let whole = br#"{"choices":[{"index":0,"text":"x","prompt_token_ids":[1],"token_ids":[9,8],"logprobs":{"token_logprobs":[-1.5]},"finish_reason":"length"}]}"#;
        let line = exchange(b"application/json", &[whole]);
        assert_eq!(line["choices"][0]["token_ids"], json!([9, 8]));
        assert_eq!(line["choices"][0]["logprobs"], Value::Null);
        for bad in [&b"nonsense"[..], br#"{"choices":[{"token_ids":[-1,"x"]}]}"#, b"[]"] {
            let line = exchange(b"application/json", &[bad]);
            assert!(
                line["choices"].as_array().unwrap().iter().all(|c| c["token_ids"] == json!([]))
            );
        }
    }

    #[test]
    fn an_answer_without_usage_is_estimated() {
        let used = |status: u16, kind: &[u8], pieces: &[&[u8]]| {
            let mut exchange = Exchange::new("ann", "/v1/chat/completions", "m", 400);
            exchange.begin(status, kind);
            pieces.iter().for_each(|piece| exchange.push(piece));
            let used = exchange.used();
            (used.input, used.output, used.estimated)
        };
        let event = br#"data: {"choices":[{"index":0,"delta":{"content":"twelve bytes"}}]}"#;
        let events = [event, &b"\n\n"[..], event, b"\n"];
        assert_eq!(used(200, b"text/event-stream", &events), (100, 6, true));
        assert_eq!(used(200, b"application/json", &[]), (100, 0, true));
        assert_eq!(used(0, b"", &[]), (100, 0, true));
        assert_eq!(used(429, b"application/json", &[b"slow down"]), (0, 0, false));
        let usage = br#"data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
        assert_eq!(used(200, b"text/event-stream", &[event, b"\n", usage, b"\n"]), (3, 2, false));
    }

    #[test]
    fn a_torn_line_does_not_spoil_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.jsonl");
        fs::write(&path, "{\"n\":1}\n{\"n\":").unwrap();
        let log = TokenLog::new(path.clone(), 1000);
        (2..4).for_each(|n| log.append(&json!({ "n": n })));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"n\":1}\n{\"n\":\n{\"n\":2}\n{\"n\":3}\n");
    }

    #[test]
    fn the_log_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.jsonl");
        let log = TokenLog::new(path.clone(), 100);
        for n in 0..20 {
            log.append(&json!({ "n": n, "text": "x".repeat(20) }));
        }
        let lines = fs::read_to_string(&path).unwrap();
        assert!(lines.len() <= 100 && lines.ends_with("}\n") && lines.contains("\"n\":19"));
        assert!(fs::metadata(older(&path)).unwrap().len() <= 100);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}
