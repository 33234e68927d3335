//! Which rows are problems, and the errors of those that are not.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn error_of(row: Value) -> String {
    Problem::from_row(row).unwrap_err().to_string()
}

fn with_files(files: Value) -> Result<Problem, String> {
    let row =
        json!({"id": "a", "problem_statement": "q", "ground_truth": "t", "input_files": files});
    Problem::from_row(row).map_err(|error| error.to_string())
}

#[test]
fn a_row_of_the_reference_is_a_problem() {
    let row = json!({
        "id": 7, "domain": "long_context", "subject": "s", "qa_type": null, "problem_statement": " q ",
        "ground_truth": {"a": [1, 2.5]}, "input_files": "{\"./d//x.txt\": \"text\", \"gone\": null}", "level": 3,
    });
    let problem = Problem::from_row(row).unwrap();
    assert_eq!(problem.id, "7");
    assert_eq!(problem.statement, " q ");
    assert_eq!(problem.ground_truth, r#"{"a":[1,2.5]}"#);
    assert_eq!((problem.subject.as_deref(), problem.qa_type.as_deref()), (Some("s"), None));
    assert_eq!(problem.files, BTreeMap::from([("d/x.txt".into(), "text".into())]));
    assert_eq!(problem.extra["level"], 3);
    let row = problem.row();
    assert_eq!(row["ground_truth"], json!({"a": [1, 2.5]}));
    assert_eq!(row["input_files"], json!({"d/x.txt": "text"}));
    assert_eq!(row["level"], 3);
    assert!(!row.contains_key("qa_type"));
}

#[test]
fn a_row_with_tests_needs_no_ground_truth() {
    let row = json!({"instance_id": "o__r-1", "problem_statement": "q", "FAIL_TO_PASS": "[]"});
    let problem = Problem::from_row(row).unwrap();
    assert_eq!((problem.id.as_str(), problem.ground_truth.as_str()), ("o__r-1", ""));
    assert_eq!(problem.field("instance_id"), Some("o__r-1"));
}

#[test]
fn errors_name_the_field() {
    let full = json!({"id": "a", "problem_statement": "q", "ground_truth": "t"});
    let changed = |key: &str, value: Value| {
        let mut row = full.clone();
        row[key] = value;
        error_of(row)
    };
    let without = |key: &str| {
        let mut row = full.clone();
        row.as_object_mut().unwrap().remove(key);
        error_of(row)
    };
    assert!(Problem::from_row(full.clone()).is_ok());
    assert_eq!(error_of(json!([1])), "the row is an array, not an object");
    assert_eq!(without("id"), "there is no field `id`");
    assert_eq!(without("problem_statement"), "there is no field `problem_statement`");
    assert_eq!(without("ground_truth"), "there is no field `ground_truth`");
    assert_eq!(changed("ground_truth", Value::Null), "field `ground_truth` is null");
    assert_eq!(changed("id", json!(" ")), "field `id` is empty");
    assert_eq!(changed("id", json!(1.5)), "field `id` is a number, not a string");
    assert!(changed("id", json!("\u{1b}[2J")).contains("control characters: `\\u{1b}[2J`"));
    assert!(changed("id", json!("x".repeat(2000))).contains("2000 bytes"));
    assert_eq!(changed("problem_statement", json!("\n")), "field `problem_statement` is empty");
    assert_eq!(
        changed("problem_statement", json!(["q"])),
        "field `problem_statement` is an array, not a string"
    );
    assert_eq!(changed("domain", json!(1)), "field `domain` is a number, not a string");
}

#[test]
fn hostile_file_names_are_refused() {
    for (name, why) in [
        ("../x", "is outside its directory"),
        ("a/../../x", "is outside its directory"),
        ("/etc/passwd", "absolute path"),
        ("a\0b", "control characters"),
        ("a\nb", "control characters"),
        ("", "has no file name"),
        (".", "has no file name"),
        ("dir/", "has no file name"),
        (&"x".repeat(256), "too long"),
        (&"x/".repeat(600), "too long"),
    ] {
        let error = with_files(json!({ name: "t" })).unwrap_err();
        assert!(error.contains(why), "{name:?}: {error}");
    }
    assert!(with_files(json!({"a": "1", "./a": "2"})).unwrap_err().contains("is there twice"));
    assert!(
        with_files(json!({"a": "1", "a/b": "2"})).unwrap_err().contains("name of another file")
    );
    assert!(with_files(json!({"a": 1})).unwrap_err().contains("is a number, not a string"));
    assert!(with_files(json!("{")).unwrap_err().contains("not JSON"));
    assert!(with_files(json!([])).unwrap_err().contains("is an array"));
    assert_eq!(with_files(json!("")).unwrap().files.len(), 0);
    assert_eq!(with_files(json!({"a b": "1", "é/ü.txt": "2", "..x": "3"})).unwrap().files.len(), 3);
}

proptest! {
    #[test]
    fn names_stay_below_their_directory(name in "[a./\\\\ é]{0,12}") {
        if let Ok(path) = normal_path(&name) {
            let inside = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
            prop_assert!(inside && !path.is_empty());
            prop_assert_eq!(normal_path(&path), Ok(path.clone()));
        }
    }
}
