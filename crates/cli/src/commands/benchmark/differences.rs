//! What differs from an earlier command in the same directory, in the words of the command line: the option, both values,
//! and what to do.

use std::time::Duration;

use benchmark::{Difference, Error};
use sandbox::{ByteSize, ImageRef, Network};
use serde::Deserialize;
use serde_json::Value;

use crate::{console::sanitize, exit::UsageError};

/// The longest value that is shown, in characters.
const MAX_SHOWN: usize = 80;

/// Options by the path of their setting below `settings`. A longer path belongs to the same option.
const OPTIONS: [(&[&str], &str); 31] = [
    (&["sampling", "temperature"], "--temperature"),
    (&["sampling", "top_p"], "--top-p"),
    (&["sampling", "top_k"], "--top-k"),
    (&["sampling", "min_p"], "--min-p"),
    (&["sampling", "repetition_penalty"], "--repetition-penalty"),
    (&["sampling", "seed"], "--seed"),
    (&["sampling", "stop"], "--stop"),
    (&["sampling", "thinking"], "--thinking"),
    (&["tool_format"], "--tool-format"),
    (&["forced"], "--force-calls"),
    (&["images"], "--images"),
    (&["extra_body"], "--extra-body"),
    (&["local", "adapter"], "--adapter"),
    (&["local", "context"], "--context-tokens"),
    (&["caps", "turns"], "--max-turns"),
    (&["caps", "tokens"], "--max-tokens"),
    (&["caps", "tokens_per_call"], "--max-tokens-per-call"),
    (&["caps", "plain_tokens"], "--max-response-len"),
    (&["caps", "time"], "--deadline"),
    (&["caps", "cost"], "--max-cost"),
    (&["command_timeout"], "--command-timeout"),
    (&["compact"], "--compact"),
    (&["runtime"], "--runtime"),
    (&["sandbox", "image"], "--image"),
    (&["sandbox", "limits", "memory"], "--memory"),
    (&["sandbox", "limits", "cpus"], "--cpus"),
    (&["sandbox", "limits", "pids"], "--pids"),
    (&["sandbox", "limits", "disk"], "--disk"),
    (&["sandbox", "disk_quota"], "--disk-quota"),
    (&["sandbox", "disk_reserve"], "--disk-reserve"),
    (&["sandbox", "stall_timeout"], "--stall-timeout"),
];

/// Names the options that differ; other errors stay as they are.
pub(crate) fn explain(error: Error) -> anyhow::Error {
    let Error::SettingsDiffer { path, program, differences } = &error else {
        return error.into();
    };
    let described: Vec<String> = differences.iter().map(|one| describe(one, program)).collect();
    let only_grades = differences.iter().all(is_about_grades);
    let remedy = match only_grades {
        true => {
            "grade all its answers again with --regrade, which calls no model and keeps the earlier grades, or choose \
             another directory with --output DIR"
        }
        false => "repeat them as they were, or choose another directory with --output DIR",
    };
    UsageError(format!(
        "{} holds attempts made with other settings: {}; {remedy}",
        path.display(),
        described.join("; ")
    ))
    .into()
}

/// Whether stored answers could be graded again and be as good as new.
fn is_about_grades(difference: &Difference) -> bool {
    let path: Vec<&str> = difference.setting.iter().map(String::as_str).collect();
    matches!(path[..], ["judge"] | ["tasks", _, "grader" | "grader_files"])
}

fn describe(difference: &Difference, program: &str) -> String {
    let Difference { setting, recorded, requested } = difference;
    let path: Vec<&str> = setting.iter().map(String::as_str).collect();
    let was = |name: &str| {
        let (recorded, requested) = (shown(&path, recorded), shown(&path, requested));
        format!("{name} was {recorded}, now it is {requested}")
    };
    match path[..] {
        ["tasks", task, "rows"] => format!("the rows of the task {task} have changed (--data)"),
        ["tasks", task, "prompts_and_limits"] => {
            let by = match program == env!("CARGO_PKG_VERSION") {
                true => String::new(),
                false => format!(" (the run was started by version {program})"),
            };
            format!("the prompts, limits or image of the task {task} have changed{by}")
        }
        ["tasks", task, "grader"] => was(&format!("the grader of the task {task}")),
        ["tasks", task, "grader_files"] => format!("the grader of the task {task} has changed"),
        ["model"] => was("--model"),
        ["without"] => was("--without"),
        ["context"] => was("--documents"),
        ["judge"] => was("--judge-model"),
        ["settings", "sandbox", "network", ..] => was("--network"),
        ["settings", "sandbox", "env", ..] => "--env names other variables".to_owned(),
        ["settings", ref below @ ..] => {
            let known = OPTIONS.iter().find(|(path, _)| below.starts_with(path));
            was(known.map_or_else(|| below.join("."), |(_, name)| (*name).to_owned()).as_str())
        }
        _ => was(&path.join(".")),
    }
}

