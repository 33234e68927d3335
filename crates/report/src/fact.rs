//! An attempt reduced to what a report needs: small enough that a hundred thousand fit in memory.
//!
//! Texts are cut here, where they arrive; later stages work with bounded ones.

use std::hash::{DefaultHasher, Hash, Hasher};

use results::{AttemptRecord, Mode, Validity};
use serde_json::Value;
use trajectory::{Fault, Line, Outcome};

use crate::{
    analysis::{self, AnswerStyle, Capabilities, Leak, LeakTarget},
    stats::PASS,
    text::excerpt,
};

/// Characters stored of an answer.
const ANSWER_CHARS: usize = 240;
/// Characters stored of the expected answer.
const EXPECTED_CHARS: usize = 120;
/// Characters stored of a cause.
const CAUSE_CHARS: usize = 240;
/// Characters stored of a domain.
const DOMAIN_CHARS: usize = 100;
/// Suspicious turns stored per attempt.
const MOST_LEAKS: usize = 20;

/// An attempt, reduced.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The attempt, without the problem; answers are cut, and stored for failures only.
    pub attempt: AttemptRecord,
    /// Why there is no score; empty where there is one.
    pub cause: String,
    /// Whether its trajectory exists.
    pub recorded: bool,
    /// Use of the sandbox, where the trajectory could be read.
    pub capabilities: Option<Capabilities>,
    /// The first suspicious turns.
    pub leaks: Vec<Leak>,
    /// Number of all suspicious turns.
    pub leaks_total: usize,
    /// Style of an answer without a sandbox.
    pub style: Option<AnswerStyle>,
    /// Hash of the problem and its expected answer, where the attempt has them.
    pub content: Option<u64>,
}

impl Fact {
    /// Reduces an attempt. `events` is its trajectory, `known_as` the public names of its benchmark.
    pub fn of(mut attempt: AttemptRecord, events: Option<&[Line]>, known_as: &[String]) -> Self {
        let is_plain = attempt.key.mode == Mode::Llm;
        let turns = events.filter(|_| !is_plain).map(analysis::turns);
        let target = LeakTarget {
            known_as,
            problem_statement: &attempt.problem_statement,
            ground_truth: &attempt.ground_truth,
        };
        let mut leaks =
            turns.as_deref().map(|turns| analysis::leaks(turns, &target)).unwrap_or_default();
        let leaks_total = leaks.len();
        leaks.truncate(MOST_LEAKS);
        let capabilities = turns.as_deref().map(analysis::capabilities);
        let content = content(&attempt);
        // A task may take only a part of the response as the answer.
        let response = events.and_then(analysis::plain_response);
        let response = response.filter(|text| !text.is_empty()).unwrap_or(&attempt.answer);
        let counts = is_plain && attempt.is_answered() && !response.trim().is_empty();
        let style = counts.then(|| AnswerStyle::of(response));
        let cause = cause(&attempt);
        let failed = attempt.score.is_none_or(|score| score < PASS);
        let cut = |text: &str, most| if failed { excerpt(text, most) } else { String::new() };
        attempt.answer = cut(&attempt.answer, ANSWER_CHARS);
        attempt.ground_truth = cut(&attempt.ground_truth, EXPECTED_CHARS);
        attempt.problem_statement = String::new();
        attempt.grade = Value::Null;
        attempt.subject = None;
        if let Outcome::Infrastructure { cause: text, .. } = &mut attempt.outcome {
            text.clone_from(&cause);
        }
        if attempt.domain.is_empty() {
            attempt.domain.clone_from(&attempt.key.task);
        }
        attempt.domain = excerpt(&attempt.domain, DOMAIN_CHARS);
        let recorded = events.is_some();
        Self { attempt, cause, recorded, capabilities, leaks, leaks_total, style, content }
    }

    /// The score of a valid attempt. An attempt that the infrastructure failed, that was cancelled or that could not be
    /// graded is invalid: it says nothing about the model and enters no mean.
    pub fn score(&self) -> Option<f64> {
        self.attempt.score.filter(|_| self.attempt.is_answered())
    }

    /// What made the attempt invalid; `None` for a valid one.
    pub fn fault(&self) -> Option<&'static str> {
        match self.attempt.validity() {
            Validity::Valid => None,
            Validity::Cancelled => Some("cancelled"),
            Validity::Invalid { fault, .. } => Some(match fault {
                Fault::ModelServer => "model server",
                Fault::ModelRequest => "model request",
                Fault::Sandbox => "sandbox",
                Fault::Storage => "storage",
                Fault::Problem => "problem",
                Fault::Grader => "grader",
                Fault::Unknown => "unknown",
            }),
        }
    }

    /// Whether the attempt is valid and passed.
    pub fn passed(&self) -> bool {
        self.score().is_some_and(|score| score >= PASS)
    }
}

fn content(attempt: &AttemptRecord) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    (&attempt.problem_statement, &attempt.ground_truth).hash(&mut hasher);
    (!attempt.problem_statement.is_empty()).then(|| hasher.finish())
}

/// Why the infrastructure failed or the grader gave no score; graders use different fields for it.
fn cause(attempt: &AttemptRecord) -> String {
    let fields = ["ungraded", "cause", "error"];
    let reason = fields.iter().find_map(|field| attempt.grade.get(field)?.as_str());
    match &attempt.outcome {
        Outcome::Infrastructure { cause, .. } => excerpt(cause, CAUSE_CHARS),
        _ if attempt.score.is_none() => excerpt(reason.unwrap_or("not graded"), CAUSE_CHARS),
        _ => String::new(),
    }
}
