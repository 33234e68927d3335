//! A plan checked without a model: every prompt is rendered, one sandbox of each task is set up, and every right answer is
//! graded, which has to give the full score.

use std::sync::Arc;

use attempt::{Graded, Play, Sandboxes, first_messages};
use model::{Listener, Model, Request, Response};
use problems::{Grader, Problem, Task};
use results::Mode;
use sandbox::Runtime;
use serde::Serialize;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;
use trajectory::{Message, error_chain};

use crate::Plan;

/// A plan to check.
pub struct DryRun<R: Runtime> {
    /// What would be played.
    pub plan: Plan,
    /// Creates sandboxes, where the modes or graders need any.
    pub runtime: Option<Arc<R>>,
    /// Answers that are graded at once.
    pub concurrency: usize,
}

/// What was found about a task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskCheck {
    /// The task.
    pub task: String,
    /// The number of problems.
    pub problems: usize,
    /// The number of attempts in all modes.
    pub attempts: usize,
    /// The prompts of every problem in every mode.
    pub prompts: Vec<PromptCheck>,
    /// Whether a sandbox of the first problem could be set up; absent where none is needed.
    pub sandbox: Option<SandboxCheck>,
    /// The name of the grader.
    pub grader: String,
    /// What the grader makes of the right answers.
    pub answers: Vec<AnswerCheck>,
}

/// The prompt of a problem in a mode.
#[derive(Clone, Debug, Serialize)]
pub struct PromptCheck {
    /// The problem.
    pub id: String,
    /// The mode.
    pub mode: Mode,
    /// The first messages; empty where they cannot be rendered.
    pub messages: Vec<Message>,
    /// Why they cannot be rendered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether a sandbox could be set up.
#[derive(Clone, Debug, Serialize)]
pub struct SandboxCheck {
    /// The problem it is for.
    pub id: String,
    /// Why it could not; null where it could.
    pub error: Option<String>,
}

/// What the grader makes of a right answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AnswerCheck {
    /// The problem.
    pub id: String,
    /// The score; null where there is none.
    pub score: Option<f64>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Whether it cannot be checked at all, rather than failed to be graded.
    #[serde(skip)]
    pub is_skipped: bool,
}

impl AnswerCheck {
    /// Whether the right answer gets less than the full score, or none.
    pub fn is_wrong(&self) -> bool {
        !self.is_skipped && self.score.is_none_or(|score| score < 1.0)
    }
}

impl TaskCheck {
    /// Whether everything works.
    pub fn is_fine(&self) -> bool {
        self.prompts.iter().all(|prompt| prompt.error.is_none())
            && self.sandbox.as_ref().is_none_or(|sandbox| sandbox.error.is_none())
            && !self.answers.iter().any(AnswerCheck::is_wrong)
    }
}

impl<R: Runtime> DryRun<R> {
    /// Checks every task.
    pub async fn check(self) -> Vec<TaskCheck> {
        let sandboxes = Sandboxes::new(self.runtime.clone(), self.concurrency, 0);
        let checker = Arc::new(Checker {
            plan: self.plan,
            runtime: self.runtime,
            sandboxes,
            permits: Semaphore::new(self.concurrency.clamp(1, Semaphore::MAX_PERMITS)),
        });
        let mut checks = Vec::new();
        for index in 0..checker.plan.tasks.len() {
            checks.push(checker.check(index).await);
        }
        checks
    }
}

struct Checker<R: Runtime> {
    plan: Plan,
    runtime: Option<Arc<R>>,
    sandboxes: Sandboxes<R>,
    permits: Semaphore,
}

impl<R: Runtime> Checker<R> {
    async fn check(self: &Arc<Self>, index: usize) -> TaskCheck {
        let selected = &self.plan.tasks[index];
        let problems = selected.problems.iter().map(|selected| &selected.problem);
        let prompts = problems.clone().flat_map(|problem| {
            self.plan.modes.iter().map(|mode| self.prompt(&selected.task, problem, *mode))
        });
        TaskCheck {
            task: selected.task.name.clone(),
            problems: selected.problems.len(),
            attempts: selected.attempts() * self.plan.modes.len(),
            prompts: prompts.collect(),
            sandbox: match problems.clone().next() {
                Some(first) => self.sandbox(&selected.task, first).await,
                None => None,
            },
            grader: selected.task.grader.name().to_owned(),
            answers: self.answers(index).await,
        }
    }

