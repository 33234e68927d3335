//! Refusals before a request reaches its route, in the error format of the protocol it speaks.

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
    response::IntoResponse,
};
use serde_json::json;

use crate::error::{ApiError, Code, respond};

/// The response that refuses a request to this path.
pub(crate) fn refuse(path: &str, error: ApiError) -> Response<Body> {
    let unauthenticated = error.code == Code::Unauthenticated;
    let mut response = match Wire::of(path) {
        Wire::E2b => error.into_response(),
        Wire::OpenAi => {
            let (kind, code) = match error.code {
                Code::Unauthenticated => ("authentication_error", "invalid_api_key"),
                Code::PermissionDenied => ("permission_error", "permission_denied"),
                Code::TooMany => ("rate_limit_error", "rate_limit_exceeded"),
                code => ("invalid_request_error", code.name()),
            };
            let body = json!({
                "error": { "message": error.message, "type": kind, "param": null, "code": code }
            });
            error.with_retry(respond(error.code.status(), &body))
        }
        Wire::JsonRpc => {
            let inner = json!({ "code": SERVER_ERROR, "message": error.message });
            let body = json!({ "jsonrpc": "2.0", "id": null, "error": inner });
            error.with_retry(respond(error.code.status(), &body))
        }
    };
    if unauthenticated {
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

/// The first code that JSON-RPC leaves to servers.
const SERVER_ERROR: i32 = -32000;

/// Protocols, by how they say errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    E2b,
    OpenAi,
    JsonRpc,
}

impl Wire {
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/mcp" => Self::JsonRpc,
            _ if path.starts_with("/mcp/") => Self::JsonRpc,
            _ if path.starts_with("/v1/") => Self::OpenAi,
            // Sessions answer OpenEnv's clients as they answer others.
            "/ws" | "/metadata" | "/schema" => Self::OpenAi,
            _ if path.starts_with("/openenv/") => Self::OpenAi,
            _ => Self::E2b,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn each_protocol_reads_its_own_format() {
        let cases = [
            ("/v2/sandboxes", "/message"),
            ("/v1/chat/completions", "/error/message"),
            ("/openenv/math/ws", "/error/message"),
            ("/mcp", "/error/message"),
        ];
        for (path, message) in cases {
            let mut error = ApiError::new(Code::TooMany, "over quota");
            error.retry_after = Some(Duration::from_millis(1500));
            let response = refuse(path, error);
            assert_eq!(response.status(), 429, "{path}");
            assert_eq!(response.headers()[header::RETRY_AFTER], "2", "{path}");
            let body = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body.pointer(message).unwrap(), "over quota", "{path}: {body}");
        }
    }

    #[test]
    fn a_missing_key_names_the_scheme() {
        let response = refuse("/sandboxes", ApiError::new(Code::Unauthenticated, "no"));
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }
}
