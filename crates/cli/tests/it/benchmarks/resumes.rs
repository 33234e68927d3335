//! Runs that were cut short: what finished is never made again, what did not is, and the end is the same.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Keep, MockServer, say};

use super::{Script, attempts, bench, benched, sum, sums, sums_script, text};
use crate::{
    episodes::json as read_json,
    support::{Home, Running, code, err, refusal, setting, wait_for, write},
};

/// Kills, unless the variable asks for another number.
const KILLS: u64 = 50;

#[test]
fn random_moment_kills_of_a_benchmark_change_nothing() {
    let Some(home) = Home::with_sandboxes() else { return };
    let kills =
        setting("LIS_KILLS").map_or(KILLS, |kills| kills.to_str().unwrap().parse().unwrap());
    let count = usize::try_from(kills).unwrap() * 3;
    let data = sums(&home, count);
    // Some answers are wrong, and each takes a moment.
    let rows: Vec<Value> = (0..count).map(sum).collect();
    let script = Script::new(&rows, |row| match text(&row["id"]).len() % 2 {
        0 => format!("\\boxed{{{}}}", text(&row["ground_truth"])),
        _ => "\\boxed{0}".to_owned(),
    });
    let server = MockServer::answering_and(Keep::Counts, move |asked| {
        script.reply(asked).after(Duration::from_millis(30))
    })
    .unwrap();
    let url = server.base_url();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "both", "--quiet", "--json"];
    let undisturbed =
        bench(&home, &url, args.into_iter().chain(["--output", "whole"])).output().unwrap();
    assert_eq!(code(&undisturbed), 0, "{}", err(&undisturbed));

    let (mut seed, mut killed) = (0x9E37_79B9_7F4A_7C15_u64, 0);
    let mut finished: HashMap<PathBuf, String> = HashMap::new();
    for _ in 0..kills {
        let before = server.count();
        let mut running = Running(bench(&home, &url, args).spawn().unwrap());
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // Some requests further, and then anywhere within an attempt: the work lasts for all kills on any machine.
        let wanted = before + usize::try_from(seed % 7).unwrap();
        wait_for("progress", || {
            let ended = running.0.try_wait().unwrap().is_some();
            (ended || server.count() >= wanted).then_some(())
        });
        std::thread::sleep(Duration::from_millis((seed >> 32) % 40));
        if running.0.try_wait().unwrap().is_none() {
            running.signal(Signal::KILL);
            killed += 1;
        }
        running.0.wait().unwrap();
        wait_for("clean-up", || home.traces().is_empty().then_some(()));
        // What was finished once is not touched again.
        let now = files(&home.file("out/attempts"));
        for (path, text) in &finished {
            assert_eq!(now.get(path), Some(text), "{}", path.display());
        }
        finished = now;
    }
    assert!(killed > kills / 2, "only {killed} of {kills} kills came in time");
    let last = bench(&home, &url, args).output().unwrap();
    assert_eq!(code(&last), 0, "{}", err(&last));
    let (whole, pieces) = (home.file("whole"), home.file("out"));
    assert_eq!(lasting(&whole), lasting(&pieces));
    let figures = |dir: &Path| {
        let mut results = read_json(&dir.join("results.json"));
        results["elapsed_time_seconds"] = Value::Null;
        results
    };
    assert_eq!(figures(&whole), figures(&pieces));
    let mut left = below(&pieces);
    assert!(left.len() > 4 * count, "{left:?}");
    left.retain(|path| path.extension().is_some_and(|extension| extension == "partial"));
    assert_eq!(left, Vec::<PathBuf>::new());
}

/// What of the attempts does not depend on the clock.
pub(super) fn lasting(dir: &Path) -> Vec<Value> {
    let mut all = attempts(dir);
    for attempt in &mut all {
        for clock in ["started", "wall_ms", "peak_memory"] {
            attempt.as_object_mut().unwrap().remove(clock);
        }
        for clock in ["model_ms", "tool_ms"] {
            attempt["spent"][clock] = Value::Null;
        }
    }
    all
}

/// The finished files below a directory and what is in them.
fn files(dir: &Path) -> HashMap<PathBuf, String> {
    let mut paths = below(dir);
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    let with_text = |path: PathBuf| (path.clone(), fs::read_to_string(path).unwrap());
    paths.into_iter().map(with_text).collect()
}

