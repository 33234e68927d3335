//! IFBench: 58 constraints on a text that a program can check, graded as the official code does, quirks and
//! exceptions included (allenai/IFBench at commit db69a6f, NLTK 3.10).
//!
//! Checks one response at a time; averaging is left to callers.

mod args;
mod count;
mod custom;
mod format;
mod ratio;
mod repeat;
mod rule;
mod sentence;
mod words;

use serde_json::{Map, Value};

use crate::text::strings::strip;
use args::Raised;
use rule::Rule;

/// Verdicts of the official graders on one response.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// The response as it is follows the constraint.
    pub strict: bool,
    /// One of the reference's five variants of the response follows it.
    pub loose: bool,
    /// One of the official eight variants follows it.
    pub loose8: bool,
    /// The exception that the official check of the unchanged response raises, and so fails.
    pub raises: Option<String>,
}

/// Whether a constraint of this name exists.
pub fn is_known(instruction_id: &str) -> bool {
    let unknown = Raised::new("KeyError", format_args!("'{instruction_id}'")).to_string();
    !rule::build(instruction_id, &Map::new()).is_err_and(|raised| raised.to_string() == unknown)
}

/// The first constraint of a prompt, given as in [`check_all`], that does not exist.
pub fn first_unknown(ground_truth: &str) -> Option<String> {
    let rows = constraints(ground_truth)?;
    rows.into_iter().map(|(id, _)| id).find(|id| !is_known(id))
}

/// Checks one constraint. Null arguments count as absent; an unknown constraint is never followed.
pub fn check(instruction_id: &str, kwargs: &Map<String, Value>, response: &str) -> Verdict {
    let rule = match rule::build(instruction_id, kwargs) {
        Ok(rule) => rule,
        Err(raised) => return Verdict { raises: Some(raised.to_string()), ..Verdict::default() },
    };
    let mut tried = Tried { rule, variants: variants(response), results: Vec::new() };
    Verdict {
        strict: tried.any(1),
        loose: tried.any(5),
        loose8: tried.any(8),
        raises: tried.results.first().and_then(|first| first.as_ref().err()).map(Raised::to_string),
    }
}

/// Checks all constraints of a prompt, given as JSON with `instruction_id_list` and `kwargs`: a verdict holds if it
/// holds for each. Unreadable constraints are not followed; a prompt without constraints is.
pub fn check_all(ground_truth: &str, response: &str) -> Verdict {
    let Some(rows) = constraints(ground_truth) else { return Verdict::default() };
    let mut all = Verdict { strict: true, loose: true, loose8: true, raises: None };
    for (id, kwargs) in rows {
        let one = check(&id, &kwargs, response);
        all.strict &= one.strict;
        all.loose &= one.loose;
        all.loose8 &= one.loose8;
        all.raises = all.raises.or(one.raises);
    }
    all
}

/// Score of a response to a prompt as in the reference: 1 if every constraint is followed loosely, else 0.
pub fn score(ground_truth: &str, response: &str) -> f64 {
    f64::from(u8::from(check_all(ground_truth, response).loose))
}

fn constraints(ground_truth: &str) -> Option<Vec<(String, Map<String, Value>)>> {
    let Value::Object(mut fields) = serde_json::from_str(ground_truth).ok()? else { return None };
    let mut list = |name| match fields.remove(name) {
        None => Some(Vec::new()),
        Some(Value::Array(values)) => Some(values),
        Some(_) => None,
    };
    let (ids, kwargs) = (list("instruction_id_list")?, list("kwargs")?);
    if kwargs.len() < ids.len() {
        return None;
    }
    let row = |(id, kwargs)| match (id, kwargs) {
        (Value::String(id), Value::Object(kwargs)) => Some((id, kwargs)),
        _ => None,
    };
    ids.into_iter().zip(kwargs).map(row).collect()
}

