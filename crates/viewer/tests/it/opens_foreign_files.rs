//! Trajectories of the reference, ATIF and Inspect's logs.

use std::{fs, io::Write, path::Path};

use serde_json::{Value, json};

use crate::support::Served;

/// Trajectories written by the reference, where they are at hand.
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/trajectories");

async fn kinds(served: &Served, at: &str) -> Vec<String> {
    let page = served.get(&format!("{at}/events?limit=1000")).await;
    let events = page["events"].as_array().unwrap();
    events.iter().map(|event| event["event"]["kind"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_reference_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let step = |thought: &str, command: &str| {
        json!({
            "thought": thought, "reasoning_content": "hm", "action": {"function": "execute_bash", "parameters": {"command": command}},
            "observation": "done", "metadata": {"step": 1, "exec_time": 1.5},
        })
    };
    let trajectory = json!({"problem_statement": "Do it", "steps": [step("a", "ls"), step("b", "echo x > y")], "metadata": {"total_steps": 2}});
    fs::write(dir.path().join("trajectory.json"), trajectory.to_string()).unwrap();
    let served = Served::at(dir.path());
    let run = served.only_run().await;
    let at = format!("runs/{run}/attempts/0");
    assert_eq!(
        kinds(&served, &at).await,
        ["started", "replied", "observed", "replied", "observed"]
    );
    let turns = served.get(&format!("{at}/turns")).await;
    assert_eq!(
        (&turns["turns"][0]["model_ms"], &turns["turns"][1]["files"]),
        (&json!(1500), &json!(1))
    );
    let detail = served.get(&at).await;
    assert_eq!(
        (&detail["task_text"], &detail["run"]["format"]),
        (&json!("Do it"), &json!("reference"))
    );
}

#[tokio::test]
async fn trajectories_of_the_reference_package_load() {
    if !Path::new(REFERENCE).is_dir() {
        println!("skip: there is no {REFERENCE}");
        return;
    }
    let served = Served::at(Path::new(REFERENCE));
    let runs = served.get("runs").await;
    assert_eq!((&runs["total"], &runs["kinds"]["file"]), (&json!(3), &json!(3)));
    for run in runs["runs"].as_array().unwrap() {
        assert_eq!(run["problem"], Value::Null, "{run}");
        let at = format!("runs/{}/attempts/0", run["id"].as_str().unwrap());
        let turns = served.get(&format!("{at}/turns")).await;
        assert_eq!(turns["total"], run["turns"], "{run}");
        assert!(kinds(&served, &at).await.len() > 5);
        for format in ["atif", "messages", "events"] {
            assert!(served.reply(&format!("{at}/export/{format}")).await.status.is_success());
        }
    }
}

#[tokio::test]
async fn atif_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let trajectory = json!({
        "schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "other", "version": "1", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "system", "message": "sys"},
            {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "Find it"}], "timestamp": "2025-10-16T14:30:00Z"},
            {"step_id": 3, "source": "agent", "message": "looking", "reasoning_content": "hm",
             "tool_calls": [{"tool_call_id": "1", "function_name": "bash", "arguments": {"command": "ls"}}],
             "observation": {"results": [{"source_call_id": "1", "content": "a.txt"}]},
             "metrics": {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 2}},
            {"step_id": 4, "source": "user", "message": "go on"},
            {"step_id": 5, "source": "agent", "message": "done"},
        ],
        "final_metrics": {"total_prompt_tokens": 10, "total_completion_tokens": 5},
    });
    fs::write(dir.path().join("x.json"), trajectory.to_string()).unwrap();
    let served = Served::at(dir.path());
    let run = served.get("runs").await["runs"][0].clone();
    assert_eq!(
        (&run["format"], &run["model"], &run["task"], &run["turns"]),
        (&json!("atif"), &json!("m"), &json!("Find it"), &json!(2))
    );
    let at = format!("runs/{}/attempts/0", run["id"].as_str().unwrap());
    assert_eq!(
        kinds(&served, &at).await,
        ["started", "replied", "observed", "observed", "replied"]
    );
    assert_eq!(served.get(&format!("{at}/turns")).await["turns"][0]["cached"], 2);
}

