//! Inspect's logs: an archive with a header, summaries of the samples, and a JSON file for each.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use serde::Deserialize;
use serde_json::{Map, Value};
use trajectory::{
    Arguments, Assistant, Content, Ended, Event, Fault, Line, MAX_FILE_VALUES, Message, Outcome,
    Spent, Started, ToolCall, ToolResult, Usage, count_values,
};
use zip::{CompressionMethod, ZipArchive};

use super::{Facts, Lines, MAX_SIZE, millis_of, number, seconds, text_of};

/// A log that is open.
pub(crate) struct Log {
    archive: ZipArchive<BufReader<File>>,
    /// Values of the members that were read.
    values: usize,
}

/// The summary of a sample, as far as rows show it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SampleSummary {
    pub(crate) id: Value,
    pub(crate) epoch: u32,
    pub(crate) input: Value,
    pub(crate) target: Value,
    pub(crate) scores: Option<BTreeMap<String, Value>>,
    pub(crate) model_usage: BTreeMap<String, Value>,
    pub(crate) started_at: Value,
    pub(crate) total_time: Option<f64>,
    pub(crate) error: Option<String>,
    pub(crate) limit: Option<String>,
}

impl SampleSummary {
    /// The id in words.
    pub(crate) fn name(&self) -> String {
        text_of(Some(&self.id))
    }

    /// Where the sample is in the archive.
    pub(crate) fn member(&self) -> String {
        format!("samples/{}_epoch_{}.json", self.name(), self.epoch)
    }

    pub(crate) fn task(&self) -> String {
        input_text(&self.input)
    }

    pub(crate) fn expected(&self) -> String {
        text_of(Some(&self.target))
    }

    /// The first score, as a number: `C` is right, `P` half right, `I` and `N` wrong.
    pub(crate) fn score(&self) -> Option<f64> {
        let score = self.scores.as_ref()?.values().next()?;
        match score.get("value")? {
            Value::Number(number) => number.as_f64(),
            Value::Bool(right) => Some(f64::from(u8::from(*right))),
            Value::String(letter) => match letter.as_str() {
                "C" => Some(1.0),
                "P" => Some(0.5),
                "I" | "N" => Some(0.0),
                text => text.parse().ok(),
            },
            _ => None,
        }
    }

    pub(crate) fn answer(&self) -> Option<String> {
        let score = self.scores.as_ref()?.values().next()?;
        score.get("answer").and_then(Value::as_str).map(str::to_owned)
    }

    pub(crate) fn usage(&self) -> Usage {
        let mut all = Usage::default();
        self.model_usage.values().for_each(|usage| all += self::usage(Some(usage)));
        all
    }

    pub(crate) fn started(&self) -> u64 {
        millis_of(Some(&self.started_at))
    }
}

impl Log {
    pub(crate) fn open(dir: &Path, file: &Path) -> Result<Self, String> {
        let opened = results::open_below(dir, file).map_err(|error| error.to_string())?;
        let archive = ZipArchive::new(BufReader::new(opened))
            .map_err(|error| format!("it is not a log of Inspect: {error}"))?;
        Ok(Self { archive, values: 0 })
    }

