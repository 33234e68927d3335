//! What a model has to do without is gone for real; the same probe succeeds where it is not taken away.

use std::net::TcpListener;

use serde_json::{Value, json};
use testkit::{Answer, MockServer, Received, bash, calls, say, submit};

use super::{attempts, benched, leave, sum, sums, text};
use crate::support::{Home, write};

/// A model that runs a probe and answers with what came of it.
fn probing(probe: String, answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> MockServer {
    let next = move |asked: &Received| match asked.turns() {
        0 => bash(&probe).into(),
        _ => answer(&last(asked)),
    };
    MockServer::answering(next).unwrap()
}

/// What the model saw last.
fn last(asked: &Received) -> String {
    asked.messages().last().unwrap()["content"].to_string()
}

/// Leaves an answer that is right if the probe said so.
fn judged(seen: &str) -> Answer {
    leave(if seen.contains("PROBE-WORKED") { "\\boxed{1}" } else { "\\boxed{-1}" }).into()
}

#[test]
fn without_a_network_nobody_is_reached() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 1);
    let data = data.to_str().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let probe = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo PROBE-$(echo WORKED)");
    let network = format!("allow=127.0.0.1:{port}");
    for (args, score) in
        [(&["--network", "full"][..], 1.0), (&["--network", "full", "--without", "external"], 0.0)]
    {
        let server = probing(probe.clone(), judged);
        let out = format!("out-{score}");
        let args = [&["math", "--data", data, "--output", &out], args].concat();
        let results = benched(&home, &server, &args, 0);
        assert_eq!(results["mean_score"], score, "{network}: {:?}", attempts(&home.file(&out)));
    }
}

#[test]
fn without_files_nothing_can_be_written_and_the_answer_is_said() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 1);
    let data = data.to_str().unwrap();
    let probe = "for d in /testbed /tmp /dev/shm /root /var/tmp; do echo x > $d/f && echo PROBE-$(echo WORKED); done; true";
    let server = probing(probe.into(), judged);
    let results = benched(&home, &server, &["math", "--data", data, "--output", "with"], 0);
    assert_eq!(results["mean_score"], 1.0, "the control failed");

    let said = |seen: &str| {
        let answer = if seen.contains("PROBE-WORKED") { "\\boxed{-1}" } else { "\\boxed{1}" };
        calls([testkit::Call::new("submit", json!({ "answer": answer }))]).into()
    };
    let server = probing(probe.into(), said);
    let args = ["math", "--data", data, "--output", "without", "--without", "files"];
    let results = benched(&home, &server, &args, 0);
    let kept = attempts(&home.file("without"));
    assert_eq!(results["mean_score"], 1.0, "{kept:?}");
    assert_eq!(kept[0]["answer"], "\\boxed{1}");
    let tools = tool_names(&server);
    assert_eq!(tools, ["execute_bash", "submit"]);
}

#[test]
fn without_execution_no_command_runs() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 1);
    let data = data.to_str().unwrap();
    let probe = "echo PROBE-$(echo WORKED)";
    for (args, score, tools) in [
        (&["--output", "with"][..], 1.0, 3),
        (&["--output", "without", "--without", "execution"], 0.0, 2),
    ] {
        let server = probing(probe.into(), judged);
        let results = benched(&home, &server, &[&["math", "--data", data], args].concat(), 0);
        assert_eq!(results["mean_score"], score);
        assert_eq!(tool_names(&server).len(), tools);
    }
}

#[test]
fn nothing_would_be_left_of_a_computer() {
    let home = Home::new();
    let server = MockServer::start().unwrap();
    let args = ["math", "--data", "x.jsonl", "--without", "files,execution"];
    let output = super::bench(&home, &server.base_url(), args).output().unwrap();
    assert!(crate::support::refusal(&output, 2).contains("--mode llm"));
}

#[test]
fn documents_are_files_or_part_of_the_prompt() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut row = sum(0);
    row["input_files"] = json!({"notes/a.txt": "the magic word is XYZZY"});
    let data = home.file("rows.jsonl");
    write(&data, format!("{row}\n"));
    let data = data.to_str().unwrap();
    let probe = "cat /testbed/documents/notes/a.txt && echo PROBE-$(echo WORKED)";
    for (place, score) in [("files", 1.0), ("prompt", 0.0)] {
        let server = probing(probe.into(), judged);
        let args = ["math", "--data", data, "--output", place, "--context", place];
        let results = benched(&home, &server, &args, 0);
        assert_eq!(results["mean_score"], score, "{place}");
        let first = &server.requests()[0];
        assert_eq!(first.mentions("XYZZY"), place == "prompt");
    }
    // A plain reply has them in the prompt in any case.
    let server = MockServer::answering(|_| say("\\boxed{1}")).unwrap();
    benched(&home, &server, &["math", "--data", data, "--output", "llm", "--mode", "llm"], 0);
    assert!(server.requests()[0].mentions("XYZZY"));
}

#[test]
fn what_a_model_left_counts_however_it_ended() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 1);
    let data = data.to_str().unwrap();
    let server = MockServer::answering(|_| bash("echo '\\boxed{1}' > answer.txt")).unwrap();
    let args = ["math", "--data", data, "--max-turns", "2"];
    let results = benched(&home, &server, &args, 0);
    assert_eq!(results["mean_score"], 1.0);
    assert_eq!(text(&attempts(&home.file("out"))[0]["outcome"]), "max_turns");
    // Nothing left at all is an answer too; it is asked about once.
    let server = MockServer::answering(|_| submit()).unwrap();
    let args = ["math", "--data", data, "--output", "empty"];
    let results = benched(&home, &server, &args, 0);
    assert_eq!((&results["mean_score"], &results["ungraded"]), (&json!(0.0), &json!(0)));
}

#[test]
fn a_reply_that_was_cut_off_is_graded_all_the_same() {
    let home = Home::new();
    let data = sums(&home, 1);
    let data = data.to_str().unwrap();
    let cut = || say("so it is \\boxed{1} beca").stop(trajectory_stop());
    let server = MockServer::answering(move |_| cut()).unwrap();
    let results = benched(&home, &server, &["math", "--data", data, "--mode", "llm"], 0);
    assert_eq!(results["mean_score"], 1.0);
    assert_eq!(results["groups"][0]["outcomes"], json!({"max_tokens": 1}));
    // The context was too small: asked with fewer tokens.
    let server = MockServer::start().unwrap();
    let words = "This model's maximum context length is 20000 tokens. However, you requested 65636 tokens (100 in the \
                 messages, 65536 in the completion).";
    server.push(Answer::error(400, words));
    server.push(say("\\boxed{1}"));
    let results = benched(
        &home,
        &server,
        &["math", "--data", data, "--mode", "llm", "--output", "shrunk"],
        0,
    );
    assert_eq!(results["mean_score"], 1.0);
    let asked = server.requests();
    assert!(asked[1].body["max_tokens"].as_u64().unwrap() < 20_000, "{:?}", asked[1].body);
}

fn trajectory_stop() -> trajectory::Stop {
    trajectory::Stop::Length
}

fn tool_names(server: &MockServer) -> Vec<String> {
    let tools = server.requests()[0].body["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool: &Value| text(&tool["function"]["name"])).collect()
}
