//! Bad rows, bad tasks, servers that fail, full disks: said clearly, counted apart, and the rest goes on.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Answer, MockServer, UnusedPort, bash, say};

use super::{attempts, bench, benched, group, sum, sums, sums_script};
use crate::{
    episodes::json as read_json,
    support::{
        Home, Running, code, err, is_root, is_running, refusal, unique_sleep, wait_for, write,
    },
};

#[test]
fn bad_rows_are_named_and_the_rest_goes_on() {
    let home = Home::new();
    let mut other = sum(1);
    other["problem_statement"] = "something else".into();
    let lines = [
        sum(0).to_string(),
        "{\"id\": \"cut off".into(),
        json!({"id": "no-answer", "problem_statement": "x"}).to_string(),
        sum(1).to_string(),
        other.to_string(),
        json!({"id": "up", "problem_statement": "x", "ground_truth": "1", "input_files": {"../x": "y"}}).to_string(),
        sum(2).to_string(),
    ];
    let data = home.file("rows.jsonl");
    write(&data, lines.join("\n"));
    let server = sums_script(3).serve();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "llm", "--json"];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let results = super::printed(&output);
    assert_eq!((&results["total"], &results["mean_score"]), (&json!(3), &json!(1.0)));
    let bad = results["bad_rows"].as_array().unwrap();
    assert_eq!(bad.len(), 4, "{bad:?}");
    for (row, why) in [(2, ""), (3, "ground_truth"), (5, "sum-1"), (6, "../x")] {
        let named = format!("row {row}:");
        let found = bad.iter().any(|bad| {
            let bad = bad.as_str().unwrap();
            bad.contains(&named) && bad.contains(why)
        });
        assert!(found, "{row}: {bad:?}");
        assert!(err(&output).contains(&named), "{}", err(&output));
    }
}

#[test]
fn files_that_hold_no_rows_are_refused() {
    let home = Home::new();
    let server = MockServer::start().unwrap();
    write(&home.file("bad.parquet"), "PAR1 this is none");
    write(&home.file("empty.jsonl"), "");
    write(&home.file("list.csv"), "id\n1\n");
    for (file, why) in [
        ("bad.parquet", "Parquet"),
        ("empty.jsonl", "no valid row"),
        ("list.csv", ".jsonl, .json or .parquet"),
        ("none.jsonl", "cannot read"),
    ] {
        let args = ["math", "--data", file, "--mode", "llm"];
        let output = bench(&home, &server.base_url(), args).output().unwrap();
        let said = refusal(&output, 2);
        assert!(said.contains(why), "{file}: {said}");
    }
    let data = sums(&home, 1);
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "llm", "--ids", "sum-0,sum-7"];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert!(refusal(&output, 2).contains("\"sum-7\""));
    let output = bench(&home, &server.base_url(), ["maths", "--mode", "llm"]).output().unwrap();
    assert!(refusal(&output, 2).contains("built-in tasks are math"));
}