    /// Reads a member of the archive. All that are read together have at most [`MAX_FILE_VALUES`]: a few kilobytes can hold
    /// members that unfold to gigabytes.
    fn json<T: serde::de::DeserializeOwned>(&mut self, name: &str) -> Result<T, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let at = self.archive.index_for_name(name).ok_or_else(|| failed(&"it is missing"))?;
        let mut member = self.archive.by_index_raw(at).map_err(|error| failed(&error))?;
        let (method, mut raw) = (member.compression(), Vec::new());
        member.by_ref().take(MAX_SIZE).read_to_end(&mut raw).map_err(|error| failed(&error))?;
        drop(member);
        let bytes = match method {
            CompressionMethod::Stored => raw,
            #[expect(deprecated, reason = "Zstandard, whose C library is not used here")]
            CompressionMethod::Unsupported(93) => zstd(&raw).map_err(|error| failed(&error))?,
            _ => {
                let member = self.archive.by_index(at).map_err(|error| failed(&error))?;
                let mut bytes = Vec::new();
                let read = member.take(MAX_SIZE).read_to_end(&mut bytes);
                read.map_err(|error| failed(&error))?;
                bytes
            }
        };
        self.values += count_values(&bytes, MAX_FILE_VALUES - self.values);
        if self.values > MAX_FILE_VALUES {
            self.values = MAX_FILE_VALUES;
            return Err(failed(&format!("the log has more than {MAX_FILE_VALUES} values")));
        }
        serde_json::from_slice(&bytes).map_err(|error| failed(&error))
    }

    /// What the log is about.
    pub(crate) fn facts(&mut self) -> Result<(Facts, Value), String> {
        let header: Value = match self.has("header.json") {
            true => self.json("header.json")?,
            // A log that is being written.
            false => self.json("_journal/start.json")?,
        };
        let text = |name: &str| header.pointer(name).and_then(Value::as_str).map(str::to_owned);
        let facts = Facts {
            model: text("/eval/model"),
            task: text("/eval/task").unwrap_or_default(),
            turns: None,
            tokens: None,
            started: Some(millis_of(header.pointer("/eval/created"))).filter(|at| *at > 0),
            outcome: text("/status"),
        };
        Ok((facts, header))
    }

    /// The samples.
    pub(crate) fn samples(&mut self) -> Result<Vec<SampleSummary>, String> {
        if self.has("summaries.json") {
            return self.json("summaries.json");
        }
        let prefix = "_journal/summaries/";
        let names: Vec<String> = self
            .archive
            .file_names()
            .flatten()
            .filter(|name| name.starts_with(prefix) && name.ends_with(".json"))
            .map(std::borrow::Cow::into_owned)
            .collect();
        let mut samples = Vec::new();
        for name in names {
            samples.append(&mut self.json::<Vec<SampleSummary>>(&name)?);
        }
        Ok(samples)
    }

    /// Whether a sample is stored in a form that can be read.
    pub(crate) fn has(&self, member: &str) -> bool {
        self.archive.index_for_name(member).is_some()
    }

    /// The events of a sample.
    pub(crate) fn events(&mut self, member: &str) -> Result<Vec<Line>, String> {
        let mut sample: Value = self.json(member)?;
        let attachments = sample.get_mut("attachments").map(Value::take).unwrap_or_default();
        if let Some(messages) = sample.get_mut("messages") {
            attach(messages, &attachments);
        }
        let model = self.facts().ok().and_then(|(facts, _)| facts.model).unwrap_or_default();
        Ok(events(&sample, model))
    }
}

/// Decompresses all frames of a member.
fn zstd(raw: &[u8]) -> Result<Vec<u8>, String> {
    let mut rest = raw;
    let mut bytes = Vec::new();
    while !rest.is_empty() {
        let frame = ruzstd::decoding::StreamingDecoder::new(&mut rest);
        let frame = frame.map_err(|error| error.to_string())?;
        let room = MAX_SIZE.saturating_sub(bytes.len() as u64);
        if room == 0 {
            return Err(format!("it has more than {MAX_SIZE} bytes"));
        }
        frame.take(room).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    }
    Ok(bytes)
}

