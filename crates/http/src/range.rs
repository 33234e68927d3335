//! Responses to requests for the rest of a file (`Range: bytes=N-`).

use reqwest::{
    Response, StatusCode,
    header::{CONTENT_RANGE, HeaderMap},
};

/// What a response to a request for the bytes from an offset on contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeResponse {
    /// The bytes from the offset on.
    Rest,
    /// The whole file from its start: the server ignores ranges.
    Whole,
    /// Something else that a request for the whole file may mend: another range, or a range that is refused.
    Mismatch,
    /// A refusal.
    Refused,
}

/// Classifies a response to a request for the bytes from `offset` on.
pub fn range_response(response: &Response, offset: u64) -> RangeResponse {
    classify(response.status(), response.headers(), offset)
}

fn classify(status: StatusCode, headers: &HeaderMap, offset: u64) -> RangeResponse {
    match status {
        StatusCode::OK => RangeResponse::Whole,
        StatusCode::PARTIAL_CONTENT if start(headers) == Some(offset) => RangeResponse::Rest,
        StatusCode::RANGE_NOT_SATISFIABLE => RangeResponse::Mismatch,
        status if status.is_success() => RangeResponse::Mismatch,
        _ => RangeResponse::Refused,
    }
}

fn start(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    text.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn responses_are_classified() {
        let mut headers = HeaderMap::new();
        let seen = |status: u16, headers: &HeaderMap| {
            classify(StatusCode::from_u16(status).unwrap(), headers, 10)
        };
        assert_eq!(seen(206, &headers), RangeResponse::Mismatch);
        headers.insert(CONTENT_RANGE, HeaderValue::from_static("bytes 10-19/20"));
        assert_eq!(seen(206, &headers), RangeResponse::Rest);
        headers.insert(CONTENT_RANGE, HeaderValue::from_static("bytes 9-19/20"));
        assert_eq!(seen(206, &headers), RangeResponse::Mismatch);
        assert_eq!(seen(200, &headers), RangeResponse::Whole);
        assert_eq!(seen(416, &headers), RangeResponse::Mismatch);
        assert_eq!(seen(404, &headers), RangeResponse::Refused);
        assert_eq!(seen(503, &headers), RangeResponse::Refused);
    }
}
