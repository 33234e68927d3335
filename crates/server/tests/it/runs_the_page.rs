//! The snippets of the page about the server for clients of E2B and MCP, as they stand there, but for the address. Those of
//! other sections are run where their servers are tested.

use std::{ffi::OsString, process::Stdio};

use lis_server::ServeOptions;
use sandbox_testkit::{setting, skip};
use tokio::process::Command;

use crate::support::{TestServer, with_server};

const PAGE: &str = include_str!("../../../../docs/server.md");

/// The code blocks in a language of the section with this title, or of what comes before the first one.
fn blocks(title: &str, language: &str) -> Vec<&'static str> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(title)).unwrap();
    let blocks = section.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

fn package(variable: &str) -> Option<OsString> {
    let found = setting(variable);
    if found.is_none() {
        skip("pip", &format!("{variable} names no directory with the package"));
    }
    found
}

/// Runs a program with a snippet and a package, and returns what it prints.
async fn run(server: &TestServer, program: &[&str], package: &OsString, snippet: &str) -> String {
    let output = Command::new(program[0])
        .args(&program[1..])
        .arg(snippet.replace("127.0.0.1:7777", &server.address.to_string()))
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // The environment may name a proxy, which does not know this machine's own addresses.
        .envs(["NO_PROXY", "no_proxy"].map(|name| (name, "*")))
        .envs(["E2B_API_URL", "E2B_SANDBOX_URL"].map(|n| (n, format!("http://{}", server.address))))
        .env("E2B_API_KEY", format!("e2b_{}", "0".repeat(40)))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{snippet}\n{text}\n{errors}");
    text.into_owned()
}

const PYTHON: [&str; 2] = ["python3", "-c"];
const NODE: [&str; 3] = ["node", "--input-type=module", "-e"];

#[test]
fn the_snippets_for_clients_of_e2b() {
    let (Some(package), Some(modules)) = (package("LIS_TEST_E2B"), package("LIS_TEST_E2B_JS"))
    else {
        return;
    };
    with_server(ServeOptions::default(), async |server| {
        let expected = ["6\n\n", "[0, 1, 4, 9, 16, 25, 36, 49]\n", "hello\n\n"];
        let snippets = blocks("# Sandboxes and episodes", "python");
        assert_eq!(snippets.len(), expected.len());
        for (snippet, expected) in snippets.into_iter().zip(expected) {
            assert_eq!(run(server, &PYTHON, &package, snippet).await, expected);
        }
        let [snippet] = blocks("# Sandboxes and episodes", "js")[..] else { panic!("one") };
        // Found by its path: packages are looked up beside the script, which is elsewhere.
        let module = std::path::Path::new(&modules).join("node_modules/e2b/dist/index.mjs");
        let snippet = snippet.replace("'e2b'", &format!("'{}'", module.display()));
        assert_eq!(run(server, &NODE, &modules, &snippet).await, "6\n\n");
    });
}

#[test]
fn the_snippet_for_clients_of_mcp() {
    let Some(package) = package("LIS_TEST_MCP") else { return };
    with_server(ServeOptions::default(), async |server| {
        let [snippet] = blocks("MCP", "python")[..] else { panic!("one") };
        let text = run(server, &PYTHON, &package, snippet).await;
        assert_eq!(text, "[exit code 0]\n[stdout]\n42\n");
    });
}
