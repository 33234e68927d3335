//! A training run: its curves, its steps and its groups.

use std::fs;

use serde_json::json;

use crate::support::{Served, episode, write_events};

#[tokio::test]
async fn curves_steps_and_groups_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path();
    fs::write(
        run.join("config.json"),
        r#"{"model": "tiny", "steps": 4, "data": {"task": "count"}}"#,
    )
    .unwrap();
    let metrics = "{\"step\":1,\"reward_mean\":0.1,\"loss\":2.0}\n{\"step\":2,\"reward_mean\":0.4,\"validation/gsm8k/success\":0.5,\"validation/gsm8k/success_se\":0.1}\n";
    fs::write(run.join("metrics.jsonl"), metrics).unwrap();
    let step = run.join("episodes/step-000001-0");
    let mut scores = String::new();
    for (group, member, score) in [(0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0), (1, 1, 1.0)] {
        let file = format!("{group:04}-{member:03}.jsonl");
        write_events(&step.join(&file), &episode());
        let line = json!({"file": file, "problem": format!("q{group}"), "member": member, "score": score, "end": "submitted", "turns": 3, "tokens": 30});
        scores.push_str(&format!("{line}\n"));
    }
    fs::write(step.join("scores.jsonl"), scores).unwrap();
    let events = "episodes/validation-000002/gsm8k/0000-000.jsonl";
    write_events(&run.join(events), &episode());
    fs::create_dir_all(run.join("validation/step-2")).unwrap();
    let record = json!({"id": "v0", "member": 0, "answer": "7", "score": 0.0, "reward": 0.0, "success": false, "turns": 3,
        "response_tokens": 30, "environment_tokens": 5, "prompt_tokens": 9, "end": "submitted", "events": events});
    fs::write(run.join("validation/step-2/gsm8k.jsonl"), format!("{record}\n")).unwrap();
    let served = Served::at(run);
    let runs = served.get("runs").await;
    let row = &runs["runs"][0];
    assert_eq!(
        (&row["kind"], &row["model"], &row["state"]),
        (&json!("training"), &json!("tiny"), &json!("interrupted"))
    );
    assert_eq!(row["steps"], json!({"done": 2, "planned": 4}));
    let at = format!("runs/{}", row["id"].as_str().unwrap());
    let curves = served.get(&format!("{at}/metrics")).await;
    assert_eq!((&curves["steps"], &curves["sets"]), (&json!([1, 2]), &json!(["gsm8k"])));
    let reward = &curves["metrics"][0];
    assert_eq!((&reward["name"], &reward["title"]), (&json!("reward_mean"), &json!("Reward")));
    assert_eq!(reward["values"], json!([0.1, 0.4]));
    let one = served.get(&format!("{at}/metrics?names=loss")).await;
    assert_eq!((&one["metrics"][0]["values"], &one["steps"]), (&json!([2.0]), &json!([1])));
    let steps = served.get(&format!("{at}/steps")).await;
    assert_eq!(
        steps["steps"][0],
        json!({"step": 1, "set": "train", "groups": 2, "episodes": 4, "score_mean": 0.75, "spread": 1})
    );
    assert_eq!(steps["steps"][1]["set"], "gsm8k");
    let groups = served.get(&format!("{at}/groups?step=1&set=train")).await;
    assert_eq!((&groups["total"], &groups["groups"][0]["mean"]), (&json!(2), &json!(0.5)));
    let member = groups["groups"][0]["members"][1]["attempt"].as_str().unwrap();
    assert_eq!(member, "step-000001-0:0000-001");
    let attempt = served.get(&format!("{at}/attempts/{}", member.replace(':', "%3A"))).await;
    assert_eq!((&attempt["events"]["total"], &attempt["result"]), (&json!(8), &json!("failed")));
    let validated = served.get(&format!("{at}/attempts?set=gsm8k")).await;
    assert_eq!(
        (&validated["matched"], &validated["attempts"][0]["problem"]),
        (&json!(1), &json!("v0"))
    );
}
