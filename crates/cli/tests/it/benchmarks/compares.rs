//! A user compares two benchmark runs that differ in one option.

use std::fs;

use serde_json::Value;
use testkit::{Keep, MockServer};

use super::{Script, bench, sum, sums, text};
use crate::support::{Home, code, err};

#[test]
fn two_temperatures_are_compared_problem_by_problem() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 6);
    let rows: Vec<Value> = (0..6).map(sum).collect();
    let right = |row: &Value| format!("\\boxed{{{}}}", text(&row["ground_truth"]));
    // Cold the model solves the first sum only, warm all but the first.
    let cold = Script::new(&rows, |row| if row["id"] == "sum-0" { right(row) } else { "?".into() });
    let warm = Script::new(&rows, |row| if row["id"] == "sum-0" { "?".into() } else { right(row) });
    let server = MockServer::answering_and(Keep::Counts, move |asked| {
        let is_cold = asked.body["temperature"].as_f64() == Some(0.25);
        if is_cold { cold.reply(asked) } else { warm.reply(asked) }
    })
    .unwrap();
    for (name, temperature) in [("cold", "0.25"), ("warm", "0.75")] {
        let args = ["math", "--data", data.to_str().unwrap(), "--mode", "sandbox", "--quiet"];
        let args = args.into_iter().chain(["--temperature", temperature, "--output", name]);
        let done = bench(&home, &server.base_url(), args).output().unwrap();
        assert_eq!(code(&done), 0, "{}", err(&done));
    }
    let report = home.json(["report", "warm", "--baseline", "cold", "--output", "both", "--json"]);
    let labels = report["systems"].as_array().unwrap().iter().map(|system| text(&system["label"]));
    assert_eq!(labels.collect::<Vec<_>>(), ["mock t=0.25", "mock t=0.75"]);
    let differing = report["settings"]["differing"].as_array().unwrap();
    assert_eq!(differing.len(), 1, "{differing:?}");
    assert_eq!(differing[0]["name"], "temperature");
    // Every setting that a benchmark records has the name of an option: no path is left.
    let same = report["settings"]["same"].as_array().unwrap();
    let names: Vec<String> = same.iter().map(|pair| text(&pair[0])).collect();
    assert!(names.contains(&"max-response-len".into()) && names.contains(&"memory".into()));
    assert!(names.iter().all(|name| !name.contains(['.', '_'])), "{names:?}");

    let [row] = &report["comparisons"].as_array().unwrap()[..] else { panic!("{report}") };
    // Five gained, one lost: 2 (1 + 6) / 2^6.
    assert_eq!(
        (&row["difference"]["test"], &row["difference"]["problems"]),
        (&"mcnemar".into(), &6.into())
    );
    assert!((row["p_holm"].as_f64().unwrap() - 14.0 / 64.0).abs() < 1e-12, "{row}");
    assert_eq!((&row["gained"]["total"], &row["lost"]["total"]), (&5.into(), &1.into()));
    let lost = &row["lost"]["items"][0];
    for side in ["baseline", "other"] {
        let link = text(&lost[side]["trajectory"]);
        assert!(home.file("both").join(&link).is_file(), "{link}");
    }
    let page = fs::read_to_string(home.file("both/report.html")).unwrap();
    assert!(page.contains("<h1>Comparison of benchmark runs</h1>"));
    assert!(page.contains("<td>temperature</td><td>0.25</td><td>0.75</td>"));
}
