//! Tools: what is sent while calls may be written, and what becomes of the wish for a call.

use std::sync::Arc;

use model::{Formatted, ToolChoice, ToolFormat};
use serde_json::{Value, json};
use testkit::{Call, ScriptedModel, calls, say};
use trajectory::{Message, Stop};

use crate::support::{Got, Server, question, tools};

/// The chunks of a stream put together as clients do it: text and names of calls.
fn gathered(got: &Got) -> (String, Vec<String>, String) {
    let (mut text, mut names, mut finish) = (String::new(), Vec::new(), String::new());
    for event in got.events().iter().filter(|event| *event != "[DONE]") {
        let chunk: Value = serde_json::from_str(event).unwrap();
        let choice = &chunk["choices"][0];
        text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(call["index"], names.len());
            names.push(call["function"]["name"].as_str().unwrap().to_owned());
        }
        finish.push_str(choice["finish_reason"].as_str().unwrap_or_default());
    }
    (text, names, finish)
}

const HERMES: &str = "Let me look.\n<tool_call>\n{\"name\": \"execute_bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>";
const BLOCK: &str = "I list them.\n\n```bash\nls\n```\n";

#[tokio::test]
async fn a_call_written_in_the_text_is_no_content() {
    for (format, said, text) in
        [(ToolFormat::Hermes, HERMES, "Let me look."), (ToolFormat::Fenced, BLOCK, "I list them.")]
    {
        let scripted = || Formatted::new(ScriptedModel::new([say(said), say(said)]), format);
        let server = Server::of(scripted()).await;
        let got = server.ask(&question(json!({ "tools": tools(), "stream": true }))).await;
        let expected = (text.to_owned(), vec!["execute_bash".to_owned()], "tool_calls".to_owned());
        assert_eq!(gathered(&got), expected);
        let got = server.ask(&question(json!({ "tools": tools() }))).await.json();
        let choice = &got["choices"][0];
        assert_eq!(
            (&choice["message"]["content"], &choice["finish_reason"]),
            (&json!(text), &json!("tool_calls"))
        );
        let call = &choice["message"]["tool_calls"][0];
        assert_eq!(
            call["function"],
            json!({ "name": "execute_bash", "arguments": "{\"command\":\"ls\"}" })
        );
    }
}

#[tokio::test]
async fn text_that_only_looks_like_a_call_comes_whole() {
    let said = "An example:\n```json\n{\"a\": [1]}\n```\nThat is <b>all</b>, 1 < 2.";
    let model = Formatted::new(ScriptedModel::answering(move |_| say(said)), ToolFormat::Hermes);
    let server = Server::of(model).await;
    let got = server.ask(&question(json!({ "tools": tools(), "stream": true }))).await;
    assert_eq!(gathered(&got), (said.to_owned(), Vec::new(), "stop".to_owned()));
}

#[tokio::test]
async fn without_tools_a_call_is_text() {
    let model = Formatted::new(ScriptedModel::answering(|_| say(HERMES)), ToolFormat::Hermes);
    let server = Server::of(model).await;
    for more in [
        json!({ "stream": true }),
        json!({ "stream": true, "tools": tools(), "tool_choice": "none" }),
    ] {
        let got = server.ask(&question(more)).await;
        assert_eq!(gathered(&got), (HERMES.to_owned(), Vec::new(), "stop".to_owned()));
    }
}

#[tokio::test]
async fn a_required_call_is_requested_again() {
    let scripted =
        Arc::new(ScriptedModel::new([say("I would rather not."), calls([Call::bash("ls")])]));
    let server = Server::of(scripted.clone()).await;
    let wish = json!({ "tools": tools(), "tool_choice": "required", "stream": true });
    let got = server.ask(&question(wish)).await;
    assert_eq!(
        gathered(&got),
        (String::new(), vec!["execute_bash".to_owned()], "tool_calls".to_owned())
    );
    let asked = scripted.requests();
    assert!(matches!(asked[1].messages.last(), Some(Message::User { .. })));
    assert!(asked.iter().all(|asked| asked.sampling.tool_choice == ToolChoice::Required));
    assert_eq!(asked[1].messages.len(), 3);
}

#[tokio::test]
async fn a_required_call_is_one_of_those_offered() {
    let both = || calls([Call::new("rm_rf", json!({})), Call::submit()]);
    let server = Server::of(ScriptedModel::answering(move |_| both())).await;
    let choice = json!({ "type": "function", "function": { "name": "submit" } });
    for parallel in [true, false] {
        let wish =
            json!({ "tools": tools(), "tool_choice": choice, "parallel_tool_calls": parallel });
        let got = server.ask(&question(wish)).await;
        let made = &got.json()["choices"][0]["message"]["tool_calls"];
        assert_eq!(made.as_array().unwrap().len(), 1, "{made}");
        assert_eq!(made[0]["function"]["name"], "submit");
    }
}

#[tokio::test]
async fn a_required_call_that_never_comes_is_a_failure() {
    let scripted = Arc::new(ScriptedModel::answering(|_| say("No.")));
    let server = Server::of(scripted.clone()).await;
    let got = server.ask(&question(json!({ "tools": tools(), "tool_choice": "required" }))).await;
    assert_eq!((got.status, &got.error()["code"]), (422, &json!("no_tool_call")));
    assert_eq!(scripted.requests().len(), 3);
}

#[tokio::test]
async fn a_required_call_that_is_cut_off_is_not_requested_again() {
    let scripted = Arc::new(ScriptedModel::answering(|_| say("Let me").stop(Stop::Length)));
    let server = Server::of(scripted.clone()).await;
    let got = server.ask(&question(json!({ "tools": tools(), "tool_choice": "required" }))).await;
    assert_eq!((got.status, &got.error()["code"]), (422, &json!("no_tool_call")));
    assert_eq!(scripted.requests().len(), 1);
}

#[tokio::test]
async fn a_chosen_tool_is_the_only_one_offered() {
    let scripted = Arc::new(ScriptedModel::answering(|_| calls([Call::submit()])));
    let server = Server::of(scripted.clone()).await;
    let choice = json!({ "type": "function", "function": { "name": "submit" } });
    let got = server.ask(&question(json!({ "tools": tools(), "tool_choice": choice }))).await;
    assert_eq!(got.json()["choices"][0]["message"]["content"], Value::Null);
    assert_eq!(scripted.requests()[0].tools, 1);
}

#[tokio::test]
async fn one_call_at_a_time_if_that_is_wanted() {
    let server =
        Server::of(ScriptedModel::answering(|_| calls([Call::bash("a"), Call::bash("b")]))).await;
    let number = async |more: Value| {
        let got = server.ask(&question(more)).await.json();
        got["choices"][0]["message"]["tool_calls"].as_array().unwrap().len()
    };
    assert_eq!(number(json!({ "tools": tools() })).await, 2);
    assert_eq!(number(json!({ "tools": tools(), "parallel_tool_calls": false })).await, 1);
}
