//! Directories from strangers: huge lines, control characters, links, pipes, and files that are something else.

use std::{fs, io::Write, time::Instant};

use serde_json::json;

use crate::support::{Served, bash, observed, responded, run_directory, started, write_events};

#[tokio::test]
async fn long_lines_are_cut_and_can_be_had_whole() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}<script>alert(1)</script>\u{202e}\u{1b}[31m", "x".repeat(5 << 20));
    let events = [
        started("t"),
        responded(1, "</script><img src=x onerror=alert(1)>", vec![bash("cat big")]),
        observed(1, "execute_bash", &long),
    ];
    write_events(&dir.path().join("run/events.jsonl"), &events);
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0", served.only_run().await);
    let reply = served.reply(&format!("{at}/events")).await;
    assert!(reply.body.len() < 200_000, "{}", reply.body.len());
    assert_eq!(reply.header("content-type"), "application/json");
    let page = reply.json();
    let cut = &page["events"][2]["cut"];
    assert_eq!(cut["/message/content/0/text"], long.len());
    let text = page["events"][2]["event"]["message"]["content"][0]["text"].as_str().unwrap();
    assert!(text.len() < 33_000 && text.ends_with("[31m"));
    let whole = served.get(&format!("{at}/events/3")).await;
    assert_eq!(whole["event"]["message"]["content"][0]["text"], long);
    // As part of a file it is data still.
    let page = served.reply(&format!("{at}/export/html")).await;
    assert_eq!(page.text().matches("<script").count(), 2);
    assert!(
        !page.text().contains("onerror=alert")
            || page.text().contains("\\u003cimg src=x onerror=alert")
    );
    assert!(!page.text().contains('\u{202e}'));
}

#[tokio::test]
async fn damaged_and_strange_lines_are_shown_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/events.jsonl");
    write_events(&path, &[started("t"), responded(1, "a", vec![])]);
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"not json\n\n[1]\n{\"kind\":\"later\",\"v\":99}\n\xff\xfe\n{\"kind\":\"replied\",\"message\":7}\n").unwrap();
    file.write_all(format!("{}1{}\n", "[".repeat(100_000), "]".repeat(100_000)).as_bytes())
        .unwrap();
    // The last line of a killed process.
    file.write_all(b"{\"v\":1,\"kind\":\"obs").unwrap();
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0", served.only_run().await);
    let page = served.get(&format!("{at}/events")).await;
    let kinds: Vec<_> =
        page["events"].as_array().unwrap().iter().map(|it| it["event"]["kind"].clone()).collect();
    assert_eq!(
        kinds,
        [
            "started",
            "replied",
            "unreadable",
            "unreadable",
            "later",
            "unreadable",
            "replied",
            "unreadable"
        ]
    );
    served.get(&at).await;
    served.get(&format!("{at}/turns")).await;
    served.get(&format!("{at}/changes")).await;
    for format in ["atif", "messages", "events", "html"] {
        assert!(
            served.reply(&format!("{at}/export/{format}")).await.status.is_success(),
            "{format}"
        );
    }
}

#[tokio::test]
async fn links_pipes_and_loops_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(
        outside.path().join("secret.jsonl"),
        "{\"kind\":\"started\",\"v\":1,\"problem_statement\":\"secret\"}\n",
    )
    .unwrap();
    let run = dir.path().join("run");
    fs::create_dir_all(&run).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret.jsonl"), run.join("events.jsonl"))
        .unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("trajectory.json")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe.json"), rustix::fs::Mode::RWXU)
        .unwrap();
    let results = dir.path().join("bench/attempts/math");
    fs::create_dir_all(&results).unwrap();
    std::os::unix::fs::symlink(outside.path(), results.join("sandbox")).unwrap();
    let served = Served::at(dir.path());
    let runs = served.get("runs").await;
    assert_eq!(runs["total"], 1, "{runs}");
    assert_eq!(runs["runs"][0]["attempts"]["done"], 0);
    assert!(!runs.to_string().contains("secret"));
}

#[tokio::test]
async fn hostile_names_stay_texts() {
    let dir = tempfile::tempdir().unwrap();
    let name = "a <b>\"'&\u{202e}\n..";
    run_directory(dir.path(), name);
    let served = Served::at(dir.path());
    let id = served.only_run().await;
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{id}");
    assert_eq!(served.get("runs").await["runs"][0]["name"], name);
    let page = served.reply(&format!("runs/{id}/export/html")).await;
    assert!(page.text().contains("&lt;b&gt;"));
    for id in ["..", "%2e%2e", "..%2F..%2Fetc", "%00", &"x".repeat(10_000)] {
        assert!(served.reply(&format!("runs/{id}")).await.status.is_client_error());
        assert!(
            served.reply(&format!("runs/{id}/attempts/0/events")).await.status.is_client_error()
        );
    }
}

#[tokio::test]
async fn deep_and_wide_directories_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let mut deep = dir.path().to_owned();
    for _ in 0..40 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    run_directory(&deep, "run");
    for n in 0..300 {
        fs::write(dir.path().join(format!("{n}.json")), "{\"a\": 1}").unwrap();
    }
    let begun = Instant::now();
    let served = Served::at(dir.path());
    let runs = served.get("runs").await;
    assert_eq!((&runs["total"], &runs["truncated"]), (&json!(0), &json!(true)));
    assert!(begun.elapsed().as_secs() < 5);
}

/// A log of Inspect with these members, compressed.
fn log(path: &std::path::Path, members: &[(&str, String)]) {
    let mut archive = zip::ZipWriter::new(fs::File::create(path).unwrap());
    for (name, text) in members {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    archive.finish().unwrap();
}

/// Some kilobytes of a log hold millions of values, each of which takes many times its text in memory.
#[tokio::test]
async fn small_files_of_very_many_values_are_not_unfolded() {
    let many = format!("[0{}]", ",0".repeat(5 << 20));
    let header =
        |more: &str| format!("{{\"status\": \"success\", \"eval\": {{}}, \"more\": {more}}}");
    let summaries = |more: &str| {
        format!("[{{\"id\": \"q\", \"epoch\": 1, \"input\": \"i\", \"target\": {more}}}]")
    };
    let sample = format!("{{\"messages\": [], \"events\": {many}}}");
    let member = "samples/q_epoch_1.json";
    let logs = [
        ("header", header(&many), summaries("1"), "{}".to_owned()),
        ("summaries", header("1"), summaries(&many), "{}".to_owned()),
        ("sample", header("1"), summaries("1"), sample),
    ];
    for (what, header, summaries, sample) in logs {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.eval");
        log(&path, &[("header.json", header), ("summaries.json", summaries), (member, sample)]);
        assert!(fs::metadata(&path).unwrap().len() < 300_000);
        let served = Served::at(dir.path());
        let run = served.get("runs").await["runs"][0].clone();
        let problem = match what {
            "sample" => {
                let at = format!("runs/{}/attempts/q%2C1", run["id"].as_str().unwrap());
                served.get(&at).await["damage"].clone()
            }
            _ => run["problem"].clone(),
        };
        assert!(problem.to_string().contains("more than 4194304 values"), "{what}: {problem}");
    }
    // Trajectories in files of their own.
    let dir = tempfile::tempdir().unwrap();
    let atif = format!("{{\"schema_version\": \"ATIF-v1.4\", \"steps\": [], \"extra\": {many}}}");
    fs::write(dir.path().join("trajectory.json"), atif).unwrap();
    let served = Served::at(dir.path());
    let run = served.get("runs").await["runs"][0].clone();
    assert!(run["problem"].to_string().contains("more than 4194304 values"), "{run}");
}
