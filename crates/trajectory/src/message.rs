//! The messages of a conversation between a model and its computer, in no vendor's format.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What the model is told about itself and its computer.
    System {
        /// The instructions.
        text: String,
    },
    /// What the model is asked, or reminded of.
    User {
        /// The parts, in order.
        content: Vec<Content>,
    },
    /// What the model said and wants done.
    Assistant(Assistant),
    /// What came of one tool call.
    Tool(ToolResult),
}

impl Message {
    /// A user's message of text alone.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { content: vec![Content::text(text)] }
    }

    /// How many bytes of text and images it holds: a rough measure of its tokens.
    pub fn size(&self) -> usize {
        match self {
            Self::System { text } => text.len(),
            Self::User { content } => content.iter().map(Content::size).sum(),
            Self::Assistant(said) => said.size(),
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
    /// A picture, for models that accept one.
    Image {
        /// Such as `image/png`.
        media_type: String,
        /// The file, in base64.
        data: String,
    },
}

impl Content {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image { .. } => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            // Vendors count a picture as one to two thousand tokens; a huge one takes room all the same.
            Self::Image { data, .. } => (data.len() / 100).max(6000),
        }
    }
}

/// What a model said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    /// The visible text, without the calls written in it.
    #[serde(default)]
    pub text: String,
    /// The thinking the server showed apart from the text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The tool calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// The text exactly as generated, where the calls were written in it. It goes back to the model
    /// unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// What the vendor wants back unchanged, such as signed thinking. Nobody else looks inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

impl Assistant {
    /// How many bytes it holds: a rough measure of its tokens.
    pub fn size(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.name.len() + call.arguments.size());
        match &self.said {
            Some(said) => said.len() + self.reasoning.len(),
            None => self.text.len() + self.reasoning.len() + calls.sum::<usize>(),
        }
    }
}

/// A request of the model to use a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenCall", into = "WrittenCall")]
pub struct ToolCall {
    /// Ties the result to the call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What it gets.
    pub arguments: Arguments,
}

/// The arguments of a call. They are written down with the call they belong to.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// Not to be made sense of. Such a call is never carried out.
    Malformed {
        /// What the model wrote.
        malformed: String,
        /// What is wrong with it, in words for the model.
        why: String,
    },
    /// Understood.
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

/// A call as it is written down: `arguments` is an object, or a text and the reason why it is none. A model
/// can put anything into its object without being taken for the other.
#[derive(Serialize, Deserialize)]
struct WrittenCall {
    id: String,
    name: String,
    arguments: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl From<ToolCall> for WrittenCall {
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

impl TryFrom<WrittenCall> for ToolCall {
    type Error = &'static str;

    fn try_from(written: WrittenCall) -> Result<Self, Self::Error> {
        let WrittenCall { id, name, arguments, why } = written;
        let arguments = match arguments {
            Value::Object(map) => Arguments::Object(map),
            Value::String(malformed) => {
                Arguments::Malformed { malformed, why: why.unwrap_or_default() }
            }
            _ => return Err("the arguments of a call are an object or a text"),
        };
        Ok(Self { id, name, arguments })
    }
}

/// What came of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call it answers.
    pub call_id: String,
    /// The tool that was called.
    pub name: String,
    /// What the model gets to see.
    pub content: Vec<Content>,
    /// Whether the call itself was at fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// Why the model stopped writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It was done.
    End,
    /// It wants tools used.
    ToolCalls,
    /// It reached the limit of tokens: what it was writing is cut off.
    Length,
    /// The vendor's filter or the model itself refused.
    Refusal,
    /// Something else, in the server's word.
    Other(String),
}
