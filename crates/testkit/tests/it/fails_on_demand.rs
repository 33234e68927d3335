//! Every way in which a server fails, seen from the other end of the connection.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{Answer, Fault, MockServer, Nobody, bash, say};
use tokio::net::TcpStream;

use crate::client::{ANTHROPIC, Client, End, OPENAI, Reply, ask, request};

const TEXT: &str = "many small pieces of text, one after the other; ünd ein Umlaut";

/// Long enough for what would come to have come.
const QUIET: Duration = Duration::from_millis(200);

async fn only(answer: impl Into<Answer>, path: &str, stream: bool) -> Reply {
    ask(&MockServer::scripted([answer]).unwrap(), path, stream).await
}

#[tokio::test]
async fn statuses_come_with_headers_and_each_vendors_error() {
    let reply = only(Answer::busy(7), OPENAI, true).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("7")));
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    let reply = only(Answer::error(401, "no such key"), ANTHROPIC, true).await;
    assert_eq!(reply.status, 401);
    let error = json!({"type": "authentication_error", "message": "no such key"});
    assert_eq!(reply.json(), json!({"type": "error", "error": error}));
    for status in [400, 500, 503, 529] {
        let reply = only(Answer::status(status, "any words"), OPENAI, true).await;
        assert_eq!((reply.status, reply.text(), reply.end), (status, "any words", End::Clean));
    }
    let reply = only(Answer::page(502), OPENAI, true).await;
    assert_eq!((reply.status, reply.header("content-type")), (502, Some("text/html")));
    assert!(reply.text().starts_with("<!doctype html>"));
    let reply = only(Answer::events("no events at all"), OPENAI, true).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(reply.text(), "no events at all");
}

#[tokio::test]
async fn connections_end_before_any_header() {
    for path in [OPENAI, ANTHROPIC] {
        let reply = only(Answer::close(), path, true).await;
        assert_eq!((reply.head.as_str(), reply.end), ("", End::Cut));
        let reply = only(Answer::reset(), path, true).await;
        assert_eq!((reply.head.as_str(), reply.end), ("", End::Reset));
    }
}

