//! Streams as servers send them, and what becomes of them.

use std::sync::Mutex;

use serde_json::json;
use trajectory::Arguments;

use super::*;
use crate::{Sampling, ToolSpec};

/// Writes down what it hears.
#[derive(Default)]
struct Ear(Mutex<String>);

impl Listener for Ear {
    fn hear(&self, delta: Delta<'_>) {
        let text = match delta {
            Delta::Reasoning(text) => format!("r:{text}|"),
            Delta::Text(text) => format!("t:{text}|"),
            Delta::Call(name) => format!("c:{name}|"),
            Delta::Arguments(text) => format!("a:{text}|"),
            Delta::Retry { .. } => "retry|".into(),
        };
        self.0.lock().unwrap().push_str(&text);
    }
}

fn gather(lines: &str) -> (Reply, String) {
    let ear = Ear::default();
    let mut gathering = Gathering::new(&ear);
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        gathering.take(&json).unwrap();
    }
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    let tools = ["execute_bash", "submit"].map(|name| ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: parameters.clone(),
    });
    let sampling = Sampling::default();
    let request = Request { messages: &[], tools: &tools, sampling: &sampling, max_tokens: 9 };
    let reply = gathering.reply(&request);
    let heard = ear.0.lock().unwrap().clone();
    (reply, heard)
}

fn calls(reply: &Reply) -> Vec<(&str, &str, String)> {
    let written = |arguments: &Arguments| match arguments {
        Arguments::Object(map) => Value::Object(map.clone()).to_string(),
        Arguments::Malformed { malformed, .. } => format!("malformed: {malformed}"),
    };
    let calls = &reply.message.calls;
    calls.iter().map(|c| (c.id.as_str(), c.name.as_str(), written(&c.arguments))).collect()
}

#[test]
fn openai_parallel_calls_with_usage_in_an_empty_chunk() {
    let (reply, heard) = gather(
        r#"
        {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"gpt-x","choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}],"usage":null}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"execute_bash","arguments":""}}]},"finish_reason":null}],"usage":null}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"com"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"mand\":\"ls\"}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"submit","arguments":""}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":null}
        {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":40,"total_tokens":140,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":30}}}
        "#,
    );
    let expected = [
        ("call_a", "execute_bash", r#"{"command":"ls"}"#.into()),
        ("call_b", "submit", "{}".into()),
    ];
    assert_eq!(calls(&reply), expected);
    assert_eq!(reply.stop, Stop::ToolCalls);
    let usage = Usage { input: 100, cached: 64, output: 40, reasoning: 30, ..Usage::default() };
    assert_eq!(reply.usage, usage);
    assert_eq!(heard, "c:execute_bash|a:{\"com|a:mand\":\"ls\"}|c:submit|a:{}|");
}

#[test]
fn vllm_reasoning_under_two_names_then_text() {
    let (reply, heard) = gather(
        r#"
        {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"reasoning":"so ","reasoning_content":"so "},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"reasoning":"it is"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":"<think> stays"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop","stop_reason":null}]}
        {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5,"prompt_tokens_details":null}}
        "#,
    );
    assert_eq!(reply.message.reasoning, "so it is");
    assert_eq!(reply.message.text, "<think> stays");
    assert_eq!((reply.stop, reply.usage.input, reply.usage.output), (Stop::End, 7, 5));
    assert_eq!(heard, "r:so |r:it is|t:<think> stays|");
}

