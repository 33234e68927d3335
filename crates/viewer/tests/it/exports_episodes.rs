//! Exports: ATIF, messages, events, and one HTML file.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use trajectory::Event;

use crate::support::{
    Served, bash, call, ended, episode, observed, package, responded, results_directory,
    run_directory, skip, started, write_events,
};

/// The data in a page that was exported.
fn data_of(page: &str) -> Value {
    let start = page.find("id=\"page-data\">").unwrap() + "id=\"page-data\">".len();
    let text = &page[start..start + page[start..].find("</script>").unwrap()];
    serde_json::from_str(text).unwrap()
}

/// The data of the page about a run.
async fn exported(served: &Served, run: &str) -> Value {
    let page = served.reply(&format!("runs/{run}/export/html")).await;
    assert_eq!(page.status, 200, "{}", page.text());
    data_of(&page.text())
}

#[tokio::test]
async fn atif_follows_its_schema() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "run");
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0/export", served.only_run().await);
    let reply = served.reply(&format!("{at}/atif")).await;
    assert!(reply.header("content-disposition").contains("attachment"));
    let trajectory = reply.json();
    check_atif(&trajectory);
    let steps = trajectory["steps"].as_array().unwrap();
    let sources: Vec<_> = steps.iter().map(|step| step["source"].clone()).collect();
    assert_eq!(sources, ["system", "user", "agent", "agent", "agent"]);
    assert_eq!(
        steps[2]["observation"]["results"][0]["source_call_id"],
        steps[2]["tool_calls"][0]["tool_call_id"]
    );
    assert_eq!(steps[0]["timestamp"], "2026-05-28T20:26:40.000Z");
    assert_eq!(trajectory["final_metrics"]["total_prompt_tokens"], 300);
}

