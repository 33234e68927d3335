//! Invalid calls get an explanation and are not executed; `submit` ends the episode.

use sandbox::Spec;
use serde_json::json;
use trajectory::{Arguments, ToolCall};

use lis_agent::tools::{ToolOutcome, Tools};

use crate::sandboxes::{text, with_sandbox};

#[test]
fn invalid_calls_are_explained() {
    with_sandbox(&Spec::default(), async |hand| {
        let cases = [
            ("bash", json!({"command": "touch ran"}), "There is no tool `bash`"),
            ("execute_bash", json!({"cmd": "touch ran"}), "`command` is missing (given: cmd)"),
            (
                "execute_bash",
                json!({"command": ["touch", "ran"]}),
                "must be a string, not an array",
            ),
            ("execute_bash", json!({"command": " \n"}), "empty"),
            ("execute_bash", json!({"command": "touch ran\0"}), "NUL byte"),
            ("str_replace_editor", json!({}), "`command` is missing (given: none)"),
            ("str_replace_editor", json!({"command": "view"}), "`path` is missing"),
            ("str_replace_editor", json!({"command": "undo", "path": "ran"}), "no command `undo`"),
            ("str_replace_editor", json!({"command": "create", "path": "ran"}), "`file_text`"),
            (
                "str_replace_editor",
                json!({"command": "insert", "path": "x", "new_str": ""}),
                "`insert_line`",
            ),
            (
                "str_replace_editor",
                json!({"command": "view", "path": "x", "view_range": [1]}),
                "two integers",
            ),
        ];
        for (tool, arguments, expected) in cases {
            let seen = hand.observe(tool, arguments.clone()).await;
            assert!(
                seen.is_error && text(&seen).contains(expected),
                "{tool} {arguments}: {seen:?}"
            );
            assert_eq!(seen.exit_code, None);
        }
        let unknown = hand.observe("bash", json!({})).await;
        for tool in ["execute_bash", "str_replace_editor", "submit"] {
            assert!(text(&unknown).contains(tool), "{unknown:?}");
        }
        assert_eq!(hand.bash("ls").await, "[exit code 0]\n(no output)");
    });
}

#[test]
fn malformed_arguments_are_never_used() {
    with_sandbox(&Spec::default(), async |hand| {
        for tool in ["execute_bash", "str_replace_editor", "submit"] {
            let arguments = Arguments::Malformed {
                malformed: "{\"command\": \"touch".into(),
                why: "it is cut off".into(),
            };
            let call = ToolCall { id: "1".into(), name: tool.into(), arguments };
            let done = hand.tools.call(&call, 1, &hand.sandbox).await;
            let Ok(ToolOutcome::Refused(seen)) = done else { panic!("{done:?}") };
            assert!(seen.is_error && text(&seen).contains("it is cut off"), "{seen:?}");
        }
    });
}

#[test]
fn submit_ends_the_episode_whatever_comes_with_it() {
    with_sandbox(&Spec::default(), async |hand| {
        assert_eq!(hand.call("submit", json!({})).await, ToolOutcome::Submitted);
        assert_eq!(hand.call("submit", json!({"answer": 42})).await, ToolOutcome::Submitted);
    });
}

#[test]
fn every_argument_is_described() {
    let specs = Tools::default().specs();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["execute_bash", "str_replace_editor", "submit"]);
    let arguments = |at: usize| {
        let properties =
            specs[at].parameters["properties"].as_object().cloned().unwrap_or_default();
        for (name, schema) in &properties {
            assert!(schema["description"].is_string() && schema["type"].is_string(), "{name}");
        }
        let mut names: Vec<String> = properties.keys().cloned().collect();
        names.sort();
        names
    };
    assert_eq!(arguments(0), ["command"]);
    let edit = ["command", "file_text", "insert_line", "new_str", "old_str", "path", "view_range"];
    assert_eq!(arguments(1), edit);
    assert_eq!(arguments(2), [""; 0]);
    assert_eq!(specs[1].parameters["required"], json!(["command", "path"]));
    assert!(specs.iter().all(|spec| spec.parameters["type"] == "object"));
    assert!(specs[0].description.contains("120 s"), "{}", specs[0].description);
}