/// A value as a user would write it.
fn shown(path: &[&str], value: &Value) -> String {
    let text = match (path.last(), value) {
        (Some(&"adapter"), Value::Null) => "none".to_owned(),
        (_, Value::Null) => "not set".to_owned(),
        (Some(&"memory" | &"disk" | &"disk_reserve"), Value::Number(_)) => {
            ByteSize::deserialize(value).map_or_else(|_| value.to_string(), |size| size.to_string())
        }
        (Some(&"image"), _) => ImageRef::deserialize(value)
            .map_or_else(|_| value.to_string(), |image| image.to_string()),
        (Some(&"network"), _) => Network::deserialize(value)
            .map_or_else(|_| value.to_string(), |network| network.to_string()),
        (_, Value::Object(map)) if map.contains_key("nanos") => Duration::deserialize(value)
            .map_or_else(|_| value.to_string(), |time| format!("{}s", time.as_secs_f64())),
        (_, Value::String(text)) => format!("`{text}`"),
        (_, Value::Array(items)) if items.is_empty() => "not set".to_owned(),
        (_, Value::Array(items)) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        }
        (_, value) => value.to_string(),
    };
    let text = sanitize(&text);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use serde_json::json;

    use super::*;

    fn told(setting: &[&str], recorded: Value, requested: Value) -> String {
        let setting = setting.iter().map(|part| (*part).to_owned()).collect();
        let differences = vec![Difference { setting, recorded, requested }];
        let (path, program) = ("out".into(), env!("CARGO_PKG_VERSION").to_owned());
        explain(Error::SettingsDiffer { path, program, differences }).to_string()
    }

    #[test]
    fn settings_are_told_as_options_with_both_values() {
        let second = json!({"secs": 1, "nanos": 500_000_000});
        for (setting, recorded, requested, expected) in [
            (&["model"][..], json!("a"), json!("b"), "--model was `a`, now it is `b`"),
            (
                &["settings", "sampling", "temperature"],
                json!(0.5),
                Value::Null,
                "--temperature was 0.5, now it is not set",
            ),
            (
                &["settings", "local", "adapter"],
                Value::Null,
                json!("tuned@00"),
                "--adapter was none, now it is `tuned@00`",
            ),
            (
                &["settings", "caps", "time"],
                second,
                json!({"secs": 1800, "nanos": 0}),
                "--deadline was 1.5s, now it is 1800s",
            ),
            (
                &["settings", "sandbox", "limits", "memory"],
                json!(1_u64 << 30),
                json!(1_u64 << 20),
                "--memory was 1G, now it is 1M",
            ),
            (
                &["settings", "sandbox", "image"],
                json!("host"),
                json!({"name": "base"}),
                "--image was host, now it is base",
            ),
            (
                &["settings", "sandbox", "network"],
                json!("none"),
                json!({"allow": ["pypi.example"]}),
                "--network was none, now it is allow=pypi.example",
            ),
            (&["without"], json!([]), json!(["files"]), "--without was not set, now it is files"),
            (&["tasks", "mine", "rows"], json!("0a"), json!("0b"), "the rows of the task mine"),
        ] {
            let text = told(setting, recorded, requested);
            assert!(text.contains(expected) && text.contains("--output"), "{text}");
            assert!(!text.contains("--regrade"), "{text}");
        }
        let grader = told(&["tasks", "mine", "grader_files"], json!("0a"), json!("0b"));
        assert!(grader.contains("the grader of the task mine has changed"), "{grader}");
        assert!(grader.contains("--regrade") && !grader.contains("0a"), "{grader}");
    }

    #[test]
    fn every_option_exists() {
        let command = crate::commands::Cli::command();
        let benchmark = command.find_subcommand("benchmark").unwrap();
        for (_, option) in OPTIONS {
            let found = benchmark.get_arguments().filter_map(clap::Arg::get_long);
            assert!(found.into_iter().any(|long| format!("--{long}") == option), "{option}");
        }
    }
}
