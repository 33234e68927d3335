//! Servers that try to keep the client waiting, or to use up its memory or its processor.

use std::{fs, time::Duration};

use lis_model::{Endpoint, Error, Silent};
use serde_json::json;
use testkit::{Answer, Fault, MockServer};

use crate::clients::{Client, VENDORS, Vendor, ask, endpoint, told};

/// Nothing here takes longer.
const LONGEST: Duration = Duration::from_secs(20);

/// The most memory this process had, in bytes. Each test is a process of its own.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn events_without_content_do_not_keep_the_client_waiting() {
    let openai = [
        json!({}),
        json!({ "choices": [] }),
        json!({ "choices": [{ "delta": { "role": "assistant", "content": "", "tool_calls": [] } }] }),
        json!({ "usage": { "prompt_tokens": 7 } }),
    ];
    let anthropic = [json!({}), json!({ "type": "pong" }), json!({ "type": "message_start" })];
    let openai = openai.map(|event| (Vendor::OpenAi, event));
    for (vendor, event) in openai.into_iter().chain(anthropic.map(|e| (Vendor::Anthropic, e))) {
        // The server repeats a tenth of its answer.
        let answer = Answer::events(format!("data: {event}\n\n").repeat(10))
            .fault(Fault::Endless)
            .every(Duration::from_millis(20));
        let server = MockServer::scripted([answer]).unwrap();
        let silence = Duration::from_millis(200);
        let client = Client::new(vendor, Endpoint { silence, ..endpoint(&server) }).unwrap();
        let asked = tokio::time::timeout(LONGEST, ask(&client, &Silent)).await;
        let error = asked.unwrap_or_else(|_| panic!("for ever: {event}")).unwrap_err();
        assert!(matches!(error, Error::Silence(_)), "{event}: {error:?}");
    }
}

#[tokio::test]
async fn a_flood_of_comments_ends() {
    for vendor in VENDORS {
        let answer = Answer::events(format!(": {}\n", "x".repeat(1000)).repeat(1000));
        let answer = answer.fault(Fault::Endless);
        let server = MockServer::scripted([answer]).unwrap();
        let silence = Duration::from_millis(200);
        let client = Client::new(vendor, Endpoint { silence, ..endpoint(&server) }).unwrap();
        let error = tokio::time::timeout(LONGEST, ask(&client, &Silent)).await.unwrap();
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Silence(_)), "{error:?}");
    }
}

#[tokio::test]
async fn small_values_do_not_fill_the_memory() {
    let before = peak_memory();
    // Parsed, each takes about eighty times its length.
    let values = format!("{{\"x\":[{}0]}}", "{\"a\":0},".repeat(3 << 19));
    for vendor in VENDORS {
        for answer in
            [Answer::events(format!("data: {values}\n\n")), Answer::status(200, values.clone())]
        {
            let error = told(vendor, answer).await.unwrap_err();
            assert!(error.to_string().contains("values"), "{error}");
        }
    }
    let used = peak_memory() - before;
    assert!(used < 256 << 20, "{} MiB for an answer of 12", used >> 20);
}

#[tokio::test]
async fn a_list_of_models_is_bounded() {
    let server = MockServer::start().unwrap();
    let client = lis_model::OpenAi::new(endpoint(&server)).unwrap();
    assert!(client.models().await.is_ok());
    server.describe_models(&json!({ "x": vec![0; 1 << 18] }));
    let error = client.models().await.unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
}

#[tokio::test]
async fn odd_values_are_errors_or_ignored() {
    let digits = "1".repeat(1 << 18);
    let usage = |count: &str| {
        format!(
            "{{\"choices\":[{{\"delta\":{{\"content\":\"a\"}},\"finish_reason\":\"stop\"}}],\
             \"usage\":{{\"prompt_tokens\":{count},\"completion_tokens\":{count}}}}}"
        )
    };
    let mut events = vec![
        "[".repeat(1 << 20),
        "{\"a\":".repeat(1 << 17),
        format!("{{\"choices\":[{{\"index\":{digits}}}]}}"),
        "{\"choices\":{\"0\":{}},\"choices\":[7,null,[],{\"delta\":7}],\"choices\":\"x\"}".into(),
        "{\"choices\":[{\"delta\":{\"content\":{\"a\":[]},\"tool_calls\":[7,[],{\"index\":-1,\
         \"function\":7},{\"index\":1e300,\"function\":{\"name\":[],\"arguments\":7}}]},\
         \"finish_reason\":{}}]}"
            .into(),
        "{\"type\":\"content_block_start\",\"index\":\"x\",\"content_block\":[]}".into(),
        "{\"type\":\"content_block_delta\",\"index\":18446744073709551615,\"delta\":7}".into(),
        "{\"type\":[\"message_stop\"],\"type\":\"message\",\"content\":{},\"usage\":[]}".into(),
    ];
    events.extend(["1e999", "-1", "1.5", "\"7\"", "18446744073709551615", &digits].map(usage));
    for vendor in VENDORS {
        for event in &events {
            let asked = told(vendor, Answer::events(format!("data: {event}\n\n")));
            let start = event.chars().take(80).collect::<String>();
            let answered = tokio::time::timeout(LONGEST, asked).await;
            match answered.unwrap_or_else(|_| panic!("too slow: {start}")) {
                // Counts are bounded, so that sums cannot overflow.
                Ok(response) => assert!(response.usage.input <= 1 << 40, "{start}: {response:?}"),
                Err(error) => {
                    assert!(
                        matches!(error, Error::Protocol(_) | Error::Cut(_)),
                        "{start}: {error:?}"
                    );
                    assert!(error.to_string().len() < 2000, "{start}");
                }
            }
        }
    }
}
