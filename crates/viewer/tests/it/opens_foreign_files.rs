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

/// How a member of a log is stored.
#[derive(Clone, Copy)]
enum Method {
    Stored,
    Deflated,
    /// As recent versions of Inspect store samples.
    Zstandard,
}

impl Method {
    fn code(self) -> u16 {
        match self {
            Self::Stored => 0,
            Self::Deflated => 8,
            Self::Zstandard => 93,
        }
    }

    fn packed(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Stored => bytes.to_vec(),
            Self::Deflated => {
                let mut encoder =
                    flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Self::Zstandard => {
                use ruzstd::encoding::{CompressionLevel, compress_to_vec};
                // A member may have several frames.
                let (start, end) = bytes.split_at(bytes.len() / 2);
                let frame = |bytes| compress_to_vec(bytes, CompressionLevel::Fastest);
                [frame(start), frame(end)].concat()
            }
        }
    }
}

/// An archive. The library that reads them writes no Zstandard, so it is written here, without checksums of the directory.
fn archive(path: &Path, members: &[(String, Value, Method)]) {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for (name, value, method) in members {
        let bytes = value.to_string().into_bytes();
        let packed = method.packed(&bytes);
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        let mut about = Vec::new();
        about.extend([20_u16, 0, method.code(), 0, 0].iter().flat_map(|it| it.to_le_bytes()));
        let sizes = [crc.sum(), packed.len() as u32, bytes.len() as u32];
        about.extend(sizes.iter().flat_map(|it| it.to_le_bytes()));
        about.extend([name.len() as u16, 0].iter().flat_map(|it| it.to_le_bytes()));
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&about);
        directory.extend([0; 10]);
        directory.extend((file.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        file.extend(b"PK\x03\x04");
        file.extend(&about);
        file.extend(name.as_bytes());
        file.extend(packed);
    }
    let (start, size) = (file.len() as u32, directory.len() as u32);
    file.extend(&directory);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([members.len() as u16; 2].iter().flat_map(|it| it.to_le_bytes()));
    file.extend([size, start].iter().flat_map(|it| it.to_le_bytes()));
    file.extend([0, 0]);
    fs::write(path, file).unwrap();
}

/// A log of samples, each stored by this method.
fn log(path: &Path, samples: &[&Value], method: Method) {
    let summary = |sample: &&Value| {
        json!({"id": sample["id"], "epoch": 1, "input": "What?", "target": "4",
            "scores": {"match": {"value": "C", "answer": "4"}},
            "model_usage": {"m": {"input_tokens": 7, "output_tokens": 3}}, "total_time": 2.5})
    };
    let summaries: Vec<Value> = samples.iter().map(summary).collect();
    let header = json!({"version": 2, "status": "success", "eval": {"task": "arith", "model": "openai/m", "created": "2026-01-02T03:04:05+00:00"}});
    let mut members = vec![
        ("header.json".to_owned(), header, Method::Stored),
        ("summaries.json".to_owned(), json!(summaries), Method::Deflated),
    ];
    members.extend(samples.iter().map(|sample| {
        let name = format!("samples/{}_epoch_1.json", sample["id"].as_str().unwrap());
        (name, (*sample).clone(), method)
    }));
    archive(path, &members);
}

fn sample(id: &str) -> Value {
    json!({
        "id": id, "epoch": 1, "input": "What?", "target": "4",
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
    })
}

#[tokio::test]
async fn samples_compressed_with_zstandard_are_read() {
    for method in [Method::Stored, Method::Deflated, Method::Zstandard] {
        let dir = tempfile::tempdir().unwrap();
        log(&dir.path().join("arith.eval"), &[&sample("q1")], method);
        let served = Served::at(dir.path());
        let at = format!("runs/{}/attempts/q1%2C1", served.only_run().await);
        let expected = ["started", "replied", "observed", "replied", "ended"];
        assert_eq!(kinds(&served, &at).await, expected, "method {}", method.code());
        let event = served.get(&format!("{at}/events/2")).await;
        assert_eq!(event["event"]["message"]["text"], "I compute");
    }
}

#[tokio::test]
async fn a_zstandard_member_that_is_damaged_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("arith.eval");
    log(&path, &[&sample("q1")], Method::Zstandard);
    let mut bytes = fs::read(&path).unwrap();
    // The magic number of the first frame.
    let at = bytes.windows(4).position(|it| it == [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/q1%2C1", served.only_run().await);
    let damage = served.get(&at).await["damage"].clone();
    assert!(damage.as_str().unwrap().contains("samples/q1_epoch_1.json"), "{damage}");
}

#[tokio::test]
async fn a_log_with_one_sample_is_that_episode() {
    for ids in [&[][..], &["q1"], &["q1", "q2"]] {
        let dir = tempfile::tempdir().unwrap();
        let samples: Vec<Value> = ids.iter().map(|id| sample(id)).collect();
        let samples: Vec<&Value> = samples.iter().collect();
        log(&dir.path().join("arith.eval"), &samples, Method::Deflated);
        let served = Served::at(dir.path());
        let run = served.get("runs").await["runs"][0].clone();
        let only = if let [id] = ids { json!(format!("{id},1")) } else { Value::Null };
        assert_eq!(run["attempt"], only, "{ids:?}");
        let at = format!("runs/{}", run["id"].as_str().unwrap());
        assert_eq!(served.get(&format!("{at}/attempts")).await["total"], ids.len());
        if !ids.is_empty() {
            let detail = served.get(&format!("{at}/attempts/q1%2C1")).await;
            assert_eq!(detail["run"]["attempt"], only, "{ids:?}");
        }
    }
}

#[tokio::test]
async fn a_log_of_inspect_is_read() {
    let dir = tempfile::tempdir().unwrap();
    log(&dir.path().join("arith.eval"), &[&sample("q1")], Method::Deflated);
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
