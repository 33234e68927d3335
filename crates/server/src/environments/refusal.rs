//! Why a request to a session is refused, in OpenAI's format with a code per cause.

use std::time::Duration;

use axum::{
    body::Body,
    http::{Response, StatusCode, header},
    response::IntoResponse,
};
use environment::{Error, Snapshot};
use serde_json::{Value, json};

use crate::error::{ApiError, Code, respond};

/// A refused request.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// More about the cause, beside the message.
    more: Value,
    retry_after: Option<Duration>,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: String) -> Self {
        Self { status, code, message, more: Value::Null, retry_after: None }
    }

    /// Why a session has no first observation, if it never will.
    pub(crate) fn of_start(snapshot: &Snapshot) -> Option<Self> {
        let failure = snapshot.failure().filter(|_| snapshot.turn.is_none())?;
        let status = match failure.retry {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let message = format!("the session could not start: {}", failure.cause);
        Some(Self {
            more: json!({ "fault": failure.fault, "retry": failure.retry }),
            retry_after: failure.retry.then_some(Duration::from_secs(1)),
            ..Self::new(status, "infrastructure", message)
        })
    }

    /// The refusal as JSON.
    pub(crate) fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        let mut error = json!({
            "message": self.message, "type": kind, "param": null, "code": self.code
        });
        if let (Some(error), Value::Object(more)) = (error.as_object_mut(), &self.more) {
            error.extend(more.clone());
        }
        if let (Some(error), Some(time)) = (error.as_object_mut(), self.retry_after) {
            error.insert("retry_after".into(), json!(time.as_secs_f64()));
        }
        json!({ "error": error })
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let mut response = respond(self.status, &self.body());
        if let Some(time) = self.retry_after {
            // Whole seconds, rounded up.
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        response
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let code = match error.code {
            Code::InvalidArgument => "invalid_request",
            code => code.name(),
        };
        let retry_after = error.retry_after;
        Self { retry_after, ..Self::new(error.code.status(), code, error.message) }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let (status, code) = match &error {
            Error::UnknownTask { .. } | Error::UnknownRow { .. } | Error::UnknownSession(_) => {
                (StatusCode::NOT_FOUND, "not_found")
            }
            Error::NoTask { .. } => (StatusCode::BAD_REQUEST, "invalid_request"),
            Error::Gone(_) => (StatusCode::GONE, "gone"),
            Error::Busy { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_many_sessions"),
            Error::Starting => (StatusCode::CONFLICT, "starting"),
            Error::WrongStep { .. } => (StatusCode::CONFLICT, "wrong_step"),
            Error::Running(_) => (StatusCode::CONFLICT, "running"),
            Error::OtherMessage(_) => (StatusCode::CONFLICT, "other_message"),
            Error::Over(_) => (StatusCode::CONFLICT, "over"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let (more, retry_after) = match &error {
            Error::Gone(reason) => (json!({ "reason": reason.name() }), None),
            Error::WrongStep { next, .. } => (json!({ "next_step": next }), None),
            Error::Busy { retry_after, .. } => (Value::Null, Some(*retry_after)),
            _ => (Value::Null, None),
        };
        Self { more, retry_after, ..Self::new(status, code, error.to_string()) }
    }
}