#[test]
fn sglang_repeats_the_name_and_leaves_out_the_usage() {
    let (reply, _) = gather(
        r#"
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"Let me look."},"finish_reason":null}],"usage":null}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_x","index":0,"type":"function","function":{"name":"execute_bash","arguments":""}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_x","index":0,"type":"function","function":{"name":"execute_bash","arguments":"{\"command\": "}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"id":null,"index":0,"type":"function","function":{"name":null,"arguments":"\"pwd\"}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":null},"finish_reason":"tool_calls"}]}
        "#,
    );
    assert_eq!(calls(&reply), [("call_x", "execute_bash", r#"{"command":"pwd"}"#.into())]);
    assert_eq!(reply.message.text, "Let me look.");
    assert!(reply.usage.estimated && reply.usage.input > 0 && reply.usage.output > 0);
}

#[test]
fn ollama_sends_whole_calls_that_all_have_the_same_number() {
    let (reply, _) = gather(
        r#"
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_1a","index":0,"type":"function","function":{"name":"execute_bash","arguments":"{\"command\":\"a\"}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_2b","index":0,"type":"function","function":{"name":"execute_bash","arguments":"{\"command\":\"b\"}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}
        "#,
    );
    let call = |id, command: &str| (id, "execute_bash", format!("{{\"command\":\"{command}\"}}"));
    assert_eq!(calls(&reply), [call("call_1a", "a"), call("call_2b", "b")]);
    assert_eq!(reply.stop, Stop::ToolCalls);
}

#[test]
fn calls_without_numbers_and_ids_are_told_apart() {
    let (reply, _) = gather(
        r#"
        {"choices":[{"delta":{"tool_calls":[{"function":{"name":"execute_bash","arguments":"{\"command\":"}}]}}]}
        {"choices":[{"delta":{"tool_calls":[{"function":{"name":"execute_bash","arguments":"\"a}\""}}]}}]}
        {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}]}
        {"choices":[{"delta":{"tool_calls":[{"function":{"name":"execute_bash","arguments":{"command":"b"}}}]}}]}
        {"choices":[{"delta":{"tool_calls":[{"function":{"name":"submit"}}]},"finish_reason":"tool_calls"}]}
        "#,
    );
    let expected = [
        ("call_1", "execute_bash", r#"{"command":"a}"}"#.into()),
        ("call_2", "execute_bash", r#"{"command":"b"}"#.into()),
        ("call_3", "submit", "{}".into()),
    ];
    assert_eq!(calls(&reply), expected);
}

#[test]
fn calls_without_numbers_but_with_ids_may_be_mixed() {
    let (reply, _) = gather(
        r#"
        {"choices":[{"delta":{"tool_calls":[{"id":"x","function":{"name":"execute_bash","arguments":"{\"command\":"}},{"id":"y","function":{"name":"execute_bash","arguments":"{\"command\":"}}]}}]}
        {"choices":[{"delta":{"tool_calls":[{"id":"x","function":{"arguments":"\"1\"}"}},{"id":"y","function":{"arguments":"\"2\"}"}}]},"finish_reason":"stop"}]}
        "#,
    );
    let call = |id, command: &str| (id, "execute_bash", format!("{{\"command\":\"{command}\"}}"));
    assert_eq!(calls(&reply), [call("x", "1"), call("y", "2")]);
}

#[test]
fn a_cut_off_call_is_malformed() {
    let (reply, _) = gather(
        r#"
        {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"execute_bash","arguments":"{\"command\":\"rm -rf /tmp"}}]}}]}
        {"choices":[{"delta":{},"finish_reason":"length"}]}
        "#,
    );
    assert_eq!(reply.stop, Stop::Length);
    assert!(matches!(reply.message.calls[0].arguments, Arguments::Malformed { .. }));
}

#[test]
fn llama_cpp_thinking_in_the_text_and_timings() {
    let (reply, heard) = gather(
        r#"
        {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"c","model":"q","system_fingerprint":"b1","object":"chat.completion.chunk"}
        {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"<th"}}]}
        {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"ink>two"}}]}
        {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"</think>\n\nfo"}}]}
        {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"ur"}}]}
        {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"timings":{"prompt_n":9}}
        {"choices":[],"usage":{"completion_tokens":6,"prompt_tokens":9,"total_tokens":15}}
        "#,
    );
    assert_eq!((reply.message.reasoning.as_str(), reply.message.text.as_str()), ("two", "four"));
    assert_eq!(heard, "r:two|t:fo|t:ur|");
}

