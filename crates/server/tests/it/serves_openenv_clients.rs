//! An unedited client of OpenEnv, and what its protocol says about a server.

use std::{net::SocketAddr, process::Stdio};

use environment::Options;
use reqwest::Method;
use sandbox_testkit::{setting, skip};
use serde_json::Value;
use tokio::process::Command;

use crate::{environments::options, support::with_server};

/// The snippets of Python in the documentation about environments: the one over HTTP, and the one with OpenEnv's client.
fn snippets(address: SocketAddr) -> [String; 2] {
    let page = include_str!("../../../../docs/server.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Environments")).unwrap();
    let blocks = section.split("```python\n").skip(1);
    let blocks = blocks.map(|block| block.split("\n```").next().unwrap());
    let blocks: Vec<String> =
        blocks.map(|block| block.replace("127.0.0.1:7777", &address.to_string())).collect();
    blocks.try_into().unwrap()
}

/// Runs a script of Python and returns its output.
async fn python(script: &str, package: Option<std::ffi::OsString>, url: &str) -> String {
    let mut command = Command::new("python3");
    for proxy in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"] {
        command.env_remove(proxy);
    }
    if let Some(package) = package {
        command.env("PYTHONPATH", package);
    }
    command.env("SERVER_URL", url).args(["-c", script]).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_documented_session_is_played() {
    with_server(options(Options::default()), async |server| {
        let [http, _] = snippets(server.address);
        let text = python(&http, None, "").await;
        assert_eq!(text, "True submitted True 1.0\n");
        server.has_sandboxes(0).await;
    });
}

#[test]
fn the_python_package_plays_episodes() {
    let Some(package) = setting("LIS_TEST_OPENENV") else {
        return skip("openenv", "LIS_TEST_OPENENV names no directory with the package openenv");
    };
    with_server(options(Options::default()), async |server| {
        let [_, documented] = snippets(server.address);
        // One process, because the package takes seconds to import.
        let script = documented + "\n" + include_str!("../clients/openenv_client.py");
        let text = python(&script, Some(package), &format!("http://{}", server.address)).await;
        assert!(text.contains("\n1.0 True\n") && text.ends_with("done\n"), "{text}");
        // Closed connections leave nothing.
        server.has_sandboxes(0).await;
    });
}

#[test]
fn a_server_describes_itself() {
    with_server(options(Options::default()), async |server| {
        let get = async |path: &str| {
            let response = server.request(Method::GET, path).send().await.unwrap();
            (response.status().as_u16(), response.json::<Value>().await.unwrap())
        };
        let (status, metadata) = get("/openenv/math/metadata").await;
        assert_eq!((status, &metadata["name"]), (200, &"math".into()));
        let (_, schema) = get("/schema").await;
        let kinds = ["action", "observation", "state"];
        assert!(kinds.iter().all(|kind| schema[kind]["type"] == "object"), "{schema}");
        assert_eq!(get("/openenv/math/health").await.1["status"], "healthy");
        assert_eq!(get("/openenv/none/metadata").await.0, 404);
        // Without a WebSocket there is no session.
        assert!(
            server.request(Method::GET, "/ws").send().await.unwrap().status().is_client_error()
        );
    });
}