/// A log with a stored, a deflated and a zstd-compressed member would need an encoder; members are stored or deflated here.
fn log(path: &Path, sample: &Value) {
    let mut zip = zip::ZipWriter::new(fs::File::create(path).unwrap());
    let summary = json!([{"id": sample["id"], "epoch": 1, "input": "What?", "target": "4",
        "scores": {"match": {"value": "C", "answer": "4"}}, "model_usage": {"m": {"input_tokens": 7, "output_tokens": 3}}, "total_time": 2.5}]);
    let header = json!({"version": 2, "status": "success", "eval": {"task": "arith", "model": "openai/m", "created": "2026-01-02T03:04:05+00:00"}});
    let name = format!("samples/{}_epoch_1.json", sample["id"].as_str().unwrap());
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let deflated = stored.compression_method(zip::CompressionMethod::Deflated);
    for (name, value, options) in [
        ("header.json", &header, stored),
        ("summaries.json", &summary, deflated),
        (name.as_str(), sample, deflated),
    ] {
        zip.start_file(name, options).unwrap();
        zip.write_all(value.to_string().as_bytes()).unwrap();
    }
    zip.finish().unwrap();
}

#[tokio::test]
async fn a_log_of_inspect_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let sample = json!({
        "id": "q1", "epoch": 1, "input": "What?", "target": "4",
        "messages": [
            {"role": "system", "content": "sys"},
            {"role": "user", "content": "What?"},
            {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "attachment://h"}],
             "tool_calls": [{"id": "t", "function": "bash", "arguments": {"cmd": "bc"}, "type": "function"}]},
            {"role": "tool", "tool_call_id": "t", "function": "bash", "content": "4", "error": null},
            {"role": "assistant", "content": "4"},
        ],
        "attachments": {"h": "I compute"},
        "events": [
            {"event": "model", "timestamp": "2026-01-02T03:04:06+00:00", "output": {"time": 1.25, "usage": {"input_tokens": 5, "output_tokens": 2, "input_tokens_cache_read": 3}}},
            {"event": "model", "timestamp": "2026-01-02T03:04:08+00:00", "output": {"time": 0.5, "usage": {"input_tokens": 2, "output_tokens": 1}}},
        ],
        "started_at": "2026-01-02T03:04:05+00:00", "completed_at": "2026-01-02T03:04:09+00:00", "error": null, "limit": null,
    });
    log(&dir.path().join("arith.eval"), &sample);
    fs::write(dir.path().join("broken.eval"), "no archive").unwrap();
    let served = Served::at(dir.path());
    let runs = served.get("runs?sort=name").await;
    let run = &runs["runs"][0];
    assert_eq!(
        (&run["format"], &run["task"], &run["score"]),
        (&json!("inspect"), &json!("arith"), &json!(1.0))
    );
    assert!(runs["runs"][1]["problem"].as_str().unwrap().contains("not a log of Inspect"));
    let at = format!("runs/{}/attempts", run["id"].as_str().unwrap());
    let rows = served.get(&at).await;
    assert_eq!(
        (&rows["attempts"][0]["result"], &rows["attempts"][0]["answer"]),
        (&json!("passed"), &json!("4"))
    );
    let at = format!("{at}/q1%2C1");
    assert_eq!(kinds(&served, &at).await, ["started", "replied", "observed", "replied", "ended"]);
    let turns = served.get(&format!("{at}/turns")).await;
    assert_eq!(
        (&turns["turns"][0]["model_ms"], &turns["turns"][0]["input"]),
        (&json!(1250), &json!(8))
    );
    let event = served.get(&format!("{at}/events/2")).await;
    assert_eq!(event["event"]["message"]["text"], "I compute");
    assert_eq!(event["event"]["message"]["reasoning"], "hm");
}
