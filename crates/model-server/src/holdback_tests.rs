//! Texts with calls in them, whole and in pieces.

use std::sync::Mutex;

use model::{Delta, Formatted, Listener, Model, Request, Sampling, ToolFormat, ToolSpec};
use proptest::prelude::*;
use serde_json::json;
use testkit::{ScriptedModel, say};
use trajectory::Message;

use super::*;

/// Sends a text byte by byte, or rather character by character.
fn sent(calls: Calls, heard: &str) -> (String, Holdback) {
    let mut holdback = Holdback::new(calls);
    let mut sent = String::new();
    for char in heard.chars() {
        sent.push_str(holdback.push(&char.to_string()));
    }
    (sent, holdback)
}

fn check(heard: &str, early: &str, text: &str) {
    let (sent, holdback) = sent(Calls::Possible, heard);
    assert_eq!(sent, early, "{heard:?}");
    assert_eq!(sent + holdback.rest(text), text.trim_start(), "{heard:?}");
}

#[test]
fn calls_are_held_back() {
    for call in [
        "<tool_call>{}</tool_call>",
        "```bash\nls\n```",
        "{\"name\": \"x\"}",
        "[{\"name\": \"x\"}]",
        "[TOOL_CALLS]x",
        "<|python_tag|>x",
        "<｜tool▁call▁begin｜>x",
    ] {
        check(call, "", "");
        check(&format!("Let me look.\n\n{call}"), "Let me look.", "Let me look.");
    }
    check("so [TOOL_CALLS]x", "so", "so");
    check("  submit \n", "", "");
}

#[test]
fn what_cannot_be_a_call_is_sent() {
    for text in ["1 < 2, a[0] = {1}", "`ls` and ``x``, then", "submitted", "x <= y"] {
        check(text, text, text);
    }
    check("It is ", "It is", "It is ");
}

#[test]
fn what_was_held_back_in_vain_comes_at_the_end() {
    let text = "See:\n```json\n{}\n```\nDone.";
    check(text, "See:", text);
    check("a <b> c", "a", "a <b> c");
}

#[test]
fn without_tools_everything_is_sent_at_once() {
    let text = " <tool_call>\n";
    let (sent, holdback) = sent(Calls::Impossible, text);
    assert_eq!((sent.as_str(), holdback.rest(text)), (text, ""));
}

#[test]
fn thinking_that_was_sent_as_text_is_not_repeated() {
    let (sent, holdback) = sent(Calls::Possible, "I think so.\n</think>\n\nYes.\n");
    assert_eq!((sent.as_str(), holdback.rest("Yes.")), ("I think so.", "Yes."));
    let (_, holdback) = self::sent(Calls::Impossible, "Hm.</think>Yes.");
    assert_eq!(holdback.rest("Yes."), "");
}

#[test]
fn only_what_was_not_sent_can_be_forgotten() {
    let mut holdback = Holdback::new(Calls::Possible);
    assert_eq!(holdback.push("  <tool"), "");
    assert_eq!(holdback.void(), Ok(()));
    assert_eq!(holdback.push("Yes"), "Yes");
    assert_eq!(holdback.void(), Err(AlreadySent));
}

/// Fragments of calls.
const PIECES: [&str; 30] = [
    "Let me look. ",
    "\n",
    "  ",
    "\n\n",
    "<tool_call>",
    "</tool_call>",
    "<tools>",
    "{\"name\": \"execute_bash\", \"arguments\": {\"command\": \"ls\"}}",
    "{\"execute_bash\": {\"command\": \"ls\"}}",
    "[{\"name\": \"submit\", \"arguments\": {}}]",
    "```bash\n",
    "```\n",
    "````",
    "```json\n",
    "`",
    "<",
    "[",
    "{",
    "}",
    "submit",
    "[TOOL_CALLS]",
    "<function=execute_bash>",
    "<parameter=command>ls</parameter>",
    "</function>",
    "<|python_tag|>",
    "1 < 2",
    "<｜tool▁calls▁begin｜>",
    "größer",
    "execute_bash",
    "ls\n",
];

/// Forwards the pieces as the server does.
struct Forwarder(Mutex<(Holdback, String)>);

impl Listener for Forwarder {
    fn on_delta(&self, delta: Delta<'_>) {
        let Delta::Text(piece) = delta else { panic!("only text is said: {delta:?}") };
        let (holdback, sent) = &mut *self.0.lock().unwrap();
        sent.push_str(holdback.push(piece));
    }
}

fn tools() -> Vec<ToolSpec> {
    let parameters = json!({ "type": "object", "properties": { "command": { "type": "string" } } });
    let named = |name: &str| ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: parameters.clone(),
    };
    vec![named("execute_bash"), named("submit")]
}

/// What is sent of a text, early and in the end, and what it turned out to be.
fn streamed(said: &str, pieces: usize, format: ToolFormat) -> (String, String) {
    let model = Formatted::new(ScriptedModel::new([say(said).pieces(pieces)]), format);
    let recorder = Forwarder(Mutex::new((Holdback::new(Calls::Possible), String::new())));
    let (messages, tools, sampling) = ([Message::user("Go.")], tools(), Sampling::default());
    let request =
        Request { messages: &messages, tools: &tools, sampling: &sampling, max_tokens: 9 };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let response = runtime.block_on(model.complete(&request, &recorder)).unwrap();
    let (holdback, sent) = recorder.0.into_inner().unwrap();
    (sent + holdback.rest(&response.message.text), response.message.text)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_adds_up_to_the_response(
        picked in prop::collection::vec(0..PIECES.len(), 0..12),
        pieces in 1_usize..40,
        format in 0_usize..3,
    ) {
        let said: String = picked.into_iter().map(|at| PIECES[at]).collect();
        let formats = [ToolFormat::Hermes, ToolFormat::Qwen3Coder, ToolFormat::Fenced];
        let (sent, text) = streamed(&said, pieces, formats[format]);
        prop_assert_eq!(sent, text.trim_start());
    }
}