#[tokio::test]
async fn nobody_refuses_connections() {
    let nobody = Nobody::new().unwrap();
    let url = nobody.base_url().unwrap();
    let address = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/v1")).unwrap();
    let error = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn streams_are_cut_between_events() {
    for path in [OPENAI, ANTHROPIC] {
        let reply = only(say(TEXT).fault(Fault::CutAfter(3)), path, true).await;
        assert_eq!((reply.status, reply.end), (200, End::Cut));
        assert_eq!(reply.events().len(), 3);
        assert!(reply.text().ends_with("\n\n"));
    }
    let reply = only(say(TEXT).fault(Fault::CutAfter(3)), OPENAI, false).await;
    assert_eq!(reply.end, End::Cut);
    assert!(!reply.body.is_empty());
}

#[tokio::test]
async fn streams_are_cut_inside_a_character_or_the_json() {
    for path in [OPENAI, ANTHROPIC] {
        let reply = only(say(TEXT).fault(Fault::CutInChar), path, true).await;
        assert_eq!(reply.end, End::Cut);
        let broken = std::str::from_utf8(&reply.body).unwrap_err();
        assert_eq!(broken.valid_up_to() + 1, reply.body.len());
        assert_eq!(broken.error_len(), None, "the character only lacks its end");

        let reply = only(say(TEXT).fault(Fault::CutInJson(3)), path, true).await;
        assert_eq!(reply.end, End::Cut);
        assert_eq!(reply.events().len(), 3);
        let last = reply.text().rsplit("data: ").next().unwrap();
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
    let reply = client.reply(QUIET * 50).await;
    assert_eq!((reply.end, reply.events().len()), (End::Clean, 3));
    client.post(OPENAI, &request(true)).await;
    let reply = client.reply(QUIET * 50).await;
    assert_eq!(reply.joined("/choices/0/delta/content"), "again");
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
        let reply = client.reply(QUIET).await;
        assert_eq!((reply.status, reply.end), (status, End::Silent));
        assert_eq!(reply.events().len(), events);
        assert_eq!(server.open(), 1);
        drop(client);
        assert!(server.is_idle_soon().await);
    }
}

#[tokio::test]
async fn events_are_malformed_or_report_an_error() {
    let reply = only(say(TEXT).fault(Fault::Malformed(2)), OPENAI, true).await;
    assert_eq!(reply.end, End::Clean);
    let data: Vec<_> =
        reply.text().lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(reply.events().len(), data.len() - 2, "all but the broken one and the end");
    assert!(serde_json::from_str::<serde_json::Value>(data[2]).is_err());

    let fault = Fault::ErrorEvent(2, "overloaded".into());
    let reply = only(say(TEXT).fault(fault.clone()), OPENAI, true).await;
    assert_eq!((reply.end, reply.events().len()), (End::Clean, 3));
    assert_eq!(reply.events()[2]["error"]["message"], "overloaded");
    let reply = only(say(TEXT).fault(fault), ANTHROPIC, true).await;
    assert!(reply.text().contains("event: error\n"));
    assert_eq!(reply.events()[2]["error"]["type"], "overloaded_error");
}

#[tokio::test]
async fn calls_are_cut_off_or_no_json() {
    let half = r#"{"command": "rm -rf /tmp/x"#;
    let reply = only(Answer::cut_call("execute_bash", half), OPENAI, true).await;
    assert_eq!(reply.joined("/choices/0/finish_reason"), "length");
    assert_eq!(reply.joined("/choices/0/delta/tool_calls/0/function/arguments"), half);
    let reply = only(Answer::cut_call("execute_bash", half), ANTHROPIC, true).await;
    assert_eq!(reply.joined("/delta/stop_reason"), "max_tokens");
    assert_eq!(reply.joined("/delta/partial_json"), half);
}

#[tokio::test]
async fn replies_are_slow_as_a_whole_or_piece_by_piece() {
    let began = Instant::now();
    let reply = only(bash("ls").after(Duration::from_millis(60)), OPENAI, true).await;
    assert_eq!(reply.end, End::Clean);
    assert!(began.elapsed() >= Duration::from_millis(60));

    let began = Instant::now();
    let reply = only(say(TEXT).every(Duration::from_millis(10)), ANTHROPIC, true).await;
    assert_eq!(reply.joined("/delta/text"), TEXT);
    let least = Duration::from_millis(10) * u32::try_from(reply.events().len()).unwrap();
    assert!(began.elapsed() >= least, "{:?} < {least:?}", began.elapsed());
}

#[tokio::test]
async fn a_client_that_leaves_a_slow_reply_is_noticed() {
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
        let reply = only(Answer::says(say(TEXT)).split(1), path, true).await;
        assert_eq!(reply.end, End::Clean);
        let whole = only(say(TEXT), path, true).await;
        assert_eq!(reply.text(), whole.text());
    }
}

#[tokio::test]
async fn replies_are_huge_or_never_end() {
    let huge = "x".repeat(8 << 20);
    let reply = only(say(huge.clone()), OPENAI, true).await;
    assert_eq!((reply.end, reply.joined("/choices/0/delta/content") == huge), (End::Clean, true));

    let reply = only(Answer::long_line(3 << 20), OPENAI, true).await;
    assert_eq!(reply.end, End::Clean);
    assert!(reply.body.len() > 3 << 20 && !reply.body.contains(&b'\n'));

    let server = MockServer::scripted([say("again ").fault(Fault::Endless)]).unwrap();
    let mut client = Client::open(server.address()).await;
    client.post(ANTHROPIC, &request(true)).await;
    let tasted = String::from_utf8(client.taste(1 << 20).await).unwrap();
    assert!(tasted.matches("again ").count() > 1000);
    assert!(!tasted.contains("message_stop"));
    drop(client);
    assert!(server.is_idle_soon().await);
}
