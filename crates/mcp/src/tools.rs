//! The tools of a session: definitions as the protocol wants them, and calls.
//!
//! Names, descriptions and parameters of the agent's tools are the agent's own.

use std::sync::Arc;

use agent::{
    Observation, ToolOutcome,
    tools::{EDIT, EXECUTE, SUBMIT, Tools},
};
use model::ToolSpec;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject, Tool, ToolAnnotations};
use sandbox::{Error, Sandbox};
use serde_json::{Value, json};
use trajectory::{Arguments, Content, ToolCall};

use crate::files;

/// The key of a result's metadata with the exit code of a command.
const EXIT_CODE: &str = "llm-in-sandbox/exit-code";
/// The key of a result's metadata that tells a failure of the infrastructure from one of the call.
const FAILURE: &str = "llm-in-sandbox/failure";
/// The result of `submit`, whose call has no observation.
const SUBMITTED: &str = "Submitted. The sandbox and its files stay until the session ends.";

/// The definitions of all tools.
pub(crate) fn list(tools: &Tools) -> Vec<Tool> {
    let own = tools.specs().into_iter().map(|spec| {
        let hints = ToolAnnotations::new().read_only(spec.name == SUBMIT).open_world(false);
        definition(spec).with_annotations(hints)
    });
    own.chain(files::list()).collect()
}

/// A definition in the protocol's form.
pub(crate) fn definition(spec: ToolSpec) -> Tool {
    Tool::new(spec.name, spec.description, object(spec.parameters))
}

/// A JSON object that is shared between lists.
pub(crate) fn object(value: Value) -> Arc<JsonObject> {
    Arc::new(match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    })
}

/// Executes a call. An error means that the sandbox failed.
pub(crate) async fn call<S: Sandbox>(
    tools: &Tools,
    tool: &str,
    arguments: JsonObject,
    number: u32,
    sandbox: &S,
) -> Result<CallToolResult, Error> {
    if !matches!(tool, EXECUTE | EDIT | SUBMIT) {
        return files::call(tool, &arguments, &tools.workdir, sandbox).await;
    }
    let arguments = Arguments::Object(arguments);
    let call = ToolCall { id: String::new(), name: tool.to_owned(), arguments };
    Ok(match tools.call(&call, number, sandbox).await? {
        ToolOutcome::Observed(observation) | ToolOutcome::Refused(observation) => {
            result(observation)
        }
        ToolOutcome::Submitted => CallToolResult::success(vec![ContentBlock::text(SUBMITTED)]),
    })
}

/// An observation as a result of the protocol.
fn result(observation: Observation) -> CallToolResult {
    let content = observation.content.into_iter().map(|content| match content {
        Content::Text { text } => ContentBlock::text(text),
        Content::Image { media_type, data } => ContentBlock::image(data, media_type),
    });
    let mut result = match observation.is_error {
        true => CallToolResult::error(content.collect()),
        false => CallToolResult::success(content.collect()),
    };
    result.meta = observation.exit_code.map(|code| meta(EXIT_CODE, json!(code)));
    result
}

/// The result of a call that could not be used.
pub(crate) fn refused(why: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why)])
}

/// The result of a call that our side failed to execute.
pub(crate) fn infrastructure_failure(text: String) -> CallToolResult {
    let mut result = refused(text);
    result.meta = Some(meta(FAILURE, json!("infrastructure")));
    result
}

fn meta(key: &str, value: Value) -> MetaObject {
    MetaObject(JsonObject::from_iter([(key.to_owned(), value)]))
}
