//! Every example of `examples/README.md` runs with the command that stands there.

use std::{fs, path::PathBuf, process::Command};

use testkit::{MockServer, bash, submit};

use crate::support::{Home, crate_path, program};

fn repository() -> PathBuf {
    crate_path("../..")
}

/// The commands in the table, as they are written.
fn commands() -> Vec<String> {
    let readme = repository().join("examples/README.md");
    let Ok(text) = fs::read_to_string(readme) else { return Vec::new() };
    let rows = text.lines().filter(|line| line.starts_with("| ["));
    let cells = rows.filter_map(|row| row.split('`').nth(1));
    cells.map(str::to_owned).collect()
}

#[test]
fn with_the_commands_that_stand_there() {
    let Some(home) = Home::with_sandboxes() else { return };
    let commands = commands();
    if commands.is_empty() {
        return crate::support::skip("examples", "the examples are not here");
    }
    assert_eq!(commands.len(), 10);
    let bin = home.file("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(program(), bin.join("llm-in-sandbox")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for command in commands {
        // What a model would do first: look at its files. The base image is another test's.
        let look = "cd /testbed && ls input | wc -l > output/answer.txt";
        let server = MockServer::scripted([bash(look), submit()]).unwrap();
        let line =
            command.replace("--model NAME", "--model mock --base-url \"$URL\" --output \"$OUT\"");
        assert_ne!(line, command);
        let line = line.replace("--image base", "");
        let output = Command::new("bash")
            .args(["-c", &line])
            .current_dir(repository())
            .env("PATH", &path)
            .env("URL", server.base_url())
            .env("OUT", home.file("out"))
            .env("LLM_IN_SANDBOX_HOME", home.state())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}");
        let files: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        assert_eq!(files > 0, command.contains("--input"), "{command}");
        let name = command.split("examples/").nth(1).unwrap().split('/').next().unwrap();
        let task = fs::read_to_string(repository().join("examples").join(name).join("task.md"));
        assert!(server.requests()[0].mentions(task.unwrap().trim().lines().next().unwrap()));
    }
}

#[test]
fn the_small_tasks_are_those_their_script_makes() {
    let dir = repository().join("examples/small-tasks");
    let Ok(tasks) = fs::read_to_string(dir.join("tasks.jsonl")) else {
        return crate::support::skip("examples", "the examples are not here");
    };
    let made = Command::new("python3").arg(dir.join("make.py")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(String::from_utf8(made.stdout).unwrap(), tasks);
    assert!(tasks.lines().count() >= 20);
}

#[test]
fn the_score_counts_right_answers() {
    let Some(home) = Home::with_sandboxes() else { return };
    let script = repository().join("examples/small-tasks/score.py");
    if !script.exists() {
        return crate::support::skip("examples", "the examples are not here");
    }
    // The first task is solved, the second is not.
    let server = MockServer::answering(|asked| match asked.turns() {
        0 if asked.mentions("prime numbers below 2388") => {
            bash("echo 389179 > /testbed/output/answer.txt")
        }
        _ => submit(),
    })
    .unwrap();
    let mut command = Command::new("python3");
    command.arg(script).args(["--limit", "2", "--program"]).arg(program());
    command.args(["--", "--model", "mock", "--base-url", &server.base_url()]);
    let output = command.env("LLM_IN_SANDBOX_HOME", home.state()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("arithmetic   1/2\nall          1/2  mock\n"), "{said}");
}
