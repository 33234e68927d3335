//! Every way in which a server fails, seen from the other end of the connection.

use std::time::{Duration, Instant};

use lis_testkit::{Answer, Fault, MockServer, UnusedPort, bash, say};
use serde_json::json;
use tokio::net::TcpStream;

use crate::client::{ANTHROPIC, Client, End, OPENAI, Response, ask, request};

const TEXT: &str = "many small pieces of text, one after the other; ünd ein Umlaut";

/// Long enough for what would come to have come.
const QUIET: Duration = Duration::from_millis(200);

async fn only(answer: impl Into<Answer>, path: &str, stream: bool) -> Response {
    ask(&MockServer::scripted([answer]).unwrap(), path, stream).await
}

#[tokio::test]
async fn statuses_come_with_headers_and_each_vendors_error() {
    let response = only(Answer::busy(7), OPENAI, true).await;
    assert_eq!((response.status, response.header("retry-after")), (429, Some("7")));
    assert_eq!(response.json()["error"]["type"], "rate_limit_error");
    let response = only(Answer::error(401, "no such key"), ANTHROPIC, true).await;
    assert_eq!(response.status, 401);
    let error = json!({"type": "authentication_error", "message": "no such key"});
    assert_eq!(response.json(), json!({"type": "error", "error": error}));
    for status in [400, 500, 503, 529] {
        let response = only(Answer::status(status, "any words"), OPENAI, true).await;
        assert_eq!(
            (response.status, response.text(), response.end),
            (status, "any words", End::Clean)
        );
    }
    let response = only(Answer::page(502), OPENAI, true).await;
    assert_eq!((response.status, response.header("content-type")), (502, Some("text/html")));
    assert!(response.text().starts_with("<!doctype html>"));
    let response = only(Answer::events("no events at all"), OPENAI, true).await;
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(response.text(), "no events at all");
}

#[tokio::test]
async fn connections_end_before_any_header() {
    for path in [OPENAI, ANTHROPIC] {
        let response = only(Answer::close(), path, true).await;
        assert_eq!((response.head.as_str(), response.end), ("", End::Cut));
        let response = only(Answer::reset(), path, true).await;
        assert_eq!((response.head.as_str(), response.end), ("", End::Reset));
    }
}

#[tokio::test]
async fn nobody_refuses_connections() {
    let nobody = UnusedPort::new().unwrap();
    let url = nobody.base_url().unwrap();
    let address = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/v1")).unwrap();
    let error = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn streams_are_cut_between_events() {
    for path in [OPENAI, ANTHROPIC] {
        let response = only(say(TEXT).fault(Fault::CutAfter(3)), path, true).await;
        assert_eq!((response.status, response.end), (200, End::Cut));
        assert_eq!(response.events().len(), 3);
        assert!(response.text().ends_with("\n\n"));
    }
    let response = only(say(TEXT).fault(Fault::CutAfter(3)), OPENAI, false).await;
    assert_eq!(response.end, End::Cut);
    assert!(!response.body.is_empty());
}

#[tokio::test]
async fn streams_are_cut_inside_a_character_or_the_json() {
    for path in [OPENAI, ANTHROPIC] {
        let response = only(say(TEXT).fault(Fault::CutInChar), path, true).await;
        assert_eq!(response.end, End::Cut);
        let broken = std::str::from_utf8(&response.body).unwrap_err();
        assert_eq!(broken.valid_up_to() + 1, response.body.len());
        assert_eq!(broken.error_len(), None, "the character only lacks its end");

        let response = only(say(TEXT).fault(Fault::CutInJson(3)), path, true).await;
        assert_eq!(response.end, End::Cut);
        assert_eq!(response.events().len(), 3);
        let last = response.text().rsplit("data: ").next().unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(last).unwrap_err().is_eof());
    }
}

#[tokio::test]
async fn streams_end_early_though_the_connection_is_sound() {
    let server = MockServer::start().unwrap();
    server.push(say(TEXT).fault(Fault::EndAfter(3)));
    server.push(say("again"));
    let mut client = Client::open(server.address()).await;
    client.post(OPENAI, &request(true)).await;
    let response = client.response(QUIET * 50).await;
    assert_eq!((response.end, response.events().len()), (End::Clean, 3));
    client.post(OPENAI, &request(true)).await;
    let response = client.response(QUIET * 50).await;
    assert_eq!(response.joined("/choices/0/delta/content"), "again");
}

