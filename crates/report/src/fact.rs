//! What a report keeps of an attempt: small enough that a hundred thousand fit in memory.
//!
//! Texts are cut here, where they arrive; everything later works with bounded ones.

use std::hash::{DefaultHasher, Hash, Hasher};

use results::{Attempt, Mode};
use serde_json::Value;
use trajectory::{Line, Outcome};

use crate::{
    analysis::{self, Capabilities, Exam, Leak, Plain},
    stats::PASS,
    text::excerpt,
};

/// Characters kept of an answer.
const ANSWER: usize = 240;
/// Characters kept of the right answer.
const EXPECTED: usize = 120;
/// Characters kept of a cause.
const CAUSE: usize = 240;
/// Characters kept of a domain.
const DOMAIN: usize = 100;
/// Suspicious turns kept of an attempt.
const LEAKS: usize = 20;

/// An attempt, reduced.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The attempt. The problem is left out, and of the answers only the beginnings of wrong ones are kept.
    pub attempt: Attempt,
    /// Why it has no score, where it has none.
    pub cause: String,
    /// Whether there is a record of its events to look at.
    pub recorded: bool,
    /// What the model did with its computer, where its events could be read.
    pub capabilities: Option<Capabilities>,
    /// Its suspicious turns, the first of them.
    pub leaks: Vec<Leak>,
    /// How many there are.
    pub leaks_total: usize,
    /// How a plain answer is written.
    pub plain: Option<Plain>,
    /// A digest of the problem and its right answer, where the attempt has them: the same for equal ones.
    pub content: Option<u64>,
}

impl Fact {
    /// Reduces an attempt. `events` are those of its episode, where there are any; `known_as` the public
    /// names of its benchmark.
    pub fn of(mut attempt: Attempt, events: Option<&[Line]>, known_as: &[String]) -> Self {
        let turns = events.map(analysis::turns);
        let exam = Exam {
            known_as,
            problem_statement: &attempt.problem_statement,
            ground_truth: &attempt.ground_truth,
        };
        let mut leaks =
            turns.as_deref().map(|turns| analysis::leaks(turns, &exam)).unwrap_or_default();
        let leaks_total = leaks.len();
        leaks.truncate(LEAKS);
        let capabilities = turns.as_deref().map(analysis::capabilities);
        // No reply is no way to write one.
        let is_plain = attempt.key.mode == Mode::Llm
            && attempt.is_of_the_model()
            && !attempt.answer.trim().is_empty();
        let content = content(&attempt);
        let plain = is_plain.then(|| Plain::of(&attempt.answer));
        let cause = cause(&attempt);
        let failed = attempt.score.is_none_or(|score| score < PASS);
        let kept = |text: &str, most| if failed { excerpt(text, most) } else { String::new() };
        attempt.answer = kept(&attempt.answer, ANSWER);
        attempt.ground_truth = kept(&attempt.ground_truth, EXPECTED);
        attempt.problem_statement = String::new();
        attempt.grade = Value::Null;
        attempt.subject = None;
        if let Outcome::Infrastructure { cause: said } = &mut attempt.outcome {
            said.clone_from(&cause);
        }
        if attempt.domain.is_empty() {
            attempt.domain.clone_from(&attempt.key.task);
        }
        attempt.domain = excerpt(&attempt.domain, DOMAIN);
        let recorded = events.is_some();
        Self { attempt, cause, recorded, capabilities, leaks, leaks_total, plain, content }
    }

    /// Its score in a mean of what says something about the model.
    pub fn graded(&self) -> Option<f64> {
        self.attempt.score.filter(|_| self.attempt.is_of_the_model())
    }

    /// Whether it was right.
    pub fn passed(&self) -> bool {
        self.graded().is_some_and(|score| score >= PASS)
    }
}

fn content(attempt: &Attempt) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    (&attempt.problem_statement, &attempt.ground_truth).hash(&mut hasher);
    (!attempt.problem_statement.is_empty()).then(|| hasher.finish())
}

/// Why our side failed, or why a grader gave no score, in whatever field it said so.
fn cause(attempt: &Attempt) -> String {
    let fields = ["ungraded", "cause", "error"];
    let said = fields.iter().find_map(|field| attempt.grade.get(field)?.as_str());
    match &attempt.outcome {
        Outcome::Infrastructure { cause } => excerpt(cause, CAUSE),
        _ if attempt.score.is_none() => excerpt(said.unwrap_or("not graded"), CAUSE),
        _ => String::new(),
    }
}
