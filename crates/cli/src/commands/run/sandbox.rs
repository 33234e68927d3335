//! The sandbox of a run: created and filled, or restored from an earlier process.

use std::path::Path;

use agent::Prompts;
use anyhow::Context;
use sandbox::{Error, ImageRef, Runtime, Spec};

use super::{resume::EarlierProcess, settings::RunSettings};
use crate::{
    commands::sandbox::report_skipped,
    console::output,
    runtime::{AnyRuntime, AnySandbox},
};

/// Creates a sandbox with the input files.
pub(crate) async fn create(
    settings: &RunSettings,
    runtime: &AnyRuntime,
) -> anyhow::Result<AnySandbox> {
    let sandbox = runtime.create(&settings.sandbox.spec).await?;
    fill(&settings.prompts, settings.input.as_deref(), &sandbox).await?;
    Ok(sandbox)
}

/// Creates a sandbox with the files of an earlier one; returns the turn after which they were so.
///
/// Commands that ran after the files were saved are not repeated on top of them: they may rely on the directory and the
/// variables of the shell, which are gone. From the very start everything can be repeated.
pub(crate) async fn restore(
    settings: &RunSettings,
    earlier: &EarlierProcess,
    runtime: &AnyRuntime,
) -> anyhow::Result<(AnySandbox, u32)> {
    if let Some((turn, image)) = earlier.saved() {
        let spec =
            Spec { image: ImageRef::Name(image.to_owned()), ..settings.sandbox.spec.clone() };
        match runtime.create(&spec).await {
            Ok(sandbox) => return Ok((sandbox, turn)),
            Err(Error::UnknownImage { .. }) => {
                output::note("the saved files are missing; all commands are run again");
            }
            Err(error) => return Err(error.into()),
        }
    }
    let sandbox = create(settings, runtime).await?;
    repeat(settings, earlier, &sandbox).await?;
    Ok((sandbox, earlier.turns()))
}

/// Runs all recorded tool calls again. Their results are recorded already.
async fn repeat(
    settings: &RunSettings,
    earlier: &EarlierProcess,
    sandbox: &AnySandbox,
) -> anyhow::Result<()> {
    let tools = settings.episode().tools;
    let calls = earlier.calls();
    if !calls.is_empty() {
        output::note(&format!("repeating {} recorded tool calls", calls.len()));
    }
    for (number, (_, call)) in (1..).zip(calls) {
        tools.call(call, number, sandbox).await?;
    }
    Ok(())
}

/// Creates the directories of the prompt and copies the input.
pub(crate) async fn fill(
    prompts: &Prompts,
    input: Option<&Path>,
    sandbox: &AnySandbox,
) -> anyhow::Result<()> {
    let created = attempt::create_directories(sandbox, prompts).await;
    created.context("cannot create the directories of the prompt; is the image complete?")?;
    if let Some(input) = input {
        let report = attempt::copy_input(sandbox, prompts, input).await;
        let report = report.with_context(|| format!("cannot copy {} in", input.display()))?;
        report_skipped(&report);
    }
    Ok(())
}
