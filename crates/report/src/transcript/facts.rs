//! The facts at the head of a page: outcome, score, usage; and the result with the grader's explanation.

use std::fmt::Write;

use plot::count;
use serde::Deserialize;
use serde_json::Value;
use trajectory::{Spent, Validity};

use super::{
    Episode,
    cut::{Look, Room, write},
    text::{counted, escaped, isolated, time},
    turns::Turn,
};
use crate::{
    numbers::{bytes, dollars},
    text::excerpt,
};

/// Characters of a fact.
const FACT: usize = 300;
/// Characters of the name of a detail of a grade.
const NAME: usize = 60;
/// Bytes of a detail that is listed.
const SHORT: usize = 120;
/// Details of a grade, and votes of a judge.
const DETAILS: usize = 20;

/// Writes the facts.
pub(super) fn facts(out: &mut String, episode: &Episode<'_>, turns: &[Turn<'_>]) {
    out.push_str("<dl class=\"facts\">");
    let mut fact = |name: &str, value: String| {
        let _ = write!(out, "<div><dt>{}</dt><dd>{value}</dd></div>", escaped(name));
    };
    fact("Outcome", outcome(episode));
    if let Some(attempt) = episode.attempt {
        fact("Score", score(attempt.score));
    }
    let spent = spent(episode);
    let steps = episode.trajectory.steps.len();
    if steps > 0 {
        let known = turns.iter().filter(|turn| turn.number.is_some()).count();
        let known = spent.map_or(known, |spent| spent.turns as usize);
        let turns =
            if known > 0 { format!(" in {}", counted(known, "turn")) } else { String::new() };
        fact("Steps", format!("{}{turns}", count(steps as f64)));
    }
    if let Some(spent) = spent {
        usage(&mut fact, &spent, elapsed(episode));
    }
    if let Some(attempt) = episode.attempt {
        if let Some(peak) = attempt.peak_memory {
            fact("Peak memory", bytes(peak as f64));
        }
        if attempt.tries > 1 {
            fact("Tries", format!("{}", attempt.tries));
        }
    }
    for (name, value) in episode.facts {
        fact(name, isolated(&excerpt(value, FACT)));
    }
    out.push_str("</dl>\n");
}

fn outcome(episode: &Episode<'_>) -> String {
    let class = match episode.trajectory.metadata.get("outcome").and_then(Value::as_str) {
        _ if !episode.recorded => "bad",
        Some("submitted") => "good",
        Some("infrastructure") => "bad",
        _ => "warn",
    };
    let text = match episode.outcome {
        // Trajectories of the reference have no outcome, nor a model.
        "" if !episode.trajectory.metadata.contains_key("model") => {
            return "not recorded".to_owned();
        }
        "" => "not ended",
        known => known,
    };
    format!("<span class=\"badge badge-{class}\">{}</span>", isolated(&excerpt(text, FACT)))
}

pub(super) fn score(score: Option<f64>) -> String {
    match score {
        Some(score) => {
            let class = if score >= 1.0 {
                "good"
            } else if score > 0.0 {
                "warn"
            } else {
                "bad"
            };
            format!(
                "<span class=\"badge badge-{class}\">{}</span>",
                escaped(&format!("{score:.3}"))
            )
        }
        None => "<span class=\"badge badge-warn\">not graded</span>".to_owned(),
    }
}

fn usage(fact: &mut impl FnMut(&str, String), spent: &Spent, elapsed: Option<u64>) {
    let about = if spent.usage.estimated { "about " } else { "" };
    let mut tokens = format!(
        "{about}{} in, {} out",
        count(spent.usage.input as f64),
        count(spent.usage.output as f64)
    );
    let parts = [(spent.usage.cached, "cached"), (spent.usage.reasoning, "reasoning")];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> =
        parts.map(|(number, word)| format!("{} {word}", count(number as f64))).collect();
    if !parts.is_empty() {
        let _ = write!(tokens, " ({})", parts.join(", "));
    }
    fact("Tokens", tokens);
    if let Some(cost) = spent.cost.filter(|cost| cost.is_finite()) {
        fact("Cost", dollars(cost));
    }
    let parts = spent.model_ms.saturating_add(spent.tool_ms);
    // A record whose clock was changed is not taken at its word.
    let all = elapsed.filter(|all| *all >= parts).unwrap_or(parts);
    let (model, tools) = (time(spent.model_ms), time(spent.tool_ms));
    fact("Time", format!("{} (model {model}, tools {tools})", time(all)));
}