/// Puts attachments where texts refer to them.
fn attach(value: &mut Value, attachments: &Value) {
    match value {
        Value::String(text) => {
            let found = text.strip_prefix("attachment://").and_then(|key| attachments.get(key));
            if let Some(Value::String(whole)) = found {
                text.clone_from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| attach(item, attachments)),
        Value::Object(fields) => fields.values_mut().for_each(|item| attach(item, attachments)),
        _ => {}
    }
}

fn input_text(input: &Value) -> String {
    match input {
        Value::Array(messages) => {
            let last = messages.iter().rev().find(|it| role(it) == "user").or(messages.last());
            text_of(last.and_then(|message| message.get("content")))
        }
        other => text_of(Some(other)),
    }
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

fn events(sample: &Value, model: String) -> Vec<Line> {
    let messages = sample.get("messages").and_then(Value::as_array);
    let messages = messages.map(Vec::as_slice).unwrap_or_default();
    let first = messages.iter().take_while(|it| role(it) != "assistant").count();
    let calls = model_calls(sample, messages);
    let mut lines = Lines::default();
    let started = Started {
        problem_statement: input_text(sample.get("input").unwrap_or(&Value::Null)),
        messages: messages[..first].iter().map(message).collect(),
        model,
        settings: sample.get("metadata").cloned().unwrap_or_default(),
        protection: Value::Null,
        program: String::new(),
    };
    let begun = millis_of(sample.get("started_at"));
    lines.push(begun, Event::Started(Box::new(started)));
    let mut spent = Spent::default();
    let mut call = calls.into_iter();
    let mut at = begun;
    for it in &messages[first..] {
        match role(it) {
            "assistant" => {
                let seen = call.next().unwrap_or_default();
                at = if seen.at > 0 { seen.at } else { at };
                spent.turns = spent.turns.saturating_add(1);
                spent.usage += seen.usage;
                spent.model_ms = spent.model_ms.saturating_add(seen.millis);
                lines.respond(at, assistant(it), seen.usage, seen.millis);
            }
            _ => lines.observe(at, message(it), None, 0),
        }
    }
    if let Some(outcome) = outcome(sample) {
        lines.push(millis_of(sample.get("completed_at")), Event::Ended(Ended { outcome, spent }));
    }
    lines.lines
}

fn outcome(sample: &Value) -> Option<Outcome> {
    let error = sample.pointer("/error/message").and_then(Value::as_str);
    if let Some(cause) = error {
        return Some(Outcome::Infrastructure { cause: cause.to_owned(), fault: Fault::Unknown });
    }
    let limit = sample.pointer("/limit/type").and_then(Value::as_str);
    Some(match limit {
        Some("message" | "turn") => Outcome::MaxTurns,
        Some("token") => Outcome::MaxTokens,
        Some("context") => Outcome::ContextFull,
        Some("time" | "working") => Outcome::Deadline,
        Some("cost") => Outcome::Cost,
        Some("operator") => Outcome::Cancelled,
        _ => Outcome::Submitted,
    })
}

/// A call of the model, as the events of the sample have it.
#[derive(Clone, Copy, Default)]
struct ModelCall {
    at: u64,
    usage: Usage,
    millis: u64,
}

/// The calls of the model, if there are as many as responses in the conversation: only then it is known which is which.
fn model_calls(sample: &Value, messages: &[Value]) -> Vec<ModelCall> {
    let events = sample.get("events").and_then(Value::as_array);
    let of_model = |event: &&Value| event.get("event").is_some_and(|kind| kind == "model");
    let call = |event: &Value| ModelCall {
        at: millis_of(event.get("timestamp")),
        usage: usage(event.pointer("/output/usage")),
        millis: seconds(event.pointer("/output/time")),
    };
    let calls: Vec<ModelCall> = events.into_iter().flatten().filter(of_model).map(call).collect();
    let responses = messages.iter().filter(|it| role(it) == "assistant").count();
    if calls.len() == responses { calls } else { Vec::new() }
}

fn usage(value: Option<&Value>) -> Usage {
    let count = |name: &str| number(value.and_then(|usage| usage.get(name)));
    let (cached, cache_writes) =
        (count("input_tokens_cache_read"), count("input_tokens_cache_write"));
    Usage {
        // Inspect counts cached tokens apart.
        input: count("input_tokens").saturating_add(cached).saturating_add(cache_writes),
        cached,
        cache_writes,
        output: count("output_tokens"),
        reasoning: count("reasoning_tokens"),
        estimated: false,
    }
}

fn message(value: &Value) -> Message {
    match role(value) {
        "system" => Message::System { text: text_of(value.get("content")) },
        "tool" => Message::Tool(ToolResult {
            call_id: text_of(value.get("tool_call_id")),
            name: text_of(value.get("function")),
            content: tool_content(value),
            is_error: value.get("error").is_some_and(|error| !error.is_null()),
        }),
        "assistant" => Message::Assistant(assistant(value)),
        _ => Message::User { content: content(value.get("content")) },
    }
}

fn tool_content(value: &Value) -> Vec<Content> {
    let mut parts = content(value.get("content"));
    if let Some(error) = value.pointer("/error/message").and_then(Value::as_str) {
        parts.push(Content::text(error));
    }
    parts
}

fn content(value: Option<&Value>) -> Vec<Content> {
    let Some(Value::Array(parts)) = value else { return vec![Content::text(text_of(value))] };
    let part = |part: &Value| {
        let image = part.get("image").and_then(Value::as_str);
        match image.and_then(|url| url.strip_prefix("data:")?.split_once(";base64,")) {
            Some((media_type, data)) => {
                Content::Image { media_type: media_type.to_owned(), data: data.to_owned() }
            }
            None => Content::text(part.get("text").map_or_else(
                || image.map(|url| format!("[image: {url}]")).unwrap_or_default(),
                |text| text_of(Some(text)),
            )),
        }
    };
    parts.iter().map(part).collect()
}

fn assistant(value: &Value) -> Assistant {
    let parts = value.get("content").and_then(Value::as_array);
    let thoughts = parts.into_iter().flatten().filter_map(|part| part.get("reasoning"));
    let reasoning = thoughts.filter_map(Value::as_str).collect::<Vec<_>>().join("\n");
    let calls = value.get("tool_calls").and_then(Value::as_array);
    let call = |call: &Value| ToolCall {
        id: text_of(call.get("id")),
        name: text_of(call.get("function")),
        arguments: match call.get("arguments") {
            Some(Value::Object(arguments)) => Arguments::Object(arguments.clone()),
            None | Some(Value::Null) => Arguments::Object(Map::new()),
            Some(other) => Arguments::Malformed {
                malformed: text_of(Some(other)),
                why: text_of(call.get("parse_error")),
            },
        },
    };
    Assistant {
        text: text_of(value.get("content")),
        reasoning,
        calls: calls.into_iter().flatten().map(call).collect(),
        ..Assistant::default()
    }
}
