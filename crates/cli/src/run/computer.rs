//! The computer of a run: made, filled, restored, and its files brought back.

use std::{
    fs,
    path::{Path, PathBuf},
};

use agent::{Prompts, tools::Tools};
use anyhow::Context;
use sandbox::{CopyReport, Error, ImageRef, Process, Runtime, Sandbox, Spec, Streams};

use super::{folder::Folder, plan::Plan, resume::Past};
use crate::{
    output,
    runtime::{AnyRuntime, AnySandbox},
    session,
};

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    pub(crate) report: CopyReport,
    /// Why nothing did.
    pub(crate) trouble: Option<Error>,
}

/// A new computer with the input files in it.
pub(crate) async fn fresh(plan: &Plan, runtime: &AnyRuntime) -> anyhow::Result<AnySandbox> {
    let sandbox = runtime.create(&plan.computer.spec).await?;
    fill(&plan.prompts, plan.input.as_deref(), &sandbox).await?;
    Ok(sandbox)
}

/// A computer with the files of an earlier one: from what was saved, and by doing again what was done
/// since.
pub(crate) async fn restored(
    plan: &Plan,
    past: &Past,
    runtime: &AnyRuntime,
) -> anyhow::Result<AnySandbox> {
    if let Some((turn, image)) = &past.saved {
        let spec = Spec { image: ImageRef::Name(image.clone()), ..plan.computer.spec.clone() };
        match runtime.create(&spec).await {
            Ok(sandbox) => {
                repeat(plan, past, *turn, &sandbox).await?;
                return Ok(sandbox);
            }
            Err(Error::UnknownImage { .. }) => {
                output::note("the saved files are gone; all commands are run again");
            }
            Err(error) => return Err(error.into()),
        }
    }
    let sandbox = fresh(plan, runtime).await?;
    repeat(plan, past, 0, &sandbox).await?;
    Ok(sandbox)
}

/// Does again what was done after a turn. What came of it is in the record already.
async fn repeat(plan: &Plan, past: &Past, turn: u32, sandbox: &AnySandbox) -> anyhow::Result<()> {
    let tools: Tools = plan.episode().tools;
    let calls: Vec<_> = past.calls_after(turn).collect();
    if !calls.is_empty() {
        output::note(&format!("repeating {} recorded actions", calls.len()));
    }
    for (number, call) in (1..).zip(calls) {
        tools.call(call, number, sandbox).await?;
    }
    Ok(())
}

/// Makes the directories the model is told of, and copies the input in.
pub(crate) async fn fill(
    prompts: &Prompts,
    input: Option<&Path>,
    sandbox: &AnySandbox,
) -> anyhow::Result<()> {
    let dirs = [&prompts.working_dir, &prompts.input_dir, &prompts.output_dir];
    let dirs = dirs.map(|dir| dir.to_string_lossy().into_owned());
    let mkdir = ["mkdir", "-p", "--"].map(str::to_owned).into_iter().chain(dirs);
    let made = sandbox.process(&Process::new(mkdir), Streams::discard()).await?;
    if !made.status.success() {
        anyhow::bail!(
            "cannot make the directories of the prompt in the sandbox; is the image whole?"
        );
    }
    let Some(input) = input else { return Ok(()) };
    let to = match input.is_dir() {
        true => prompts.input_dir.clone(),
        false => prompts.input_dir.join(input.file_name().unwrap_or_default()),
    };
    let report = sandbox.copy_in(input, &to).await;
    let report = report.with_context(|| format!("cannot copy {} in", input.display()))?;
    session::tell_skipped(&report);
    Ok(())
}

/// Copies the output directory into the folder, in place of what an earlier process brought back.
pub(crate) async fn bring_back(plan: &Plan, sandbox: &AnySandbox, folder: &Folder) -> Brought {
    let files = folder.files();
    let partial: PathBuf = folder.path().join(".files.partial");
    let _ = fs::remove_dir_all(&partial);
    let copied = sandbox.copy_out(&plan.prompts.output_dir, &partial).await.and_then(|report| {
        let _ = fs::remove_dir_all(&files);
        fs::rename(&partial, &files).map_err(Error::io(format!("writing {}", files.display())))?;
        Ok(report)
    });
    match copied {
        Ok(report) => {
            session::tell_skipped(&report);
            Brought { report, trouble: None }
        }
        Err(trouble) => {
            let _ = fs::remove_dir_all(&partial);
            Brought { report: CopyReport::default(), trouble: Some(trouble) }
        }
    }
}
