//! Parses the body of a chat completions request.
//!
//! A parameter that cannot be honoured is refused, and so is one that is not known: a client must not believe in an effect
//! that there is not.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use model::Sampling;
use openai_wire::{
    ApiError, Fields, ValueBudget, messages,
    parameters::{Delivery, delivery, max_tokens, sampling},
    wrong,
};
use serde_json::{Value, json};
use trajectory::{Assistant, Content, Message};

/// A chat completions request.
#[derive(Debug)]
pub(super) struct ChatRequest {
    /// The model's name; empty for the first one.
    pub(super) model: String,
    /// User's and assistant's messages, the user's last.
    pub(super) messages: Vec<Message>,
    pub(super) files: Vec<FilePart>,
    pub(super) has_images: bool,
    pub(super) sampling: Sampling,
    /// Most tokens of each response of the model.
    pub(super) max_tokens: Option<u64>,
    pub(super) delivery: Delivery,
    pub(super) sandbox: Option<SandboxChoice>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// A file of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilePart {
    /// As the client calls it.
    pub(super) name: Option<String>,
    pub(super) content: FileContent,
    /// The field, for errors.
    pub(super) path: String,
}

/// Where the content of a file is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileContent {
    /// In the request.
    Bytes(Vec<u8>),
    /// Uploaded before, under this id.
    Stored(String),
}

/// Which sandbox a conversation uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SandboxChoice {
    /// A new one, which is kept.
    New,
    /// The one of this id.
    Kept(String),
}

/// Most files of one request.
const MAX_FILES: usize = 100;
/// Most notes of a client, and most bytes of a name and of a value, as OpenAI has it.
const MAX_METADATA: (usize, usize, usize) = (16, 64, 512);

/// Parameters that have an effect, or none that a client could miss.
const ACCEPTED: [&str; 22] = [
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "min_p",
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "repetition_penalty",
    "safety_identifier",
    "sandbox",
    "seed",
    "stream",
    "stream_options",
    "temperature",
    "top_k",
    "top_p",
    "user",
    // Of these, only the values that ask for nothing.
    "logprobs",
    "n",
    "stop",
    "store",
];

/// Further parameters, with the only values that are accepted: those that ask for nothing.
fn neutral(key: &str) -> Option<Vec<Value>> {
    Some(match key {
        "audio" | "function_call" | "prediction" | "web_search_options" => vec![],
        "frequency_penalty" | "presence_penalty" => vec![json!(0), json!(0.0)],
        "functions" | "tools" => vec![json!([])],
        "logit_bias" => vec![json!({})],
        "modalities" => vec![json!(["text"])],
        "response_format" => vec![json!({ "type": "text" })],
        "service_tier" => vec![json!("auto"), json!("default")],
        "tool_choice" => vec![json!("auto"), json!("none")],
        "top_logprobs" => vec![json!(0)],
        _ => return None,
    })
}

/// Parses a body.
pub(super) fn parse(body: &[u8]) -> Result<ChatRequest, ApiError> {
    ValueBudget::default().spend(body)?;
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::request(format_args!("is not JSON: {error}")))?;
    let fields = Fields::of(&value, "")?;
    refuse_unsupported(&fields)?;
    fields.need("messages")?;
    let mut reading = Reading::default();
    reading.messages(fields.list("messages")?)?;
    let sandbox = fields.text("sandbox")?.map(choice).transpose();
    Ok(ChatRequest {
        model: fields.text("model")?.unwrap_or_default().trim().to_owned(),
        messages: reading.messages,
        files: reading.files,
        has_images: reading.has_images,
        sampling: sampling(&fields)?,
        max_tokens: max_tokens(&fields)?,
        delivery: delivery(&fields)?,
        sandbox: sandbox.map_err(|why| fields.error("sandbox", why))?,
        metadata: metadata(&fields)?,
    })
}

