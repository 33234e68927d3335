//! The description of everything that is served, as an OpenAPI document. Each part describes its own routes; a test compares
//! the descriptions with the routes in the code and with the document that is checked in.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Map, Value, json};

use crate::{
    chat_openapi, control_openapi, environments_openapi, episodes_openapi, mcp_openapi,
    refusal::Wire, sandbox_openapi,
};

/// What one part of the server says about itself.
pub(crate) struct Part {
    pub(crate) operations: fn() -> Vec<Operation>,
    pub(crate) schemas: fn() -> Vec<(&'static str, Value)>,
}

/// All parts. One line each.
const PARTS: &[Part] = &[
    Part { operations: control_openapi::operations, schemas: control_openapi::schemas },
    Part { operations: sandbox_openapi::operations, schemas: sandbox_openapi::schemas },
    Part { operations: episodes_openapi::operations, schemas: episodes_openapi::schemas },
    Part { operations: chat_openapi::operations, schemas: chat_openapi::schemas },
    Part { operations: environments_openapi::operations, schemas: environments_openapi::schemas },
    Part { operations: mcp_openapi::operations, schemas: mcp_openapi::schemas },
];

/// Paths that are not described: what the server's own page asks for. It comes from the same program, so both change together.
const INTERNAL: [&str; 2] = ["/", "/page/"];

const DESCRIPTION: &str = "Sandboxes in E2B's protocol, episodes, OpenAI's protocol, environments and MCP. The paths in \
    x-internal-paths are between the server and its own page in the browser: they accept only the page's session, no key, and \
    change with the program without notice. Programs use the paths of this document instead.";

/// The document as it is served, equal to the one that is checked in.
pub(crate) static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// One method of one path.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    method: &'static str,
    path: &'static str,
    tag: &'static str,
    summary: &'static str,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: BTreeMap<u16, Value>,
    plane: Plane,
}

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plane {
    /// A route of the server.
    Control,
    /// The same without a key.
    Open,
    /// The server for the sandbox that a header or the host names.
    Sandbox,
}

/// How bodies of JSON are refused: malformed, too long, too slow.
const JSON_REFUSALS: [u16; 3] = [400, 413, 504];

