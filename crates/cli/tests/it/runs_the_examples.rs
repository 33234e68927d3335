//! Every example of `examples/README.md` runs with the command that stands there.

use std::{fs, path::PathBuf, process::Command};

use testkit::{MockServer, bash, submit};

use crate::support::{Home, program};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
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
