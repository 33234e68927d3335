//! Clients that send what no client should.

use serde_json::{Value, json};

use crate::support::with_client;

#[test]
fn what_is_not_a_message_is_answered_and_harms_nothing() {
    with_client(async |client| {
        // Before the session is open, too.
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled" })).await;
        let early = client.request("tools/call", json!({ "name": "submit" })).await;
        assert!(early["error"].is_object(), "{early}");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client.initialize().await;
        for (line, code) in [
            (&b"{\n"[..], -32700),
            (b"\xff\xfe\x00\n", -32700),
            (b"[]\n", -32600),
            (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}\n", -32600),
        ] {
            client.send_bytes(line).await;
            let answer = client.receive().await;
            assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &Value::Null));
        }
        // Empty lines, answers to nothing and cancellations of nothing are ignored.
        client.send_bytes(b"\n \r\n").await;
        client.send(&json!({ "jsonrpc": "2.0", "id": 99, "result": {} })).await;
        let nothing = json!({ "requestId": 12345 });
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": nothing })).await;
        assert!(client.bash("echo fine").await.contains("fine"));
    });
}

#[test]
fn huge_lines_are_refused_without_being_kept() {
    with_client(async |client| {
        client.initialize().await;
        // The session's end of the pipe holds 64 KiB: the rest must have been read and thrown away.
        let chunk = vec![b'x'; 1 << 20];
        for _ in 0..64 {
            client.send_bytes(&chunk).await;
        }
        client.send_bytes(b"\n").await;
        let answer = client.receive().await;
        assert_eq!(answer["error"]["code"], -32600);
        assert!(client.bash("echo fine").await.contains("fine"));
    });
}

#[test]
fn a_flood_of_calls_is_bounded() {
    with_client(async |client| {
        client.initialize().await;
        // One call holds the shell, the others wait for it or are refused. Calls that are sent at once run in any order, so it has
        // to hold the shell before the others are sent, and until they are refused.
        let hold = json!({ "command": "touch /tmp/held; sleep 1000" });
        let holder = client.start_call("execute_bash", hold).await;
        let held = json!({ "path": "/tmp/held" });
        while client.call("read_file", held.clone()).await["isError"] == true {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        for _ in 0..50 {
            client.start_call("execute_bash", json!({ "command": "true" })).await;
        }
        let is_refused = |answer: &Value| {
            answer["result"]["_meta"]["llm-in-sandbox/failure"] == "infrastructure"
        };
        for number in 1..=35 {
            let answer = client.receive().await;
            assert!(is_refused(&answer), "16 at once; answer {number}: {answer}");
        }
        let cancelled = json!({ "requestId": holder });
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled })).await;
        for number in 1..=15 {
            let answer = client.receive().await;
            assert!(!is_refused(&answer), "of those that waited, {number}: {answer}");
        }
        assert!(client.bash("echo fine").await.contains("fine"));
    });
}

#[test]
fn an_id_in_use_is_refused() {
    with_client(async |client| {
        client.initialize().await;
        let id = client.start_call("execute_bash", json!({ "command": "sleep 0.5" })).await;
        let again = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
        client.send(&again).await;
        let refused = client.receive().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(id), &json!(-32600)));
        let answer = client.receive().await;
        assert!(answer["id"] == id && answer["result"].is_object(), "{answer}");
    });
}

#[test]
fn a_client_that_does_not_read_is_not_listened_to() {
    with_client(async |client| {
        client.initialize().await;
        let mut output = client.output.take().unwrap();
        let list = "{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/list\"}\n";
        let flood = async move {
            for id in 1000..1_000_000 {
                let line = list.replace("ID", &id.to_string());
                tokio::io::AsyncWriteExt::write_all(&mut output, line.as_bytes()).await.unwrap();
            }
        };
        // Without an end to it, the answers of this flood would take gigabytes.
        let flooded = tokio::time::timeout(std::time::Duration::from_secs(1), flood).await;
        assert!(flooded.is_err(), "all was read");
    });
}
