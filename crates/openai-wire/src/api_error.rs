//! Errors in OpenAI's format, and the conversion of a model's errors to them.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use http_server::{BodyError, Refusal};
use model::{Error, Overflow};
use serde_json::{Value, json};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    code: Option<&'static str>,
    param: Option<String>,
    message: String,
    retry_after: Option<Duration>,
}

/// Maximum characters of a message.
const MAX_MESSAGE: usize = 1000;

/// The retry delay where the model's server gives none.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

impl ApiError {
    /// An error with this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = shortened(message.into());
        Self { status, code: None, param: None, message, retry_after: None }
    }

    /// The body as a whole is invalid.
    pub fn request(why: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, format!("the body {why}"))
    }

    /// A field of the body is invalid.
    pub fn field(name: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let name = shortened(name.into());
        let message = format!("{name}: {why}");
        Self { param: Some(name), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// The server is overloaded.
    pub fn busy(message: &str) -> Self {
        let failure = Self::new(StatusCode::SERVICE_UNAVAILABLE, message);
        Self { retry_after: Some(DEFAULT_RETRY_AFTER), ..failure.code("server_busy") }
    }

    /// The same error with another status.
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same error with a code, which programs read.
    #[must_use]
    pub fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The same error for a client that may try again after this time.
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// The same error of another field.
    #[must_use]
    pub fn param(self, name: &str) -> Self {
        Self { param: Some(name.to_owned()), ..self }
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error object of a response or a stream.
    pub fn json(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        }})
    }

    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.json().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let failure = Self::new(refusal.status(), refusal.to_string());
        match refusal {
            Refusal::NoKey | Refusal::WrongKey => failure.code("invalid_api_key"),
            Refusal::ForeignHost | Refusal::WebPage => failure,
        }
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::OutOfMemory => Self::busy(&error.to_string()),
            error => Self::new(error.status(), error.to_string()),
        }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let text = error.chain();
        match error {
            Error::Overflow { numbers, message } => overflow(numbers, &message),
            Error::Refused { status, message } => {
                let status = StatusCode::from_u16(status)
                    .ok()
                    .filter(|status| status.is_client_error() || status.is_server_error());
                Self::new(status.unwrap_or(StatusCode::BAD_REQUEST), message)
            }
            Error::InvalidHistory(_) => Self::new(StatusCode::BAD_REQUEST, text),
            Error::Busy { status, message, retry_after } => {
                let limited = status == StatusCode::TOO_MANY_REQUESTS.as_u16();
                let status = match limited {
                    true => StatusCode::TOO_MANY_REQUESTS,
                    false => StatusCode::SERVICE_UNAVAILABLE,
                };
                Self {
                    retry_after: Some(retry_after.unwrap_or(DEFAULT_RETRY_AFTER)),
                    ..Self::new(status, message)
                }
            }
            Error::GaveUp { attempts, last } => {
                let failure = Self::from(*last);
                let message = format!("{} ({attempts} attempts)", failure.message);
                Self { message, ..failure }
            }
            Error::Silence(_) => Self::new(StatusCode::GATEWAY_TIMEOUT, text),
            // The key the model's server refuses is ours, not the client's: not a 401.
            Error::Unreachable { .. }
            | Error::Key { .. }
            | Error::NoKey { .. }
            | Error::Protocol(_) => Self::new(StatusCode::BAD_GATEWAY, text),
            Error::Settings(_) | Error::Cut(_) | Error::Cache { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    }
}

/// In wording that clients parse for the numbers, so that they can shorten the conversation.
fn overflow(numbers: Overflow, message: &str) -> ApiError {
    let text = match (numbers.context, numbers.prompt) {
        (Some(context), Some(prompt)) => format!(
            "the model's maximum context length is {context} tokens and your request has {prompt} \
             input tokens; make the messages shorter"
        ),
        (Some(context), None) => format!(
            "the model's maximum context length is {context} tokens; make the messages shorter \
             ({message})"
        ),
        _ => format!("the messages do not fit into the model: {message}"),
    };
    let failure = ApiError::new(StatusCode::BAD_REQUEST, text).code("context_length_exceeded");
    ApiError { param: Some("messages".into()), ..failure }
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(error: Error) -> (u16, Value) {
        let failure = ApiError::from(error);
        (failure.status.as_u16(), failure.json()["error"].clone())
    }

    #[test]
    fn an_overflow_contains_its_numbers() {
        let numbers = Overflow { context: Some(4096), prompt: Some(5000), output: None };
        let (status, told) = told(Error::Overflow { numbers, message: "too long".into() });
        assert_eq!((status, &told["code"]), (400, &json!("context_length_exceeded")));
        let message = told["message"].as_str().unwrap();
        assert!(message.contains("4096") && message.contains("5000"), "{message}");
    }

    #[test]
    fn failures_of_models_get_a_status_that_fits() {
        let busy = |status| Error::Busy { status, message: "later".into(), retry_after: None };
        let refused = |status| Error::Refused { status, message: "no".into() };
        let last = Box::new(busy(429));
        for (error, status) in [
            (busy(429), 429),
            (busy(529), 503),
            (refused(422), 422),
            (refused(200), 400),
            (Error::Key { status: 401, message: "who?".into() }, 502),
            (Error::NoKey { status: 401, message: "who?".into() }, 502),
            (Error::Silence(Duration::from_secs(1)), 504),
            (Error::Cut("gone".into()), 500),
            (Error::GaveUp { attempts: 3, last }, 429),
        ] {
            let shown = format!("{error:?}");
            assert_eq!(told(error).0, status, "{shown}");
        }
    }

    #[test]
    fn messages_are_bounded() {
        let failure = ApiError::field("é".repeat(1 << 16), "is long");
        assert!(failure.json().to_string().len() < 8 * MAX_MESSAGE);
    }
}