/// All files below a directory.
fn below(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found
}

#[test]
fn the_same_command_repeats_nothing_and_other_settings_are_refused() {
    let home = Home::new();
    let data = sums(&home, 4);
    let data = data.to_str().unwrap();
    let server = sums_script(4).serve();
    let args = ["math", "--data", data, "--mode", "llm"];
    benched(&home, &server, &args, 0);
    assert_eq!(server.count(), 4);
    let again = benched(&home, &server, &[&args[..], &["--concurrency", "1"]].concat(), 0);
    assert_eq!((server.count(), &again["total"]), (4, &json!(4)));
    for (more, named) in [
        (&["--temperature", "0.3"][..], "--temperature was 1.0, now it is 0.3"),
        (&["--without", "external"], "--without was not set, now it is external"),
        (&["--max-response-len", "5"], "--max-response-len was 65536, now it is 5"),
        (&["--image", "x", "--deadline", "1m"], "--image was host, now it is x"),
        (&["--image", "x", "--deadline", "1m"], "--deadline was 1800s, now it is 60s"),
    ] {
        let args = [&args[..], more, &["--quiet"]].concat();
        let output = bench(&home, &server.base_url(), args).output().unwrap();
        let said = refusal(&output, 2);
        assert!(said.contains(named) && said.contains("--output"), "{said}");
    }
    assert_eq!(server.count(), 4);
    // Other rows under the same name are noticed.
    let text = fs::read_to_string(data).unwrap();
    fs::write(data, text.replace("what is 3 + 1", "what is 3 plus 1")).unwrap();
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert!(refusal(&output, 2).contains("the rows of the task math have changed (--data)"));
}

#[test]
fn a_run_goes_on_by_its_directory_alone() {
    let home = Home::new();
    let data = sums(&home, 4);
    let data = data.to_str().unwrap();
    // Every second call fails for good.
    let server = sums_script(4).serve();
    let script = sums_script(4);
    let half = MockServer::answering(move |asked| {
        match script.answer(asked) == "\\boxed{1}" || script.answer(asked) == "\\boxed{3}" {
            true => script.reply(asked),
            false => testkit::Answer::error(400, "no"),
        }
    })
    .unwrap();
    let args = ["math", "--data", data, "--mode", "llm", "--tries", "1"];
    let first = benched(&home, &half, &args, 4);
    assert_eq!((&first["num_errors"], &first["mean_score"]), (&json!(2), &json!(1.0)));
    let resume = |more: &[&str]| {
        let mut command = home.command(["benchmark", "--resume", "out", "--json", "--quiet"]);
        command.args(more).env("HOME", home.file("nobody")).output().unwrap()
    };
    let output = resume(&["--base-url", &server.base_url()]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let second = super::printed(&output);
    assert_eq!((&second["num_errors"], &second["mean_score"]), (&json!(0), &json!(1.0)));
    assert_eq!(server.count(), 2, "only what had failed is made again");
    // A record somebody else wrote is not obeyed unasked.
    let path = home.file("out/run.json");
    let mut run = read_json(&path);
    run["settings"]["asked"]["model"]["place"]["server"]["base_url"] =
        "http://evil.example/v1".into();
    fs::write(&path, run.to_string()).unwrap();
    assert!(refusal(&resume(&[]), 2).contains("--trust"));
    assert!(refusal(&resume(&["--memory", "4G"]), 2).contains("--memory"));
    let nothing = home.command(["benchmark", "--resume", "nowhere"]).output().unwrap();
    assert!(refusal(&nothing, 2).contains("run.json"));
}

#[test]
fn a_run_in_one_mode_is_taken_up_in_the_other() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 2);
    let data = data.to_str().unwrap();
    let server = sums_script(2).serve();
    let first = benched(&home, &server, &["math", "--data", data, "--mode", "llm"], 0);
    assert_eq!(first["groups"].as_array().unwrap().len(), 1);
    let second = benched(&home, &server, &["math", "--data", data, "--mode", "sandbox"], 0);
    assert_eq!((&second["total"], server.count()), (&json!(4), 4));
    for mode in ["llm", "sandbox"] {
        assert_eq!(super::group(&second, "math", mode)["mean_score"], 1.0);
    }
    // Its directory alone means both.
    for entry in fs::read_dir(home.file("out/attempts/math/llm")).unwrap().flatten() {
        fs::remove_file(entry.path()).unwrap();
    }
    let mut command = home.command(["benchmark", "--resume", "out", "--json", "--quiet"]);
    let output = command.env("HOME", home.file("nobody")).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!((&super::printed(&output)["total"], server.count()), (&json!(4), 6));
}

