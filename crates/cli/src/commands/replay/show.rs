//! An episode as text for a terminal. Steps and turns are numbered as everywhere: one step per tool call, one turn per
//! response.

use std::fmt::Write as _;

use agent::tools::EXECUTE;
use serde::Deserialize;
use serde_json::Value;
use trajectory::{Spent, Step, Validity};

use super::record::Recorded;
use crate::console::{counted, sanitize};

/// Formats an episode.
pub(super) fn show(recorded: &Recorded) -> String {
    let record = &recorded.trajectory;
    let mut text = String::new();
    // Writing to a string cannot fail.
    if let Some(attempt) = &recorded.attempt {
        let key = &attempt.key;
        let (task, id) = (sanitize(&key.task), sanitize(&key.id));
        let _ = writeln!(text, "# Attempt\n{task} {} {id} #{}\n", key.mode, key.repeat);
    }
    let statement = match &recorded.attempt {
        Some(attempt) if record.problem_statement.is_empty() => &attempt.problem_statement,
        _ => &record.problem_statement,
    };
    let _ = writeln!(text, "# Task\n{}", sanitize(statement));
    let mut notices = recorded.notices.iter().peekable();
    for (at, step) in record.steps.iter().enumerate() {
        let turn = step.metadata.get("turn").and_then(Value::as_u64);
        while let Some(notice) = notices.next_if(|notice| turn >= Some(u64::from(notice.turn))) {
            let _ = write!(text, "\n[note] {}\n", sanitize(&notice.text));
        }
        show_step(&mut text, at + 1, turn, step);
    }
    for notice in notices {
        let _ = write!(text, "\n[note] {}\n", sanitize(&notice.text));
    }
    if !recorded.has_events {
        text.push_str("\nNo trajectory was recorded.\n");
    }
    show_end(&mut text, recorded);
    text
}

fn show_step(text: &mut String, number: usize, turn: Option<u64>, step: &Step) {
    let turn = turn.map(|turn| format!(" (turn {turn})")).unwrap_or_default();
    let _ = write!(text, "\n# Step {number}{turn}\n");
    for (name, part) in [("thinks", &step.reasoning_content), ("says", &step.thought)] {
        if !part.trim().is_empty() {
            let _ = writeln!(text, "[{name}] {}", sanitize(part.trim()));
        }
    }
    let action = &step.action;
    let command = action.parameters.get("command").and_then(|command| command.as_str());
    match (action.function.as_str(), command) {
        ("", _) => {}
        (EXECUTE, Some(command)) => {
            let _ = writeln!(text, "$ {}", sanitize(command));
        }
        (function, _) => {
            let parameters = action.parameters.to_string();
            let _ = writeln!(text, "{} {}", sanitize(function), sanitize(&parameters));
        }
    }
    if !step.observation.is_empty() {
        let _ = writeln!(text, "{}", sanitize(step.observation.trim_end()));
    }
}

fn show_end(text: &mut String, recorded: &Recorded) {
    let outcome = recorded.outcome();
    let spent = recorded.trajectory.metadata.get("spent");
    let spent = match &recorded.attempt {
        Some(attempt) => Some(attempt.spent),
        None => spent.and_then(|spent| Spent::deserialize(spent).ok()),
    };
    if outcome.is_some() || spent.is_some() {
        let outcome = outcome.unwrap_or_default();
        let _ = write!(text, "\n# Outcome\n{}\n", sanitize(&outcome));
    } else if recorded.has_events && recorded.trajectory.metadata.contains_key("model") {
        text.push_str("\n# Outcome\nnot ended\n");
    }
    if let Some(spent) = spent {
        let steps = recorded.trajectory.steps.len();
        let _ = writeln!(text, "{}", usage(&spent, steps));
    }
    let Some(attempt) = &recorded.attempt else { return };
    let score = attempt.score.map_or_else(|| "not graded".to_owned(), |score| score.to_string());
    let _ = writeln!(text, "\n# Result\nscore: {score}");
    if let Validity::Invalid { cause, .. } = attempt.validity() {
        let _ = writeln!(text, "cause: {}", sanitize(&cause));
    }
    for (name, part) in [("answer", &attempt.answer), ("expected", &attempt.ground_truth)] {
        let _ = writeln!(text, "{name}: {}", sanitize(part.trim()));
    }
    if !is_blank(&attempt.grade) {
        let _ = writeln!(text, "grade: {}", sanitize(&attempt.grade.to_string()));
    }
    let votes = recorded.judgement.iter().flat_map(|judgement| &judgement.replies);
    for (at, reply) in votes.enumerate() {
        let _ = writeln!(text, "judge, vote {}: {}", at + 1, sanitize(reply.trim()));
    }
}

/// Whether a grade has no details: a grader may have printed nothing but the score.
fn is_blank(grade: &Value) -> bool {
    match grade {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Object(details) => details.values().all(is_blank),
        _ => false,
    }
}

/// Such as `3 turns, 4 steps; 330 tokens in, 30 out; model 0.1 s, tools 0.0 s`.
fn usage(spent: &Spent, steps: usize) -> String {
    let about = if spent.usage.estimated { "about " } else { "" };
    let cost = spent.cost.map(|cost| format!("; ${cost:.4}")).unwrap_or_default();
    let seconds = |millis: u64| millis as f64 / 1000.0;
    format!(
        "{}, {}; {about}{} tokens in, {} out{cost}; model {:.1} s, tools {:.1} s",
        counted(steps, "step"),
        counted(spent.turns as usize, "turn"),
        spent.usage.input,
        spent.usage.output,
        seconds(spent.model_ms),
        seconds(spent.tool_ms),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_grade_without_details_is_not_shown() {
        assert!(is_blank(&json!(null)) && is_blank(&json!({"output": "", "errors": null})));
        assert!(!is_blank(&json!({"output": "", "exit_code": 0})) && !is_blank(&json!({"a": "b"})));
    }
}