/// A reference to a schema by its name.
pub(crate) fn schema_ref(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// A list of such.
pub(crate) fn list_of(name: &str) -> Value {
    json!({ "type": "array", "items": schema_ref(name) })
}

impl Operation {
    fn new(
        method: &'static str,
        path: &'static str,
        tag: &'static str,
        summary: &'static str,
    ) -> Self {
        let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let parameters = names
            .map(|name| {
                let name = name.trim_start_matches('*');
                let schema = json!({ "type": "string", "minLength": 1 });
                json!({ "name": name, "in": "path", "required": true, "schema": schema })
            })
            .collect();
        let (body, answers) = (None, BTreeMap::new());
        Self { method, path, tag, summary, parameters, body, answers, plane: Plane::Control }
    }

    pub(crate) fn get(path: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self::new("get", path, tag, summary)
    }

    pub(crate) fn post(path: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self::new("post", path, tag, summary)
    }

    pub(crate) fn put(path: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self::new("put", path, tag, summary)
    }

    pub(crate) fn delete(path: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self::new("delete", path, tag, summary)
    }

    /// Needs no key.
    pub(crate) fn open(mut self) -> Self {
        self.plane = Plane::Open;
        self
    }

    /// Is answered for one sandbox, which a header names, with the sandbox's own token.
    pub(crate) fn in_sandbox(mut self) -> Self {
        self.plane = Plane::Sandbox;
        let schema = json!({ "type": "string" });
        let about = "the sandbox; the host name `PORT-ID.` can name it as well";
        self.parameters.push(json!({
            "name": "E2b-Sandbox-Id", "in": "header", "required": true, "schema": schema,
            "description": about,
        }));
        self
    }

    /// An optional parameter of the query.
    pub(crate) fn query(mut self, name: &str, schema: Value) -> Self {
        self.parameters.push(json!({ "name": name, "in": "query", "schema": schema }));
        self
    }

    /// A parameter of the query that must be there.
    pub(crate) fn required_query(mut self, name: &str, schema: Value) -> Self {
        let parameter = json!({ "name": name, "in": "query", "required": true, "schema": schema });
        self.parameters.push(parameter);
        self
    }

    /// An optional header.
    pub(crate) fn header(mut self, name: &str, schema: Value, about: &str) -> Self {
        self.parameters.push(json!({
            "name": name, "in": "header", "schema": schema, "description": about,
        }));
        self
    }

    /// A JSON body.
    pub(crate) fn body(self, schema: Value) -> Self {
        self.body_as("application/json", schema)
    }

    /// A body of another type.
    pub(crate) fn body_as(mut self, kind: &str, schema: Value) -> Self {
        let body = self.body.get_or_insert_with(|| json!({ "required": true, "content": {} }));
        body["content"][kind] = json!({ "schema": schema });
        self
    }

    /// An answer with JSON.
    pub(crate) fn answer(self, status: u16, about: &str, schema: Value) -> Self {
        self.answer_as(status, about, "application/json", schema)
    }

    /// An answer of another type, perhaps besides one of the same status.
    pub(crate) fn answer_as(mut self, status: u16, about: &str, kind: &str, schema: Value) -> Self {
        let answer = self.answers.entry(status).or_insert_with(|| json!({ "description": about }));
        answer["content"][kind] = json!({ "schema": schema });
        self
    }

    /// An answer that is a stream of events, perhaps besides one of the same status.
    pub(crate) fn events(self, about: &str) -> Self {
        self.answer_as(200, about, "text/event-stream", schema_ref("StreamEvent"))
    }

    /// An answer without content.
    pub(crate) fn empty(mut self, status: u16, about: &str) -> Self {
        self.answers.insert(status, json!({ "description": about }));
        self
    }

    /// Errors, in the format of the protocol that the path belongs to.
    pub(crate) fn refuses(mut self, statuses: &[u16]) -> Self {
        let name = match self.path {
            path if path.starts_with("/process.") || path.starts_with("/filesystem.") => {
                "ConnectError"
            }
            path => match Wire::of(path) {
                Wire::OpenAi => "OpenAiError",
                Wire::JsonRpc => "JsonRpcError",
                Wire::E2b => "Error",
            },
        };
        for status in statuses {
            let about = axum::http::StatusCode::from_u16(*status).ok();
            let about = about.and_then(|status| status.canonical_reason()).unwrap_or("Error");
            let about = about.to_ascii_lowercase();
            self = self.answer(*status, &about, schema_ref(name));
        }
        self
    }

    /// What every request may be answered with.
    fn with_common_answers(self) -> Self {
        let reads_json = |body: &Value| !body["content"]["application/json"].is_null();
        let operation = match self.body.as_ref().is_some_and(reads_json) {
            true => self.refuses(&JSON_REFUSALS),
            false => self,
        };
        operation.with_answers_of_plane()
    }

    fn with_answers_of_plane(self) -> Self {
        match self.plane {
            Plane::Open => self,
            Plane::Control => self.refuses(&[401, 403, 429]),
            Plane::Sandbox => self.refuses(&[401, 403, 429, 501, 502]),
        }
    }

    fn described(&self) -> Value {
        let id = format!("{}{}", self.method, self.path).replace(['/', '.'], "_");
        let id: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let answers: Map<String, Value> = self
            .answers
            .iter()
            .map(|(status, about)| (status.to_string(), about.clone()))
            .collect();
        let mut value = json!({
            "operationId": id,
            "tags": [self.tag],
            "summary": self.summary,
            "responses": answers,
            "security": match self.plane {
                Plane::Control => json!([{ "ApiKey": [] }, { "Bearer": [] }]),
                Plane::Open => json!([]),
                Plane::Sandbox => json!([{ "AccessToken": [] }]),
            },
        });
        if !self.parameters.is_empty() {
            value["parameters"] = json!(self.parameters);
        }
        if let Some(body) = &self.body {
            value["requestBody"] = body.clone();
        }
        value
    }
}

/// The document, from the descriptions of all parts.
fn document() -> Value {
    let mut paths = Map::new();
    let mut schemas = common_schemas();
    for part in PARTS {
        for operation in (part.operations)() {
            let operation = operation.with_common_answers();
            // Documents have no parameters over several parts of a path.
            let path = operation.path.replace("{*", "{");
            let path = paths.entry(path).or_insert_with(|| json!({}));
            path[operation.method] = operation.described();
        }
        schemas.extend((part.schemas)().into_iter().map(|(name, schema)| (name.into(), schema)));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "llm-in-sandbox serve",
            "description": DESCRIPTION,
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "x-internal-paths": INTERNAL,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "ApiKey": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
                "Bearer": { "type": "http", "scheme": "bearer" },
                "AccessToken": { "type": "apiKey", "in": "header", "name": "X-Access-Token" },
            },
        },
    })
}

fn common_schemas() -> Map<String, Value> {
    let text = json!({ "type": "string" });
    let error = json!({
        "type": "object", "required": ["code", "message"],
        "properties": { "code": { "type": "integer" }, "message": text, "error_code": text },
    });
    let connect = json!({
        "type": "object", "required": ["code", "message"],
        // A number where the request has not reached the procedure.
        "properties": { "code": { "type": ["string", "integer"] }, "message": text },
    });
    let open_ai = json!({
        "type": "object", "required": ["error"],
        "properties": { "error": {
            "type": "object", "required": ["message", "type"],
            "properties": { "message": text, "type": text },
        } },
    });
    let rpc = json!({ "type": "object", "required": ["jsonrpc"] });
    let event = json!({
        "type": "object", "description": "one server-sent event of the stream",
        "properties": { "id": text, "event": text, "data": text },
    });
    let all = [
        ("Error", error),
        ("ConnectError", connect),
        ("OpenAiError", open_ai),
        ("JsonRpcError", rpc),
        ("StreamEvent", event),
    ];
    all.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
