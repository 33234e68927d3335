//! Streams as servers send them, and what becomes of them.

use std::sync::Mutex;

use serde_json::json;
use trajectory::Arguments;

use super::*;
use crate::{Sampling, ToolSpec};

/// Records the pieces.
#[derive(Default)]
struct Recorder(Mutex<String>);

impl Listener for Recorder {
    fn on_delta(&self, delta: Delta<'_>) {
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

fn gather(lines: &str) -> (Response, String) {
    let recorder = Recorder::default();
    let mut assembler = ChunkAssembler::new(&recorder);
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assembler.push(&json).unwrap();
    }
    let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    let tools = ["execute_bash", "submit"].map(|name| ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: parameters.clone(),
    });
    let sampling = Sampling::default();
    let request = Request { messages: &[], tools: &tools, sampling: &sampling, max_tokens: 9 };
    let response = assembler.into_response(&request);
    let heard = recorder.0.lock().unwrap().clone();
    (response, heard)
}

fn calls(response: &Response) -> Vec<(&str, &str, String)> {
    let written = |arguments: &Arguments| match arguments {
        Arguments::Object(map) => Value::Object(map.clone()).to_string(),
        Arguments::Malformed { malformed, .. } => format!("malformed: {malformed}"),
    };
    let calls = &response.message.calls;
    calls.iter().map(|c| (c.id.as_str(), c.name.as_str(), written(&c.arguments))).collect()
}

#[test]
fn openai_parallel_calls_with_usage_in_an_empty_chunk() {
    let (response, heard) = gather(
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
    assert_eq!(calls(&response), expected);
    assert_eq!(response.stop, Stop::ToolCalls);
    let usage = Usage { input: 100, cached: 64, output: 40, reasoning: 30, ..Usage::default() };
    assert_eq!(response.usage, usage);
    assert_eq!(heard, "c:execute_bash|a:{\"com|a:mand\":\"ls\"}|c:submit|a:{}|");
}

#[test]
fn vllm_reasoning_under_two_names_then_text() {
    let (response, heard) = gather(
        r#"
        {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"reasoning":"so ","reasoning_content":"so "},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"reasoning":"it is"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":"<think> stays"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop","stop_reason":null}]}
        {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5,"prompt_tokens_details":null}}
        "#,
    );
    assert_eq!(response.message.reasoning, "so it is");
    assert_eq!(response.message.text, "<think> stays");
    assert_eq!((response.stop, response.usage.input, response.usage.output), (Stop::End, 7, 5));
    assert_eq!(heard, "r:so |r:it is|t:<think> stays|");
}

#[test]
fn sglang_repeats_the_name_and_leaves_out_the_usage() {
    let (response, _) = gather(
        r#"
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"Let me look."},"finish_reason":null}],"usage":null}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_x","index":0,"type":"function","function":{"name":"execute_bash","arguments":""}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_x","index":0,"type":"function","function":{"name":"execute_bash","arguments":"{\"command\": "}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"id":null,"index":0,"type":"function","function":{"name":null,"arguments":"\"pwd\"}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":null},"finish_reason":"tool_calls"}]}
        "#,
    );
    assert_eq!(calls(&response), [("call_x", "execute_bash", r#"{"command":"pwd"}"#.into())]);
    assert_eq!(response.message.text, "Let me look.");
    assert!(response.usage.estimated && response.usage.input > 0 && response.usage.output > 0);
}

#[test]
fn ollama_sends_whole_calls_that_all_have_the_same_number() {
    let (response, _) = gather(
        r#"
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_1a","index":0,"type":"function","function":{"name":"execute_bash","arguments":"{\"command\":\"a\"}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_2b","index":0,"type":"function","function":{"name":"execute_bash","arguments":"{\"command\":\"b\"}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}
        "#,
    );
    let call = |id, command: &str| (id, "execute_bash", format!("{{\"command\":\"{command}\"}}"));
    assert_eq!(calls(&response), [call("call_1a", "a"), call("call_2b", "b")]);
    assert_eq!(response.stop, Stop::ToolCalls);
}

#[test]
fn calls_without_indices_and_ids_are_separated() {
    let (response, _) = gather(
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
    assert_eq!(calls(&response), expected);
}

#[test]
fn calls_without_numbers_but_with_ids_may_be_mixed() {
    let (response, _) = gather(
        r#"
        {"choices":[{"delta":{"tool_calls":[{"id":"x","function":{"name":"execute_bash","arguments":"{\"command\":"}},{"id":"y","function":{"name":"execute_bash","arguments":"{\"command\":"}}]}}]}
        {"choices":[{"delta":{"tool_calls":[{"id":"x","function":{"arguments":"\"1\"}"}},{"id":"y","function":{"arguments":"\"2\"}"}}]},"finish_reason":"stop"}]}
        "#,
    );
    let call = |id, command: &str| (id, "execute_bash", format!("{{\"command\":\"{command}\"}}"));
    assert_eq!(calls(&response), [call("x", "1"), call("y", "2")]);
}

#[test]
fn a_cut_off_call_is_malformed() {
    let (response, _) = gather(
        r#"
        {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"execute_bash","arguments":"{\"command\":\"rm -rf /tmp"}}]}}]}
        {"choices":[{"delta":{},"finish_reason":"length"}]}
        "#,
    );
    assert_eq!(response.stop, Stop::Length);
    assert!(matches!(response.message.calls[0].arguments, Arguments::Malformed { .. }));
}

