//! Runs that grow: more problems, repetitions and modes are added to what a directory holds, and nothing is played twice.

use serde_json::json;

use super::{attempts, bench, benched, group, sums, sums_script};
use crate::support::{Home, code, err, refusal, write};

#[test]
fn more_problems_and_repetitions_are_added() {
    let home = Home::new();
    let data = sums(&home, 20);
    let server = sums_script(20).serve();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "llm"];
    let with = |more: &[&str]| benched(&home, &server, &[&args[..], more].concat(), 0);
    assert_eq!(with(&["--limit", "3"])["total"], 3);
    assert_eq!((&with(&["--limit", "8"])["total"], server.count()), (&json!(8), 8));
    let often = with(&["--limit", "3", "--repeat", "3"]);
    assert_eq!((&often["total"], server.count()), (&json!(14), 14), "two more of each of three");
    let named = with(&["--ids", "sum-19"]);
    assert_eq!((&named["total"], server.count()), (&json!(15), 15));
    let all = with(&[]);
    assert_eq!((&all["total"], &all["missing"], server.count()), (&json!(26), &json!(0), 26));
    assert_eq!(attempts(&home.file("out")).len(), 26);
}

#[test]
fn fewer_problems_lose_nothing_and_are_explained() {
    let home = Home::new();
    let data = sums(&home, 4);
    let server = sums_script(4).serve();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "llm"];
    benched(&home, &server, &args, 0);
    let fewer = [&args[..], &["--limit", "1"]].concat();
    let output = bench(&home, &server.base_url(), fewer).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let said = err(&output);
    assert!(said.contains("selects 1 of the 4 attempts of the run in out"), "{said}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("math  llm   1.0000  4/4"), "{table}");
    assert!(table.contains("TOKENS/ATTEMPT"), "{table}");
    assert_eq!(server.count(), 4);
}

#[test]
fn a_resumed_run_grows_and_plays_what_any_command_requested() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 5);
    let server = sums_script(5).serve();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "llm"];
    benched(&home, &server, &[&args[..], &["--limit", "3"]].concat(), 0);
    benched(&home, &server, &[&args[..], &["--ids", "sum-4"]].concat(), 0);
    for file in ["sum-0.0.json", "sum-4.0.json"] {
        std::fs::remove_file(home.file("out/attempts/math/llm").join(file)).unwrap();
    }
    let resume = |more: &[&str]| {
        let mut command = home.command(["benchmark", "--resume", "out", "--json", "--quiet"]);
        command.args(more).env("HOME", home.file("nobody")).output().unwrap()
    };
    let output = resume(&[]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!((&super::printed(&output)["total"], server.count()), (&json!(4), 6));
    // Another mode and one more problem: both modes have all of them.
    let output = resume(&["--limit", "4", "--mode", "both"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let results = super::printed(&output);
    for mode in ["llm", "sandbox"] {
        assert_eq!(group(&results, "math", mode)["finished"], 5, "{results}");
    }
    assert_eq!(server.count(), 6 + 1 + 5);
    assert!(refusal(&resume(&["--max-turns", "5"]), 2).contains("--max-turns"));
    // Repetitions are of all problems, whichever command requested them.
    let output = resume(&["--repeat", "2"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!((&super::printed(&output)["total"], server.count()), (&json!(20), 22));
}

#[test]
fn a_further_task_leaves_the_others_in_the_run() {
    let home = Home::new();
    let server = sums_script(5).serve();
    for (task, numbers) in [("a", 0..3), ("b", 3..5)] {
        let rows: String = numbers.map(|n| super::sum(n).to_string() + "\n").collect();
        write(&home.file(&format!("{task}/rows.jsonl")), rows);
        let text =
            format!("name = \"{task}\"\ndata = \"rows.jsonl\"\n\n[grader]\nkind = \"math\"\n");
        write(&home.file(&format!("{task}/task.toml")), text);
    }
    benched(&home, &server, &["./a", "--mode", "llm", "--limit", "2"], 0);
    let both = benched(&home, &server, &["./b", "--mode", "llm"], 0);
    assert_eq!((&both["total"], &both["missing"], server.count()), (&json!(4), &json!(0), 4));
    assert_eq!(group(&both, "a", "llm")["finished"], 2, "{both}");
    // Its directory alone means both tasks, each with its own problems.
    std::fs::remove_file(home.file("out/attempts/a/llm/sum-0.0.json")).unwrap();
    let resume = |more: &[&str]| {
        let mut command = home.command(["benchmark", "--resume", "out", "--json", "--quiet"]);
        command.args(more).env("HOME", home.file("nobody")).output().unwrap()
    };
    let output = resume(&[]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!((&super::printed(&output)["total"], server.count()), (&json!(4), 5));
    // An id of one task adds nothing to the other, and loses nothing of it.
    let output = resume(&["--ids", "sum-2"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!((&super::printed(&output)["total"], server.count()), (&json!(5), 6));
    let output = resume(&[]);
    assert_eq!((code(&output), server.count()), (0, 6), "{}", err(&output));
    assert!(refusal(&resume(&["--ids", "nobody"]), 2).contains("there is no problem"));
}
