//! Parses messages, and says what is wrong with those that are none.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorCode};
use serde_json::{Value, json};
use trajectory::count_values;

/// Most bytes of one message.
pub const MAX_MESSAGE: usize = 8 << 20;
/// Most values of one message. Long texts are one value each, and 8 MiB of small values would take hundreds of megabytes.
const MAX_VALUES: usize = 100_000;

/// A message of a client, with what transports have to know about it.
#[derive(Debug)]
pub enum Incoming {
    /// A request, which is answered.
    Request(Box<ClientJsonRpcMessage>),
    /// A notification, or a response, which are not.
    Other(Box<ClientJsonRpcMessage>),
}

impl Incoming {
    fn message(&self) -> &ClientJsonRpcMessage {
        match self {
            Self::Request(message) | Self::Other(message) => message,
        }
    }

    /// Whether it is the request that opens a session.
    pub fn is_initialize(&self) -> bool {
        matches!(
            self.message(),
            ClientJsonRpcMessage::Request(request)
                if matches!(request.request, ClientRequest::InitializeRequest(_))
        )
    }

    /// The id of a request, otherwise `null`.
    pub fn id(&self) -> Value {
        match self.message() {
            ClientJsonRpcMessage::Request(request) => json!(request.id),
            _ => Value::Null,
        }
    }
}

/// Why bytes are not a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Malformed {
    /// The id of the request, `null` if it has none that can be read.
    pub id: Value,
    code: ErrorCode,
    message: String,
}

impl Malformed {
    /// A message that is longer than [`MAX_MESSAGE`].
    pub fn too_long() -> Self {
        let message = format!("a message must not be longer than {MAX_MESSAGE} bytes");
        Self { id: Value::Null, code: ErrorCode::INVALID_REQUEST, message }
    }

    /// A message that is refused for another reason.
    pub fn refused(id: Value, message: impl Into<String>) -> Self {
        Self { id, code: ErrorCode::INVALID_REQUEST, message: message.into() }
    }

    /// The JSON-RPC error.
    pub fn reply(&self) -> Value {
        let error = json!({ "code": self.code.0, "message": self.message });
        json!({ "jsonrpc": "2.0", "id": self.id, "error": error })
    }
}

/// Parses one message.
///
/// # Errors
/// If it is not JSON, has very many values, is not a JSON-RPC message, or is a batch, which the protocol does not have any more.
pub fn parse(bytes: &[u8]) -> Result<Incoming, Malformed> {
    if count_values(bytes, MAX_VALUES) > MAX_VALUES {
        let message = format!("a message must not have more than {MAX_VALUES} values");
        return Err(Malformed::refused(Value::Null, message));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| Malformed {
        id: Value::Null,
        code: ErrorCode::PARSE_ERROR,
        message: format!("the message is not JSON: {error}"),
    })?;
    let id = match value.get("id") {
        Some(id @ (Value::Number(_) | Value::String(_))) => id.clone(),
        _ => Value::Null,
    };
    if value.is_array() {
        return Err(Malformed::refused(id, "batches are not supported; send one message"));
    }
    let message = serde_json::from_value(value);
    match message {
        Ok(message @ ClientJsonRpcMessage::Request(_)) => Ok(Incoming::Request(Box::new(message))),
        Ok(message) => Ok(Incoming::Other(Box::new(message))),
        Err(_) => Err(Malformed::refused(id, "this is not a message of JSON-RPC 2.0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> (i64, Value) {
        let reply = parse(text.as_bytes()).unwrap_err().reply();
        (reply["error"]["code"].as_i64().unwrap(), reply["id"].clone())
    }

    #[test]
    fn malformed_messages_get_the_codes_of_json_rpc() {
        for text in ["", "{", "\u{0}", "{\"jsonrpc\":\"2.0\",", &"[".repeat(10_000)] {
            assert_eq!(code(text), (-32700, Value::Null), "{text}");
        }
        for text in
            ["7", "null", "\"x\"", "{}", "[]", r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#]
        {
            assert_eq!(code(text), (-32600, Value::Null), "{text}");
        }
        let values = vec!["0"; MAX_VALUES].join(",");
        let many = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":[{values}]}}"#);
        assert_eq!(code(&many), (-32600, Value::Null));
        assert_eq!(code(r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#), (-32600, json!(7)));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":"a","method":7}"#), (-32600, json!("a")));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#), (-32600, Value::Null));
    }

    #[test]
    fn requests_are_told_from_notifications() {
        let parse = |text: &str| parse(text.as_bytes()).unwrap();
        let request = parse(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        assert!(matches!(request, Incoming::Request(_)));
        for other in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
        ] {
            assert!(matches!(parse(other), Incoming::Other(_)), "{other}");
        }
    }
}