#[test]
fn llama_cpp_thinking_in_the_text_and_timings() {
    let (response, heard) = gather(
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
    assert_eq!(
        (response.message.reasoning.as_str(), response.message.text.as_str()),
        ("two", "four")
    );
    assert_eq!(heard, "r:two|t:fo|t:ur|");
}

#[test]
fn deepseek_counts_its_cache_in_its_own_field() {
    let (response, _) = gather(
        r#"
        {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":""}}]}
        {"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"hm"}}]}
        {"choices":[{"index":0,"delta":{"content":"yes","reasoning_content":null}}]}
        {"choices":[{"index":0,"delta":{"content":"","reasoning_content":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":4,"prompt_cache_hit_tokens":16,"prompt_cache_miss_tokens":4,"completion_tokens_details":{"reasoning_tokens":2}}}
        "#,
    );
    assert_eq!(response.message.reasoning, "hm");
    let usage = Usage { input: 20, cached: 16, output: 4, reasoning: 2, ..Usage::default() };
    assert_eq!(response.usage, usage);
}

#[test]
fn one_document_instead_of_a_stream() {
    let (response, heard) = gather(
        r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"thought before</think>done","tool_calls":[{"id":"a","type":"function","function":{"name":"submit","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
    );
    assert_eq!(response.message.text, "done");
    assert_eq!(response.message.reasoning, "thought before");
    assert_eq!(calls(&response), [("a", "submit", "{}".into())]);
    assert!(heard.contains("c:submit|"));
}

#[test]
fn refusals_filters_and_unknown_ends() {
    let (response, _) = gather(
        r#"
        {"choices":[{"delta":{"refusal":"I cannot."}}]}
        {"choices":[{"delta":{},"finish_reason":"stop"}]}
        "#,
    );
    assert_eq!((response.stop, response.message.text.as_str()), (Stop::Refusal, "I cannot."));
    let stop =
        |finish: &str| gather(&json!({"choices": [{"finish_reason": finish}]}).to_string()).0.stop;
    assert_eq!(stop("content_filter"), Stop::Refusal);
    assert_eq!(stop("length"), Stop::Length);
    assert_eq!(stop("abort"), Stop::Other("abort".into()));
    assert_eq!(stop(""), Stop::Other("unsaid".into()));
}

#[test]
fn of_several_choices_only_the_first_is_read() {
    let (response, _) = gather(
        r#"
        {"choices":[{"index":1,"delta":{"content":"ano"}},{"index":0,"delta":{"content":"o"}}]}
        {"choices":[{"index":1,"delta":{"content":"ther"},"finish_reason":"length"}]}
        {"choices":[{"index":0,"delta":{"content":"ne"},"finish_reason":"stop"}]}
        "#,
    );
    assert_eq!((response.message.text.as_str(), response.stop), ("one", Stop::End));
}

#[test]
fn a_message_beside_its_pieces_ends_nothing() {
    let line =
        r#"{"choices":[{"delta":{"content":"a"},"message":{"content":"a"},"finish_reason":null}]}"#;
    let recorder = Recorder::default();
    let mut assembler = ChunkAssembler::new(&recorder);
    assembler.push(&serde_json::from_str(line).unwrap()).unwrap();
    assert!(!assembler.is_complete());
    let (response, _) = gather(r#"{"choices":[{"delta":null,"message":{"content":"b"}}]}"#);
    assert_eq!((response.message.text.as_str(), response.stop), ("b", Stop::End));
}

#[test]
fn content_in_parts() {
    let (response, _) = gather(
        r#"
        {"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}}]}
        {"choices":[{"delta":{"content":[{"type":"text","text":"yes"}]},"finish_reason":"stop"}]}
        "#,
    );
    assert_eq!(
        (response.message.reasoning.as_str(), response.message.text.as_str()),
        ("hm", "yes")
    );
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
        let (response, _) = gather(line);
        assert!(response.usage.total() < u64::MAX / 2);
    }
    let recorder = Recorder::default();
    let mut assembler = ChunkAssembler::new(&recorder);
    let many: Vec<_> = (0..300).map(|at| json!({"index": at, "function": {"name": "x"}})).collect();
    let flood = json!({"choices": [{"delta": {"tool_calls": many}}]});
    assembler.push(&flood).unwrap();
    assert_eq!(assembler.calls.len(), MAX_CALLS);
}
