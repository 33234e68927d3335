//! A reader follows `docs/tutorial.md`: every command is run, and prints what the page shows.
//!
//! A scripted model takes the place of the reader's. Numbers may differ; a line `...` stands for any lines.

use std::{env, ffi::OsString, os::unix::fs::symlink, process::Command};

use testkit::{Keep, MockServer, Received, bash, submit};

use crate::support::{Home, crate_path, program, skip};

const PAGE: &str = include_str!("../../../../docs/tutorial.md");

/// The commands of the page, with the lines shown below each.
fn commands(page: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let blocks = page.split("```console\n").skip(1);
    for line in blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines()) {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command.to_owned(), Vec::new())),
            // A command may continue on the next line.
            (None, Some((command, shown))) if command.ends_with('\\') && shown.is_empty() => {
                command.truncate(command.len() - 1);
                command.push_str(line.trim_start());
            }
            (None, Some((_, shown))) => shown.push(line.to_owned()),
            (None, None) => panic!("output before the first command: {line}"),
        }
    }
    found
}

/// A line with every number as `N` and every run of blanks as one: figures differ from machine to machine.
fn normalized(line: &str) -> String {
    let mut text = String::new();
    for c in line.trim_end().chars() {
        match c {
            '0'..='9' if text.ends_with('N') => {}
            '0'..='9' => text.push('N'),
            ' ' if text.ends_with(' ') => {}
            _ => text.push(c),
        }
    }
    text.replace("N.N", "N")
}

/// What the model does: at a low temperature all is right, at a high one one amount has the wrong form and one is wrong.
fn act(asked: &Received) -> testkit::Answer {
    let messages = asked.body["messages"].to_string();
    if messages.contains("\"tool_calls\"") {
        return submit().into();
    }
    let warm = asked.body["temperature"].as_f64() == Some(1.0);
    let answer = match messages {
        text if text.contains("cost together") => "41.85",
        text if text.contains("dearest") && warm => "23.5",
        text if text.contains("dearest") => "23.50",
        _ if warm => "15.85",
        _ => "34.15",
    };
    bash(format!("echo {answer} > /testbed/output/answer.txt")).into()
}

#[test]
fn every_command_prints_what_the_page_shows() {
    let Some(home) = Home::with_sandboxes() else { return };
    let has_pip = home.run(["sandbox", "run", "--", "pip", "--version"]);
    if !has_pip.status.success() {
        return skip("pip", "this machine's pip does not work in a sandbox");
    }
    let server = MockServer::answering_and(Keep::Counts, act).unwrap();
    let examples = crate_path("../../examples");
    symlink(examples, home.file("examples")).unwrap();
    let mut path: OsString = program().parent().unwrap().into();
    path.push(":");
    path.push(env::var_os("PATH").unwrap());
    for (command, shown) in commands(PAGE) {
        let ran = Command::new("bash")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(home.file(""))
            .env("PATH", &path)
            .env("LLM_IN_SANDBOX_HOME", home.state())
            .env("LLM_NAME", "my-model")
            .env("LLM_BASE_URL", server.base_url())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&ran.stdout);
        let mut lines = printed.lines().map(normalized);
        for line in shown.iter().filter(|line| *line != "...") {
            let wanted = normalized(line);
            assert!(
                lines.by_ref().any(|line| line == wanted),
                "`{command}` does not print\n{line}\nbut\n{printed}"
            );
        }
        let is_refused = shown.iter().any(|line| line.contains("error:"));
        assert_eq!(ran.status.success(), !is_refused, "{command}\n{printed}");
    }
    assert!(home.file("report/report.html").is_file());
}

#[test]
fn commands_are_found_with_their_output() {
    let page = "text\n```console\n$ a \\\n    b\none\n...\n$ c\n```\nmore\n```sh\nd\n```\n";
    let found = commands(page);
    assert_eq!(found[0], ("a b".to_owned(), vec!["one".to_owned(), "...".to_owned()]));
    assert_eq!(found[1..], [("c".to_owned(), vec![])]);
    assert_eq!(normalized("3/3  receipts  0.333 · 12k"), "N/N receipts N · Nk");
}