#[test]
fn a_task_with_errors_does_not_stop_the_others() {
    let home = Home::new();
    let data = sums(&home, 2);
    write(&home.file("broken/task.toml"), "name = \"broken\"\nsurprise = 1\n");
    let server = sums_script(2).serve();
    let data = format!("math={}", data.display());
    let args = ["broken", "math", "--data", &data, "--mode", "llm", "--json"];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert_eq!(super::printed(&output)["mean_score"], 1.0);
    let said = err(&output);
    assert!(said.contains("broken is left out") && said.contains("line 2"), "{said}");
    let alone = bench(&home, &server.base_url(), ["./broken", "--mode", "llm"]).output().unwrap();
    assert!(refusal(&alone, 2).contains("line 2"));
    // Mended, it joins the run.
    write(&home.file("broken/rows.jsonl"), sum(1).to_string());
    let task = "name = \"broken\"\ndata = \"rows.jsonl\"\n[grader]\nkind = \"math\"\n";
    write(&home.file("broken/task.toml"), task);
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!((&super::printed(&output)["total"], server.count()), (&json!(3), 3));
    // Ids belong to any of the tasks.
    let ids = ["--output", "ids", "--ids", "sum-0,sum-1"];
    let output = bench(&home, &server.base_url(), [&args[..], &ids].concat()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(super::printed(&output)["total"], 3);
    let ids = ["--output", "none", "--ids", "sum-1,sum-9"];
    let output = bench(&home, &server.base_url(), [&args[..], &ids].concat()).output().unwrap();
    assert!(refusal(&output, 2).contains("\"sum-9\""), "{}", err(&output));
}

#[test]
fn a_task_of_ones_own_is_graded_by_its_own_command() {
    let Some(home) = Home::with_sandboxes() else { return };
    let task = "name = \"mine\"\ndata = \"rows.jsonl\"\n\n[grader]\ncommand = \"sh grade.sh\"\n";
    write(&home.file("mine/task.toml"), task);
    // Half a point for any answer, a whole one for the right one.
    let grade = "test -s answer.txt || { echo 0; exit; }\n\
                 grep -q \"\\\"ground_truth\\\":\\\"$(cat answer.txt)\\\"\" row.json && echo 1 || echo 0.5\n";
    write(&home.file("mine/grade.sh"), grade);
    let rows: String = (0..3).map(|n| sum(n).to_string() + "\n").collect();
    write(&home.file("mine/rows.jsonl"), rows);
    let server = MockServer::answering(|asked| match asked {
        asked if asked.mentions("Sum number 0:") => say("1"),
        asked if asked.mentions("Sum number 1:") => say("7"),
        _ => say(""),
    })
    .unwrap();
    let results = benched(&home, &server, &["./mine", "--mode", "llm"], 0);
    let scores: Vec<Value> =
        attempts(&home.file("out")).iter().map(|a| a["score"].clone()).collect();
    assert_eq!(scores, [json!(1.0), json!(0.5), json!(0.0)], "{results}");
    // A grader that fails leaves answers ungraded, and a mended one grades them.
    write(&home.file("mine/grade.sh"), "echo oops; exit 3\n");
    let args = ["./mine", "--mode", "llm", "--output", "ungraded"];
    let results = benched(&home, &server, &args, 4);
    assert_eq!(results["ungraded"], 3);
    assert!(attempts(&home.file("ungraded"))[0]["grade"].to_string().contains("exit code 3"));
    write(&home.file("mine/grade.sh"), grade);
    let asked = server.count();
    assert_eq!(benched(&home, &server, &args, 0)["mean_score"], 0.5);
    assert_eq!(server.count(), asked, "only graded, not asked again");
}

#[test]
fn a_judge_that_talks_nonsense_gives_no_points() {
    let home = Home::new();
    let data = sums(&home, 2);
    let server = sums_script(2).serve();
    let judge =
        MockServer::answering(|_| say("I'd rather discuss \u{202e}the weather.\u{0}")).unwrap();
    let url = judge.base_url();
    let args =
        ["physics", "--data", data.to_str().unwrap(), "--mode", "llm", "--judge-model", "judge"];
    let results = benched(&home, &server, &[&args[..], &["--judge-base-url", &url]].concat(), 0);
    assert_eq!((&results["mean_score"], &results["ungraded"]), (&json!(0.0), &json!(0)));
    assert_eq!(attempts(&home.file("out"))[0]["grade"]["votes"], json!(vec!["UNKNOWN"; 4]));
}

#[test]
fn what_a_judge_refuses_does_not_keep_it_from_the_rest() {
    let home = Home::new();
    let data = sums(&home, 3);
    let server = sums_script(3).serve();
    let judge = MockServer::answering(|asked| match asked.mentions("Sum number 0:") {
        true => Answer::error(400, "not this one"),
        false => say("CORRECT").into(),
    })
    .unwrap();
    let url = judge.base_url();
    let args = ["physics", "--data", data.to_str().unwrap(), "--mode", "llm", "--judge-model", "j"];
    let more = ["--judge-base-url", &url, "--max-failures", "1", "--concurrency", "1"];
    let results = benched(&home, &server, &[&args[..], &more].concat(), 4);
    let figures = group(&results, "physics", "llm");
    assert_eq!((&figures["graded"], &figures["ungraded"]), (&json!(2), &json!(1)));
}

#[test]
fn a_judge_that_is_down_leaves_answers_ungraded() {
    let home = Home::new();
    let data = sums(&home, 2);
    let server = sums_script(2).serve();
    let nobody = UnusedPort::new().unwrap();
    let url = nobody.base_url().unwrap();
    let args = [
        "physics",
        "--data",
        data.to_str().unwrap(),
        "--mode",
        "llm",
        "--judge-model",
        "judge",
        "--judge-base-url",
        &url,
        "--max-failures",
        "1",
        "--retries",
        "1",
    ];
    let results = benched(&home, &server, &args, 4);
    assert_eq!((&results["ungraded"], &results["total"]), (&json!(2), &json!(2)));
    let why = attempts(&home.file("out"))[0]["grade"]["ungraded"].to_string();
    assert!(why.contains("judge"), "{why}");
}

#[test]
fn failures_of_ours_are_tried_again_and_counted_apart() {
    let home = Home::new();
    let data = sums(&home, 3);
    let data = data.to_str().unwrap();
    let script = sums_script(3);
    let calls = AtomicUsize::new(0);
    // One problem works at the second try, one never.
    let server = MockServer::answering(move |asked| {
        let answer = script.answer(asked).to_owned();
        match answer.as_str() {
            "\\boxed{2}" if calls.fetch_add(1, Ordering::SeqCst) == 0 => Answer::error(503, "once"),
            "\\boxed{3}" => Answer::error(503, "never"),
            _ => script.reply(asked),
        }
    })
    .unwrap();
    let args = ["math", "--data", data, "--mode", "llm", "--tries", "2", "--retries", "0"];
    let results = benched(&home, &server, &args, 4);
    let figures = group(&results, "math", "llm");
    assert_eq!((&figures["infrastructure"], &figures["graded"]), (&json!(1), &json!(2)));
    assert_eq!(figures["mean_score"], 1.0, "a failure of the infrastructure is not a score");
    let kept = attempts(&home.file("out"));
    let tries: Vec<&Value> = kept.iter().map(|attempt| &attempt["tries"]).collect();
    assert_eq!(tries, [&json!(1), &json!(2), &json!(2)]);
    assert!(kept[2]["cause"].as_str().unwrap().contains("never"), "{}", kept[2]);
}

#[test]
fn a_server_that_goes_down_ends_the_run_and_loses_nothing() {
    let home = Home::new();
    let data = sums(&home, 200);
    let data = data.to_str().unwrap();
    let script = sums_script(200);
    let calls = AtomicUsize::new(0);
    let server = MockServer::answering(move |asked| match calls.fetch_add(1, Ordering::SeqCst) {
        ..20 => script.reply(asked),
        _ => Answer::error(503, "going down"),
    })
    .unwrap();
    let args = [
        "math",
        "--data",
        data,
        "--mode",
        "llm",
        "--retries",
        "0",
        "--max-failures",
        "6",
        "--json",
    ];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!(code(&output), 4, "{}", err(&output));
    let said = err(&output);
    assert!(said.contains("6 failures in a row") && said.contains("going down"), "{said}");
    assert!(said.contains("--resume out"), "{said}");
    let results = super::printed(&output);
    let figures = group(&results, "math", "llm");
    assert_eq!((&figures["graded"], &figures["mean_of_graded"]), (&json!(20), &json!(1.0)));
    assert!(server.count() < 60, "{} calls to a dead server", server.count());
    // It is back: the rest is made.
    let server = sums_script(200).serve();
    let args = ["math", "--data", data, "--mode", "llm"];
    let results = benched(&home, &server, &args, 0);
    assert_eq!((&results["total"], server.count()), (&json!(200), 180));
}

#[test]
fn ctrl_c_keeps_what_is_finished_and_removes_the_rest() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 3);
    let sleep = unique_sleep();
    let script = sums_script(3);
    let command = sleep.join(" ");
    let server = MockServer::answering(move |asked| match script.answer(asked) {
        "\\boxed{1}" => script.reply(asked),
        _ => bash(&command).into(),
    })
    .unwrap();
    // A sandbox for each: with fewer, the attempts that never end may take all of them.
    let args = ["math", "--data", data.to_str().unwrap(), "--concurrency", "3", "--quiet"];
    let mut running = Running(bench(&home, &server.base_url(), args).spawn().unwrap());
    wait_for("an attempt", || (attempts(&home.file("out")).len() == 1).then_some(()));
    wait_for("a command", || is_running(&sleep).then_some(()));
    running.signal(Signal::INT);
    assert_eq!(running.end(), 130);
    assert!(!is_running(&sleep));
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
    let results = read_json(&home.file("out/results.json"));
    assert_eq!((&results["total"], &results["missing"]), (&json!(1), &json!(2)));
    let partial = fs::read_dir(home.file("out/trajectories/math/sandbox")).unwrap().flatten();
    let partial = partial.filter(|entry| entry.file_name().to_string_lossy().ends_with("partial"));
    assert_eq!(partial.count(), 0);
    let results =
        benched(&home, &sums_script(3).serve(), &["math", "--data", data.to_str().unwrap()], 0);
    assert_eq!(results["mean_score"], 1.0);
}

