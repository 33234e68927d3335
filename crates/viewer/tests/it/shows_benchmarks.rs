//! A results directory: attempts with filters and order, and runs compared.

use axum::http::StatusCode;
use results::ResultsDir;
use serde_json::{Value, json};

use crate::support::{Served, attempt, episode, results_directory, write_events};

fn ids(page: &Value) -> Vec<String> {
    let attempts = page["attempts"].as_array().unwrap();
    attempts.iter().map(|row| row["problem"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn attempts_are_filtered_sorted_and_paged() {
    let dir = tempfile::tempdir().unwrap();
    results_directory(dir.path(), "small", 12, |problem| match problem {
        3 => None,
        problem => Some(f64::from(u8::from(problem % 2 == 0))),
    });
    let key = attempt(0, None).key;
    write_events(&ResultsDir::new(dir.path()).trajectory_path(&key), &episode());
    let served = Served::at(dir.path());
    let runs = served.get("runs").await;
    let row = &runs["runs"][0];
    assert_eq!(
        (&row["kind"], &row["model"], &row["task"]),
        (&json!("benchmark"), &json!("small"), &json!("math"))
    );
    let count =
        json!({"planned": 12, "done": 12, "running": 0, "passed": 6, "failed": 5, "invalid": 1});
    assert_eq!(row["attempts"], count);
    assert!((row["score"].as_f64().unwrap() - 6.0 / 11.0).abs() < 1e-9);
    let at = format!("runs/{}", row["id"].as_str().unwrap());
    let all = served.get(&format!("{at}/attempts")).await;
    assert_eq!((&all["total"], &all["matched"]), (&json!(12), &json!(12)));
    // Numbers in names are sorted as numbers.
    assert_eq!(ids(&all)[..4], ["p0", "p1", "p2", "p3"]);
    assert_eq!(ids(&all)[9..], ["p9", "p10", "p11"]);
    assert_eq!(all["facets"]["result"], json!({"passed": 6, "failed": 5, "invalid": 1}));
    let failed = served.get(&format!("{at}/attempts?result=failed&offset=1&limit=2")).await;
    assert_eq!((ids(&failed), &failed["matched"]), (vec!["p5".to_owned(), "p7".into()], &json!(5)));
    assert_eq!(ids(&served.get(&format!("{at}/attempts?q=P7%20what")).await), ["p7"]);
    let sorted = served.get(&format!("{at}/attempts?sort=started&order=desc&limit=1")).await;
    assert_eq!(ids(&sorted), ["p11"]);
    assert_eq!(ids(&served.get(&format!("{at}/attempts?problem=p3")).await), ["p3"]);
    let detail = served.get(&format!("{at}/attempts/math%2Csandbox%2Cp3%2C0")).await;
    assert_eq!((&detail["result"], &detail["has_events"]), (&json!("invalid"), &json!(false)));
    assert_eq!(detail["problem"], "p3");
    assert_eq!(
        (&detail["previous"], &detail["next"]),
        (&json!("math,sandbox,p2,0"), &json!("math,sandbox,p4,0"))
    );
    let first = served.get(&format!("{at}/attempts/math%2Csandbox%2Cp0%2C0")).await;
    assert_eq!((&first["events"]["total"], &first["expected"]), (&json!(8), &json!("1")));
    // Attempts keep no files: that none are listed does not mean that there were none.
    let files = served.get(&format!("{at}/attempts/math%2Csandbox%2Cp0%2C0/files")).await;
    assert_eq!((&files["output"], &files["output_known"]), (&json!([]), &json!(false)));
    let run = served.get(&at).await;
    let result = &run["results"][0];
    assert_eq!(
        (&result["valid"], &result["passed"], &result["problems"]),
        (&json!(11), &json!(6), &json!(11))
    );
    assert!(result["interval"][0].as_f64().unwrap() < result["score"].as_f64().unwrap());
}

#[tokio::test]
async fn new_attempts_appear() {
    let dir = tempfile::tempdir().unwrap();
    results_directory(dir.path(), "small", 2, |_| Some(1.0));
    let served = Served::at(dir.path());
    let at = format!("runs/{}/attempts", served.only_run().await);
    assert_eq!(served.get(&at).await["total"], 2);
    ResultsDir::new(dir.path()).save(&attempt(7, Some(0.0))).unwrap();
    // One that is being played has events only.
    let key = attempt(8, None).key;
    let mut partial = ResultsDir::new(dir.path()).trajectory_path(&key).into_os_string();
    partial.push(".partial");
    write_events(partial.as_ref(), &episode()[..3]);
    tokio::time::sleep(std::time::Duration::from_millis(1600)).await;
    let now = served.get(&at).await;
    assert_eq!(
        (ids(&now), &now["attempts"][3]["state"]),
        (vec!["p0".to_owned(), "p1".into(), "p7".into(), "p8".into()], &json!("interrupted"))
    );
    assert_eq!(served.get(&format!("{at}/math%2Csandbox%2Cp8%2C0/events")).await["total"], 3);
}

#[tokio::test]
async fn runs_are_compared_problem_by_problem() {
    let dir = tempfile::tempdir().unwrap();
    results_directory(&dir.path().join("a"), "small", 20, |problem| {
        Some(f64::from(u8::from(problem < 5)))
    });
    results_directory(&dir.path().join("b"), "large", 20, |problem| {
        Some(f64::from(u8::from(problem > 2)))
    });
    let served = Served::at(dir.path());
    let runs = served.get("runs?sort=name").await;
    let id = |at: usize| runs["runs"][at]["id"].as_str().unwrap().to_owned();
    let both = format!("{},{}", id(0), id(1));
    let compared = served.get(&format!("compare?runs={both}")).await;
    let row = compared["comparisons"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["task"] == "math")
        .unwrap();
    let difference = &row["difference"];
    assert_eq!((&difference["better"], &difference["worse"]), (&json!(15), &json!(3)));
    assert_eq!(difference["test"], "mcnemar");
    // Twice the probability of at most 3 heads in 18 throws.
    let p = 2.0 * f64::from(1 + 18 + 153 + 816) / f64::from(1 << 18);
    assert!((difference["p"].as_f64().unwrap() - p).abs() < 1e-12, "{difference}");
    assert_eq!((&row["gained"], &row["lost"]), (&json!(15), &json!(3)));
    assert_eq!((&row["baseline"]["run"], &row["other"]["run"]), (&json!(0), &json!(1)));
    let problems = |only: &str| format!("compare/problems?runs={both}&only={only}");
    for (only, expected) in
        [("all", 20), ("disagree", 18), ("gained", 15), ("lost", 3), ("both", 2), ("neither", 0)]
    {
        assert_eq!(served.get(&problems(only)).await["matched"], expected, "{only}");
    }
    let lost = served.get(&problems("lost")).await;
    let cells = &lost["problems"][0]["cells"];
    assert_eq!((&cells[0]["passed"], &cells[1]["passed"]), (&json!(1), &json!(0)));
    assert_eq!(cells[0]["attempts"][0]["id"], "math,sandbox,p0,0");
    for bad in [id(0), format!("{0},{0}", id(0)), format!("{},absent", id(0)), String::new()] {
        let reply = served.reply(&format!("compare?runs={bad}")).await;
        assert!(reply.status.is_client_error(), "{bad}: {}", reply.status);
    }
    assert_eq!(
        served.reply(&format!("compare/problems?runs={both}&other=2")).await.status,
        StatusCode::BAD_REQUEST
    );
}