/// The rules of the models of PyPI `atif` 1.8: which fields there are, which are required, which are the agent's alone.
fn check_atif(trajectory: &Value) {
    let only = |value: &Value, allowed: &[&str], required: &[&str]| {
        let fields: BTreeSet<&str> =
            value.as_object().unwrap().keys().map(String::as_str).collect();
        let allowed: BTreeSet<&str> = allowed.iter().chain(required).copied().collect();
        assert!(fields.is_subset(&allowed), "{fields:?}");
        assert!(required.iter().all(|name| fields.contains(name)), "{fields:?}");
    };
    only(
        trajectory,
        &["session_id", "trajectory_id", "notes", "final_metrics", "extra"],
        &["schema_version", "agent", "steps"],
    );
    assert!(trajectory["schema_version"].as_str().unwrap().starts_with("ATIF-v1."));
    only(&trajectory["agent"], &["model_name", "tool_definitions", "extra"], &["name", "version"]);
    let totals = [
        "total_prompt_tokens",
        "total_completion_tokens",
        "total_cached_tokens",
        "total_cost_usd",
        "total_steps",
        "extra",
    ];
    only(&trajectory["final_metrics"], &totals, &[]);
    for (at, step) in trajectory["steps"].as_array().unwrap().iter().enumerate() {
        assert_eq!(step["step_id"], at + 1);
        let of_agent = ["model_name", "reasoning_content", "tool_calls", "metrics"];
        let mut allowed = vec!["timestamp", "observation", "extra"];
        if step["source"] == "agent" {
            allowed.extend(of_agent);
        }
        only(step, &allowed, &["step_id", "source", "message"]);
        let calls = step["tool_calls"].as_array().cloned().unwrap_or_default();
        for call in &calls {
            only(call, &["extra"], &["tool_call_id", "function_name", "arguments"]);
            assert!(call["arguments"].is_object());
        }
        for result in step["observation"]["results"].as_array().into_iter().flatten() {
            only(result, &["source_call_id", "content", "extra"], &[]);
            let id = &result["source_call_id"];
            assert!(id.is_null() || calls.iter().any(|call| call["tool_call_id"] == *id));
        }
        if let Some(metrics) = step.get("metrics") {
            only(
                metrics,
                &["prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "extra"],
                &[],
            );
        }
    }
}

/// Passes lines of ATIF to its own models. What they say is the text of the first refusal.
const VALIDATE: &str = "import sys
from atif import Trajectory
lines = [line for line in sys.stdin if line.strip()]
for line in lines:
    Trajectory.model_validate_json(line)
print(len(lines), 'valid')";

#[expect(clippy::disallowed_methods, reason = "the validator is a Python package")]
fn validated(package: &std::ffi::OsStr, lines: &[u8]) -> (String, String) {
    use std::{io::Write, process};
    let mut python = process::Command::new("python3")
        .args(["-c", VALIDATE])
        .env("PYTHONPATH", package)
        .stdin(process::Stdio::piped())
        .stdout(process::Stdio::piped())
        .stderr(process::Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(lines).unwrap();
    let output = python.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn atif_is_accepted_by_its_own_validator() {
    let Some(package) = package("LIS_TEST_ATIF") else {
        return skip("atif", "LIS_TEST_ATIF names no directory with the package atif");
    };
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "run");
    // One that was cut off, and one with texts and calls of every kind.
    write_events(&dir.path().join("cut/events.jsonl"), &episode()[..3]);
    let odd = "\u{202e}\0<script>\u{1b}[31m";
    let calls = vec![bash(odd), call(odd, json!({ odd: [odd, 1, null] })), bash(odd)];
    let odd = [started(odd), responded(1, odd, calls), observed(1, odd, odd), ended(1)];
    write_events(&dir.path().join("odd/events.jsonl"), &odd);
    let served = Served::at(dir.path());
    let mut checked = 0;
    for run in served.get("runs").await["runs"].as_array().unwrap() {
        let run = run["id"].as_str().unwrap();
        let reply = served.reply(&format!("runs/{run}/export/atif")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let lines = reply.text().lines().count();
        let (said, why) = validated(&package, &reply.body);
        assert_eq!(said, format!("{lines} valid"), "{why}");
        checked += lines;
    }
    assert_eq!(checked, 3);
    // The validator does refuse what is not ATIF.
    let (said, why) = validated(&package, br#"{"schema_version": "ATIF-v1.7", "steps": []}"#);
    assert!(said.is_empty() && why.contains("ValidationError"), "{said} {why}");
}

#[tokio::test]
async fn what_is_exported_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "run");
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts/0", served.only_run().await);
    let copy = tempfile::tempdir().unwrap();
    for (format, file) in [("atif", "a.json"), ("events", "b.jsonl")] {
        let reply = served.reply(&format!("{at}/export/{format}")).await;
        std::fs::write(copy.path().join(file), &reply.body).unwrap();
    }
    let again = Served::at(copy.path());
    for run in again.get("runs").await["runs"].as_array().unwrap() {
        let turns =
            again.get(&format!("runs/{}/attempts/0/turns", run["id"].as_str().unwrap())).await;
        assert_eq!((&turns["total"], &turns["sums"]["input"]), (&json!(3), &json!(300)), "{run}");
        assert_eq!(turns["turns"][0]["calls"][0]["text"], "create /testbed/a.py");
    }
}

#[tokio::test]
async fn messages_have_openais_format() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "run");
    let served = Served::at(dir.path());
    let run = served.only_run().await;
    let reply = served.reply(&format!("runs/{run}/attempts/0/export/messages")).await;
    assert_eq!(reply.text().lines().count(), 1);
    let line = reply.json();
    let roles: Vec<_> =
        line["messages"].as_array().unwrap().iter().map(|it| it["role"].clone()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "tool"]);
    let call = &line["messages"][2]["tool_calls"][0];
    assert_eq!(
        (&call["type"], &call["id"]),
        (&json!("function"), &line["messages"][3]["tool_call_id"])
    );
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments["path"], "/testbed/a.py");
    assert_eq!(line["tools"][0]["function"]["name"], "str_replace_editor");
    let all = served.reply(&format!("runs/{run}/export/messages")).await;
    assert_eq!(all.json(), line);
    assert_eq!(served.reply(&format!("runs/{run}/export/other")).await.status, 404);
}