#[test]
fn a_full_disk_ends_the_run_with_its_name() {
    if !is_root() {
        println!("skip: only root can mount a small disk");
        return;
    }
    let home = Home::new();
    let data = sums(&home, 50);
    let dir = home.file("out");
    fs::create_dir(&dir).unwrap();
    let mount = |program: &str, args: &[&str]| {
        let done = std::process::Command::new(program).args(args).arg(&dir).status();
        assert!(done.unwrap().success());
    };
    mount("mount", &["-t", "tmpfs", "-o", "size=256k", "tmpfs"]);
    let rows: Vec<Value> = (0..50).map(sum).collect();
    let server = super::Script::new(&rows, |_| "x".repeat(20_000)).serve();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "llm", "--quiet"];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    let kept = attempts(&dir).len();
    mount("umount", &[]);
    assert_eq!(code(&output), 4, "{}", err(&output));
    assert!(err(&output).contains("No space left"), "{}", err(&output));
    assert!((1..50).contains(&kept), "{kept} attempts were kept");
}

/// Neither says anything about the model, though its time is up.
#[test]
fn a_server_that_fails_until_the_time_is_up_is_no_failure_of_the_model() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 1);
    let server = MockServer::answering(|_| Answer::busy(60)).unwrap();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "both"];
    let args = [&args[..], &["--deadline", "2", "--tries", "1"]].concat();
    let output = bench(&home, &server.base_url(), &args).output().unwrap();
    assert_eq!(code(&output), 4, "{}", err(&output));
    for mode in ["llm", "sandbox"] {
        let told = format!(
            "math {mode} sum-0 #0: failed: the time limit was reached while calls to the model failed"
        );
        assert!(err(&output).contains(&told), "{}", err(&output));
    }
    let kept = attempts(&home.file("out"));
    assert!(kept.iter().all(|attempt| attempt["outcome"] == "infrastructure"), "{kept:?}");
}

