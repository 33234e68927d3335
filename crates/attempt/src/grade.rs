//! Grades an answer: by a pure grader, or by a command in a fresh sandbox. A judge is the caller's to ask.

use std::sync::Arc;

use model::Model;
use problems::{Check, Grade, Grading, JudgeRequest};
use sandbox::{Error, ImageRef, Network, Runtime, Sandbox, Spec, Status};
use trajectory::{Fault, error_chain};

use crate::{
    Play, Reuse, Sandboxes, collect,
    sandboxes::{PATIENCE, destroy, within},
};

/// How often a command that fails to grade an answer is run, each time in a new sandbox.
const CHECK_TRIES: u32 = 3;

/// The result of grading.
#[derive(Clone, Debug)]
pub enum Graded {
    /// The grade.
    Done(Grade),
    /// A judge has to be asked this.
    Judge(JudgeRequest),
    /// There is no grade.
    Failed {
        /// [`Fault::Grader`] where grading this answer fails every time, [`Fault::Sandbox`] where no sandbox could be used,
        /// [`Fault::Problem`] where the grader cannot be run at all, [`Fault::Unknown`] where it is defective.
        fault: Fault,
        /// What failed.
        cause: String,
    },
    /// The caller cancelled it.
    Cancelled,
}

/// Grades an answer. Pure graders may compute for long and run on a thread of their own.
pub async fn grade<M: Model, R: Runtime>(play: &Play<'_, M, R>, answer: &str) -> Graded {
    let (task, problem) = (Arc::clone(play.task), Arc::clone(play.problem));
    let answer = answer.to_owned();
    let grading = tokio::task::spawn_blocking(move || task.grading(&problem, &answer));
    // A pure grade is not worth cancelling: an attempt that was answered in time keeps its score.
    match grading.await {
        Err(panic) => failed(Fault::Unknown, format!("the grader panicked: {panic}")),
        Ok(Grading::Done(grade)) if !grade.score.is_finite() => {
            failed(Fault::Unknown, format!("the score is {}", grade.score))
        }
        Ok(Grading::Done(grade)) => Graded::Done(grade),
        Ok(Grading::Judge(request)) => Graded::Judge(request),
        Ok(Grading::InSandbox(check)) => {
            let spec = check_spec(play, &check);
            let checking = check_in_sandbox(play.sandboxes, &spec, &check);
            play.unless_cancelled(checking).await.unwrap_or(Graded::Cancelled)
        }
    }
}

fn failed(fault: Fault, cause: String) -> Graded {
    Graded::Failed { fault, cause }
}

/// A check whose sandbox failed. A grader whose image does not exist fails every time.
fn sandbox_failed(error: &Error) -> Graded {
    let fault = if error.is_usage() { Fault::Problem } else { Fault::Sandbox };
    failed(fault, error_chain(error))
}

/// The sandbox of a check: the attempt's, so that both come from one warm pool, without a network.
fn check_spec<M: Model, R: Runtime>(play: &Play<'_, M, R>, check: &Check) -> Spec {
    let Spec { image, .. } = &play.settings.sandbox;
    Spec {
        image: check.image.clone().map_or_else(|| image.clone(), ImageRef::Name),
        network: Network::None,
        workdir: play.task.prompts.working_dir.clone(),
        ..play.settings.sandbox.clone()
    }
}

/// Checks an answer in sandboxes that no model has touched.
async fn check_in_sandbox<R: Runtime>(
    sandboxes: &Sandboxes<R>,
    spec: &Spec,
    check: &Check,
) -> Graded {
    let reuse = if check.image.is_none() { Reuse::Many } else { Reuse::Once };
    let mut cause = String::new();
    for _ in 0..CHECK_TRIES {
        let _permit = sandboxes.permit().await;
        let sandbox = match sandboxes.create(spec, reuse).await {
            Ok(sandbox) => sandbox,
            Err(error) => return sandbox_failed(&error),
        };
        let graded = run_check(check, &sandbox).await;
        // Whether it is removed does not change the grade, and dropping it would remove it too.
        let _ = destroy(sandbox).await;
        match graded {
            Ok(Ok(grade)) => return Graded::Done(grade),
            Ok(Err(why)) => cause = why,
            Err(error) => return sandbox_failed(&error),
        }
    }
    failed(Fault::Grader, cause)
}

/// Runs a check in a sandbox. The inner error is the check's own failure.
async fn run_check<S: Sandbox>(check: &Check, sandbox: &S) -> Result<Result<Grade, String>, Error> {
    let filling = async {
        for (path, bytes) in &check.files {
            sandbox.write_file(path, bytes).await?;
        }
        Ok(())
    };
    within(PATIENCE, "filling a sandbox", filling).await?;
    let (stdout, status) = collect::command(sandbox, &check.command, check.timeout).await?;
    let code = match status {
        Status::TimedOut => None,
        status => Some(status.code()),
    };
    Ok(check.grade(&stdout.text(), code))
}
