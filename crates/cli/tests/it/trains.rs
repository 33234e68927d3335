//! A user draws curves, and reaches the program that trains.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::support::{Home, code, err, out, program, refusal, write};

/// The metrics of a run that gets better.
fn metrics(slope: f64) -> String {
    let line = |step: i32| {
        let reward = (f64::from(step) * slope).min(1.0);
        format!(
            "{{\"step\":{step},\"reward_mean\":{reward},\"turns_mean\":{},\"entropy\":1.5,\"use/files\":0.4,\"seconds/play\":3}}\n",
            9 - step / 10
        )
    };
    (1..=40).map(line).collect::<String>() + "{\"step\": 41, \"rew"
}

#[test]
fn the_curves_of_a_run_lie_beside_it() {
    let home = Home::new();
    write(&home.file("runs/first/metrics.jsonl"), metrics(0.02));
    let output = home.run(["train", "plot", "runs/first"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(
        err(&output).contains("1 lines are unreadable") && err(&output).contains("5 SVG files"),
        "{}",
        err(&output)
    );
    assert!(
        out(&output).contains("reward_mean") && out(&output).lines().count() == 6,
        "{}",
        out(&output)
    );
    let dir = home.file("runs/first/curves");
    let page = fs::read_to_string(dir.join("curves.html")).unwrap();
    assert!(
        page.starts_with("<!doctype html>")
            && page.contains(">Reward<")
            && page.contains(">Turns<")
    );
    let svg = fs::read_to_string(dir.join("reward_mean.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns=") && svg.contains("polyline"));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 6);
    // Drawn again, all is the same.
    home.ok(["train", "plot", "runs/first"]);
    assert_eq!(fs::read_to_string(dir.join("curves.html")).unwrap(), page);
}

#[test]
fn runs_are_compared_and_told_in_numbers() {
    let home = Home::new();
    write(&home.file("a/metrics.jsonl"), metrics(0.01));
    write(&home.file("b/metrics.jsonl"), metrics(0.02));
    let told: Value = home.json([
        "train",
        "plot",
        "a",
        "b/metrics.jsonl",
        "--output",
        "both",
        "--smooth",
        "0",
        "--json",
    ]);
    let rewards: Vec<&Value> = told["figures"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|figure| figure["figure"] == "reward_mean")
        .collect();
    let runs: Vec<_> = rewards.iter().map(|figure| figure["run"].as_str().unwrap()).collect();
    assert_eq!(runs, ["a", "b"]);
    assert!(rewards[0]["last"].as_f64().unwrap() < rewards[1]["last"].as_f64().unwrap());
    let page = fs::read_to_string(home.file("both/curves.html")).unwrap();
    assert_eq!(page.matches("<polyline").count(), 10);
}

#[test]
fn what_is_no_run_is_named() {
    let home = Home::new();
    fs::create_dir(home.file("empty")).unwrap();
    for (args, why) in [
        (&["train", "plot", "empty"][..], "holds no metrics.jsonl"),
        (&["train", "plot", "missing"], "No such file"),
        (&["train", "plot", "empty", "--smooth", "1"], "below 1"),
        (&["train", "plot"], "RUN"),
    ] {
        let line = refusal(&home.run(args), 2);
        assert!(line.contains(why), "{line}");
    }
    assert!(!home.file("curves").exists() && !home.file("empty/curves").exists());
}

#[test]
fn training_is_handed_over_with_all_its_arguments() {
    let home = Home::new();
    let trainer = home.file("bin/llm-in-sandbox-train");
    write(&trainer, "#!/bin/sh\necho \"$@\"\nexit 7\n");
    fs::set_permissions(&trainer, fs::Permissions::from_mode(0o755)).unwrap();
    // A copy of the program without the one that trains beside it.
    let alone = home.file("alone/llm-in-sandbox");
    write(&alone, "");
    fs::copy(program(), &alone).unwrap();
    let run = |args: &[&str], path: &str| {
        let mut command = std::process::Command::new(&alone);
        command
            .args(args)
            .env("PATH", path)
            .env("LLM_IN_SANDBOX_HOME", home.state())
            .output()
            .unwrap()
    };
    let bin = format!("{}:/usr/bin:/bin", trainer.parent().unwrap().display());
    for args in [
        &["train", "rl", "config.toml", "--set", "seed=3", "--json"][..],
        &["train", "sft", "--help"],
        &["train", "export", "run", "--to", "x", "--", "-y"],
        &["train", "perf"],
    ] {
        let output = run(args, &bin);
        assert_eq!(
            (code(&output), out(&output)),
            (7, args[1..].join(" ") + "\n"),
            "{}",
            err(&output)
        );
    }
    let line = refusal(&run(&["train", "rl", "config.toml"], "/usr/bin:/bin"), 4);
    assert!(
        line.contains("llm-in-sandbox-train") && line.contains("cargo xtask install --train"),
        "{line}"
    );
    // The one beside the program comes first.
    let beside = home.file("alone/llm-in-sandbox-train");
    write(&beside, "#!/bin/sh\necho beside\n");
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(out(&run(&["train", "rl"], &bin)), "beside\n");
}

/// Stores the scores of a validation set, whose problems are `p0`, `p1`, ….
fn measure(home: &Home, run: &str, step: u64, set: &str, scores: &[f64], turns: u32) {
    let records = scores.iter().enumerate().map(|(at, score)| {
        let kind = if at % 2 == 0 { "even" } else { "odd" };
        let record = serde_json::json!({
            "id": format!("p{at}"), "kind": kind, "digest": "d", "member": 0, "answer": "\u{1b}[2J", "score": score,
            "reward": score, "success": *score == 1.0, "turns": turns, "response_tokens": 100 * turns,
            "environment_tokens": 7, "prompt_tokens": 9, "end": "submitted",
        });
        format!("{record}\n")
    });
    let place = format!("{run}/validation/step-{step:06}/{set}");
    write(&home.file(&format!("{place}.jsonl")), records.collect::<String>());
    let about = serde_json::json!({
        "version": 1, "name": set, "step": step, "settings": {"turns": turns, "mode": "sandbox"}, "metrics": {},
    });
    write(&home.file(&format!("{place}.json")), about.to_string());
}

#[test]
fn a_run_is_compared_with_its_beginning_and_with_another() {
    let home = Home::new();
    // Six problems gained, none lost: p = 2 / 2^6, doubled for two sets.
    for set in ["gsm8k", "small"] {
        measure(&home, "a", 0, set, &[0.0; 6], 4);
        measure(&home, "a", 9, set, &[1.0; 6], 4);
    }
    let found = home.run(["train", "compare", "a"]);
    let text = out(&found);
    assert_eq!(code(&found), 0, "{}", err(&found));
    assert!(text.contains("gsm8k") && text.contains("0.0% -> 100.0%  +100.0"), "{text}");
    assert!(text.contains("0.06") && text.contains("exact McNemar test, Holm-corrected"), "{text}");
    assert!(text.contains("mean of sets") && !text.contains("not measured alike"), "{text}");
    measure(&home, "b", 0, "gsm8k", &[0.0, 0.5, 0.0, 0.5], 3);
    let found = home.run(["train", "compare", "b", "a@9", "--by", "kind"]);
    let (text, notes) = (out(&found), err(&found));
    assert!(text.contains("not measured alike") && text.contains("turns"), "{text}");
    assert!(text.contains("even") && text.contains("25.0% -> 100.0%"), "{text}");
    assert!(notes.contains("validation set small is left out"), "{notes}");
    assert!(notes.contains("0 problems of the first and 2 of the second"), "{notes}");
    let json: Value = home.json(["train", "compare", "b", "a", "--metric", "success", "--json"]);
    assert_eq!(json[0]["sets"][0]["score"]["means"], serde_json::json!([0.0, 1.0]));
    assert_eq!(json[0]["sets"][0]["turns"]["difference"], 1.0);
}

#[test]
fn what_models_did_is_compared_and_shown_side_by_side() {
    let home = Home::new();
    for (run, command, score) in
        [("a", "python3 -c 'print(sum(range(9)))'", 1.0), ("b", "cat notes.txt", 0.0)]
    {
        measure(&home, run, 0, "small", &[score; 3], 1);
        let place = home.file(&format!("{run}/validation/step-000000/small.jsonl"));
        let text = fs::read_to_string(&place).unwrap();
        let text: String = text
            .lines()
            .enumerate()
            .map(|(at, line)| {
                let mut record: Value = serde_json::from_str(line).unwrap();
                record["events"] = serde_json::json!(format!("episodes/{at}.jsonl"));
                format!("{record}\n")
            })
            .collect();
        write(&place, text);
        let call = serde_json::json!({"id": "1", "name": "execute_bash", "arguments": {"command": command}});
        let started = serde_json::json!({"v": 1, "at": 0, "kind": "started", "problem_statement": "<b>Count</b>",
            "messages": [], "model": "m"});
        let replied = serde_json::json!({"v": 1, "at": 0, "kind": "replied", "turn": 1, "stop": "end", "usage": {},
            "message": {"text": "</script>\u{1b}[2J", "calls": [call]}, "millis": 1});
        for at in 0..2 {
            write(
                &home.file(&format!("{run}/episodes/{at}.jsonl")),
                format!("{started}\n{replied}\n"),
            );
        }
    }
    let found = home.run(["train", "compare", "a", "b", "--analyses"]);
    let text = out(&found);
    assert!(text.contains("### Use of the sandbox, by the paper's patterns"), "{text}");
    assert!(
        text.contains(
            "| small | 2 | 0.0% → 0.0%, +0.0 | 0.0% → 100.0%, +100.0 | 100.0% → 0.0%, -100.0 |"
        ),
        "{text}"
    );
    assert!(
        err(&found).contains("the events of 1 episodes of the first and 1 of the second"),
        "{}",
        err(&found)
    );
    let json: Value = home.json(["train", "compare", "a", "b", "--analyses", "--json"]);
    assert_eq!(json[0]["sets"][0]["analyses"]["capabilities"][0]["paper"]["computation"], 2);
    let shown = ["train", "compare", "a", "b", "--side-by-side", "small:lost:1,small/p1"];
    let found = home.run(shown);
    assert_eq!(out(&found).matches("### small / p").count(), 2, "{}", err(&found));
    let found = home.run([&shown[..], &["--page", "pairs.html"]].concat());
    assert_eq!(code(&found), 0, "{}", err(&found));
    let page = fs::read_to_string(home.file("pairs.html")).unwrap();
    assert!(
        page.contains("&lt;/script&gt;<i>\\x1b</i>[2J") && page.contains("cat notes.txt"),
        "{page}"
    );
    for (more, why) in [
        (&["--side-by-side", "small/nothing"][..], "has no problem `nothing`"),
        (&["--side-by-side", "small:gained"], "no problem of validation set `small` was gained"),
        (&["--side-by-side", "other/p1"], "no validation set `other`"),
        (&["--side-by-side", "small"], "is not SET/ID"),
        (&["--side-by-side", "small/p1", "--page", "pairs.pdf"], ".html or .md"),
        (&["--page", "pairs.html"], "--side-by-side"),
    ] {
        let found = home.run([&["train", "compare", "a", "b"], more].concat());
        assert_eq!(code(&found), 2, "{more:?}");
        assert!(err(&found).contains(why), "{more:?}: {}", err(&found));
    }
    let three = home.run(["train", "compare", "a", "b", "a", "--side-by-side", "small/p1"]);
    assert!(err(&three).contains("shows two runs"), "{}", err(&three));
}

#[test]
fn comparisons_that_are_not_possible_are_explained() {
    let home = Home::new();
    measure(&home, "a", 3, "gsm8k", &[1.0], 4);
    measure(&home, "b", 0, "small", &[1.0], 4);
    fs::create_dir(home.file("empty")).unwrap();
    for (args, why) in [
        (&["a"][..], "measured once only"),
        (&["a", "b"], "no validation set in common"),
        (&["a", "a@5"], "no validation after step 5; it has them after 3"),
        (&["a", "b", "--set", "x"], "no validation set `x`"),
        (&["empty"], "no validation results"),
        (&["nowhere"], "cannot read nowhere"),
    ] {
        let found = home.run([&["train", "compare"], args].concat());
        assert_eq!(code(&found), 2, "{args:?}");
        assert!(err(&found).contains(why), "{args:?}: {}", err(&found));
    }
}
