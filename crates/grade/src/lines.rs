//! Grades JSON lines: one object in, its grade as one object out. The format of the command `grade`.
//!
//! What to do with an invalid line is up to the caller. Fields that a kind does not need are ignored.

use std::{collections::HashMap, fmt, str::FromStr};

use serde::{
    Deserialize, Serialize,
    de::{Deserializer, Error, Visitor},
};
use serde_json::value::RawValue;

use crate::{choice, context, judge, rouge};

/// The most characters of a value in an error.
const MAX_SHOWN: usize = 100;

/// The grader of a line, and the fields it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `gold`, `pred`: mathematical equality.
    Math,
    /// `agent_answer`, `ground_truth`: choice letters.
    Choice,
    /// `instruction_id`, `kwargs`, `response`: one constraint on a text.
    Ifbench,
    /// `reference`, `prediction`: ROUGE-L.
    Rouge,
    /// `domain`, `qa_type`, `ground_truth`, `agent_answer`: the reward of context tasks.
    Context,
    /// `response`: the verdict of a judge model.
    JudgeVerdict,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Math, Self::Choice, Self::Ifbench, Self::Rouge, Self::Context, Self::JudgeVerdict];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Math => "math",
            Self::Choice => "choice",
            Self::Ifbench => "ifbench",
            Self::Rouge => "rouge",
            Self::Context => "context",
            Self::JudgeVerdict => "judge-verdict",
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// An unknown name of a grader.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown kind `{0}`: expected one of math, choice, ifbench, rouge, context, judge-verdict")]
pub struct UnknownKind(pub String);

