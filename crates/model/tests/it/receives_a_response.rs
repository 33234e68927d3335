//! Responses are parsed in every form servers send them, and streamed to the listener.

use std::time::Duration;

use lis_model::{Endpoint, Secret};
use serde_json::json;
use testkit::{Answer, Call, MockServer, Quirk, calls, say};
use trajectory::{Arguments, Stop, Usage};

use crate::clients::{Client, KEY, Recorder, VENDORS, Vendor, ask, endpoint, told};

const TEXT: &str = "Ich zähle die Primzahlen: 素数 🦀, and then some more words.";

fn turn() -> testkit::Turn {
    let usage = Usage { input: 120, cached: 64, output: 30, reasoning: 8, ..Usage::default() };
    calls([Call::bash("echo 'größer'").id("call_x"), Call::submit().id("call_y")])
        .text(TEXT)
        .reasoning("First think.")
        .usage(usage)
}

fn is_whole(response: &lis_model::Response) {
    let message = &response.message;
    assert_eq!((message.text.as_str(), message.reasoning.as_str()), (TEXT, "First think."));
    let names: Vec<_> = message.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["execute_bash", "submit"]);
    let command = json!({"command": "echo 'größer'"});
    assert!(matches!(&message.calls[0].arguments, Arguments::Object(map) if json!(map) == command));
    assert!(matches!(&message.calls[1].arguments, Arguments::Object(map) if map.is_empty()));
    assert_ne!(message.calls[0].id, message.calls[1].id);
    assert_eq!(response.stop, Stop::ToolCalls);
}

#[tokio::test]
async fn text_thinking_and_calls_arrive_whole_and_piece_by_piece() {
    for vendor in VENDORS {
        let server = MockServer::scripted([turn()]).unwrap();
        let client = Client::new(vendor, endpoint(&server)).unwrap();
        let recorder = Recorder::default();
        let response = ask(&client, &recorder).await.unwrap();
        is_whole(&response);
        assert_eq!((response.usage.input, response.usage.output), (120, 30), "{vendor:?}");
        assert_eq!(response.usage.cached, 64);
        let heard = recorder.heard();
        let joined = |kind: &str| {
            let pieces = heard.iter().filter_map(|line| line.strip_prefix(kind));
            pieces.collect::<String>()
        };
        assert_eq!(joined("text "), TEXT);
        assert_eq!(joined("reasoning "), "First think.");
        assert_eq!(joined("call "), "execute_bashsubmit");
        assert!(heard.iter().filter(|line| line.starts_with("text ")).count() > 3);
    }
}

#[tokio::test]
async fn whatever_servers_do_differently() {
    let quirks = [
        Quirk::NoDone,
        Quirk::ReasoningAs("reasoning"),
        Quirk::WholeCalls,
        Quirk::Interleaved,
        Quirk::Comments,
        Quirk::CrLf,
        Quirk::Unstreamed,
    ];
    for vendor in VENDORS {
        for quirk in quirks {
            let response = told(vendor, turn().quirk(quirk)).await;
            is_whole(&response.unwrap_or_else(|error| panic!("{vendor:?} {quirk:?}: {error}")));
        }
        for bytes in [1, 7] {
            is_whole(&told(vendor, Answer::says(turn()).split(bytes)).await.unwrap());
        }
        let response = told(vendor, turn().quirk(Quirk::NoUsage)).await.unwrap();
        is_whole(&response);
        assert!(
            response.usage.estimated && response.usage.output > 0,
            "{vendor:?} {:?}",
            response.usage
        );
    }
}

#[tokio::test]
async fn slow_pieces_are_waited_for() {
    for vendor in VENDORS {
        let answer = say("one two three four five six seven").every(Duration::from_millis(20));
        let server = MockServer::scripted([answer]).unwrap();
        let silence = Duration::from_secs(2);
        let client = Client::new(vendor, Endpoint { silence, ..endpoint(&server) }).unwrap();
        let response = ask(&client, &Recorder::default()).await.unwrap();
        assert_eq!(response.message.text, "one two three four five six seven");
    }
}

#[tokio::test]
async fn a_call_cut_off_by_the_limit_is_not_run() {
    for vendor in VENDORS {
        let answer = Answer::cut_call("execute_bash", r#"{"command": "rm -rf /tmp/x"#);
        let response = told(vendor, answer).await.unwrap();
        assert_eq!(response.stop, Stop::Length);
        assert!(matches!(response.message.calls[0].arguments, Arguments::Malformed { .. }));
    }
}

#[tokio::test]
async fn the_server_gets_the_key_the_headers_and_the_body() {
    for vendor in VENDORS {
        let server = MockServer::scripted([say("x")]).unwrap();
        let mut endpoint = endpoint(&server);
        endpoint.headers.push(("x-other".into(), Secret::new("y")));
        let extra = json!({"top_k": 5, "metadata": {"user_id": "me"}});
        endpoint.extra_body = extra.as_object().unwrap().clone();
        let client = Client::new(vendor, endpoint).unwrap();
        ask(&client, &Recorder::default()).await.unwrap();
        let received = &server.requests()[0];
        match vendor {
            Vendor::OpenAi => {
                assert_eq!(received.path, "/v1/chat/completions");
                assert_eq!(received.header("authorization"), Some(&*format!("Bearer {KEY}")));
            }
            Vendor::Anthropic => {
                assert_eq!(received.path, "/v1/messages");
                assert_eq!(received.header("x-api-key"), Some(KEY));
                assert_eq!(received.header("anthropic-version"), Some("2023-06-01"));
                assert_eq!(received.header("authorization"), None);
            }
        }
        assert_eq!(received.header("x-other"), Some("y"));
        assert!(received.is_streaming());
        assert_eq!(received.body["top_k"], 5);
        assert_eq!(received.body["metadata"]["user_id"], "me");
        assert_eq!(received.body["max_tokens"], 4096);
        assert!(received.mentions("You have a computer.") && received.mentions("Go."));
    }
}