#[test]
fn a_judge_that_never_ends_is_not_waited_for() {
    let home = Home::new();
    let data = home.file("rows.jsonl");
    write(&data, json!({"id": "a", "problem_statement": "why?", "ground_truth": "so"}).to_string());
    let server = MockServer::answering(|_| say("because")).unwrap();
    let judge = MockServer::answering(|_| {
        Answer::says(say("hm")).fault(testkit::Fault::Endless).every(Duration::from_millis(200))
    })
    .unwrap();
    let url = judge.base_url();
    let args = ["physics", "--data", data.to_str().unwrap(), "--mode", "llm", "--deadline", "2"];
    let args = [&args[..], &["--judge-model", "judge", "--judge-base-url", &url]].concat();
    let output = bench(&home, &server.base_url(), &args).output().unwrap();
    assert_eq!(code(&output), 4, "{}", err(&output));
    assert!(err(&output).contains("the judge did not finish within 2s"), "{}", err(&output));
    assert_eq!(attempts(&home.file("out"))[0]["answer"], "because");
}

#[test]
fn rows_of_another_task_are_doubted() {
    let home = Home::new();
    let server = MockServer::answering(|_| say("A")).unwrap();
    let doubted = |right: &str| {
        let (data, mut row) = (format!("{right}.jsonl"), sum(0));
        row["ground_truth"] = right.into();
        write(&home.file(&data), row.to_string());
        let args = ["biomed", "--data", &data, "--mode", "llm", "--output", right];
        let output = bench(&home, &server.base_url(), args).output().unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        err(&output).contains("are these its rows?")
    };
    assert!(doubted("70"));
    assert!(!doubted("A"));
}
