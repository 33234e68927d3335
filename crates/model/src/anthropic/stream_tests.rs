//! Streams as the vendor sends them, and what becomes of them.

use std::sync::Mutex;

use trajectory::Arguments;

use super::*;
use crate::Sampling;

/// Records the pieces.
#[derive(Default)]
struct Recorder(Mutex<String>);

impl Listener for Recorder {
    fn on_delta(&self, delta: Delta<'_>) {
        self.0.lock().unwrap().push_str(&format!("{delta:?};"));
    }
}

fn gather(lines: &str) -> (Response, String) {
    let recorder = Recorder::default();
    let mut assembler = EventAssembler::new(&recorder);
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assembler.push(&json).unwrap();
    }
    let sampling = Sampling::default();
    let request = Request { messages: &[], tools: &[], sampling: &sampling, max_tokens: 9 };
    let response = assembler.into_response(&request);
    let heard = recorder.0.lock().unwrap().clone();
    (response, heard)
}

const THINKING_AND_TOOLS: &str = r#"
    {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":1}}}
    {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
    {"type":"ping"}
    {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Look "}}
    {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"first."}}
    {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}
    {"type":"content_block_stop","index":0}
    {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"b3BhcXVl"}}
    {"type":"content_block_stop","index":1}
    {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}
    {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I look."}}
    {"type":"content_block_stop","index":2}
    {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"execute_bash","input":{}}}
    {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}
    {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"command\": \"l"}}
    {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"s\"}"}}
    {"type":"content_block_stop","index":3}
    {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_2","name":"submit","input":{}}}
    {"type":"content_block_stop","index":4}
    {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":77}}
    {"type":"message_stop"}
"#;

#[test]
fn thinking_text_and_parallel_calls() {
    let (response, heard) = gather(THINKING_AND_TOOLS);
    let message = &response.message;
    assert_eq!((message.reasoning.as_str(), message.text.as_str()), ("Look first.", "I look."));
    let opaque = json!([
        {"type": "thinking", "thinking": "Look first.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
    ]);
    assert_eq!(message.opaque, Some(opaque));
    let calls: Vec<_> = message.calls.iter().map(|call| (&*call.id, &*call.name)).collect();
    assert_eq!(calls, [("toolu_1", "execute_bash"), ("toolu_2", "submit")]);
    assert!(
        matches!(&message.calls[0].arguments, Arguments::Object(map) if map["command"] == "ls")
    );
    assert!(matches!(&message.calls[1].arguments, Arguments::Object(map) if map.is_empty()));
    assert_eq!(response.stop, Stop::ToolCalls);
    let usage =
        Usage { input: 2112, cached: 2000, cache_writes: 100, output: 77, ..Usage::default() };
    assert_eq!(response.usage, usage);
    assert_eq!(
        heard,
        "Reasoning(\"Look \");Reasoning(\"first.\");Text(\"I look.\");Call(\"execute_bash\");\
         Arguments(\"{\\\"command\\\": \\\"l\");Arguments(\"s\\\"}\");Call(\"submit\");"
    );
}

#[test]
fn one_document_instead_of_a_stream() {
    let (response, _) = gather(
        r#"{"type":"message","role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"text","text":"yes"},{"type":"tool_use","id":"a","name":"execute_bash","input":{"command":"ls"}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":6}}"#,
    );
    assert_eq!(
        (response.message.reasoning.as_str(), response.message.text.as_str()),
        ("hm", "yes")
    );
    assert_eq!(response.message.opaque.unwrap()[0]["signature"], "sig");
    let arguments = &response.message.calls[0].arguments;
    assert!(matches!(arguments, Arguments::Object(map) if map["command"] == "ls"));
    assert_eq!((response.usage.input, response.usage.output), (5, 6));
}

#[test]
fn what_was_cut_off_is_neither_run_nor_signed() {
    let (response, _) = gather(
        r#"
        {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}
        {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"so"}}
        {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"execute_bash","input":{}}}
        {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"command\": \"rm -rf /x"}}
        {"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":9}}
        "#,
    );
    assert_eq!(response.stop, Stop::Length);
    assert_eq!(response.message.opaque, None);
    assert!(matches!(response.message.calls[0].arguments, Arguments::Malformed { .. }));
}

#[test]
fn a_call_cut_off_before_its_arguments_is_not_run() {
    let lines = r#"
        {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"submit","input":{}}}
        {"type":"message_delta","delta":{"stop_reason":"REASON"}}
    "#;
    let arguments = |reason: &str| {
        let (response, _) = gather(&lines.replace("REASON", reason));
        response.message.calls[0].arguments.clone()
    };
    assert!(matches!(arguments("max_tokens"), Arguments::Malformed { .. }));
    assert!(matches!(arguments("tool_use"), Arguments::Object(map) if map.is_empty()));
}

#[test]
fn every_reason_to_stop() {
    let stop = |reason: &str| {
        let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
        gather(&delta.to_string()).0.stop
    };
    assert_eq!(stop("end_turn"), Stop::End);
    assert_eq!(stop("stop_sequence"), Stop::End);
    assert_eq!(stop("max_tokens"), Stop::Length);
    assert_eq!(stop("model_context_window_exceeded"), Stop::Length);
    assert_eq!(stop("refusal"), Stop::Refusal);
    assert_eq!(stop("pause_turn"), Stop::Other("pause_turn".into()));
    assert_eq!(gather(r#"{"type":"message_stop"}"#).0.stop, Stop::Other("unsaid".into()));
}

#[test]
fn hostile_events_do_no_harm() {
    for line in [
        "[]",
        r#"{"type":"content_block_delta","index":99,"delta":{"type":"text_delta","text":"x"}}"#,
        r#"{"type":"content_block_start","index":"x","content_block":7}"#,
        r#"{"type":"message","content":{"a":1},"usage":[]}"#,
        r#"{"type":"message_start","message":{"usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":18446744073709551615,"output_tokens":18446744073709551615}}}"#,
    ] {
        let (response, _) = gather(line);
        assert!(response.usage.total() < u64::MAX / 2, "{line}");
    }
    let recorder = Recorder::default();
    let mut assembler = EventAssembler::new(&recorder);
    let open = |at: u64| json!({"type": "content_block_start", "index": at, "content_block": {}});
    assert!((0..300).any(|at| assembler.push(&open(at)).is_err()));
}
