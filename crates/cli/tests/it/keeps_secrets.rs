//! Keys reach the server and nothing else: not the sandbox, not the record, not the output.

use std::{fs, path::Path};

use testkit::{MockServer, bash, submit};

use crate::{
    episodes::{folder, run},
    support::{Home, code, err, out, write},
};

const KEY: &str = "sk-hush-0123456789abcdef";

/// Whether a file below this directory holds the text.
fn holds(dir: &Path, text: &str) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|entry| match entry.file_type().unwrap().is_dir() {
        true => holds(&entry.path(), text),
        false => {
            let bytes = fs::read(entry.path()).unwrap();
            String::from_utf8_lossy(&bytes).contains(text)
        }
    })
}

#[test]
fn keys_reach_the_server_alone() {
    let Some(home) = Home::with_sandboxes() else { return };
    write(&home.file("settings.yaml"), format!("api_key: {KEY}\n"));
    let ways: [(&[&str], Option<&str>); 5] = [
        (&["--api_key", KEY], None),
        (&["--settings", "settings.yaml"], None),
        (&[], Some("LLM_API_KEY")),
        (&[], Some("OPENAI_API_KEY")),
        (&["--api-key-env", "MY_KEY"], Some("MY_KEY")),
    ];
    for (args, variable) in ways {
        let look = "env > /testbed/output/env.txt; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' > /testbed/output/proc.txt; true";
        let server = MockServer::scripted([bash(look), submit()]).unwrap();
        let mut command = run(&home, &server.base_url(), ["Do it", "--json", "--watch"]);
        command.args(args).args(["--header", &format!("X-More: more-{KEY}")]);
        if let Some(variable) = variable {
            command.env(variable, KEY);
        }
        let output = command.output().unwrap();
        assert_eq!(code(&output), 0, "{args:?} {variable:?}: {}", err(&output));
        let asked = &server.requests()[0];
        assert_eq!(asked.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        assert_eq!(asked.header("x-more"), Some(format!("more-{KEY}").as_str()));
        assert!(folder(&home).join("files/proc.txt").is_file());
        assert!(!holds(&home.file("out"), KEY), "{args:?}");
        assert!(!out(&output).contains(KEY) && !err(&output).contains(KEY), "{args:?}");
        fs::remove_dir_all(home.file("out")).unwrap();
    }
}

#[test]
fn values_of_variables_are_not_recorded() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server =
        MockServer::scripted([bash("test -n \"$TOKEN\" && echo there"), submit(), submit()])
            .unwrap();
    let mut command = run(&home, &server.base_url(), ["Do it", "--env", "TOKEN"]);
    let output = command.env("TOKEN", KEY).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(server.requests()[1].mentions("there"));
    assert!(!holds(&home.file("out"), KEY));
}

#[test]
fn a_key_for_another_vendor_is_not_sent() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::scripted([submit(), submit()]).unwrap();
    let mut command = run(&home, &server.base_url(), ["Do it"]);
    let output = command.env("ANTHROPIC_API_KEY", KEY).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(server.requests()[0].header("authorization"), None);
}
