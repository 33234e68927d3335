//! Responses as the two vendors send them, streamed and whole, and the recorded requests.

use std::time::Duration;

use lis_testkit::{Call, MockServer, Protocol, Quirk, Turn, calls, say, submit};
use serde_json::{Value, json};
use trajectory::{Stop, Usage};

use crate::client::{ANTHROPIC, Client, End, OPENAI, ask, request};

const TEXT: &str = "I shall count the primes; größer als 素数.";
const THOUGHT: &str = "A sieve would do, or trial division.";

fn turn() -> Turn {
    let usage = Usage { input: 100, cached: 60, cache_writes: 10, output: 7, ..Usage::default() };
    calls([Call::bash("seq 1000 | factor"), Call::submit().id("mine")])
        .text(TEXT)
        .reasoning(THOUGHT)
        .usage(usage)
}

#[tokio::test]
async fn openai_streams_text_thinking_and_calls() {
    let server = MockServer::scripted([turn()]).unwrap();
    let response = ask(&server, OPENAI, true).await;
    assert_eq!((response.status, response.end), (200, End::Clean));
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert!(response.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(response.joined("/choices/0/delta/content"), TEXT);
    assert_eq!(response.joined("/choices/0/delta/reasoning_content"), THOUGHT);
    assert_eq!(response.joined("/choices/0/finish_reason"), "tool_calls");
    assert_eq!(
        response.joined("/choices/0/delta/tool_calls/0/function/name"),
        "execute_bashsubmit"
    );
    let arguments = response.joined("/choices/0/delta/tool_calls/0/function/arguments");
    assert_eq!(arguments, r#"{"command":"seq 1000 | factor"}{}"#);
    assert_eq!(response.joined("/choices/0/delta/tool_calls/0/id"), "call_1_0mine");
    let events = response.events();
    assert!(events.len() > 10, "{} events", events.len());
    let usage = &events.last().unwrap()["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(100), &json!(7)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 60);
}

#[tokio::test]
async fn openai_sends_the_usage_of_a_stream_only_on_request() {
    let server = MockServer::scripted([turn(), turn()]).unwrap();
    let mut client = Client::open(server.address()).await;
    client.post(OPENAI, &json!({"stream": true})).await;
    let response = client.response(Duration::from_secs(20)).await;
    assert!(response.events().iter().all(|event| event.get("usage").is_none()));
    client.post(OPENAI, &json!({"stream": false})).await;
    let response = client.response(Duration::from_secs(20)).await;
    assert_eq!(response.json()["usage"]["total_tokens"], 107);
}

#[tokio::test]
async fn anthropic_streams_blocks_and_signs_its_thinking() {
    let server = MockServer::scripted([turn()]).unwrap();
    let response = ask(&server, ANTHROPIC, true).await;
    assert_eq!((response.status, response.end), (200, End::Clean));
    assert_eq!(response.joined("/delta/text"), TEXT);
    assert_eq!(response.joined("/delta/thinking"), THOUGHT);
    assert_eq!(response.joined("/delta/signature"), "signature-1");
    assert_eq!(response.joined("/delta/partial_json"), r#"{"command":"seq 1000 | factor"}{}"#);
    assert_eq!(response.joined("/content_block/name"), "execute_bashsubmit");
    assert_eq!(response.joined("/content_block/id"), "toolu_1_0mine");
    assert_eq!(response.joined("/delta/stop_reason"), "tool_use");
    let events = response.events();
    let usage = &events[0]["message"]["usage"];
    assert_eq!(usage["input_tokens"], 30);
    assert_eq!(usage["cache_read_input_tokens"], 60);
    assert_eq!(usage["cache_creation_input_tokens"], 10);
    assert_eq!(events[events.len() - 2]["usage"]["output_tokens"], 7);
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let blocks = events.iter().filter(|event| event["type"] == "content_block_stop");
    assert_eq!(blocks.map(|event| &event["index"]).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let names = response.text().lines().filter_map(|line| line.strip_prefix("event: "));
    let types = events.iter().filter_map(|event| event["type"].as_str());
    assert!(names.eq(types));
}

#[tokio::test]
async fn both_send_one_document_when_no_stream_is_requested() {
    let server = MockServer::scripted([turn(), turn()]).unwrap();
    let response = ask(&server, OPENAI, false).await.json();
    let message = &response["choices"][0]["message"];
    assert_eq!(
        (&message["content"], &message["reasoning_content"]),
        (&json!(TEXT), &json!(THOUGHT))
    );
    assert_eq!(message["tool_calls"][1]["function"]["name"], "submit");
    assert_eq!(response["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(response["usage"]["total_tokens"], 107);
    let response = ask(&server, ANTHROPIC, false).await.json();
    let kinds: Vec<_> =
        response["content"].as_array().unwrap().iter().map(|b| &b["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(response["content"][2]["input"]["command"], "seq 1000 | factor");
    assert_eq!(response["usage"]["output_tokens"], 7);
}

#[tokio::test]
async fn reasons_to_stop_have_each_vendors_word() {
    let reasons = [
        (Stop::End, "stop", "end_turn"),
        (Stop::Length, "length", "max_tokens"),
        (Stop::Refusal, "content_filter", "refusal"),
        (Stop::Other("eos".into()), "eos", "eos"),
    ];
    for (stop, openai, anthropic) in reasons {
        let server = MockServer::answering(move |_| say("hi").stop(stop.clone())).unwrap();
        let response = ask(&server, OPENAI, true).await;
        assert_eq!(response.joined("/choices/0/finish_reason"), openai);
        let response = ask(&server, ANTHROPIC, true).await;
        assert_eq!(response.joined("/delta/stop_reason"), anthropic);
    }
}

#[tokio::test]
async fn quirks_are_applied() {
    let server = MockServer::start().unwrap();
    server.push(turn().quirk(Quirk::WholeCalls).quirk(Quirk::ReasoningAs("reasoning")));
    let response = ask(&server, OPENAI, true).await;
    assert_eq!(response.joined("/choices/0/delta/reasoning"), THOUGHT);
    let calls: Vec<Value> = response
        .events()
        .iter()
        .filter_map(|event| {
            event.pointer("/choices/0/delta/tool_calls/0/function/arguments").cloned()
        })
        .collect();
    assert_eq!(calls, [json!(r#"{"command":"seq 1000 | factor"}"#), json!("{}")]);

    server
        .push(lis_testkit::calls([Call::bash("one"), Call::bash("two")]).quirk(Quirk::Interleaved));
    let response = ask(&server, OPENAI, true).await;
    let order: Vec<_> = response
        .events()
        .iter()
        .filter_map(|event| event.pointer("/choices/0/delta/tool_calls/0/index")?.as_u64())
        .collect();
    assert_eq!(order, [0, 1, 0, 1, 0, 1]);

    server.push(turn().quirk(Quirk::CrLf).quirk(Quirk::Comments));
    let response = ask(&server, ANTHROPIC, true).await;
    assert_eq!(response.joined("/delta/text"), TEXT);
    assert!(response.text().starts_with(": still here\r\n\r\nevent: message_start\r\n"));
    assert!(!response.text().replace("\r\n", "").contains('\n'));

    server.push(turn().quirk(Quirk::NoDone).quirk(Quirk::NoUsage));
    let response = ask(&server, OPENAI, true).await;
    assert_eq!(response.end, End::Clean);
    assert!(!response.text().contains("[DONE]") && !response.text().contains("usage"));
    assert_eq!(response.joined("/choices/0/finish_reason"), "tool_calls");

    server.push(turn().quirk(Quirk::NoDone).quirk(Quirk::NoUsage));
    let response = ask(&server, ANTHROPIC, true).await;
    assert!(!response.text().contains("message_stop") && !response.text().contains("usage"));

    server.push(turn().quirk(Quirk::Unstreamed));
    let response = ask(&server, OPENAI, true).await;
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.json()["choices"][0]["message"]["content"], TEXT);
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_each_is_remembered() {
    let server = MockServer::answering(|asked| say(format!("turn {}", asked.turns()))).unwrap();
    let mut client = Client::open(server.address()).await;
    for path in ["/health", "/v1/models"] {
        client.get(path).await;
        assert_eq!(client.response(Duration::from_secs(20)).await.status, 200);
    }
    client.get("/v1/unheard-of").await;
    assert_eq!(client.response(Duration::from_secs(20)).await.status, 404);
    client.post(ANTHROPIC, &request(true)).await;
    assert_eq!(client.response(Duration::from_secs(20)).await.joined("/delta/text"), "turn 0");
    let spoken = json!({"system": [{"text": "be brief"}], "messages": [
        {"role": "assistant", "content": [{"type": "text", "text": "one"}]},
        {"role": "user"}, {"role": "assistant"}]});
    client.post(OPENAI, &spoken).await;
    let response = client.response(Duration::from_secs(20)).await.json();
    assert_eq!(response["choices"][0]["message"]["content"], "turn 2");

    let seen = server.requests();
    assert_eq!((seen.len(), server.lists()), (4, 1));
    assert_eq!((seen[0].method.as_str(), seen[0].path.as_str()), ("GET", "/health"));
    assert_eq!(seen[2].protocol(), Some(Protocol::Anthropic));
    assert!(seen[2].is_streaming() && !seen[3].is_streaming());
    assert_eq!(seen[3].protocol(), Some(Protocol::OpenAi));
    assert_eq!(seen[3].header("authorization"), Some("Bearer k-1"));
    assert_eq!(seen[3].header("x-api-key"), Some("k-2"));
    assert_eq!(seen[3].body, spoken);
    assert!(seen[3].mentions("one") && seen[3].mentions("brief") && !seen[3].mentions("two"));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_spends_no_answer() {
    let server = MockServer::scripted([submit()]).unwrap();
    let mut client = Client::open(server.address()).await;
    client.raw(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 3\r\n\r\n{{{").await;
    let response = client.response(Duration::from_secs(20)).await;
    assert_eq!(
        (response.status, response.json()["error"]["type"].clone()),
        (400, json!("invalid_request_error"))
    );
    client.raw(b"nonsense\r\n\r\n").await;
    assert_eq!(client.response(Duration::from_secs(20)).await.status, 400);
    assert_eq!(server.remaining(), 1);
}

#[test]
fn a_script_that_ended_is_no_passing_failure() {
    let server = MockServer::scripted([say("only this")]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_eq!(ask(&server, OPENAI, true).await.status, 200);
        assert_eq!(ask(&server, OPENAI, true).await.status, 410);
    });
    assert_eq!(server.wait_for_requests(2).unwrap().len(), 2);
}
