//! How answers are graded: at once, by a judge model, or by a command in a sandbox.
//!
//! Calls no model and runs no command: it describes the request or the command, and reads their results.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use grade::judge::{self, Verdict};
use serde_json::{Value, json};

use crate::{
    Check, GraderFile, Problem, RowError, Task,
    check::ScoreFrom,
    problem::shown,
    swe::{self, RepositoryContext},
};

/// Working directory of a grader command, with the files of its task.
pub(crate) const TASK_DIR: &str = "/task";

/// The most characters of a text in the details of a grade.
const MAX_EXCERPT: usize = 500;

/// How the answers to a task are graded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grader {
    /// Mathematical equality.
    Math,
    /// The letter of a multiple choice.
    Choice,
    /// IFBench's constraints on a text, in their loose form.
    Ifbench,
    /// ROUGE-L.
    Rouge,
    /// One of several graders, by the row's domain and kind of question.
    Context,
    /// Equality but for surrounding white space.
    Exact,
    /// A language model that compares with the reference answer.
    Judge,
    /// The tests of a repository.
    Tests,
    /// A command that the task brings along.
    Command(Command),
    /// A function; see [`Grader::custom`].
    Custom(CustomGrader),
}

/// A command that grades. It runs in a new sandbox, in a directory with the files of the task, the answer in
/// `answer.txt` and the row in `row.json`. Its last line of output is a score from 0 to 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The shell command.
    pub command: String,
    /// The files of the task, by their path below the directory. Shared by all checks that wait at a time.
    pub files: Vec<GraderFile>,
    /// Its image. `None`: the image of the task.
    pub image: Option<String>,
    /// Time limit; beyond it the check has failed.
    pub timeout: Duration,
}

type GradeFn = dyn Fn(&Problem, &str) -> Grade + Send + Sync;

/// A grader that is a function of the program, made by [`Grader::custom`].
#[derive(Clone)]
pub struct CustomGrader {
    name: String,
    grade: Arc<GradeFn>,
}

impl fmt::Debug for CustomGrader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomGrader").field(&self.name).finish()
    }
}

impl PartialEq for CustomGrader {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.grade, &other.grade)
    }
}

impl Eq for CustomGrader {}

/// A grade, or what has to be done for one.
#[derive(Clone, Debug, PartialEq)]
pub enum Grading {
    /// The grade.
    Done(Grade),
    /// Send this to a judge model, then call [`JudgeRequest::grade`].
    Judge(JudgeRequest),
    /// Run this in a new sandbox, then call [`Check::grade`].
    InSandbox(Check),
}

/// The score of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Grade {
    /// From 0 to 1.
    pub score: f64,
    /// More about how the score came about, as JSON; null where there is nothing.
    pub details: Value,
}

impl Grade {
    /// A grade without details.
    pub fn new(score: f64) -> Self {
        Self { score, details: Value::Null }
    }
}

/// A request to a judge model. It is sent several times, and every response is a vote.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeRequest {
    /// The only message, in the role of the user.
    pub prompt: String,
    /// The number of responses.
    pub votes: usize,
    /// The sampling temperature.
    pub temperature: f64,
    /// The most tokens of a response.
    pub max_tokens: u32,
}

impl JudgeRequest {
    /// The grade of the responses: the share of votes that call the answer correct. `None` is a failed call.
    pub fn grade(&self, responses: &[Option<String>]) -> Grade {
        let vote =
            |response: &Option<String>| response.as_deref().map_or(Verdict::Error, judge::verdict);
        let votes: Vec<Verdict> = responses.iter().map(vote).collect();
        let names: Vec<&str> = votes.iter().map(|vote| vote.as_str()).collect();
        let majority = judge::majority(&votes).as_str();
        Grade {
            score: judge::mean(&votes),
            details: json!({ "votes": names, "majority": majority }),
        }
    }
}

impl Task {
    /// Grades an answer, or describes what has to be done for a grade.
    pub fn grading(&self, problem: &Problem, answer: &str) -> Grading {
        let context = RepositoryContext {
            repository: &self.prompts.working_dir,
            input_dir: &self.prompts.input_dir,
            image: self.image.as_deref(),
        };
        self.grader.grading(problem, answer, context)
    }
}

impl Grader {
    /// A grader that is a function of the problem and the answer. It belongs to the task and so grades benchmarks and
    /// training alike; `rollout::Reward::Custom` replaces it in training only.
    ///
    /// ```
    /// use lis_problems::{Grade, Grader, Grading, Problem, Task};
    ///
    /// let grader = Grader::custom("length", |problem: &Problem, answer: &str| {
    ///     Grade::new(if answer.len() <= problem.ground_truth.len() { 1.0 } else { 0.0 })
    /// });
    /// let task = Task { grader, ..Task::builtin("math").unwrap() };
    /// let row = serde_json::json!({"id": "a", "problem_statement": "Be brief.", "ground_truth": "four"});
    /// let problem = Problem::from_row(row).unwrap();
    /// assert_eq!(task.grading(&problem, "two"), Grading::Done(Grade::new(1.0)));
    /// ```
    pub fn custom(
        name: impl Into<String>,
        grade: impl Fn(&Problem, &str) -> Grade + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(CustomGrader { name: name.into(), grade: Arc::new(grade) })
    }

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

