//! Completion scripts work in the shells they are for.

use std::{io::Write, process::Command};

use crate::support::{Home, code, out};

/// What bash offers for the last of these words.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let probe = format!(
        "{script}\nCOMP_WORDS=({}) COMP_CWORD={last} COMPREPLY=()\n\
         f=$(complete -p llm-in-sandbox) f=${{f#*-F }}\n${{f%% *}} llm-in-sandbox '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.join(" "),
        words[last],
        words[last - 1],
    );
    // In a file: it is longer than an argument may be.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(probe.as_bytes()).unwrap();
    let shell = Command::new("bash").arg("--norc").arg(file.path()).output().unwrap();
    assert!(shell.stderr.is_empty(), "{}", String::from_utf8_lossy(&shell.stderr));
    out(&shell).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let home = Home::new();
    let script = out(&home.run(["completions", "bash"]));
    assert_eq!(offered(&script, &["llm-in-sandbox", "bench"]), ["benchmark"]);
    assert_eq!(offered(&script, &["llm-in-sandbox", "run", "--max-tu"]), ["--max-turns"]);
    let runtimes = offered(&script, &["llm-in-sandbox", "run", "--runtime", ""]);
    assert_eq!(runtimes, ["native", "docker"]);
}

#[test]
fn other_shells_have_scripts_and_unknown_ones_do_not() {
    let home = Home::new();
    assert!(out(&home.run(["completions", "zsh"])).starts_with("#compdef llm-in-sandbox"));
    assert!(out(&home.run(["completions", "fish"])).contains("complete -c llm-in-sandbox"));
    assert_eq!(code(&home.run(["completions", "cmd.exe"])), 2);
}