/// The resources used: of the attempt, else of the episode.
pub(super) fn spent(episode: &Episode<'_>) -> Option<Spent> {
    let recorded = || Spent::deserialize(episode.trajectory.metadata.get("spent")?).ok();
    episode.attempt.map(|attempt| attempt.spent).or_else(recorded)
}

fn elapsed(episode: &Episode<'_>) -> Option<u64> {
    if let Some(attempt) = episode.attempt {
        return Some(attempt.wall_ms);
    }
    let at = |key: &str| episode.trajectory.metadata.get(key).and_then(Value::as_u64);
    at("ended")?.checked_sub(at("started")?)
}

/// Writes the answer, and for an attempt the expected one and the grade.
pub(super) fn result(out: &mut String, episode: &Episode<'_>, room: Room<'_>) {
    let Some(attempt) = episode.attempt else {
        if let Some(answer) = episode.answer {
            part(out, "Answer", answer, room);
        }
        return;
    };
    part(out, "Answer", &attempt.answer, room);
    part(out, "Expected", &attempt.ground_truth, room);
    if let Validity::Invalid { cause, .. } = attempt.validity() {
        part(out, "Why there is no score", &cause, room);
    }
    grade(out, &attempt.grade, room);
    let votes = episode.judgement.map(|judgement| judgement.replies.as_slice()).unwrap_or_default();
    for (at, reply) in votes.iter().take(DETAILS).enumerate() {
        part(out, &format!("Judge, vote {}", at + 1), reply, room);
    }
}

/// Writes the details of a grade, whatever the grader recorded: short ones as a list, long ones as texts.
fn grade(out: &mut String, grade: &Value, room: Room<'_>) {
    match grade {
        Value::Null => {}
        Value::Object(details) => {
            let shown =
                details.iter().filter(|(name, value)| *name != "ungraded" && !value.is_null());
            let shown = shown.map(|(name, value)| (excerpt(name, NAME), plain(value)));
            // A grader that printed nothing but the score has no output.
            let shown = shown.filter(|(_, text)| !text.trim().is_empty()).take(DETAILS);
            let is_short = |text: &str| text.len() <= SHORT && !text.contains('\n');
            let (short, long): (Vec<_>, Vec<_>) = shown.partition(|(_, text)| is_short(text));
            if !short.is_empty() {
                out.push_str("<h3 class=\"label\">Grader</h3><dl class=\"pairs\">");
                for (name, text) in &short {
                    let (name, text) = (isolated(name), isolated(&excerpt(text, SHORT)));
                    let _ = write!(out, "<dt>{name}</dt><dd><code>{text}</code></dd>");
                }
                out.push_str("</dl>\n");
            }
            long.iter().for_each(|(name, text)| part(out, &format!("Grader: {name}"), text, room));
        }
        other => part(out, "Grader", &plain(other), room),
    }
}

fn plain(value: &Value) -> String {
    let simple = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    };
    let list = || value.as_array()?.iter().map(simple).collect::<Option<Vec<_>>>();
    simple(value)
        .or_else(|| list().map(|items| items.join(", ")))
        .unwrap_or_else(|| serde_json::to_string_pretty(value).unwrap_or_default())
}

pub(super) fn part(out: &mut String, name: &str, text: &str, room: Room<'_>) {
    let _ = write!(out, "<h3 class=\"label\">{}</h3>", isolated(name));
    match text.trim().is_empty() {
        true => out.push_str("<p class=\"soft small\">empty</p>"),
        false => write(out, Look::Code, text, room),
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn details_without_a_value_are_not_listed() {
        let shown = |details: Value| {
            let mut out = String::new();
            grade(&mut out, &details, Room { most: 1000, source: "" });
            out
        };
        assert_eq!(shown(json!({"output": "", "errors": " \n", "more": null})), "");
        let html = shown(json!({"output": "", "exit_code": 0}));
        assert!(html.contains("exit_code") && !html.contains("output"), "{html}");
    }
}