#[tokio::test]
async fn one_file_holds_the_page_and_its_data() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "run");
    let served = Served::at(dir.path());
    let run = served.only_run().await;
    let page = served.reply(&format!("runs/{run}/export/html")).await;
    assert_eq!(page.status, 200, "{}", page.text());
    let text = page.text();
    // The model's own script is data, and there are exactly two scripts: the data and the page's.
    assert!(!text.contains("<script>fetch"));
    assert_eq!(text.matches("<script").count(), 2);
    let data = data_of(&text);
    assert_eq!(data["start"], format!("#/runs/{run}/attempts/0"));
    let responses = &data["responses"];
    assert_eq!(responses["page/api/info"]["mode"], "export");
    let at = format!("page/api/runs/{run}/attempts/0");
    assert_eq!(responses[&format!("{at}/events")]["events"].as_array().unwrap().len(), 8);
    assert_eq!(
        responses[&format!("{at}/files/output/answer.txt")],
        json!({"data": "NDI=", "type": "text/plain"})
    );
    assert!(responses[&format!("{at}/turns/2/changes")].is_object());
    assert!(text.contains("default-src 'none'; script-src 'sha256-"));
}

#[tokio::test]
async fn a_run_of_many_attempts_fits_into_one_file() {
    let dir = tempfile::tempdir().unwrap();
    results_directory(dir.path(), "small", 300, |_| Some(1.0));
    let served = Served::at(dir.path());
    let run = served.only_run().await;
    let page = served.reply(&format!("runs/{run}/export/html")).await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("math,sandbox,p299,0"));
}

#[tokio::test]
async fn a_page_about_a_run_with_one_attempt_opens() {
    let dir = tempfile::tempdir().unwrap();
    results_directory(dir.path(), "small", 1, |_| Some(1.0));
    let served = Served::at(dir.path());
    let run = served.only_run().await;
    let data = exported(&served, &run).await;
    assert_eq!(data["start"], format!("#/runs/{run}"));
    let attempt = format!("runs/{run}/attempts/math%2Csandbox%2Cp0%2C0");
    let page = served.reply(&format!("{attempt}/export/html")).await;
    assert_eq!(data_of(&page.text())["start"], format!("#/{attempt}"));
}

#[tokio::test]
async fn a_page_about_training_has_its_curves_and_groups() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path();
    std::fs::write(run.join("metrics.jsonl"), "{\"step\":1,\"loss\":2.0}\n").unwrap();
    for step in 1..=2 {
        let at = run.join(format!("episodes/step-00000{step}-0"));
        write_events(&at.join("0000-000.jsonl"), &episode());
        let line = json!({"file": "0000-000.jsonl", "problem": format!("q{step}"), "score": 1.0});
        std::fs::write(at.join("scores.jsonl"), format!("{line}\n")).unwrap();
    }
    let served = Served::at(run);
    let run = served.only_run().await;
    let data = exported(&served, &run).await;
    assert_eq!(data["start"], format!("#/runs/{run}"));
    for answer in ["metrics", "steps"] {
        let expected = served.get(&format!("runs/{run}/{answer}")).await;
        assert_eq!(data["responses"][&format!("page/api/runs/{run}/{answer}")], expected);
    }
    let all = &data["responses"][&format!("page/api/runs/{run}/groups")]["groups"];
    for step in 1..=2 {
        let of_step = served.get(&format!("runs/{run}/groups?step={step}&set=train")).await;
        assert_eq!(all[step - 1], of_step["groups"][0]);
        assert_eq!(
            (&all[step - 1]["step"], &all[step - 1]["set"]),
            (&json!(step), &json!("train"))
        );
    }
}

