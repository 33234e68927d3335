//! Cancelled calls, clients that leave, and signals: nothing keeps running.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{text, with_client};

/// Processes of this machine whose command line has this word.
fn processes(word: &str) -> Vec<u32> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let has = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    };
    pids.filter(has).collect()
}

fn running(word: &str) -> usize {
    processes(word).len()
}

/// The first process of the sandbox in which this process runs.
fn first_process(mut pid: u32) -> u32 {
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next_back().unwrap().parse::<u32>().unwrap()
        };
        if field("NSpid:") == 1 {
            return pid;
        }
        pid = field("PPid:");
    }
}

async fn until_running(word: &str, count: usize) {
    let begun = Instant::now();
    while running(word) != count {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} of {word}", running(word));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A number of seconds that no other test sleeps for.
fn unique(test: u32) -> String {
    format!("{}.{test}", 7_000_000 + std::process::id())
}

#[test]
fn a_cancelled_call_is_killed_and_gets_no_answer() {
    let word = unique(1);
    with_client(async |client| {
        client.initialize().await;
        client.bash("x=kept").await;
        let id =
            client.start_call("execute_bash", json!({ "command": format!("sleep {word}") })).await;
        until_running(&word, 1).await;
        let params = json!({ "requestId": id, "reason": "test" });
        client
            .send(
                &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
            )
            .await;
        until_running(&word, 0).await;
        // The next line is the answer to this: the cancelled call had none.
        let next = client.start_call("execute_bash", json!({ "command": "echo $x" })).await;
        let answer = client.receive().await;
        assert_eq!(answer["id"], next, "{answer}");
        assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("kept"));
    });
}

#[test]
fn a_client_that_leaves_takes_its_sandbox_with_it() {
    let word = unique(2);
    with_client(async |client| {
        client.initialize().await;
        client.start_call("execute_bash", json!({ "command": format!("sleep {word}") })).await;
        until_running(&word, 1).await;
        // Both directions, as when the client's process is killed.
        (client.output, client.input) = (None, None);
        client.ended().await.unwrap();
        assert!(!client.stop.is_cancelled(), "it ended by itself");
        assert_eq!((client.sandboxes().await, running(&word)), (0, 0));
    });
}

#[test]
fn calls_that_run_at_the_end_of_the_input_are_answered() {
    with_client(async |client| {
        client.initialize().await;
        let id =
            client.start_call("execute_bash", json!({ "command": "sleep 0.5; echo last" })).await;
        // Only this direction.
        let output = client.output.take().unwrap();
        let input = client.input.take().unwrap();
        let mut both = input.into_inner().unsplit(output);
        tokio::io::AsyncWriteExt::shutdown(&mut both).await.unwrap();
        let mut rest = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut both, &mut rest).await.unwrap();
        assert!(rest.contains(&format!("\"id\":{id}")) && rest.contains("last"), "{rest}");
        client.ended().await.unwrap();
        assert_eq!(client.sandboxes().await, 0);
    });
}

#[test]
fn a_stop_ends_running_calls_at_once() {
    let word = unique(3);
    with_client(async |client| {
        client.initialize().await;
        client.start_call("execute_bash", json!({ "command": format!("sleep {word}") })).await;
        until_running(&word, 1).await;
        let begun = Instant::now();
        client.stop.cancel();
        client.ended().await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!((client.sandboxes().await, running(&word)), (0, 0));
    });
}

#[test]
fn a_lost_sandbox_is_reported_and_replaced() {
    let word = unique(4);
    with_client(async |client| {
        client.initialize().await;
        client.bash("touch /tmp/mine").await;
        let id =
            client.start_call("execute_bash", json!({ "command": format!("sleep {word}") })).await;
        until_running(&word, 1).await;
        let first = first_process(processes(&word)[0]);
        let first = rustix::process::Pid::from_raw(first.cast_signed()).unwrap();
        rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
        let answer = client.receive().await;
        assert_eq!(answer["id"], id);
        let result = &answer["result"];
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(result["_meta"]["llm-in-sandbox/failure"], "infrastructure");
        assert!(text(result).contains("The next call gets a new sandbox"), "{result}");
        assert!(client.bash("ls /tmp/mine || echo new").await.contains("new"));
        assert_eq!(client.sandboxes().await, 1);
    });
}

#[test]
fn a_client_that_sends_nothing_leaves_nothing() {
    with_client(async |client| {
        (client.output, client.input) = (None, None);
        client.ended().await.unwrap();
    });
}