/// Reasons why a line cannot be graded.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is not JSON.
    #[error("not JSON")]
    NotJson(#[source] serde_json::Error),
    /// The line is JSON, but not an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// A field is missing.
    #[error("no field `{0}`")]
    Missing(&'static str),
    /// A field has the wrong type.
    #[error("field `{field}` is not {expected}")]
    WrongType {
        /// Name of the field.
        field: &'static str,
        /// Expected type.
        expected: &'static str,
    },
    /// No grader exists for the domain of a context row.
    #[error(transparent)]
    Domain(#[from] context::UnknownDomain),
    /// There is no such constraint.
    #[error("unknown constraint `{0}`")]
    Constraint(String),
    /// The grade could not be serialized.
    #[error("cannot serialize the grade")]
    Write(#[source] serde_json::Error),
}

/// The grade of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Graded {
    /// One line of JSON, with the `id` of the input line where it has one.
    pub json: String,
    /// The grade as a number from 0 to 1: the loose verdict of constraints, 1 for `CORRECT` of a judge.
    pub score: f64,
}

/// The `id` of a line as it is written there, where it has one.
pub fn id_of(line: &str) -> Option<Box<RawValue>> {
    Fields::parse(line).ok()?.0.get("id").map(|id| (*id).to_owned())
}

/// Grades one line.
pub fn grade_line(kind: Kind, line: &str) -> Result<Graded, LineError> {
    let fields = Fields::parse(line)?;
    let grade = grade(kind, &fields)?;
    let score = grade.score();
    let written = Written { id: fields.0.get("id").copied(), grade };
    let json = serde_json::to_string(&written).map_err(LineError::Write)?;
    Ok(Graded { json, score })
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(flatten)]
    grade: Grade,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Grade {
    Score { score: f64 },
    Follows { strict: bool, loose: bool, loose8: bool },
    Rouge { fmeasure: f64 },
    Verdict { verdict: &'static str },
}

impl Grade {
    fn score(&self) -> f64 {
        match self {
            Self::Score { score } => *score,
            Self::Follows { loose, .. } => f64::from(u8::from(*loose)),
            Self::Rouge { fmeasure } => *fmeasure,
            Self::Verdict { verdict } => {
                f64::from(u8::from(*verdict == judge::Verdict::Correct.as_str()))
            }
        }
    }
}

fn grade(kind: Kind, fields: &Fields) -> Result<Grade, LineError> {
    let text = |field| fields.text(field);
    Ok(match kind {
        Kind::Math => Grade::Score { score: crate::math::reward(&text("gold")?, &text("pred")?) },
        Kind::Choice => {
            Grade::Score { score: choice::score(&text("agent_answer")?, &text("ground_truth")?) }
        }
        Kind::Ifbench => {
            let (id, kwargs) = (text("instruction_id")?, fields.object("kwargs")?);
            if !crate::ifbench::is_known(&id) {
                return Err(LineError::Constraint(id.chars().take(MAX_SHOWN).collect()));
            }
            let verdict = crate::ifbench::check(&id, &kwargs, &text("response")?);
            Grade::Follows { strict: verdict.strict, loose: verdict.loose, loose8: verdict.loose8 }
        }
        Kind::Rouge => {
            let score = rouge::score(&text("reference")?, &text("prediction")?);
            Grade::Rouge { fmeasure: score.fmeasure }
        }
        Kind::Context => Grade::Score { score: reward(fields)? },
        Kind::JudgeVerdict => {
            Grade::Verdict { verdict: judge::verdict(&text("response")?).as_str() }
        }
    })
}

fn reward(fields: &Fields) -> Result<f64, LineError> {
    let [domain, ground_truth, agent_answer] =
        [fields.text("domain")?, fields.text("ground_truth")?, fields.text("agent_answer")?];
    let qa_type = fields.has("qa_type").then(|| fields.text("qa_type")).transpose()?;
    Ok(context::reward(&context::Row {
        domain: &domain,
        qa_type: qa_type.as_deref(),
        ground_truth: &ground_truth,
        agent_answer: &agent_answer,
    })?)
}

/// Raw fields of a line; the last of equal names counts.
struct Fields<'a>(HashMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    fn parse(line: &'a str) -> Result<Self, LineError> {
        let fields = serde_json::from_str(line);
        fields.map(Self).map_err(|error| match error.is_data() {
            true => LineError::NotAnObject,
            false => LineError::NotJson(error),
        })
    }

    /// Whether a field is present and not empty.
    fn has(&self, field: &str) -> bool {
        self.0.get(field).is_some_and(|value| value.get() != "null")
    }

    fn text(&self, field: &'static str) -> Result<String, LineError> {
        let Text(text) = self.read(field, "a string")?;
        Ok(text)
    }

    /// An object; a missing one counts as empty.
    fn object(
        &self,
        field: &'static str,
    ) -> Result<serde_json::Map<String, serde_json::Value>, LineError> {
        if !self.has(field) {
            return Ok(serde_json::Map::new());
        }
        self.read(field, "an object")
    }

    fn read<T: Deserialize<'a>>(
        &self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<T, LineError> {
        let value = self.0.get(field).ok_or(LineError::Missing(field))?;
        serde_json::from_str(value.get()).map_err(|_| LineError::WrongType { field, expected })
    }
}

/// A string with lone surrogates, which JSON allows and Rust does not, replaced by U+FFFD.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Text;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(replace_surrogates(bytes)))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Decodes UTF-8, replacing each encoded surrogate by U+FFFD.
fn replace_surrogates(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        match std::str::from_utf8(rest) {
            Ok(good) => {
                text.push_str(good);
                break;
            }
            Err(error) => {
                let (good, bad) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(good));
                text.push('\u{fffd}');
                rest = bad.get(3..).unwrap_or_default();
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: Kind, line: &str) -> String {
        grade_line(kind, line).unwrap_err().to_string()
    }

    #[test]
    fn kinds_round_trip_through_names() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "Math".parse::<Kind>().unwrap_err().to_string();
        assert!(Kind::ALL.iter().all(|kind| error.contains(kind.name())), "{error}");
    }

    #[test]
    fn a_grade_has_the_fields_of_its_kind() {
        for (kind, line, expected) in [
            (Kind::Math, r#"{"gold": "3/4", "pred": "0.75"}"#, r#"{"score":1.0}"#),
            (
                Kind::Choice,
                r#"{"id": 7, "agent_answer": "(b)", "ground_truth": "B", "task": "chem"}"#,
                r#"{"id":7,"score":1.0}"#,
            ),
            (
                Kind::Ifbench,
                r#"{"id": "x", "instruction_id": "count:numbers", "kwargs": {"N": 1}, "response": "*1"}"#,
                r#"{"id":"x","strict":true,"loose":true,"loose8":true}"#,
            ),
            (
                Kind::Rouge,
                r#"{"reference": "a b", "prediction": "b"}"#,
                r#"{"fmeasure":0.6666666666666666}"#,
            ),
            (
                Kind::Context,
                r#"{"domain": "long_context", "ground_truth": "one two", "agent_answer": "Two"}"#,
                r#"{"score":0.6666666666666666}"#,
            ),
            (
                Kind::JudgeVerdict,
                r#"{"id": [1.50], "response": "incorrect"}"#,
                r#"{"id":[1.50],"verdict":"INCORRECT"}"#,
            ),
        ] {
            assert_eq!(grade_line(kind, line).unwrap().json, expected, "{kind:?}");
        }
    }

    #[test]
    fn a_grade_is_also_one_number() {
        for (kind, line, expected) in [
            (Kind::Choice, r#"{"agent_answer": "A", "ground_truth": "B"}"#, 0.0),
            (Kind::Ifbench, r#"{"instruction_id": "words:vowel", "response": "abba"}"#, 1.0),
            (Kind::Rouge, r#"{"reference": "a b", "prediction": "b"}"#, 2.0 / 3.0),
            (Kind::JudgeVerdict, r#"{"response": "correct"}"#, 1.0),
            (Kind::JudgeVerdict, r#"{"response": "who knows"}"#, 0.0),
        ] {
            let score = grade_line(kind, line).unwrap().score;
            assert!((score - expected).abs() < 1e-9, "{line}: {score}");
        }
    }

    #[test]
    fn fields_may_be_empty_where_the_grader_allows_it() {
        let line =
            r#"{"domain": "chem", "qa_type": null, "ground_truth": "A", "agent_answer": "A"}"#;
        assert_eq!(grade_line(Kind::Context, line).unwrap().json, r#"{"score":1.0}"#);
        for kwargs in ["", r#""kwargs": null,"#, r#""kwargs": {},"#] {
            let line =
                format!(r#"{{"instruction_id": "words:vowel", {kwargs} "response": "abba"}}"#);
            assert!(
                grade_line(Kind::Ifbench, &line).unwrap().json.contains(r#""strict":true"#),
                "{line}"
            );
        }
    }

    #[test]
    fn invalid_lines_are_explained() {
        let kind = Kind::Choice;
        assert_eq!(error(kind, ""), "not JSON");
        assert_eq!(error(kind, "{\"agent_answer\": \"A"), "not JSON");
        assert_eq!(error(kind, "{} {}"), "not JSON");
        assert_eq!(error(kind, "[]"), "not a JSON object");
        assert_eq!(error(kind, r#"{"agent_answer": "A"}"#), "no field `ground_truth`");
        let line = r#"{"agent_answer": "A", "ground_truth": 5}"#;
        assert_eq!(error(kind, line), "field `ground_truth` is not a string");
        let line = r#"{"instruction_id": "", "response": "", "kwargs": []}"#;
        assert_eq!(error(Kind::Ifbench, line), "field `kwargs` is not an object");
        let line = r#"{"instruction_id": "count:nothing", "response": "", "kwargs": {}}"#;
        assert_eq!(error(Kind::Ifbench, line), "unknown constraint `count:nothing`");
        let line = r#"{"domain": "poetry", "ground_truth": "A", "agent_answer": "A"}"#;
        assert!(error(Kind::Context, line).starts_with("unknown domain `poetry`"));
    }

    #[test]
    fn the_id_of_an_invalid_line_is_found() {
        let id = |line: &str| id_of(line).map(|id| id.get().to_owned());
        assert_eq!(id(r#"{"gold": 1, "id": [1.50]}"#).as_deref(), Some("[1.50]"));
        assert_eq!(id("{}"), None);
        assert_eq!(id(r#"{"id": 1"#), None);
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        let line = r#"{"agent_answer": "\ud83d\ude00 \ude00\ud83d B \ud83d", "ground_truth": "b", "x": "\ud83d"}"#;
        assert_eq!(grade_line(Kind::Choice, line).unwrap().json, r#"{"score":1.0}"#);
        assert_eq!(replace_surrogates(b"a\xed\xa0\x80\xed\xb0\x80b"), "a\u{fffd}\u{fffd}b");
        assert_eq!(replace_surrogates(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn of_equal_fields_the_last_counts() {
        let line = r#"{"response": "correct", "response": "incorrect"}"#;
        assert_eq!(
            grade_line(Kind::JudgeVerdict, line).unwrap().json,
            r#"{"verdict":"INCORRECT"}"#
        );
    }
}
