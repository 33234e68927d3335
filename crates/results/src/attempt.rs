//! One attempt at one problem, as it is stored.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trajectory::{Mode, Outcome, Spent, Validity};

use crate::name;

/// Identifies an attempt of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    /// The task.
    pub task: String,
    /// The mode.
    pub mode: Mode,
    /// The problem.
    pub id: String,
    /// The repetition, from 0.
    #[serde(default)]
    pub repeat: u32,
}

impl AttemptKey {
    /// A file name without extension that no other attempt of the run has: at most 200 bytes of ASCII, without slashes.
    pub fn file_stem(&self) -> String {
        name::joined(&[&self.task, self.mode.name(), &self.id, &self.repeat.to_string()])
    }
}

/// Tokens by origin. Each counts once, however often it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// The first messages.
    pub prompt: u64,
    /// The model's responses.
    pub model: u64,
    /// Tool results and reminders.
    pub environment: u64,
}

impl Tokens {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.prompt.saturating_add(self.model).saturating_add(self.environment)
    }
}

/// A finished attempt, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// The version of this file.
    pub v: u32,
    /// Identifies the attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// The problem's domain, from its row.
    #[serde(default)]
    pub domain: String,
    /// The problem's subject, where its row has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The problem.
    #[serde(default)]
    pub problem_statement: String,
    /// The right answer.
    #[serde(default)]
    pub ground_truth: String,
    /// The answer: the file the model left, or its plain response.
    #[serde(default)]
    pub answer: String,
    /// The score, from 0 to 1; absent where the attempt is not valid.
    pub score: Option<f64>,
    /// Details of the grade, by grader: what was compared, votes of a judge, strict and loose verdicts, or `ungraded` with
    /// the cause.
    #[serde(default)]
    pub grade: Value,
    /// Earlier grades of the same answer.
    #[serde(default, skip_serializing_if = "GradingHistory::is_empty")]
    pub grading: GradingHistory,
    /// How the episode ended. A plain response that is complete counts as submitted.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Turns, tokens, time and cost.
    pub spent: Spent,
    /// Tokens by origin.
    #[serde(default)]
    pub tokens: Tokens,
    /// The start, in milliseconds since 1970.
    #[serde(default)]
    pub started: u64,
    /// The duration in milliseconds. Waiting for a sandbox, or for the only call of a plain attempt, comes before the
    /// start; waiting for a call between turns is included.
    #[serde(default)]
    pub wall_ms: u64,
    /// The peak memory of the sandbox in bytes, where the runtime can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// The number of tries; above 1 after failures of the infrastructure.
    #[serde(default = "one")]
    pub tries: u32,
}

/// The grades that an answer had before it was graded again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GradingHistory {
    /// How often the answer was graded again. Where the run's count is higher, the grade is out of date.
    #[serde(default)]
    pub regradings: u32,
    /// The earlier grades, oldest first.
    #[serde(default)]
    pub earlier: Vec<EarlierGrade>,
}

/// A grade that another one replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierGrade {
    /// The score.
    pub score: f64,
    /// Its details, as in [`AttemptRecord::grade`].
    #[serde(default)]
    pub grade: Value,
}

impl GradingHistory {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn one() -> u32 {
    1
}

impl AttemptRecord {
    /// Whether the model came to an answer. Attempts without one are played again when the run is resumed.
    pub fn is_answered(&self) -> bool {
        self.outcome.is_answered()
    }

    /// Replaces the grade, and keeps the one there was.
    pub fn regrade(&mut self, score: Option<f64>, grade: Value, regradings: u32) {
        let earlier = std::mem::replace(&mut self.grade, grade);
        if let Some(score) = std::mem::replace(&mut self.score, score)
            && self.grading.regradings < regradings
        {
            self.grading.earlier.push(EarlierGrade { score, grade: earlier });
        }
        self.grading.regradings = regradings;
    }

    /// Whether the score says something about the model, and if not, whose fault that is.
    pub fn validity(&self) -> Validity {
        match (self.score, &self.grade["ungraded"]) {
            (Some(_), _) => Validity::Valid,
            (None, Value::String(cause)) => Validity::ungraded(cause),
            (None, _) => Validity::before_grading(&self.outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trajectory::Fault;

    use super::*;

    #[test]
    fn a_new_grade_keeps_the_earlier_ones() {
        let record = json!({
            "v": 1, "task": "t", "mode": "llm", "id": "a", "score": 0.0, "grade": {"x": 1},
            "outcome": "submitted", "spent": Spent::default(),
        });
        let mut record: AttemptRecord = serde_json::from_value(record).unwrap();
        assert!(serde_json::to_value(&record).unwrap().get("grading").is_none());
        record.regrade(None, json!({"ungraded": "no judge"}), 1);
        record.regrade(Some(1.0), json!({"x": 2}), 1);
        let earlier = [EarlierGrade { score: 0.0, grade: json!({"x": 1}) }];
        assert_eq!((record.score, &record.grading.earlier[..]), (Some(1.0), &earlier[..]));
        record.regrade(Some(0.5), json!({"x": 3}), 2);
        assert_eq!((record.grading.regradings, record.grading.earlier.len()), (2, 2));
        let written = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<AttemptRecord>(&written).unwrap(), record);
    }

    #[test]
    fn a_record_says_whether_its_score_is_valid() {
        let record = |score: Option<f64>, grade: Value, outcome: Value| {
            let mut record = json!({
                "v": 1, "task": "t", "mode": "llm", "id": "a", "score": score, "grade": grade,
                "spent": Spent::default(),
            });
            for (key, value) in outcome.as_object().unwrap() {
                record[key] = value.clone();
            }
            serde_json::from_value::<AttemptRecord>(record).unwrap().validity()
        };
        let submitted = || json!({"outcome": "submitted"});
        assert_eq!(record(Some(0.0), Value::Null, submitted()), Validity::Valid);
        let ungraded = record(None, json!({"ungraded": "no judge"}), submitted());
        assert_eq!(ungraded, Validity::ungraded("no judge"));
        let failed = json!({"outcome": "infrastructure", "cause": "down"});
        let invalid = Validity::Invalid { fault: Fault::Unknown, cause: "down".into() };
        assert_eq!(record(None, Value::Null, failed), invalid);
        let cancelled = json!({"outcome": "cancelled"});
        assert_eq!(record(None, Value::Null, cancelled), Validity::Cancelled);
    }
}
