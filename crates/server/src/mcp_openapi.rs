//! Describes `/mcp`: the Model Context Protocol over streamable HTTP.

use serde_json::{Value, json};

use crate::openapi::{Operation, schema_ref};

/// The routes.
pub(crate) fn operations() -> Vec<Operation> {
    let (tag, path) = ("mcp", "/mcp");
    let text = || json!({ "type": "string" });
    let in_session =
        |operation: Operation, about: &str| operation.header("Mcp-Session-Id", text(), about);
    let versioned = |operation: Operation| {
        let about = "a version of the protocol that the server has";
        operation.header("MCP-Protocol-Version", text(), about)
    };
    let message = Operation::post(path, tag, "Send a message of a session, or open one")
        .body(schema_ref("JsonRpcMessage"))
        .answer(200, "the answer, as JSON or at the end of a stream", schema_ref("JsonRpcMessage"))
        .events("")
        .empty(202, "the message needs no answer")
        .refuses(&[404, 406]);
    let stream = Operation::get(path, tag, "Wait for messages that belong to no request")
        .events("a stream, until the session ends")
        .refuses(&[400, 404, 406, 409]);
    let end = Operation::delete(path, tag, "End a session with its sandbox")
        .empty(204, "it has ended")
        .refuses(&[400, 404]);
    let needed = "the session, as the answer to `initialize` names it";
    vec![
        versioned(in_session(message, "the session; absent in `initialize`, which opens one")),
        versioned(in_session(stream, needed)),
        in_session(end, needed),
    ]
}

/// The messages.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let message = json!({
        "type": "object", "required": ["jsonrpc"],
        "properties": {
            "jsonrpc": { "const": "2.0" }, "id": { "type": ["string", "integer", "null"] },
            "method": { "type": "string" }, "params": { "type": "object" }, "result": {},
            "error": { "type": "object" },
        },
    });
    vec![("JsonRpcMessage", message)]
}
