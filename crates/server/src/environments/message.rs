//! Messages of a conversation in the format of OpenAI's chat completions, in both directions.

use environment::{Given, GivenCall, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use trajectory::{Arguments, Assistant, Content, Message};

/// A message as clients read it.
pub(super) fn message(message: &Message) -> Value {
    match message {
        Message::System { text } => json!({ "role": "system", "content": text }),
        Message::User { content } => json!({ "role": "user", "content": parts(content) }),
        Message::Assistant(message) => assistant(message),
        Message::Tool(result) => json!({
            "role": "tool",
            "tool_call_id": result.call_id,
            "name": result.name,
            "content": parts(&result.content),
        }),
    }
}

/// A response as it was understood. Text with calls in it is shown as it was written.
pub(super) fn assistant(message: &Assistant) -> Value {
    let content = message.raw.as_ref().unwrap_or(&message.text);
    let mut shown = json!({ "role": "assistant", "content": content });
    if !message.reasoning.is_empty() {
        shown["reasoning_content"] = json!(message.reasoning);
    }
    if !message.calls.is_empty() {
        let calls = message.calls.iter().map(|call| {
            let arguments = match &call.arguments {
                Arguments::Object(map) => Value::Object(map.clone()).to_string(),
                Arguments::Malformed { malformed, .. } => malformed.clone(),
            };
            let function = json!({ "name": call.name, "arguments": arguments });
            json!({ "id": call.id, "type": "function", "function": function })
        });
        shown["tool_calls"] = calls.collect();
    }
    shown
}

/// Text as a string; with images as a list of parts.
fn parts(content: &[Content]) -> Value {
    if content.iter().all(|part| part.as_text().is_some()) {
        let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
        return Value::String(texts.join("\n"));
    }
    let part = |part: &Content| match part {
        Content::Text { text } => json!({ "type": "text", "text": text }),
        Content::Image { media_type, data } => {
            let url = format!("data:{media_type};base64,{data}");
            json!({ "type": "image_url", "image_url": { "url": url } })
        }
    };
    content.iter().map(part).collect()
}

/// A tool as it is described to models.
pub(super) fn tool(tool: &ToolSpec) -> Value {
    json!({ "type": "function", "function": tool })
}

/// A response of the model, as servers of models send it. Fields that do not matter here are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SentMessage {
    content: Option<SentContent>,
    #[serde(alias = "reasoning")]
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<SentCall>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SentContent {
    Text(String),
    Parts(Vec<SentPart>),
}

#[derive(Debug, Deserialize)]
struct SentPart {
    text: String,
}

/// A tool call of a response.
#[derive(Debug, Deserialize)]
pub(super) struct SentCall {
    id: Option<String>,
    function: SentFunction,
}

#[derive(Debug, Deserialize)]
struct SentFunction {
    name: String,
    /// JSON in a string, as OpenAI has it, or an object.
    #[serde(default)]
    arguments: Value,
}

impl SentMessage {
    /// A message of text alone.
    pub(super) fn text(text: String) -> Self {
        Self { content: Some(SentContent::Text(text)), ..Self::default() }
    }

    /// A message with these calls.
    pub(super) fn calls(calls: Vec<SentCall>) -> Self {
        Self { tool_calls: Some(calls), ..Self::default() }
    }

    /// The response.
    pub(super) fn into_given(self, cut_off: bool, tokens: Option<(u64, u64)>) -> Given {
        let text = match self.content {
            None => String::new(),
            Some(SentContent::Text(text)) => text,
            Some(SentContent::Parts(parts)) => {
                parts.into_iter().map(|part| part.text).collect::<Vec<_>>().join("\n")
            }
        };
        let calls = self.tool_calls.unwrap_or_default().into_iter();
        Given {
            text,
            reasoning: self.reasoning_content.unwrap_or_default(),
            calls: calls.map(SentCall::into_given).collect(),
            cut_off,
            tokens,
        }
    }
}

impl SentCall {
    /// A call of one tool.
    pub(super) fn new(name: String, arguments: Value) -> Self {
        Self { id: None, function: SentFunction { name, arguments } }
    }

    fn into_given(self) -> GivenCall {
        let arguments = match self.function.arguments {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        GivenCall { id: self.id.unwrap_or_default(), name: self.function.name, arguments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_servers_are_read() {
        let sent = json!({
            "role": "assistant", "content": null, "refusal": null, "reasoning": "hm",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "x", "arguments": "{\"k\": 1}"}},
                {"function": {"name": "y", "arguments": {"k": 2}}},
                {"function": {"name": "z"}},
            ],
        });
        let sent: SentMessage = serde_json::from_value(sent).unwrap();
        let given = sent.into_given(false, None);
        assert_eq!((given.text.as_str(), given.reasoning.as_str()), ("", "hm"));
        let calls: Vec<_> = given.calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(calls, ["{\"k\": 1}", "{\"k\":2}", ""]);
        let parts = json!({"content": [{"type": "text", "text": "a"}, {"text": "b"}]});
        let sent: SentMessage = serde_json::from_value(parts).unwrap();
        assert_eq!(sent.into_given(true, None).text, "a\nb");
        let image = json!({"content": [{"type": "image_url", "image_url": {}}]});
        assert!(serde_json::from_value::<SentMessage>(image).is_err());
    }

    #[test]
    fn images_are_parts_and_text_is_a_string() {
        assert_eq!(message(&Message::user("a"))["content"], "a");
        let content = vec![
            Content::text("a"),
            Content::Image { media_type: "image/png".into(), data: "QQ==".into() },
        ];
        let shown = message(&Message::User { content });
        assert_eq!(shown["content"][1]["image_url"]["url"], "data:image/png;base64,QQ==");
    }
}