/// The sandbox of the field `sandbox` or of the header `x-sandbox-id`.
pub(super) fn choice(text: &str) -> Result<SandboxChoice, &'static str> {
    let is_id = |text: &str| {
        (8..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    match text {
        "new" => Ok(SandboxChoice::New),
        id if is_id(id) => Ok(SandboxChoice::Kept(id.to_owned())),
        _ => Err("must be `new`, or the id of a kept sandbox"),
    }
}

fn refuse_unsupported(fields: &Fields<'_>) -> Result<(), ApiError> {
    for name in fields.names() {
        let Some(value) = fields.get(name) else { continue };
        if ACCEPTED.contains(&name) || neutral(name).is_some_and(|fine| fine.contains(value)) {
            continue;
        }
        let why = match name {
            "tools" | "functions" | "tool_choice" | "function_call" => {
                "is not supported: the model works with the tools of its sandbox"
            }
            "response_format" => "only text is supported; ask for a file or a format in the task",
            _ => "is not supported",
        };
        return Err(unsupported(fields.error(name, why)));
    }
    if fields.integer("n")?.is_some_and(|n| n != 1) {
        return Err(unsupported(fields.error("n", "only 1 is supported")));
    }
    if fields.flag("store")? {
        return Err(unsupported(fields.error("store", "is not supported; see /v1/episodes")));
    }
    if fields.flag("logprobs")? {
        return Err(unsupported(fields.error("logprobs", "is not supported")));
    }
    if fields.get("stop").is_some_and(|stop| *stop != json!([])) {
        let why = "is not supported: it would end the model's tool calls as well";
        return Err(unsupported(fields.error("stop", why)));
    }
    for key in ["user", "safety_identifier", "prompt_cache_key"] {
        fields.text(key)?;
    }
    fields.flag("parallel_tool_calls").map(drop)
}

fn unsupported(error: ApiError) -> ApiError {
    error.code("unsupported_parameter")
}

fn metadata(fields: &Fields<'_>) -> Result<BTreeMap<String, String>, ApiError> {
    let Some(value) = fields.get("metadata") else { return Ok(BTreeMap::new()) };
    let Value::Object(map) = value else {
        return Err(wrong("metadata", "an object", value));
    };
    let (most, key_bytes, value_bytes) = MAX_METADATA;
    if map.len() > most {
        return Err(fields.error("metadata", format_args!("must have at most {most} entries")));
    }
    let entry = |(key, value): (&String, &Value)| {
        let name = format!("metadata.{key}");
        let text = value.as_str().ok_or_else(|| wrong(&name, "a string", value))?;
        if key.len() > key_bytes || text.len() > value_bytes {
            return Err(ApiError::field(name, "is too long"));
        }
        Ok((key.clone(), text.to_owned()))
    };
    map.iter().map(entry).collect()
}

/// What was read of the messages so far.
#[derive(Default)]
struct Reading {
    instructions: Vec<String>,
    messages: Vec<Message>,
    files: Vec<FilePart>,
    /// Files and images.
    attached: usize,
    has_images: bool,
}

impl Reading {
    fn messages(&mut self, list: &[Value]) -> Result<(), ApiError> {
        for (at, value) in list.iter().enumerate() {
            self.message(value, &format!("messages[{at}]"))?;
        }
        let instructions = std::mem::take(&mut self.instructions).join("\n\n");
        let Some(Message::User { content }) = self.messages.last_mut() else {
            return Err(ApiError::field("messages", "the last message must be the user's"));
        };
        // The system prompt is that of the sandbox; what the client says there is part of the task.
        if !instructions.is_empty() {
            content.insert(0, Content::text(instructions));
        }
        Ok(())
    }

    /// Counts a file or an image: each becomes a file in the sandbox.
    fn attach(&mut self) -> Result<(), ApiError> {
        self.attached += 1;
        match self.attached > MAX_FILES {
            true => {
                let why = format_args!("must not have more than {MAX_FILES} files and images");
                Err(ApiError::field("messages", why))
            }
            false => Ok(()),
        }
    }

    fn message(&mut self, value: &Value, path: &str) -> Result<(), ApiError> {
        let fields = Fields::of(value, path)?;
        match fields.needed_text("role")? {
            "system" | "developer" => {
                let text = plain_text(&fields)?;
                self.instructions.extend((!text.is_empty()).then_some(text));
            }
            "user" => {
                fields.need("content")?;
                let content = self.content(&fields)?;
                self.messages.push(Message::User { content });
            }
            "assistant" => {
                for key in ["tool_calls", "function_call", "audio"] {
                    if fields.get(key).is_some_and(|value| *value != json!([])) {
                        return Err(unsupported(fields.error(key, "is not supported")));
                    }
                }
                let text = plain_text(&fields)?;
                let message = Assistant { text, ..Assistant::default() };
                self.messages.push(Message::Assistant(message));
            }
            "tool" | "function" => {
                let why = "is not supported: the model works with the tools of its sandbox";
                return Err(unsupported(fields.error("role", why)));
            }
            _ => {
                let why = "must be system, developer, user or assistant";
                return Err(fields.error("role", why));
            }
        }
        Ok(())
    }

    fn content(&mut self, fields: &Fields<'_>) -> Result<Vec<Content>, ApiError> {
        let parts = match fields.get("content") {
            Some(Value::Array(parts)) => parts,
            Some(Value::String(text)) => return Ok(vec![Content::text(text)]),
            Some(other) => {
                let name = fields.name("content");
                return Err(wrong(&name, "a string or a list of parts", other));
            }
            None => return Ok(Vec::new()),
        };
        let mut content = Vec::new();
        for (at, value) in parts.iter().enumerate() {
            let path = fields.name(&format!("content[{at}]"));
            let part = Fields::of(value, &path)?;
            match part.needed_text("type")? {
                "text" => content.push(messages::part(value, &path)?),
                "image_url" => {
                    self.attach()?;
                    content.push(messages::part(value, &path)?);
                    self.has_images = true;
                }
                "file" => {
                    self.attach()?;
                    self.files.push(file(&part)?);
                }
                _ => return Err(part.error("type", "only text, file and image_url are supported")),
            }
        }
        Ok(content)
    }
}

/// The content of a message that may contain text only.
fn plain_text(fields: &Fields<'_>) -> Result<String, ApiError> {
    match fields.get("content") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let mut texts = Vec::new();
            for (at, value) in parts.iter().enumerate() {
                let path = fields.name(&format!("content[{at}]"));
                let Content::Text { text } = messages::part(value, &path)? else {
                    return Err(ApiError::field(path, "only user messages may contain images"));
                };
                texts.push(text);
            }
            Ok(texts.join("\n"))
        }
        Some(other) => Err(wrong(&fields.name("content"), "a string or a list of parts", other)),
    }
}

/// A part with a file.
fn file(part: &Fields<'_>) -> Result<FilePart, ApiError> {
    let path = part.name("file");
    let file = Fields::of(part.need("file")?, &path)?;
    let name = file.text("filename")?.map(str::to_owned);
    let content = match (file.text("file_id")?, file.text("file_data")?) {
        (Some(id), None) => FileContent::Stored(id.to_owned()),
        (None, Some(data)) => {
            // With or without the frame of a data URL.
            let data = match data.strip_prefix("data:") {
                None => data,
                Some(rest) => {
                    let why = "must be base64, or a data URL in base64";
                    rest.split_once(";base64,").ok_or_else(|| file.error("file_data", why))?.1
                }
            };
            let bytes = BASE64_STANDARD.decode(data.trim());
            FileContent::Bytes(bytes.map_err(|_| file.error("file_data", "is not base64"))?)
        }
        _ => return Err(part.error("file", "needs either file_id or file_data")),
    };
    Ok(FilePart { name, content, path })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