#[test]
fn deepseek_counts_its_cache_in_its_own_field() {
    let (reply, _) = gather(
        r#"
        {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":""}}]}
        {"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"hm"}}]}
        {"choices":[{"index":0,"delta":{"content":"yes","reasoning_content":null}}]}
        {"choices":[{"index":0,"delta":{"content":"","reasoning_content":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":4,"prompt_cache_hit_tokens":16,"prompt_cache_miss_tokens":4,"completion_tokens_details":{"reasoning_tokens":2}}}
        "#,
    );
    assert_eq!(reply.message.reasoning, "hm");
    let usage = Usage { input: 20, cached: 16, output: 4, reasoning: 2, ..Usage::default() };
    assert_eq!(reply.usage, usage);
}

#[test]
fn one_document_instead_of_a_stream() {
    let (reply, heard) = gather(
        r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"thought before</think>done","tool_calls":[{"id":"a","type":"function","function":{"name":"submit","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
    );
    assert_eq!(reply.message.text, "done");
    assert_eq!(reply.message.reasoning, "thought before");
    assert_eq!(calls(&reply), [("a", "submit", "{}".into())]);
    assert!(heard.contains("c:submit|"));
}

#[test]
fn refusals_filters_and_unknown_ends() {
    let (reply, _) = gather(
        r#"
        {"choices":[{"delta":{"refusal":"I cannot."}}]}
        {"choices":[{"delta":{},"finish_reason":"stop"}]}
        "#,
    );
    assert_eq!((reply.stop, reply.message.text.as_str()), (Stop::Refusal, "I cannot."));
    let stop =
        |finish: &str| gather(&json!({"choices": [{"finish_reason": finish}]}).to_string()).0.stop;
    assert_eq!(stop("content_filter"), Stop::Refusal);
    assert_eq!(stop("length"), Stop::Length);
    assert_eq!(stop("abort"), Stop::Other("abort".into()));
    assert_eq!(stop(""), Stop::Other("unsaid".into()));
}

#[test]
fn of_several_replies_only_the_first_is_read() {
    let (reply, _) = gather(
        r#"
        {"choices":[{"index":1,"delta":{"content":"ano"}},{"index":0,"delta":{"content":"o"}}]}
        {"choices":[{"index":1,"delta":{"content":"ther"},"finish_reason":"length"}]}
        {"choices":[{"index":0,"delta":{"content":"ne"},"finish_reason":"stop"}]}
        "#,
    );
    assert_eq!((reply.message.text.as_str(), reply.stop), ("one", Stop::End));
}

#[test]
fn a_message_beside_its_pieces_ends_nothing() {
    let line =
        r#"{"choices":[{"delta":{"content":"a"},"message":{"content":"a"},"finish_reason":null}]}"#;
    let ear = Ear::default();
    let mut gathering = Gathering::new(&ear);
    gathering.take(&serde_json::from_str(line).unwrap()).unwrap();
    assert!(!gathering.is_complete());
    let (reply, _) = gather(r#"{"choices":[{"delta":null,"message":{"content":"b"}}]}"#);
    assert_eq!((reply.message.text.as_str(), reply.stop), ("b", Stop::End));
}

#[test]
fn content_in_parts() {
    let (reply, _) = gather(
        r#"
        {"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}}]}
        {"choices":[{"delta":{"content":[{"type":"text","text":"yes"}]},"finish_reason":"stop"}]}
        "#,
    );
    assert_eq!((reply.message.reasoning.as_str(), reply.message.text.as_str()), ("hm", "yes"));
}

#[test]
fn hostile_chunks_do_no_harm() {
    for line in [
        "[]",
        "7",
        r#"{"choices":{}}"#,
        r#"{"choices":[7]}"#,
        r#"{"choices":[{"delta":{"content":{},"tool_calls":[7,null,{"index":-1,"function":3}],"reasoning":[]}}]}"#,
        r#"{"usage":{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615}}"#,
    ] {
        let (reply, _) = gather(line);
        assert!(reply.usage.total() < u64::MAX / 2);
    }
    let ear = Ear::default();
    let mut gathering = Gathering::new(&ear);
    let many: Vec<_> = (0..300).map(|at| json!({"index": at, "function": {"name": "x"}})).collect();
    let flood = json!({"choices": [{"delta": {"tool_calls": many}}]});
    gathering.take(&flood).unwrap();
    assert_eq!(gathering.calls.len(), MAX_CALLS);
}