#[tokio::test]
async fn servers_fall_silent_until_the_client_leaves() {
    let answers = [
        (Answer::hang(), 0, 0),
        (say(TEXT).fault(Fault::SilentAfter(0)), 200, 0),
        (say(TEXT).fault(Fault::SilentAfter(2)), 200, 2),
    ];
    for (answer, status, events) in answers {
        let server = MockServer::scripted([answer]).unwrap();
        let mut client = Client::open(server.address()).await;
        client.post(OPENAI, &request(true)).await;
        server.requests_reach(1).await.unwrap();
        if status != 0 {
            // What comes at all comes at once, on a busy machine only later.
            client.taste(1).await;
        }
        let response = client.response(QUIET).await;
        assert_eq!((response.status, response.end), (status, End::Silent));
        assert_eq!(response.events().len(), events);
        assert_eq!(server.open(), 1);
        drop(client);
        assert!(server.is_idle_soon().await);
    }
}

#[tokio::test]
async fn events_are_malformed_or_report_an_error() {
    let response = only(say(TEXT).fault(Fault::Malformed(2)), OPENAI, true).await;
    assert_eq!(response.end, End::Clean);
    let data: Vec<_> =
        response.text().lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(response.events().len(), data.len() - 2, "all but the broken one and the end");
    assert!(serde_json::from_str::<serde_json::Value>(data[2]).is_err());

    let fault = Fault::ErrorEvent(2, "overloaded".into());
    let response = only(say(TEXT).fault(fault.clone()), OPENAI, true).await;
    assert_eq!((response.end, response.events().len()), (End::Clean, 3));
    assert_eq!(response.events()[2]["error"]["message"], "overloaded");
    let response = only(say(TEXT).fault(fault), ANTHROPIC, true).await;
    assert!(response.text().contains("event: error\n"));
    assert_eq!(response.events()[2]["error"]["type"], "overloaded_error");
}

#[tokio::test]
async fn calls_are_cut_off_or_no_json() {
    let half = r#"{"command": "rm -rf /tmp/x"#;
    let response = only(Answer::cut_call("execute_bash", half), OPENAI, true).await;
    assert_eq!(response.joined("/choices/0/finish_reason"), "length");
    assert_eq!(response.joined("/choices/0/delta/tool_calls/0/function/arguments"), half);
    let response = only(Answer::cut_call("execute_bash", half), ANTHROPIC, true).await;
    assert_eq!(response.joined("/delta/stop_reason"), "max_tokens");
    assert_eq!(response.joined("/delta/partial_json"), half);
}

#[tokio::test]
async fn replies_are_slow_as_a_whole_or_piece_by_piece() {
    let began = Instant::now();
    let response = only(bash("ls").after(Duration::from_millis(60)), OPENAI, true).await;
    assert_eq!(response.end, End::Clean);
    assert!(began.elapsed() >= Duration::from_millis(60));

    let began = Instant::now();
    let response = only(say(TEXT).every(Duration::from_millis(10)), ANTHROPIC, true).await;
    assert_eq!(response.joined("/delta/text"), TEXT);
    let least = Duration::from_millis(10) * u32::try_from(response.events().len()).unwrap();
    assert!(began.elapsed() >= least, "{:?} < {least:?}", began.elapsed());
}

#[tokio::test]
async fn a_client_that_leaves_a_slow_response_is_noticed() {
    let server = MockServer::start().unwrap();
    server.push(say(TEXT).after(Duration::from_secs(600)));
    server.push(say(TEXT).every(Duration::from_secs(600)));
    for came in [1, 2] {
        let mut client = Client::open(server.address()).await;
        client.post(OPENAI, &request(true)).await;
        server.requests_reach(came).await.unwrap();
        assert_eq!(server.open(), 1);
        drop(client);
        assert!(server.is_idle_soon().await);
    }
}

#[tokio::test]
async fn bytes_come_in_any_portions() {
    for path in [OPENAI, ANTHROPIC] {
        let response = only(Answer::says(say(TEXT)).split(1), path, true).await;
        assert_eq!(response.end, End::Clean);
        let whole = only(say(TEXT), path, true).await;
        assert_eq!(response.text(), whole.text());
    }
}

#[tokio::test]
async fn replies_are_huge_or_never_end() {
    let huge = "x".repeat(8 << 20);
    let response = only(say(huge.clone()), OPENAI, true).await;
    assert_eq!(
        (response.end, response.joined("/choices/0/delta/content") == huge),
        (End::Clean, true)
    );

    let response = only(Answer::long_line(3 << 20), OPENAI, true).await;
    assert_eq!(response.end, End::Clean);
    assert!(response.body.len() > 3 << 20 && !response.body.contains(&b'\n'));

    let server = MockServer::scripted([say("again ").fault(Fault::Endless)]).unwrap();
    let mut client = Client::open(server.address()).await;
    client.post(ANTHROPIC, &request(true)).await;
    let tasted = String::from_utf8(client.taste(1 << 20).await).unwrap();
    assert!(tasted.matches("again ").count() > 1000);
    assert!(!tasted.contains("message_stop"));
    drop(client);
    assert!(server.is_idle_soon().await);
}