#[test]
fn two_processes_do_not_share_a_directory() {
    let home = Home::new();
    let data = sums(&home, 1);
    let data = data.to_str().unwrap();
    let server = MockServer::start().unwrap();
    server.push(testkit::Answer::hang());
    let args = ["math", "--data", data, "--mode", "llm"];
    let mut running = Running(bench(&home, &server.base_url(), args).spawn().unwrap());
    server.wait_for_requests(1).unwrap();
    let second = bench(&home, &server.base_url(), args).output().unwrap();
    assert!(refusal(&second, 2).contains("another process"));
    running.signal(Signal::INT);
    assert_eq!(running.end(), 130);
    let results = read_json(&home.file("out/results.json"));
    assert_eq!((&results["total"], &results["missing"]), (&json!(0), &json!(1)));
    assert_eq!(attempts(&home.file("out")).len(), 0);
}

#[test]
fn a_judge_may_come_later_and_is_not_asked_twice() {
    let home = Home::new();
    let data = sums(&home, 3);
    let data = data.to_str().unwrap();
    let server = sums_script(3).serve();
    let args = ["physics", "--data", data, "--mode", "llm", "--quiet", "--json"];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!(code(&output), 4, "{}", err(&output));
    assert!(err(&output).contains("--judge-model"), "{}", err(&output));
    assert_eq!(super::printed(&output)["ungraded"], 3);
    // A judge that breaks off in the middle.
    let judge = MockServer::start().unwrap();
    (0..6).for_each(|_| judge.push(say("CORRECT")));
    let url = judge.base_url();
    let judged = [
        "--judge-model",
        "judge",
        "--judge-base-url",
        &url,
        "--model-calls",
        "1",
        "--concurrency",
        "1",
    ];
    let args = [&args[..], &judged].concat();
    let output = bench(&home, &server.base_url(), args.clone()).output().unwrap();
    assert_eq!(code(&output), 4, "{}", err(&output));
    let so_far = super::printed(&output);
    assert!(so_far["ungraded"].as_u64().unwrap() >= 1, "{so_far}");
    // Once more: it is asked for the votes that are missing, and nobody else for anything.
    let asked = judge.count();
    (0..6).for_each(|_| judge.push(say("correct, I think")));
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(super::printed(&output)["mean_score"], 1.0);
    assert_eq!((judge.count() - asked, judge.remaining()), (6, 0));
    assert_eq!(server.count(), 3);
}

#[test]
fn a_run_goes_on_with_its_judge_and_its_record_stays_ours() {
    let home = Home::new();
    let data = sums(&home, 2);
    let data = data.to_str().unwrap();
    let server = sums_script(2).serve();
    let judge = MockServer::answering(|_| say("CORRECT")).unwrap();
    let url = judge.base_url();
    let args = ["physics", "--data", data, "--mode", "llm"];
    let judged = [&args[..], &["--judge-model", "judge", "--judge-base-url", &url]].concat();
    benched(&home, &server, &judged, 0);
    let lost = home.file("out/attempts/physics/llm/sum-0.0.json");
    for round in 1..=2 {
        fs::remove_file(&lost).unwrap();
        let mut command = home.command(["benchmark", "--resume", "out", "--json", "--quiet"]);
        let output = command.env("HOME", home.file("nobody")).output().unwrap();
        assert_eq!(code(&output), 0, "{round}: {}", err(&output));
        assert_eq!(super::printed(&output)["mean_score"], 1.0);
    }
    // Nor does the command without its judge break the seal.
    benched(&home, &server, &args, 0);
    let mut command = home.command(["benchmark", "--resume", "out", "--quiet"]);
    let output = command.env("HOME", home.file("nobody")).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
}

