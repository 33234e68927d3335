//! Records of the method's first implementation load, lose nothing, and can be done again.

use std::{fs, path::Path};

use lis_trajectory::{Arguments, Trajectory};
use serde_json::Value;

#[test]
fn published_records_lose_nothing() {
    let Some(records) = published() else { return };
    for (name, before) in records {
        let loaded: Trajectory = serde_json::from_value(before.clone()).unwrap();
        assert_eq!(Value::from(loaded.steps.len()), before["metadata"]["total_steps"], "{name}");
        let written = serde_json::to_string(&loaded).unwrap();
        let after: Value = serde_json::from_str(&written).unwrap();
        assert!(before == after, "{name} changed");
        assert_eq!(serde_json::from_str::<Trajectory>(&written).unwrap(), loaded, "{name}");
    }
}

#[test]
fn published_records_can_be_done_again() {
    let Some(records) = published() else { return };
    for (name, before) in records {
        let loaded: Trajectory = serde_json::from_value(before.clone()).unwrap();
        let calls: Vec<_> = loaded.calls().collect();
        let actions = before["steps"].as_array().unwrap().iter().map(|step| &step["action"]);
        let acting: Vec<&Value> = actions.filter(|action| action["function"] != "").collect();
        assert_eq!(calls.len(), acting.len(), "{name}");
        for (call, action) in calls.iter().zip(acting) {
            assert_eq!(action["function"], call.name.as_str(), "{name}");
            let Arguments::Object(map) = &call.arguments else { panic!("{name}: {call:?}") };
            assert_eq!(action["parameters"].as_object(), Some(map), "{name}");
        }
        assert_eq!(calls.last().unwrap().name, "submit", "{name}");
        let mut ids: Vec<&str> = calls.iter().map(|call| &call.id[..]).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), calls.len(), "{name}: the identities repeat");
    }
}

#[test]
fn a_sparse_record_loads() {
    let text = r#"{"problem_statement": "x", "steps": [
        {"action": {"function": "submit"}},
        {"thought": "hm", "action": {"function": "", "parameters": {}}},
        {"action": {"function": "execute_bash", "parameters": "ls"}},
        {"action": {"function": "execute_bash", "parameters": ["ls"]}},
        {"unheard": "of"}]}"#;
    let record: Trajectory = serde_json::from_str(text).unwrap();
    let calls: Vec<_> = record.calls().map(|call| (call.name, call.arguments)).collect();
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[0], ("submit".into(), Arguments::Object(serde_json::Map::new())));
    let raw = |at: usize| match &calls[at].1 {
        Arguments::Malformed { malformed, .. } => malformed.as_str(),
        Arguments::Object(_) => panic!("a call that made no sense would be carried out"),
    };
    assert_eq!((raw(1), raw(2)), ("ls", r#"["ls"]"#));
    assert!(serde_json::from_str::<Trajectory>(r#"{"steps": []}"#).is_err());
}

/// The records that lie beside the workspace, by name. The test runner names the directory of the crate: the one it was
/// built in may belong to another checkout.
#[expect(clippy::disallowed_methods, reason = "the test runner names the directory of the crate")]
fn published() -> Option<Vec<(&'static str, Value)>> {
    let dir = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let dir = Path::new(&dir).join("../../../shared/data/trajectories");
    let load = |name| {
        let text = fs::read_to_string(dir.join(name)).ok()?;
        Some((name, serde_json::from_str(&text).unwrap()))
    };
    let records = ["chemical.json", "math.json", "poster.json"].map(load);
    let records: Option<Vec<_>> = records.into_iter().collect();
    if records.is_none() {
        let reason = "the published records do not lie beside the workspace";
        assert!(!required("shared"), "LIS_REQUIRE names shared, but {reason}");
        println!("skip: {reason}");
    }
    records
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what must work")]
fn required(capability: &str) -> bool {
    std::env::var("LIS_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|name| name.trim() == capability))
}
