//! The computer of a run: made, filled, restored, and its files brought back.

use std::{
    fs, io, iter,
    path::{Path, PathBuf},
};

use agent::{Prompts, prompt::Inputs, tools::Tools};
use anyhow::Context;
use sandbox::{CopyReport, Error, ImageRef, Process, Runtime, Sandbox, Spec, Streams};

use super::{folder::Folder, plan::Plan, resume::Past};
use crate::{
    output,
    runtime::{AnyRuntime, AnySandbox},
    session,
};

/// Files beyond these are not even counted for the model.
const MOST_TOLD: usize = 10_000;

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    pub(crate) report: CopyReport,
    /// Why nothing did.
    pub(crate) trouble: Option<Error>,
}

impl Brought {
    /// Whether the sandbox or this machine failed over files that may be there. A model can make its output
    /// directory something that cannot be brought back: gone, no directory any more, or too large.
    pub(crate) fn are_lost(&self) -> bool {
        let Some(trouble) = &self.trouble else { return false };
        let causes = iter::successors(Some(trouble as &dyn std::error::Error), |e| e.source());
        let kinds = causes.filter_map(|cause| cause.downcast_ref().map(io::Error::kind));
        let mut hosts = kinds.filter(|kind| {
            use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
            matches!(kind, PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
        });
        matches!(trouble, Error::Gone(_)) || hosts.next().is_some()
    }
}

/// A new computer with the input files in it.
pub(crate) async fn fresh(plan: &Plan, runtime: &AnyRuntime) -> anyhow::Result<AnySandbox> {
    let sandbox = runtime.create(&plan.computer.spec).await?;
    fill(&plan.prompts, plan.input.as_deref(), &sandbox).await?;
    Ok(sandbox)
}

/// A computer with the files of an earlier one, and the turn after which they were so.
///
/// What was done after they were saved is not repeated on top of them: a command may rely on the directory
/// and the variables of the shell, and those are gone. From the very beginning everything can be repeated.
pub(crate) async fn restored(
    plan: &Plan,
    past: &Past,
    runtime: &AnyRuntime,
) -> anyhow::Result<(AnySandbox, u32)> {
    if let Some((turn, image)) = past.saved() {
        let spec = Spec { image: ImageRef::Name(image.to_owned()), ..plan.computer.spec.clone() };
        match runtime.create(&spec).await {
            Ok(sandbox) => return Ok((sandbox, turn)),
            Err(Error::UnknownImage { .. }) => {
                output::note("the saved files are gone; all commands are run again");
            }
            Err(error) => return Err(error.into()),
        }
    }
    let sandbox = fresh(plan, runtime).await?;
    repeat(plan, past, &sandbox).await?;
    Ok((sandbox, past.turns()))
}

/// Does again all that was done. What came of it is in the record already.
async fn repeat(plan: &Plan, past: &Past, sandbox: &AnySandbox) -> anyhow::Result<()> {
    let tools: Tools = plan.episode().tools;
    let calls = past.calls();
    if !calls.is_empty() {
        output::note(&format!("repeating {} recorded actions", calls.len()));
    }
    for (number, (_, call)) in (1..).zip(calls) {
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

/// The input as the model is told of it. What cannot be read is left to the copying to complain about.
pub(crate) fn told(input: Option<&Path>) -> Inputs {
    let Some(input) = input else { return Inputs::default() };
    let base = if input.is_dir() { input } else { input.parent().unwrap_or(input) };
    let mut open = vec![input.to_owned()];
    let mut files = Vec::new();
    while let Some(path) = open.pop().filter(|_| files.len() < MOST_TOLD) {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        } else if metadata.is_file() {
            let name = path.strip_prefix(base).unwrap_or(&path).to_string_lossy().into_owned();
            files.push((name, metadata.len()));
        }
    }
    Inputs::new(files)
}

/// Copies the output directory into the folder, in place of what an earlier process brought back.
pub(crate) async fn bring_back(plan: &Plan, sandbox: &AnySandbox, folder: &Folder) -> Brought {
    let partial: PathBuf = folder.path().join(".files.partial");
    let _ = fs::remove_dir_all(&partial);
    let output = &plan.prompts.output_dir;
    let copied = match sandbox.copy_out(output, &partial).await {
        Ok(report) => settle(&partial, output, &folder.files()).map(|()| report),
        Err(error) => Err(error),
    };
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

/// Puts what was copied in its place. A model may have made a file of its output directory.
fn settle(partial: &Path, output: &Path, files: &Path) -> Result<(), Error> {
    let _ = fs::remove_dir_all(files);
    let moved = match partial.is_dir() {
        true => fs::rename(partial, files),
        false => fs::create_dir(files)
            .and_then(|()| fs::rename(partial, files.join(output.file_name().unwrap_or_default()))),
    };
    moved.map_err(Error::io(format!("writing {}", files.display())))
}
