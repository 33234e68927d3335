//! Errors in the formats of the protocol: a status with a JSON body, and the codes of the Connect protocol.

use std::{io, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use bytes::Bytes;
use http_server::{BodyError, MemoryPermit};
use sandbox::Error as SandboxError;
use serde_json::json;

use crate::quota::OverQuota;

/// An error of a request, for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// When to try again, where time helps.
    pub(crate) retry_after: Option<Duration>,
    /// Clients should not send the request again by themselves: only its sender can free what is missing.
    pub(crate) is_final: bool,
}

/// Kinds of error, with their names in the Connect protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    WrongMethod,
    AlreadyExists,
    Conflict,
    /// Another request has the same idempotency key.
    OtherRequest,
    TooLarge,
    TooMany,
    NotAcceptable,
    Unsupported,
    /// The sandbox is gone or paused.
    SandboxGone,
    DeadlineExceeded,
    DiskFull,
    Internal,
}

impl Code {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::AlreadyExists | Self::Conflict => StatusCode::CONFLICT,
            Self::OtherRequest => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Self::SandboxGone => StatusCode::BAD_GATEWAY,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The name in the Connect protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument | Self::NotAcceptable => "invalid_argument",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::Conflict | Self::OtherRequest => "failed_precondition",
            Self::TooLarge | Self::TooMany | Self::DiskFull => "resource_exhausted",
            Self::Unsupported | Self::WrongMethod => "unimplemented",
            Self::SandboxGone => "unavailable",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Internal => "internal",
        }
    }

    /// The `error_code` of E2B's API, for errors that have one.
    fn e2b_name(self) -> Option<&'static str> {
        match self {
            Self::OtherRequest => Some("idempotency_request_mismatch"),
            Self::Internal => Some("internal_server_error"),
            _ => None,
        }
    }
}

/// Tells E2B's clients whether to send a request again; without it they decide by the status.
const SHOULD_RETRY: &str = "should-retry";

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let retry_after = (code == Code::TooMany).then_some(Duration::from_secs(1));
        Self { code, message: message.into(), retry_after, is_final: false }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub(crate) fn wrong_method(method: &axum::http::Method, path: &str) -> Self {
        Self::new(Code::WrongMethod, format!("{path} does not support {method}"))
    }

    /// The body of a Connect error.
    pub(crate) fn connect_body(&self) -> serde_json::Value {
        json!({ "code": self.code.name(), "message": self.message })
    }

    /// The response of a unary Connect procedure.
    pub(crate) fn into_connect_response(self) -> Response<Body> {
        let response = respond(self.code.status(), &self.connect_body());
        self.with_retry(response)
    }

    /// With the headers that say whether and when to try again.
    pub(crate) fn with_retry(&self, mut response: Response<Body>) -> Response<Body> {
        if self.is_final {
            response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if let Some(time) = self.retry_after {
            // Whole seconds, rounded up: a client that waits them is let in.
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let status = self.code.status();
        let mut body = json!({ "code": status.as_u16(), "message": self.message });
        if let Some(name) = self.code.e2b_name() {
            body["error_code"] = name.into();
        }
        self.with_retry(respond(status, &body))
    }
}

/// A JSON response.
pub(crate) fn respond(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    respond_text(status, body.to_string())
}

/// A response of JSON text.
pub(crate) fn respond_text(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A JSON response whose memory is held until it is sent.
pub(crate) fn respond_with(body: Bytes, permit: MemoryPermit) -> Response<Body> {
    const PIECE: usize = 64 << 10;
    let pieces = futures_util::stream::unfold((body, permit), |(mut rest, permit)| async move {
        let piece = rest.split_to(rest.len().min(PIECE));
        (!piece.is_empty()).then(|| (Ok::<_, io::Error>(piece), (rest, permit)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl From<SandboxError> for ApiError {
    fn from(error: SandboxError) -> Self {
        let code = match &error {
            // The machine's limit, such as that of watched directories: not a failure of this server.
            SandboxError::Path { source, .. } | SandboxError::Io { source, .. }
                if has_no_descriptors(source) =>
            {
                Code::TooMany
            }
            SandboxError::Path { source, .. } => of_path(source),
            SandboxError::Io { source, .. } if is_full(source) => Code::DiskFull,
            SandboxError::Spec(_) | SandboxError::BadRequest(_) => Code::InvalidArgument,
            SandboxError::UnknownImage { .. } => Code::NotFound,
            SandboxError::Unsupported { .. } => Code::Unsupported,
            SandboxError::Gone(_) | SandboxError::HostFull(_) | SandboxError::Stalled { .. } => {
                Code::SandboxGone
            }
            _ => Code::Internal,
        };
        if code == Code::Internal {
            tracing::error!("{}", error.chain());
        }
        Self::new(code, error.chain())
    }
}

/// The kind of error of an operation on a path.
fn of_path(source: &io::Error) -> Code {
    use io::ErrorKind;
    match source.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::PermissionDenied,
        _ if is_full(source) => Code::DiskFull,
        _ => Code::InvalidArgument,
    }
}

/// Whether a process or the machine may open no more files.
fn has_no_descriptors(source: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(source.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Whether there is no space left for what was written.
pub(crate) fn is_full(source: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl From<OverQuota> for ApiError {
    fn from(over: OverQuota) -> Self {
        let error = Self::new(Code::TooMany, over.to_string());
        let is_final = !over.passes_with_time();
        Self { retry_after: Some(over.retry_after), is_final, ..error }
    }
}

/// A task of the server panicked.
impl From<tokio::task::JoinError> for ApiError {
    fn from(_: tokio::task::JoinError) -> Self {
        Self::new(Code::Internal, "the server failed")
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::TooLong(_) => Code::TooLarge,
            BodyError::OutOfMemory => Code::TooMany,
            BodyError::TimedOut => Code::DeadlineExceeded,
            BodyError::ContentType | BodyError::CutOff => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}