    /// Its name: one of [`Self::NAMES`], `command`, or that of a custom grader.
    pub fn name(&self) -> &str {
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
            Self::Custom(custom) => &custom.name,
        }
    }

    /// Whether a grade follows from the answer alone, without a judge or a sandbox.
    pub fn is_immediate(&self) -> bool {
        !matches!(self, Self::Judge | Self::Tests | Self::Command(_))
    }

    /// Whether it can grade answers to this problem.
    pub(crate) fn check(&self, problem: &Problem) -> Result<(), RowError> {
        match self {
            Self::Tests => return swe::check(problem),
            Self::Command(_) | Self::Custom(_) => return Ok(()),
            _ if problem.ground_truth.trim().is_empty() => {
                return Err(RowError::Empty { field: "ground_truth" });
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
                grade::context::reward(&answered)
                    .map(|_| ())
                    .map_err(|error| RowError::Ungradable(error.to_string()))
            }
            Self::Ifbench => {
                let truth = serde_json::from_str::<Value>(&problem.ground_truth).ok();
                let listed = |key| truth.as_ref().is_some_and(|truth| truth[key].is_array());
                match listed("instruction_id_list") && listed("kwargs") {
                    true => match grade::ifbench::first_unknown(&problem.ground_truth) {
                        None => Ok(()),
                        Some(id) => {
                            Err(RowError::Ungradable(format!("unknown constraint {}", shown(&id))))
                        }
                    },
                    false => Err(RowError::Invalid {
                        field: "ground_truth",
                        why: "is not JSON with the lists `instruction_id_list` and `kwargs`".into(),
                    }),
                }
            }
            _ => Ok(()),
        }
    }

    /// Grades an answer, or describes what has to be done for a grade.
    pub(crate) fn grading(
        &self,
        problem: &Problem,
        answer: &str,
        context: RepositoryContext<'_>,
    ) -> Grading {
        let truth = problem.ground_truth.as_str();
        Grading::Done(match self {
            Self::Math => grade_math(truth, answer),
            Self::Choice => Grade {
                score: grade::choice::score(answer, truth),
                details: json!({ "letter": grade::choice::letter(answer) }),
            },
            Self::Ifbench => grade_ifbench(truth, answer),
            Self::Rouge => grade_rouge(truth, answer),
            Self::Context => grade_context(problem, answer),
            Self::Exact => {
                let equal = answer.trim() == truth.trim();
                Grade { score: f64::from(u8::from(equal)), details: json!({ "equal": equal }) }
            }
            Self::Custom(custom) => (custom.grade)(problem, answer),
            Self::Judge => return Grading::Judge(judge_request(problem, answer)),
            Self::Tests => return swe::grading(problem, answer, context),
            Self::Command(command) => {
                let mut check = command.check(problem, answer);
                check.image = check.image.or_else(|| context.image.map(str::to_owned));
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

/// Runs a grader in its directory. If it fails, the end of its standard error is the last line of output.
fn script(command: &str) -> String {
    format!(
        "cd {TASK_DIR} || exit 1\n(\n{command}\n) 2> /tmp/llm-in-sandbox-stderr\ncode=$?\n\
         [ $code = 0 ] || tail -n 3 /tmp/llm-in-sandbox-stderr\nexit $code\n"
    )
}

/// A text of an answer in the details of a grade.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn grade_math(truth: &str, answer: &str) -> Grade {
    let grade::math::Comparison { score, gold, answer } = grade::math::compare(truth, answer);
    let shown = |text: Option<String>| text.map(|text| excerpt(&text));
    Grade { score, details: json!({ "extracted": shown(answer), "expected": shown(gold) }) }
}

fn grade_rouge(truth: &str, answer: &str) -> Grade {
    let grade::rouge::Score { precision, recall, fmeasure } = grade::rouge::score(truth, answer);
    Grade { score: fmeasure, details: json!({ "precision": precision, "recall": recall }) }
}

fn grade_ifbench(truth: &str, answer: &str) -> Grade {
    let verdict = grade::ifbench::check_all(truth, answer);
    let mut details =
        json!({ "strict": verdict.strict, "loose": verdict.loose, "loose8": verdict.loose8 });
    if let Some(raises) = verdict.raises {
        details["raises"] = raises.into();
    }
    Grade { score: grade::ifbench::score(truth, answer), details }
}

fn grade_context(problem: &Problem, answer: &str) -> Grade {
    let row = grade::context::Row {
        domain: &problem.domain,
        qa_type: problem.qa_type.as_deref(),
        ground_truth: &problem.ground_truth,
        agent_answer: answer,
    };
    match grade::context::reward(&row) {
        Ok(score) => {
            Grade { score, details: json!({ "domain": row.domain, "qa_type": row.qa_type }) }
        }
        Err(error) => Grade { score: 0.0, details: json!({ "error": error.to_string() }) },
    }
}

fn judge_request(problem: &Problem, answer: &str) -> JudgeRequest {
    JudgeRequest {
        prompt: judge::prompt(&problem.statement, &problem.ground_truth, answer),
        votes: judge::VOTES,
        temperature: judge::TEMPERATURE,
        max_tokens: judge::MAX_TOKENS,
    }
}
