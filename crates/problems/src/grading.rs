//! How answers are graded: at once, by a judge, or by a command in a sandbox.
//!
//! Asks no judge and runs no command; it says what to ask and to run, and what the replies mean.

use std::{path::PathBuf, sync::Arc, time::Duration};

use grade::judge::{self, Verdict};
use serde_json::{Value, json};

use crate::{
    CarriedFile, Check, Problem,
    check::ScoreFrom,
    swe::{self, Place},
};

/// Where a command that grades finds its files and the folder of its task.
pub(crate) const TASK_DIR: &str = "/task";

/// What decides about an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grader {
    /// Mathematical equality.
    Math,
    /// The letter of a choice.
    Choice,
    /// Constraints on a text, followed loosely.
    Ifbench,
    /// Common words in order.
    Rouge,
    /// By the row's domain and kind of question.
    Context,
    /// The same text but for outer white space.
    Exact,
    /// A language model that compares with the right answer.
    Judge,
    /// The tests of a repository.
    Tests,
    /// A command of the task's own.
    Command(Command),
}

/// A command that grades. It runs in a sandbox of its own, in a directory with the files of the task, the answer in
/// `answer.txt` and the row in `row.json`, and prints a score from 0 to 1 on its last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What a shell runs.
    pub command: String,
    /// The files of the task, by their path below the directory. Many checks may wait at a time, so they share them.
    pub files: Vec<CarriedFile>,
    /// The image it runs in, where it is not the task's.
    pub image: Option<String>,
    /// After this long it has failed.
    pub timeout: Duration,
}

/// A grade, or what has to be done for one.
#[derive(Clone, Debug, PartialEq)]
pub enum Grading {
    /// Here it is.
    Done(Grade),
    /// Put this to a judge.
    Judge(JudgeJob),
    /// Do this in a sandbox.
    InSandbox(Check),
}

/// What an answer is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Grade {
    /// From 0 to 1.
    pub score: f64,
    /// What the grader says besides; null where it says nothing.
    pub details: Value,
}

impl Grade {
    fn plain(score: f64) -> Self {
        Self { score, details: Value::Null }
    }
}

/// A question to a judge, asked several times.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeJob {
    /// The only message, in the role of the user.
    pub prompt: String,
    /// How many replies are wanted.
    pub votes: usize,
    /// The sampling temperature.
    pub temperature: f64,
    /// The longest reply, in tokens.
    pub max_tokens: u32,
}

impl JudgeJob {
    /// The grade that replies add up to; none is a reply that never came.
    pub fn grade(&self, replies: &[Option<String>]) -> Grade {
        let vote = |reply: &Option<String>| reply.as_deref().map_or(Verdict::Error, judge::verdict);
        let votes: Vec<Verdict> = replies.iter().map(vote).collect();
        let words: Vec<&str> = votes.iter().map(|vote| vote.as_str()).collect();
        let majority = judge::majority(&votes).as_str();
        Grade {
            score: judge::mean(&votes),
            details: json!({ "votes": words, "majority": majority }),
        }
    }
}

impl Grader {
    /// The graders a task may choose by name.
    pub const NAMES: [&str; 8] =
        ["math", "choice", "ifbench", "rouge", "context", "exact", "judge", "tests"];