#[test]
fn a_task_whose_words_changed_is_not_taken_up() {
    let home = Home::new();
    let rows: String = (0..2).map(|n| sum(n).to_string() + "\n").collect();
    write(&home.file("mine/rows.jsonl"), rows);
    let task = |plain: &str| {
        let text = format!(
            "data = \"rows.jsonl\"\n[prompt]\nplain = \"{plain}\"\n[grader]\nkind = \"math\"\n"
        );
        write(&home.file("mine/task.toml"), text);
    };
    let server = sums_script(2).serve();
    task("{problem_statement}");
    let args = ["./mine", "--mode", "llm"];
    benched(&home, &server, &args, 0);
    task("Think hard. {problem_statement}");
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    let line = refusal(&output, 2);
    assert!(line.contains("the prompts, limits or image of the task mine have changed"), "{line}");
    task("{problem_statement}");
    benched(&home, &server, &args, 0);
    assert_eq!(server.count(), 2);
}

#[test]
fn no_reply_from_a_cache_counts_twice() {
    let home = Home::new();
    let data = sums(&home, 2);
    let args = ["physics", "--data", data.to_str().unwrap(), "--mode", "llm", "--cache", "cache"];
    let server = MockServer::answering(|asked| match asked.mentions("Sum number") {
        true if asked.mentions("CORRECT") => say("CORRECT"),
        _ => say("\\boxed{1}"),
    })
    .unwrap();
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert!(refusal(&output, 2).contains("--seed"), "{}", err(&output));
    // Votes of a model about itself are its own each time, its answers are not asked for again.
    let judged = ["--seed", "1", "--judge-model", "mock"];
    let args = [&args[..], &judged].concat();
    benched(&home, &server, &args, 0);
    assert_eq!(server.count(), 2 + 2 * 4);
    benched(&home, &server, &[&args[..], &["--output", "again"]].concat(), 0);
    assert_eq!(server.count(), 2 + 2 * 4 + 2 * 4);
}

/// Earlier versions graded constraints that the grader does not know as violated.
#[test]
fn an_attempt_whose_row_is_not_valid_any_more_has_no_score() {
    let home = Home::new();
    let row = |id: &str, constraint: &str| {
        let truth = json!({"instruction_id_list": [constraint], "kwargs": [{"N": 1}]});
        let row = json!({"id": id, "domain": "instruct_follow", "problem_statement": "Say blue.",
            "ground_truth": truth.to_string()});
        row.to_string() + "\n"
    };
    write(
        &home.file("rows.jsonl"),
        row("good", "count:unique_word_count") + &row("old", "nobody:knows"),
    );
    let server = MockServer::start().unwrap();
    (0..2).for_each(|_| server.push(say("blue")));
    let args = ["instruct_follow", "--data", "rows.jsonl", "--mode", "llm"];
    benched(&home, &server, &args, 0);
    let good = attempts(&home.file("out")).remove(0);
    assert_eq!(good["id"], "good");
    let mut old = good.clone();
    (old["id"], old["score"], old["grade"]) = (json!("old"), json!(0.0), json!({"strict": false}));
    let dir = home.file("out/attempts/instruct_follow/llm");
    let file = fs::read_dir(&dir).unwrap().flatten().next().unwrap().file_name();
    let file = file.into_string().unwrap().replace("good", "old");
    write(&dir.join(&file), old.to_string());
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    let text = err(&output);
    assert!(text.contains("unknown constraint `nobody:knows`"), "{text}");
    assert!(text.contains("instruct_follow: 1 stored attempt has no score now"), "{text}");
    assert!(text.contains("start a new run with another --output"), "{text}");
    let withdrawn = read_json(&dir.join(&file));
    assert_eq!((&withdrawn["score"], &withdrawn["answer"]), (&Value::Null, &old["answer"]));
    assert_eq!(
        withdrawn["grading"]["earlier"],
        json!([{"score": 0.0, "grade": {"strict": false}}])
    );
    let report = home.json(["report", "out", "--json", "--pages", "none"]);
    let mode = &report["systems"][0]["tasks"][0]["llm"];
    assert_eq!((&mode["ungraded"], &mode["score"]["problems"]), (&json!(1), &json!(1)), "{mode}");
}
