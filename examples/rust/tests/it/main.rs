//! The example programs do what they show, in real sandboxes.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{env, process::Command};

/// Runs an example, which must succeed, and returns what it printed. `None` where there are no namespaces.
#[expect(clippy::disallowed_methods, reason = "runs programs, as the environment tells it to")]
fn output(name: &str) -> Option<String> {
    let namespaces = std::fs::read_to_string("/proc/sys/user/max_user_namespaces");
    if namespaces.is_ok_and(|count| count.trim() == "0") {
        let required = env::var("LIS_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|name| name == "userns"),
            "userns is required but missing"
        );
        eprintln!("skip: userns: user namespaces are disabled");
        return None;
    }
    let test = env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(program).env("TMPDIR", home.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_sandbox_runs_a_command() {
    let Some(output) = output("sandbox") else { return };
    assert_eq!(output, "root\nsandbox\n1+2+3\nexit code 0\n");
}

#[test]
fn an_agent_submits() {
    let Some(output) = output("agent") else { return };
    assert!(output.ends_with("Submitted after 2 turns\n"), "{output}");
    assert!(output.lines().count() > 4, "{output}");
}

#[test]
fn a_custom_tool_answers() {
    let Some(output) = output("custom_tool") else { return };
    assert!(output.contains("19.90"), "{output}");
    assert!(output.ends_with("Submitted\n"), "{output}");
}

#[test]
fn a_custom_grader_scores() {
    let Some(output) = output("custom_grader") else { return };
    assert_eq!(output, "green, white and red: 1.00\nred and blue: 0.33\nnone: 0.00\n");
}
