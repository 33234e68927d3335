//! The messages of a conversation between a model and its sandbox, in a vendor-neutral format.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// The system prompt.
    System {
        /// The text.
        text: String,
    },
    /// A user message: the task, or a reminder.
    User {
        /// The parts, in order.
        content: Vec<Content>,
    },
    /// A response of the model.
    Assistant(Assistant),
    /// The result of one tool call.
    Tool(ToolResult),
}

impl Message {
    /// A user message of text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { content: vec![Content::text(text)] }
    }

    /// Size in bytes, images converted: a rough measure of its tokens.
    pub fn size(&self) -> usize {
        match self {
            Self::System { text } => text.len(),
            Self::User { content } => content.iter().map(Content::size).sum(),
            Self::Assistant(message) => message.size(),
            Self::Tool(result) => result.content.iter().map(Content::size).sum(),
        }
    }
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Text {
        /// The text itself.
        text: String,
    },
    /// An image, for models that accept images.
    Image {
        /// The media type, such as `image/png`.
        media_type: String,
        /// The file in base64.
        data: String,
    },
}

impl Content {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The text, if it is a text part.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image { .. } => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            // Vendors count an image as one to two thousand tokens; a huge one takes more.
            Self::Image { data, .. } => (data.len() / 100).max(6000),
        }
    }
}

/// A message of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    /// The visible text, without calls call in it.
    #[serde(default)]
    pub text: String,
    /// Thinking that the server sent separately from the text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The tool calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Whether the model submits once these calls have succeeded and its answer exists: its block of commands ends with
    /// `submit`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub then_submit: bool,
    /// The text exactly as generated, where calls were call in it. It is sent back to the model unchanged.
    #[serde(rename = "said", default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Data the vendor expects back unchanged, such as signed thinking. Not interpreted elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

impl Assistant {
    /// Size in bytes: a rough measure of its tokens.
    pub fn size(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.name.len() + call.arguments.size());
        match &self.raw {
            Some(raw) => raw.len() + self.reasoning.len(),
            None => self.text.len() + self.reasoning.len() + calls.sum::<usize>(),
        }
    }
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SerializedCall", into = "SerializedCall")]
pub struct ToolCall {
    /// Links the result to the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
}

/// The arguments of a call. Serialized as part of their [`ToolCall`].
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// Arguments that cannot be parsed. Such a call is never executed.
    Malformed {
        /// What the model wrote.
        malformed: String,
        /// What is wrong with it, as the model sees it.
        why: String,
    },
    /// Parsed arguments.
    Object(Map<String, Value>),
}

impl Arguments {
    fn size(&self) -> usize {
        match self {
            Self::Malformed { malformed, .. } => malformed.len(),
            Self::Object(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
        }
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 4,
    }
}

/// The serialized form of a call: `arguments` is an object, or a string with the reason why it cannot be parsed. No
/// object a model writes can be confused with the latter.
#[derive(Serialize, Deserialize)]
struct SerializedCall {
    id: String,
    name: String,
    arguments: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl From<ToolCall> for SerializedCall {
    fn from(call: ToolCall) -> Self {
        let ToolCall { id, name, arguments } = call;
        match arguments {
            Arguments::Object(map) => Self { id, name, arguments: Value::Object(map), why: None },
            Arguments::Malformed { malformed, why } => {
                Self { id, name, arguments: Value::String(malformed), why: Some(why) }
            }
        }
    }
}

impl TryFrom<SerializedCall> for ToolCall {
    type Error = &'static str;

    fn try_from(call: SerializedCall) -> Result<Self, Self::Error> {
        let SerializedCall { id, name, arguments, why } = call;
        let arguments = match arguments {
            Value::Object(map) => Arguments::Object(map),
            Value::String(malformed) => {
                Arguments::Malformed { malformed, why: why.unwrap_or_default() }
            }
            _ => return Err("the arguments of a call must be an object or a string"),
        };
        Ok(Self { id, name, arguments })
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// What the model sees.
    pub content: Vec<Content>,
    /// Whether the call itself was invalid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// Why generation stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model ended its response.
    End,
    /// The model called tools.
    ToolCalls,
    /// The token limit was reached: the response is cut off.
    Length,
    /// The vendor's filter or the model itself refused.
    Refusal,
    /// Another reason, as the server names it.
    Other(String),
}
