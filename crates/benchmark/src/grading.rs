//! Grades of answers: known at once, from a judge, or from a command in a fresh sandbox.

use model::Model;
use problems::{Check, Grade, Grading};
use sandbox::{ImageRef, Network, Runtime, Sandbox, Spec, Status};

use crate::{
    attempt::Trouble,
    computer::{self, Alike},
    error::chain,
    plan::Job,
    run::Shared,
};

impl<M: Model, R: Runtime> Shared<M, R> {
    /// A grade, or why there is none.
    pub(crate) async fn grade(&self, job: &Job, grading: &Grading) -> Result<Grade, String> {
        let graded = match grading {
            Grading::Done(grade) => return Ok(grade.clone()),
            Grading::Judge(question) => match &self.judge {
                None => return Err("no judge is named".into()),
                Some(judge) => {
                    self.unless_stopped(judge.grade(&self.folder, &job.key, question)).await
                }
            },
            Grading::InSandbox(check) => self.unless_stopped(self.checked_apart(check)).await,
        };
        match graded {
            Ok(graded) => graded,
            Err(Trouble::Failed { cause, .. } | Trouble::Unfit { cause }) => Err(cause),
            Err(Trouble::Stopped) => Err("the run was stopped".into()),
        }
    }

    /// Checks an answer in a sandbox no model has touched.
    async fn checked_apart(&self, check: &Check) -> Result<Grade, String> {
        let _place = self.computers.place().await;
        let usual = &self.plan.method.spec;
        let image = check.image.clone().map_or_else(|| usual.image.clone(), ImageRef::Name);
        let spec = Spec { image, network: Network::None, ..usual.clone() };
        let alike = if check.image.is_none() { Alike::Many } else { Alike::Few };
        let made = self.computers.make(&spec, alike).await;
        let sandbox = made.map_err(|error| chain(&error))?;
        let graded = checked(check, &sandbox).await;
        // Whether it is gone for good does not change the grade, and dropping it would end it too.
        let _ = computer::destroy(sandbox).await;
        graded.map_err(|error| chain(&error))?
    }
}

/// Runs a check in a sandbox. The inner error is the check's own failure.
async fn checked<S: Sandbox>(
    check: &Check,
    sandbox: &S,
) -> Result<Result<Grade, String>, sandbox::Error> {
    let filling = async {
        for (path, bytes) in &check.files {
            sandbox.write_file(path, bytes).await?;
        }
        Ok(())
    };
    computer::within(computer::PATIENCE, "filling a sandbox", filling).await?;
    let (stdout, status) = computer::command(sandbox, &check.command, check.timeout).await?;
    let code = match status {
        Status::TimedOut => None,
        status => Some(status.code()),
    };
    Ok(check.grade(&stdout.text(), code))
}