    /// The grader of that name, one of [`Self::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "math" => Self::Math,
            "choice" => Self::Choice,
            "ifbench" => Self::Ifbench,
            "rouge" => Self::Rouge,
            "context" => Self::Context,
            "exact" => Self::Exact,
            "judge" => Self::Judge,
            "tests" => Self::Tests,
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Math => "math",
            Self::Choice => "choice",
            Self::Ifbench => "ifbench",
            Self::Rouge => "rouge",
            Self::Context => "context",
            Self::Exact => "exact",
            Self::Judge => "judge",
            Self::Tests => "tests",
            Self::Command(_) => "command",
        }
    }

    /// Whether it can grade answers to this problem, and if not, why.
    pub(crate) fn fits(&self, problem: &Problem) -> Result<(), String> {
        match self {
            Self::Tests => return swe::fits(problem),
            Self::Command(_) => return Ok(()),
            _ if problem.ground_truth.trim().is_empty() => {
                return Err("field `ground_truth` is empty".into());
            }
            _ => {}
        }
        match self {
            Self::Context => {
                let answered = grade::context::Row {
                    domain: &problem.domain,
                    qa_type: problem.qa_type.as_deref(),
                    ground_truth: "x",
                    agent_answer: "x",
                };
                grade::context::reward(&answered).map(|_| ()).map_err(|error| error.to_string())
            }
            Self::Ifbench => {
                let truth = serde_json::from_str::<Value>(&problem.ground_truth).ok();
                let listed = |key| truth.as_ref().is_some_and(|truth| truth[key].is_array());
                match listed("instruction_id_list") && listed("kwargs") {
                    true => Ok(()),
                    false => Err("field `ground_truth` is not JSON with the lists \
                         `instruction_id_list` and `kwargs`"
                        .into()),
                }
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn grading(&self, problem: &Problem, answer: &str, place: Place<'_>) -> Grading {
        let truth = problem.ground_truth.as_str();
        Grading::Done(match self {
            Self::Math => Grade::plain(grade::math::reward(truth, answer)),
            Self::Choice => Grade {
                score: grade::choice::score(answer, truth),
                details: json!({ "letter": grade::choice::letter(answer) }),
            },
            Self::Ifbench => ifbench(truth, answer),
            Self::Rouge => Grade::plain(grade::rouge::score(truth, answer).fmeasure),
            Self::Context => context(problem, answer),
            Self::Exact => Grade::plain(f64::from(u8::from(answer.trim() == truth.trim()))),
            Self::Judge => return Grading::Judge(job(problem, answer)),
            Self::Tests => return swe::grading(problem, answer, place),
            Self::Command(command) => {
                let mut check = command.check(problem, answer);
                check.image = check.image.or_else(|| place.image.map(str::to_owned));
                return Grading::InSandbox(check);
            }
        })
    }
}

impl Command {
    fn check(&self, problem: &Problem, answer: &str) -> Check {
        let inside = |path: &str| PathBuf::from(TASK_DIR).join(path);
        let row = Value::Object(problem.row()).to_string();
        let mut files: Vec<_> = self
            .files
            .iter()
            .map(|(path, bytes)| (PathBuf::from(TASK_DIR).join(path), Arc::clone(bytes)))
            .collect();
        files.push((inside("answer.txt"), answer.as_bytes().into()));
        files.push((inside("row.json"), row.into_bytes().into()));
        Check {
            image: self.image.clone(),
            files,
            command: script(&self.command),
            timeout: self.timeout,
            score: ScoreFrom::LastNumber,
        }
    }
}

/// Runs a grader in its directory. Where it fails, the end of what it said is its last line.
fn script(command: &str) -> String {
    format!(
        "cd {TASK_DIR} || exit 1\n(\n{command}\n) 2> /tmp/llm-in-sandbox-stderr\ncode=$?\n\
         [ $code = 0 ] || tail -n 3 /tmp/llm-in-sandbox-stderr\nexit $code\n"
    )
}

fn ifbench(truth: &str, answer: &str) -> Grade {
    let verdict = grade::ifbench::check_all(truth, answer);
    let mut details =
        json!({ "strict": verdict.strict, "loose": verdict.loose, "loose8": verdict.loose8 });
    if let Some(raises) = verdict.raises {
        details["raises"] = raises.into();
    }
    Grade { score: grade::ifbench::score(truth, answer), details }
}

fn context(problem: &Problem, answer: &str) -> Grade {
    let row = grade::context::Row {
        domain: &problem.domain,
        qa_type: problem.qa_type.as_deref(),
        ground_truth: &problem.ground_truth,
        agent_answer: answer,
    };
    match grade::context::reward(&row) {
        Ok(score) => Grade::plain(score),
        Err(error) => Grade { score: 0.0, details: json!({ "error": error.to_string() }) },
    }
}

fn job(problem: &Problem, answer: &str) -> JudgeJob {
    JudgeJob {
        prompt: judge::prompt(&problem.statement, &problem.ground_truth, answer),
        votes: judge::VOTES,
        temperature: judge::TEMPERATURE,
        max_tokens: judge::MAX_TOKENS,
    }
}
