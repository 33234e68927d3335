//! Reads multiple choices and the correct ones, in the forms of common data sets.

use serde_json::Value;

use super::shape::{CorrectAnswer, Fault};
use crate::text::normal;

/// The maximum number of choices: one per letter.
const MAX: usize = 26;

/// A choice and its label in the data set.
struct Choice {
    label: String,
    text: String,
}

/// The letter of a choice.
pub(super) fn letter(at: usize) -> char {
    char::from(b'A' + (at % MAX) as u8)
}

/// Reads choices and the answer: labels, indices from 0, or the texts of choices; one or a list.
pub(super) fn read(choices: &Value, answer: &Value) -> Result<CorrectAnswer, Fault> {
    let choices = listed(choices).filter(|choices| (2..=MAX).contains(&choices.len()));
    let Some(choices) = choices else {
        return Err(Fault::unanswered(format!("its choices are not from 2 to {MAX} texts")));
    };
    let mut right = indices(&choices, answer).filter(|places| !places.is_empty()).ok_or_else(|| {
        Fault::unanswered("its answer is none of its choices: neither a place from 0, nor a label, nor a text of theirs")
    })?;
    right.sort_unstable();
    right.dedup();
    let choices = choices.into_iter().map(|choice| choice.text).collect();
    Ok(CorrectAnswer::Choices { choices, right })
}

fn listed(choices: &Value) -> Option<Vec<Choice>> {
    let lettered = |texts: Vec<&str>| {
        let labelled = texts.into_iter().enumerate();
        labelled
            .map(|(at, text)| Choice { label: letter(at).into(), text: text.trim().to_owned() })
            .collect()
    };
    let texts = |list: &'_ [Value]| {
        list.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(lettered)
    };
    let found: Vec<Choice> = match choices {
        Value::Array(list) if list.iter().all(Value::is_object) => list
            .iter()
            .map(|choice| named(choice.get("label")?.as_str()?, choice.get("text")?.as_str()?))
            .collect::<Option<_>>()?,
        Value::Array(list) => texts(list)?,
        Value::Object(object) => match (object.get("text"), object.get("label")) {
            (Some(Value::Array(list)), Some(Value::Array(labels))) => list
                .iter()
                .zip(labels)
                .map(|(text, label)| named(label.as_str()?, text.as_str()?))
                .collect::<Option<_>>()?,
            (Some(Value::Array(list)), None) => texts(list)?,
            _ => {
                let mut found: Vec<Choice> = object
                    .iter()
                    .map(|(label, text)| named(label, text.as_str()?))
                    .collect::<Option<_>>()?;
                found.sort_by(|a, b| a.label.cmp(&b.label));
                found
            }
        },
        _ => return None,
    };
    found.iter().all(|choice| !choice.text.is_empty()).then_some(found)
}

fn named(label: &str, text: &str) -> Option<Choice> {
    Some(Choice { label: label.trim().to_owned(), text: text.trim().to_owned() })
}

/// The indices of an answer; `None` where a part of it matches no choice.
fn indices(choices: &[Choice], answer: &Value) -> Option<Vec<usize>> {
    match answer {
        Value::Number(number) => {
            let label = number.to_string();
            let labelled = choices.iter().position(|choice| choice.label == label);
            let place = || usize::try_from(number.as_u64()?).ok().filter(|at| *at < choices.len());
            labelled.or_else(place).map(|place| vec![place])
        }
        Value::String(text) => index(choices, text).map(|place| vec![place]).or_else(|| {
            let parts = text.split(',').map(|part| index(choices, part));
            parts.collect::<Option<Vec<_>>>().filter(|places| places.len() > 1)
        }),
        Value::Array(list) => {
            let each = list.iter().map(|answer| match answer {
                Value::Array(_) => None,
                answer => indices(choices, answer),
            });
            each.collect::<Option<Vec<_>>>().map(|places| places.concat())
        }
        Value::Object(object) => object
            .get("text")
            .filter(|text| !text.is_object())
            .and_then(|text| indices(choices, text)),
        _ => None,
    }
}

/// The choice with this label, else with this text, else the only one that is equal up to punctuation and case.
fn index(choices: &[Choice], answer: &str) -> Option<usize> {
    let answer = answer.trim();
    let bare = answer.trim_matches(['(', ')', '.']);
    let labelled = choices.iter().position(|choice| choice.label.eq_ignore_ascii_case(bare));
    labelled.or_else(|| choices.iter().position(|choice| choice.text == answer)).or_else(|| {
        let wanted = normal(answer);
        let mut alike = (0..choices.len()).filter(|at| normal(&choices[*at].text) == wanted);
        alike.next().filter(|_| alike.next().is_none())
    })
}
