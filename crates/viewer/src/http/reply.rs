//! Answers and errors as JSON.

use axum::{
    body::Body,
    extract::Query,
    http::{HeaderValue, Response, StatusCode, Uri, header},
    response::IntoResponse,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{Code, ViewError};

/// An error as an answer.
#[derive(Debug)]
pub(crate) struct Refused(ViewError);

impl From<ViewError> for Refused {
    fn from(error: ViewError) -> Self {
        Self(error)
    }
}

impl From<tokio::task::JoinError> for Refused {
    fn from(error: tokio::task::JoinError) -> Self {
        tracing::error!("a request failed: {error}");
        Self(ViewError::new(Code::Internal, "the request failed; see the log"))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response<Body> {
        let ViewError { code, message } = self.0;
        let status = match code {
            Code::Invalid => StatusCode::BAD_REQUEST,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::Forbidden => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let body = json!({ "error": { "code": code.name(), "message": message } });
        json_reply(status, body.to_string().into_bytes())
    }
}

pub(crate) fn json_reply(status: StatusCode, bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The query of an address.
pub(crate) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, ViewError> {
    let parsed = Query::try_from_uri(uri);
    let Query(query) = parsed.map_err(|error| ViewError::invalid(format!("bad query: {error}")))?;
    Ok(query)
}