#[tokio::test]
async fn a_page_about_several_runs_compares_them() {
    let dir = tempfile::tempdir().unwrap();
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        results_directory(&dir.path().join(name), name, 20, |problem| {
            Some(f64::from(u8::from(problem % (at + 2) == 0)))
        });
    }
    let library = lis_viewer::Library::open(vec![dir.path().to_owned()]);
    let page = std::sync::Arc::new(library).export_all(lis_viewer::PageOptions::default());
    let responses = data_of(&page.unwrap())["responses"].clone();
    let served = Served::at(dir.path());
    let runs = served.get("runs?sort=name").await;
    let id = |at: usize| runs["runs"][at]["id"].as_str().unwrap().to_owned();
    let compared = responses.as_object().unwrap().keys();
    let compared = compared.filter(|address| address.starts_with("page/api/compare?")).count();
    // Six pairs, and each of three as the baseline of both others.
    assert_eq!(compared, 9);
    let pair = format!("{},{}", id(2), id(0));
    assert_eq!(
        responses[&format!("page/api/compare?runs={pair}")],
        served.get(&format!("compare?runs={pair}")).await
    );
    let problems = &responses["page/api/compare/problems"];
    let columns: Vec<&str> =
        problems["runs"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let column = |at: usize| columns.iter().position(|it| *it == id(at)).unwrap();
    let expected = served.get(&format!("compare/problems?runs={pair}")).await;
    for (row, expected) in problems["problems"]
        .as_array()
        .unwrap()
        .iter()
        .zip(expected["problems"].as_array().unwrap())
    {
        assert_eq!(row["problem"], expected["problem"]);
        assert_eq!(row["cells"][column(2)], expected["cells"][0]);
        assert_eq!(row["cells"][column(0)], expected["cells"][1]);
    }
}

#[tokio::test]
async fn what_is_left_out_of_a_long_episode_is_said() {
    let dir = tempfile::tempdir().unwrap();
    // Turns of three events, so that neither end of what is kept is the end of a turn by itself.
    let mut events = vec![started("t")];
    for turn in 1..=7500 {
        events.push(responded(turn, "x", vec![bash("echo 1 > a"), bash("ls")]));
        events.extend([observed(turn, "execute_bash", "1"), observed(turn, "execute_bash", "2")]);
    }
    events.push(ended(7500));
    write_events(&dir.path().join("run/events.jsonl"), &events);
    let served = Served::at(dir.path());
    let run = served.only_run().await;
    let responses = exported(&served, &run).await["responses"].clone();
    let at = format!("page/api/runs/{run}/attempts/0");
    let kept = responses[&format!("{at}/events")]["events"].as_array().unwrap();
    let numbers: Vec<u64> = kept.iter().map(|event| event["n"].as_u64().unwrap()).collect();
    let total = events.len() as u64;
    assert_eq!((numbers[0], *numbers.last().unwrap()), (1, total));
    let gap = numbers.windows(2).position(|pair| pair[0] + 1 < pair[1]).unwrap();
    // Both ends are whole turns.
    assert_eq!(kept[gap + 1]["event"]["kind"], "replied");
    assert_eq!(numbers[gap] % 3, 1, "event {} ends a turn", numbers[gap]);
    let turns = &responses[&format!("{at}/turns")];
    let shown = turns["turns"].as_array().unwrap();
    let omitted = turns["omitted"]["turns"].as_u64().unwrap();
    assert_eq!((&turns["total"], shown.len() as u64 + omitted), (&json!(7500), 7500));
    let before = turns["omitted"]["at"].as_u64().unwrap() as usize;
    assert_eq!(shown[before - 1]["event"].as_u64().unwrap() + 2, numbers[gap]);
    assert_eq!(shown[before]["event"], numbers[gap + 1]);
}

#[tokio::test]
async fn undone_turns_are_exported_with_their_changes() {
    let dir = tempfile::tempdir().unwrap();
    let events = [
        started("t"),
        responded(1, "x", vec![bash("echo 1 > a")]),
        Event::Resumed { turn: 0 },
        responded(1, "x", vec![bash("echo 1 > b")]),
    ];
    write_events(&dir.path().join("run/events.jsonl"), &events);
    let served = Served::at(dir.path());
    let run = served.only_run().await;
    let responses = exported(&served, &run).await["responses"].clone();
    let at = format!("page/api/runs/{run}/attempts/0");
    let path = |query: &str| {
        responses[&format!("{at}/turns/1/changes{query}")]["changes"][0]["path"].clone()
    };
    assert_eq!((path(""), path("?event=2")), (json!("b"), json!("a")));
    assert_eq!(responses[&format!("{at}/turns")]["undone"], json!([[0, 0]]));
}
