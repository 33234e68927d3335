//! A client calls every tool.

use serde_json::{Value, json};

use crate::support::{text, with_client};

#[test]
fn the_agents_tools_have_their_own_definitions() {
    with_client(async |client| {
        let info = client.initialize().await;
        assert_eq!(info["protocolVersion"], "2025-11-25");
        assert_eq!(info["capabilities"], json!({ "tools": {} }));
        let answer = client.request("tools/list", json!({})).await;
        let listed = answer["result"]["tools"].as_array().unwrap();
        let named = |name: &str| listed.iter().find(|tool| tool["name"] == name).unwrap();
        for spec in agent::tools::Tools::default().specs() {
            let tool = named(&spec.name);
            assert_eq!(tool["description"], spec.description.as_str());
            assert_eq!(tool["inputSchema"], spec.parameters);
        }
        for name in ["read_file", "write_file", "list_files"] {
            assert_eq!(named(name)["inputSchema"]["type"], "object");
        }
        assert_eq!(listed.len(), 6);
        assert_eq!(client.sandboxes().await, 0, "a session without a call has no sandbox");
    });
}

#[test]
fn one_sandbox_keeps_its_state_from_call_to_call() {
    with_client(async |client| {
        client.initialize().await;
        assert_eq!(client.bash("cd /tmp; x=41").await, "[exit code 0]\n(no output)");
        assert_eq!(client.bash("echo $PWD $((x + 1))").await, "[exit code 0]\n[stdout]\n/tmp 42");
        let failed = client.call("execute_bash", json!({ "command": "exit 3" })).await;
        assert_eq!(failed["_meta"]["llm-in-sandbox/exit-code"], 3);
        assert_eq!(failed["isError"], false, "a failing command is a result: {failed}");
        let create = json!({ "command": "create", "path": "/tmp/a.txt", "file_text": "one\n" });
        client.call("str_replace_editor", create).await;
        assert!(client.bash("cat /tmp/a.txt").await.ends_with("\none"));
        let missing = json!({ "command": "view", "path": "/tmp/none" });
        let missing = client.call("str_replace_editor", missing).await;
        assert_eq!(missing["isError"], true, "{missing}");
        let submitted = client.call("submit", json!({})).await;
        assert!(text(&submitted).starts_with("Submitted"));
        assert_eq!(client.sandboxes().await, 1);
    });
}

#[test]
fn files_are_transferred_exactly() {
    with_client(async |client| {
        client.initialize().await;
        let path = "/tmp/new/dir/a b.txt";
        let content = "ünïcode \u{1b}[31m\r\n\0 no newline";
        let written = client.call("write_file", json!({ "path": path, "content": content })).await;
        assert_eq!(written["isError"], false, "{written}");
        let read = client.call("read_file", json!({ "path": path })).await;
        assert_eq!(text(&read), content);
        let bytes = json!({ "path": "/tmp/raw", "content": "AP+AAQ==", "encoding": "base64" });
        client.call("write_file", bytes).await;
        let read = client.call("read_file", json!({ "path": "/tmp/raw" })).await;
        let resource = &read["content"][0]["resource"];
        assert_eq!(
            (&resource["blob"], &resource["uri"]),
            (&json!("AP+AAQ=="), &json!("file:///tmp/raw"))
        );
        let part = json!({ "path": "/tmp/raw", "offset": 1, "length": 2, "encoding": "base64" });
        let part = client.call("read_file", part).await;
        assert_eq!(part["content"][0]["resource"]["blob"], "/4A=");
        let list = client.call("list_files", json!({ "path": "/tmp", "depth": 3 })).await;
        let entries = &list["structuredContent"]["entries"];
        let has = |path: &str, kind: &str, size: Value| {
            let entry = json!({ "path": path, "kind": kind, "size": size });
            assert!(entries.as_array().unwrap().contains(&entry), "{entries}");
        };
        has(path, "file", json!(content.len()));
        has("/tmp/new", "directory", json!(0));
        assert_eq!(serde_json::from_str::<Value>(&text(&list)).unwrap(), list["structuredContent"]);
    });
}

#[test]
fn bad_calls_are_results_and_bad_requests_are_errors() {
    with_client(async |client| {
        client.initialize().await;
        for (tool, arguments) in [
            ("read_file", json!({ "path": "/none" })),
            ("read_file", json!({ "path": "/tmp" })),
            ("read_file", json!({})),
            ("read_file", json!({ "path": "/etc/passwd", "length": 0 })),
            ("write_file", json!({ "path": "/proc/none/x", "content": "" })),
            ("write_file", json!({ "path": "/tmp/x", "content": "!", "encoding": "base64" })),
            ("write_file", json!({ "path": "/tmp/x", "content": "x".repeat(6 << 20) })),
            ("list_files", json!({ "path": "/none" })),
            ("list_files", json!({ "depth": 99 })),
            ("execute_bash", json!({})),
            ("execute_bash", json!({ "command": "\0" })),
        ] {
            let result = client.call(tool, arguments).await;
            assert_eq!(result["isError"], true, "{tool}: {result}");
            assert!(result["_meta"].is_null(), "not ours: {result}");
        }
        for (method, params, code) in [
            ("tools/call", json!({ "name": "rm", "arguments": {} }), -32602),
            ("tools/call", json!({ "name": 7 }), -32602),
            ("tools/call", json!({ "name": "submit", "arguments": [] }), -32602),
            ("resources/read", json!({ "uri": "file:///etc/passwd" }), -32601),
            ("prompts/get", json!({ "name": "x" }), -32601),
            ("no/such", json!({}), -32601),
        ] {
            let answer = client.request(method, params).await;
            assert_eq!(answer["error"]["code"], code, "{method}: {answer}");
        }
    });
}

#[test]
fn progress_is_reported_to_those_who_ask() {
    with_client(async |client| {
        client.initialize().await;
        let params = json!({
            "name": "execute_bash",
            "arguments": { "command": "sleep 3.5" },
            "_meta": { "progressToken": "p" },
        });
        let id = client.start("tools/call", params).await;
        let progress = client.receive().await;
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!(progress["params"]["progressToken"], "p");
        // On a busy machine there are more.
        let mut answer = client.receive().await;
        while answer["method"] == "notifications/progress" {
            answer = client.receive().await;
        }
        assert_eq!(answer["id"], id);
    });
}
