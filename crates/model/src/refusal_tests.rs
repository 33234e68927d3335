//! Refusals of servers and proxies, and what becomes of them.

use lis_http::header::HeaderValue;
use serde_json::json;

use super::*;
use crate::{Overflow, Secret};

fn endpoint() -> Endpoint {
    Endpoint { api_key: Some(Secret::new("sk-123456")), ..Endpoint::new("m", "http://x/v1") }
}

fn error(status: u16, body: &str) -> Error {
    let failure = Refusal {
        status,
        body: body.into(),
        path: "/v1/chat/completions".into(),
        ..Refusal::default()
    };
    failure.error(&endpoint())
}

#[test]
fn statuses_become_what_the_caller_can_act_on() {
    for status in [401, 403] {
        assert!(matches!(error(status, "{}"), Error::Key { .. }));
    }
    let refusal = Refusal { status: 401, body: "{}".into(), ..Refusal::default() };
    let keyless = Endpoint::new("m", "http://x/v1");
    let text = refusal.error(&keyless).to_string();
    assert!(text.starts_with("the server requires a key, and none was sent (401)"), "{text}");
    let headers = vec![("X-Api-Key".into(), Secret::new("k"))];
    let header = Endpoint { headers, ..keyless };
    assert!(matches!(refusal.error(&header), Error::Key { .. }));
    for status in [408, 409, 425, 429, 500, 502, 503, 504, 529] {
        assert!(matches!(error(status, "busy"), Error::Busy { .. }), "{status}");
    }
    for status in [400, 402, 404, 413, 422, 501] {
        assert!(matches!(error(status, "no"), Error::Refused { .. }), "{status}");
    }
    assert!(matches!(error(302, ""), Error::Settings(_)));
    for quota in [
        r#"{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}"#,
        r#"{"error":{"message":"No money","type":"insufficient_quota","code":null}}"#,
    ] {
        assert!(matches!(error(429, quota), Error::Refused { .. }));
        let in_stream = Refusal::in_stream(&serde_json::from_str(quota).unwrap());
        assert!(matches!(in_stream.error(&endpoint()), Error::Refused { .. }));
    }
    let long = r#"{"error":{"message":"prompt is too long: 7 tokens > 5 maximum"}}"#;
    let expected = Overflow { context: Some(5), prompt: Some(7), output: None };
    assert!(matches!(error(400, long), Error::Overflow { numbers, .. } if numbers == expected));
}

#[test]
fn the_message_is_found_wherever_it_is() {
    let cases = [
        (r#"{"error":{"message":"one"}}"#, "one"),
        (r#"{"error":"two"}"#, "two"),
        (r#"{"detail":"three"}"#, "three"),
        (r#"{"detail":[{"loc":["body","top_k"],"msg":"no"}]}"#, "body.top_k: no"),
        (r#"{"object":"error","message":"four","code":400}"#, "four"),
        (r#"[{"error":{"message":"five"}}]"#, "five"),
        (r#"{"error":{"message":"six","metadata":{"raw":"because"}}}"#, "six: because"),
        ("seven\r\n  eight\u{1b}[31m", "seven eight [31m"),
        ("", "it gives no reason"),
        ("{\"error\":null}", "{\"error\":null}"),
    ];
    for (body, expected) in cases {
        let Error::Refused { message, .. } = error(400, body) else { panic!("{body}") };
        assert_eq!(message, expected);
    }
    let Error::Refused { message, .. } = error(404, "Not Found") else { panic!() };
    assert!(message.starts_with("Not Found (asked for /v1/chat/completions; is "), "{message}");
}

#[test]
fn secrets_are_hidden_and_length_is_bounded() {
    let body = json!({"error": {"message": format!("bad key sk-123456 {}", "x ".repeat(9000))}});
    let Error::Key { message, .. } = error(401, &body.to_string()) else { panic!() };
    assert!(message.starts_with("bad key [hidden] x x"));
    assert_eq!(message.chars().count(), MAX_MESSAGE + 1);
    // A secret that would be cut in two is hidden before the cut.
    let body = format!("{}sk-123456", "y".repeat(MAX_MESSAGE - 4));
    assert!(!error(400, &body).to_string().contains("sk-1"));
}

#[test]
fn retry_after_is_read_in_every_form() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let read = |name: &'static str, text: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(text).unwrap());
        Refusal::retry_after(&headers, now)
    };
    assert_eq!(read("retry-after", "7"), Some(Duration::from_secs(7)));
    assert_eq!(read("retry-after", "0.5"), Some(Duration::from_millis(500)));
    assert_eq!(read("retry-after-ms", "250"), Some(Duration::from_millis(250)));
    let date = "Sun, 06 Nov 1994 08:50:07 GMT";
    assert_eq!(read("retry-after", date), Some(Duration::from_secs(30)));
    assert_eq!(read("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
    for bad in ["-1", "soon", "NaN", "inf", "1e300", ""] {
        assert_eq!(read("retry-after", bad), None, "{bad}");
    }
}

#[test]
fn errors_in_a_stream_get_the_status_that_fits() {
    let cases = [
        (json!({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}), 529),
        (json!({"error": {"message": "x", "code": 400, "type": "BadRequestError"}}), 400),
        (json!({"object": "error", "message": "x", "code": 503}), 503),
        (json!({"error": {"code": "429", "message": "x"}}), 429),
        (json!({"error": {"type": "invalid_request_error"}}), 400),
        (json!({"error": {"code": 7}}), 500),
        (json!({"error": "boom"}), 500),
    ];
    for (event, status) in cases {
        assert_eq!(Refusal::in_stream(&event).status, status, "{event}");
    }
}