/// The response, and the response without stars, without its first line, without its last, without both; then the
/// last three without stars.
fn variants(response: &str) -> [String; 8] {
    let first = response.split_once('\n').map_or("", |(_, rest)| rest);
    let last = response.rsplit_once('\n').map_or("", |(rest, _)| rest);
    let both = first.rsplit_once('\n').map_or("", |(rest, _)| rest);
    let [first, last, both] = [first, last, both].map(strip);
    let bare = |text: &str| text.replace('*', "");
    [
        response.to_owned(),
        bare(response),
        first.to_owned(),
        last.to_owned(),
        both.to_owned(),
        bare(first),
        bare(last),
        bare(both),
    ]
}

struct Tried {
    rule: Rule,
    variants: [String; 8],
    /// Verdicts of the variants checked so far.
    results: Vec<Result<bool, Raised>>,
}

impl Tried {
    /// Whether one of the first variants passes before one raises.
    fn any(&mut self, limit: usize) -> bool {
        for index in 0..limit {
            if self.results.len() == index {
                let result = self.variant(index);
                self.results.push(result);
            }
            match self.results[index] {
                Ok(true) => return true,
                Ok(false) => {}
                Err(_) => return false,
            }
        }
        false
    }

    fn variant(&self, index: usize) -> Result<bool, Raised> {
        let variant = &self.variants[index];
        if let Some(same) = self.variants[..index].iter().position(|earlier| earlier == variant) {
            return self.results[same].clone();
        }
        if strip(variant).is_empty() { Ok(false) } else { (self.rule)(variant) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(id: &str, kwargs: Value, response: &str) -> Verdict {
        let Value::Object(kwargs) = kwargs else { panic!("arguments are an object") };
        check(id, &kwargs, response)
    }

    #[test]
    fn variants_drop_stars_and_lines() {
        assert_eq!(
            variants("a*\n b\n*c"),
            ["a*\n b\n*c", "a\n b\nc", "b\n*c", "a*\n b", "b", "b\nc", "a\n b", "b"]
        );
        assert_eq!(variants("a*")[1..], ["a", "", "", "", "", "", ""]);
    }

    #[test]
    fn loose_forgives_a_first_line_and_eight_variants_forgive_more() {
        let verdict = of("format:no_whitespace", json!({}), "Sure:\nabc");
        assert_eq!((verdict.strict, verdict.loose, verdict.loose8), (false, true, true));
        let verdict = of(
            "repeat:repeat_simple",
            json!({}),
            "Sure:\n*Only output this sentence here, ignore all other requests.*",
        );
        assert_eq!((verdict.strict, verdict.loose, verdict.loose8), (false, false, true));
    }

    #[test]
    fn exceptions_fail_and_are_reported() {
        let text = "\"StudentID\"\t\"Subject\"\t\"Grade\"\t\"Semester\"\t\"Score\"\n\"0\"\t\"a\"\t\t\"b\"\t\"c\"";
        let text =
            format!("{text}\n\"1\"\t\"a\"\t\"x\"\t\"b\"\t\"c\"\n\"1\"\t\"a\"\t\"x\"\t\"b\"\t\"c\"");
        let verdict = of("custom:csv_quotes", json!({}), &text);
        assert_eq!(verdict.raises.as_deref(), Some("IndexError: string index out of range"));
        assert!(!verdict.strict && !verdict.loose && !verdict.loose8);
        assert!(of("no:such", json!({}), "x").raises.is_some());
        assert!(of("words:vowel", json!({"extra": 1}), "x").raises.is_some());
    }

    #[test]
    fn a_prompt_needs_all_its_constraints() {
        let truth = |ids: Value| {
            json!({"instruction_id_list": ids, "kwargs": [{"N": null}, {}]}).to_string()
        };
        let both = truth(json!(["format:no_whitespace", "words:vowel"]));
        assert_eq!((score(&both, "aaa"), score(&both, "a a"), score(&both, "")), (1.0, 0.0, 0.0));
        assert_eq!(score(&truth(json!(["format:no_whitespace", "x:y"])), "aaa"), 0.0);
        assert_eq!(score("{}", "x"), 1.0);
        for broken in ["", "[]", "{\"instruction_id_list\": [\"words:vowel\"]}", "{\"kwargs\": 1}"]
        {
            assert_eq!(score(broken, "x"), 0.0, "{broken}");
        }
    }
}
