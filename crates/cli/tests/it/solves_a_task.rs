//! A model gets a task, files and a computer; its answer and its files come back.

use std::fs;

use serde_json::json;
use testkit::{Call, MockServer, bash, calls, edit, say, submit};

use crate::{
    episodes::{check_record, folder, json, kinds, ran, run},
    support::{Home, code, err, out, write},
};

#[test]
fn the_answer_is_printed_and_everything_is_kept() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::scripted([
        bash("echo 6*7 > /tmp/x && expr 6 \\* 7 > /testbed/output/answer.txt")
            .reasoning("I compute.")
            .text("Let me see."),
        submit(),
    ])
    .unwrap();
    let output = ran(&home, &server, ["What is 6 times 7?"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "42\n"), "{}", err(&output));
    let folder = check_record(&home, &output, "submitted");
    assert_eq!(fs::read_to_string(folder.join("files/answer.txt")).unwrap(), "42\n");
    let record = json(&folder.join("trajectory.json"));
    assert_eq!(record["problem_statement"], "What is 6 times 7?");
    let steps = record["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[0]["thought"], "Let me see.");
    assert_eq!(steps[0]["reasoning_content"], "I compute.");
    assert_eq!(steps[0]["action"]["function"], "execute_bash");
    assert_eq!(steps[0]["metadata"]["exit_code"], 0);
    assert_eq!(steps[1]["action"], json!({"function": "submit", "parameters": {}}));
    let summary = json(&folder.join("run.json"));
    assert_eq!(summary["answer"], "42");
    assert_eq!(summary["files"], json!(["answer.txt"]));
    assert_eq!(summary["spent"]["turns"], 2);
    // What the terminal would show goes to standard error, without escape codes.
    let shown = err(&output);
    assert!(shown.contains("expr 6") && shown.contains("Let me see."), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn files_of_any_kind_go_in_and_come_out() {
    let Some(home) = Home::with_sandboxes() else { return };
    let bytes: Vec<u8> = (0..=255).collect();
    write(&home.file("in/deep/data.bin"), &bytes);
    write(&home.file("in/note.txt"), "hello");
    let copy =
        "cd /testbed && cp -r input/deep output/ && tr a-z A-Z < input/note.txt > output/up.txt";
    let server = MockServer::scripted([bash(copy), submit()]).unwrap();
    let output = ran(&home, &server, ["Copy", "--input", "in", "--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let printed: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(printed["files"], json!(["deep/data.bin", "up.txt"]));
    assert_eq!(printed["answer"], serde_json::Value::Null);
    let folder = check_record(&home, &output, "submitted");
    assert_eq!(fs::read(folder.join("files/deep/data.bin")).unwrap(), bytes);
    assert_eq!(fs::read_to_string(folder.join("files/up.txt")).unwrap(), "HELLO");
}

#[test]
fn several_calls_in_a_reply_are_done_in_order() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::scripted([
        calls([
            Call::bash("cd /tmp; X=1"),
            Call::bash("echo $X $PWD"),
            Call::new("str_replace_editor", json!({"command": "view", "path": "/nowhere"})),
        ]),
        edit(
            json!({"command": "create", "path": "/testbed/output/answer.txt", "file_text": "yes"}),
        ),
        submit(),
    ])
    .unwrap();
    let output = ran(&home, &server, ["Do it"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "yes\n"), "{}", err(&output));
    let second = &server.requests()[1];
    let results: Vec<_> = second.messages().iter().filter(|m| m["role"] == "tool").collect();
    assert_eq!(results.len(), 3);
    assert!(results[1]["content"].as_str().unwrap().contains("1 /tmp"), "{results:?}");
    assert!(results[2]["content"].as_str().unwrap().contains("99 steps remaining"), "{results:?}");
    assert!(!results[0]["content"].as_str().unwrap().contains("remaining"), "{results:?}");
}

#[test]
fn a_model_that_only_talks_is_reminded_and_then_ended() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::answering(|_| say("The answer is 42.")).unwrap();
    let output = ran(&home, &server, ["Do it"]);
    assert_eq!(code(&output), 3, "{}", err(&output));
    check_record(&home, &output, "no_tool_calls");
    let requests = server.requests();
    let last = requests.last().unwrap().messages().last().unwrap().to_string();
    assert!(last.contains("call one of the tools"), "{last}");
    assert_eq!(requests.len(), 5);
}

#[test]
fn limits_end_an_episode_with_their_own_name() {
    let Some(home) = Home::with_sandboxes() else { return };
    for (args, outcome) in [
        (vec!["--max-turns", "2"], "max_turns"),
        (vec!["--max-tokens", "150"], "max_tokens"),
        (vec!["--deadline", "2"], "deadline"),
    ] {
        let server = MockServer::answering(|_| bash("sleep 0.6").tokens(100, 60)).unwrap();
        let output = ran(&home, &server, args.into_iter().chain(["Do it"]));
        assert_eq!(code(&output), 3, "{outcome}: {}", err(&output));
        check_record(&home, &output, outcome);
        fs::remove_dir_all(home.file("out")).unwrap();
    }
}

#[test]
fn money_is_counted_and_limited() {
    let Some(home) = Home::with_sandboxes() else { return };
    write(
        &home.file("prices.json"),
        r#"{"models": {"mock": {"input": 1000000.0, "output": 0.0}}}"#,
    );
    let server = MockServer::answering(|_| bash("true").tokens(1, 5)).unwrap();
    let output =
        ran(&home, &server, ["Do it", "--max-cost", "2.5", "--prices", "prices.json", "--json"]);
    assert_eq!(code(&output), 3, "{}", err(&output));
    check_record(&home, &output, "cost");
    let printed: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(printed["spent"]["cost"], 3.0);
    let refused = ran(&home, &server, ["Do it", "--max-cost", "2.5"]);
    assert_eq!(code(&refused), 2);
    assert!(err(&refused).contains("--prices"), "{}", err(&refused));
}

#[test]
fn a_cached_run_is_repeated_without_a_server() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::scripted([
        bash("echo 1 > /testbed/output/answer.txt; ls /testbed; date +%Y > /tmp/y"),
        submit(),
    ])
    .unwrap();
    let url = server.base_url();
    let args = ["Do it", "--cache", "cache"];
    let first = run(&home, &url, args).output().unwrap();
    assert_eq!((code(&first), out(&first).as_str()), (0, "1\n"), "{}", err(&first));
    drop(server);
    fs::remove_dir_all(home.file("out")).unwrap();
    let again = run(&home, &url, args).output().unwrap();
    assert_eq!((code(&again), out(&again).as_str()), (0, "1\n"), "{}", err(&again));
    check_record(&home, &again, "submitted");
}

#[test]
fn both_vendors_and_text_formats_are_spoken() {
    let Some(home) = Home::with_sandboxes() else { return };
    let answer = "echo ok > /testbed/output/answer.txt";
    let hermes = |name: &str, arguments: serde_json::Value| {
        let call = json!({"name": name, "arguments": arguments});
        say(format!("Now.\n<tool_call>\n{call}\n</tool_call>"))
    };
    let scripts = [
        (vec!["--provider", "anthropic"], vec![bash(answer), submit()]),
        (
            vec!["--tool-format", "hermes"],
            vec![hermes("execute_bash", json!({"command": answer})), hermes("submit", json!({}))],
        ),
        (
            vec!["--tool-format", "fenced"],
            vec![say(format!("```bash\n{answer}\n```")), say("Done.\n```bash\nsubmit\n```")],
        ),
        (
            vec!["--tool-format", "qwen3-coder"],
            vec![
                say(format!(
                    "<tool_call>\n<function=execute_bash>\n<parameter=command>\n{answer}\n</parameter>\n\
                 </function>\n</tool_call>"
                )),
                say("<tool_call>\n<function=submit>\n</function>\n</tool_call>"),
            ],
        ),
    ];
    for (args, script) in scripts {
        let server = MockServer::scripted(script).unwrap();
        let output = ran(&home, &server, args.iter().copied().chain(["Do it"]));
        assert_eq!(
            (code(&output), out(&output).as_str()),
            (0, "ok\n"),
            "{args:?}: {}",
            err(&output)
        );
        check_record(&home, &output, "submitted");
        fs::remove_dir_all(home.file("out")).unwrap();
    }
}

#[test]
fn a_model_that_sees_gets_the_picture() {
    let Some(home) = Home::with_sandboxes() else { return };
    // The smallest picture there is.
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let make = format!("echo {png} | base64 -d > /testbed/output/p.png");
    let server = MockServer::scripted([
        bash(make),
        edit(json!({"command": "view", "path": "/testbed/output/p.png"})),
        submit(),
    ])
    .unwrap();
    let output = ran(&home, &server, ["Look", "--images", "yes"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(server.requests()[2].mentions(png));
    assert!(folder(&home).join("files/p.png").is_file());
    assert_eq!(kinds(&folder(&home)).iter().filter(|kind| *kind == "replied").count(), 3);
}

#[test]
fn a_reminder_speaks_the_models_format_and_names_the_cut() {
    let Some(home) = Home::with_sandboxes() else { return };
    let cut = say("I think and think").stop(trajectory::Stop::Length);
    let server =
        MockServer::scripted([cut, say("```bash\nsubmit\n```"), say("```bash\nsubmit\n```")])
            .unwrap();
    let output = ran(&home, &server, ["Do it", "--tool-format", "fenced"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let reminder = server.requests()[1].messages().last().unwrap().to_string();
    assert!(reminder.contains("cut off") && reminder.contains("```bash block"), "{reminder}");
}

#[test]
fn too_many_calls_at_once_are_not_all_done() {
    let Some(home) = Home::with_sandboxes() else { return };
    let many = calls((0..40).map(|_| Call::bash("echo x >> /testbed/output/answer.txt")));
    let server = MockServer::scripted([many, submit()]).unwrap();
    let output = ran(&home, &server, ["Do it"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(out(&output).lines().count(), 32);
    let answers = server.requests()[1].messages().iter().filter(|m| m["role"] == "tool").count();
    assert_eq!(answers, 40);
}

#[test]
fn a_watched_pipe_gets_no_control_sequences() {
    let Some(home) = Home::with_sandboxes() else { return };
    let look = bash("echo here").text("I look.").after(std::time::Duration::from_millis(300));
    let server = MockServer::scripted([look, submit(), submit()]).unwrap();
    let output = ran(&home, &server, ["Look", "--watch"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let shown = err(&output);
    assert!(shown.contains("I look.\n$ echo here\n│ "), "{shown}");
    assert!(!shown.contains(['\r', '\u{1b}']), "{shown:?}");
}

#[test]
fn the_task_may_be_in_a_file() {
    let Some(home) = Home::with_sandboxes() else { return };
    write(&home.file("task.md"), "Count the\nodd words.\n");
    let server = MockServer::scripted([submit(), submit()]).unwrap();
    let output = ran(&home, &server, ["--task-file", "task.md"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(server.requests()[0].mentions("odd words."));
    let record = json(&folder(&home).join("trajectory.json"));
    assert_eq!(record["problem_statement"], "Count the\nodd words.\n");
}

#[test]
fn what_the_network_policy_refused_is_said_once_at_the_end() {
    let Some(home) = Home::with_sandboxes() else { return };
    let fetch = "for i in 1 2 3; do exec 3<>/dev/tcp/127.0.0.1/3128; \
                 printf 'CONNECT pypi.example:443 HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3; done";
    let server = MockServer::scripted([bash(fetch), submit(), submit()]).unwrap();
    let output = ran(&home, &server, ["Install it", "--network", "allow=a.example"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let shown = err(&output);
    let line = "refused connections: 3 to pypi.example:443 (not among the allowed hosts); to allow them, use \
                --network allow=a.example,pypi.example\n";
    assert_eq!(shown.matches(line).count(), 1, "{shown}");
    let summary = json(&folder(&home).join("run.json"));
    let refused =
        json!([{"host": "pypi.example", "port": 443, "reason": "not_allowed", "count": 3}]);
    assert_eq!(summary["refused_connections"], refused);
    let told = server.requests()[1].messages().last().unwrap().to_string();
    assert!(told.contains("403 Forbidden") && !told.contains("--network"), "{told}");
    // The same for a single command.
    let output =
        home.run(["sandbox", "run", "--network", "allow=a.example", "--", "bash", "-c", fetch]);
    assert_eq!(err(&output).matches(line).count(), 1, "{}", err(&output));
}

#[test]
fn public_addresses_can_be_allowed_and_others_are_named() {
    let Some(home) = Home::with_sandboxes() else { return };
    let fetch = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT 10.0.0.1:443 HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3; \
                 getent ahostsv4 metadata.google.internal || echo unknown";
    let server = MockServer::scripted([bash(fetch), submit(), submit()]).unwrap();
    let output = ran(&home, &server, ["Install it", "--network", "internet"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let line = "refused connections: 1 to 10.0.0.1:443 (not a public address), 1 lookup of \
                metadata.google.internal (not a public address)\n";
    assert_eq!(err(&output).matches(line).count(), 1, "{}", err(&output));
    let told = server.requests()[1].messages().last().unwrap().to_string();
    assert!(
        told.contains("10.0.0.1 is not a public address") && told.contains("unknown"),
        "{told}"
    );
    let system = server.requests()[0].messages()[0].to_string();
    assert!(system.contains("Public servers can be reached over TCP"), "{system}");
    let summary = json(&folder(&home).join("run.json"));
    assert_eq!(summary["refused_connections"][0]["reason"], "not_public");
}