    fn prompt(&self, task: &Task, problem: &Problem, mode: Mode) -> PromptCheck {
        let rendered = first_messages(task, problem, &self.plan.settings, mode);
        let error = rendered.as_ref().err().map(|error| error_chain(error));
        PromptCheck { id: problem.id.clone(), mode, messages: rendered.unwrap_or_default(), error }
    }

    async fn sandbox(&self, task: &Task, problem: &Problem) -> Option<SandboxCheck> {
        let runtime = self.runtime.as_ref()?;
        if !self.plan.modes.contains(&Mode::Sandbox) {
            return None;
        }
        let tried = attempt::try_sandbox(&**runtime, task, problem, &self.plan.settings).await;
        let error = tried.err().map(|error| error_chain(&error));
        Some(SandboxCheck { id: problem.id.clone(), error })
    }

    /// Grades all right answers, a bounded number at once, in the order of the problems.
    async fn answers(self: &Arc<Self>, index: usize) -> Vec<AnswerCheck> {
        let mut running = JoinSet::new();
        for at in 0..self.plan.tasks[index].problems.len() {
            let checker = Arc::clone(self);
            running.spawn(async move { (at, checker.answer(index, at).await) });
        }
        let mut checks: Vec<(usize, AnswerCheck)> = Vec::new();
        while let Some(joined) = running.join_next().await {
            // A panic of the grader is caught where it is called.
            checks.extend(joined);
        }
        checks.sort_by_key(|(at, _)| *at);
        checks.into_iter().map(|(_, check)| check).collect()
    }

    async fn answer(&self, index: usize, at: usize) -> AnswerCheck {
        let selected = &self.plan.tasks[index];
        let (task, problem) = (&selected.task, &selected.problems[at].problem);
        let id = problem.id.clone();
        let skipped = |cause: &str| {
            let cause = Some(cause.to_owned());
            AnswerCheck { id: problem.id.clone(), score: None, cause, is_skipped: true }
        };
        if task.grader == Grader::Judge {
            return skipped("a judge decides");
        }
        let Some(answer) = task.right_answer(problem) else {
            return skipped("the data has no right answer");
        };
        let _permit = self.permits.acquire().await;
        let play = Play {
            problem,
            task,
            mode: Mode::Llm,
            model: &NoModel,
            sandboxes: &self.sandboxes,
            settings: &self.plan.settings,
            seed: None,
            cancel: CancellationToken::new(),
        };
        let failed = |cause| AnswerCheck { id: id.clone(), score: None, cause, is_skipped: false };
        match attempt::grade(&play, &answer).await {
            Graded::Done(grade) => AnswerCheck { score: Some(grade.score), ..failed(None) },
            Graded::Failed { cause, .. } => failed(Some(cause)),
            Graded::Judge(_) => skipped("a judge decides"),
            Graded::Cancelled => failed(Some("grading was cancelled".into())),
        }
    }
}

/// Stands in for a model where none is called.
#[derive(Debug)]
struct NoModel;

impl Model for NoModel {
    fn name(&self) -> &str {
        "none"
    }

    async fn complete(&self, _: &Request<'_>, _: &dyn Listener) -> Result<Response, model::Error> {
        Err(model::Error::Settings("a dry run calls no model".into()))
    }
}

#[cfg(test)]
mod tests {
    use sandbox_docker::DockerRuntime;

    use super::*;
    use crate::plan::tests::{plan, problem};

    #[tokio::test]
    async fn right_answers_that_get_no_points_are_found() {
        let with = |id: &str, truth: &str| Problem { ground_truth: truth.into(), ..problem(id, 1) };
        // The second answer has no words.
        let rows = vec![Problem { repeats: 2, ..with("a", "yes") }, with("b", "!")];
        let mut plan = Plan { modes: vec![Mode::Llm], ..plan(rows, 1) };
        let task = Task { grader: Grader::Rouge, ..Task::builtin("math").unwrap() };
        plan.tasks[0].task = Arc::new(task);
        let dry: DryRun<DockerRuntime> = DryRun { plan, runtime: None, concurrency: 2 };
        let checks = dry.check().await;
        let check = &checks[0];
        assert_eq!((check.problems, check.attempts, check.prompts.len()), (2, 3, 2));
        assert!(check.prompts[0].messages[0].size() > 1 && check.sandbox.is_none());
        assert_eq!(check.answers[0].score, Some(1.0));
        let found: Vec<&str> =
            check.answers.iter().filter(|a| a.is_wrong()).map(|a| a.id.as_str()).collect();
        assert_eq!((found, check.is_fine()), (vec!["b"], false), "{:?}", check.answers);
    }
}
