//! A run prepared from its arguments: its settings, its directory, and what it starts from.

use std::{fs::File, iter, path::Path};

use agent::tools::Vision;
use anyhow::Context;
use serde_json::Value;
use trajectory::Ended;

use super::{
    args::RunArgs, folder::RunDir, resume::EarlierProcess, seal::Seal, settings::RunSettings,
};
use crate::{
    args::model::Images, console::output, exit::UsageError, model::Secrets, settings::Settings,
};

/// The time limit of a command without one: a year.
pub(crate) const FOREVER: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);

/// Characters of the directory's name that are used for the names of its images.
const MAX_NAME: usize = 40;

/// A run that is ready to start.
#[derive(Debug)]
pub(crate) struct PreparedRun {
    pub(crate) settings: RunSettings,
    /// The settings as they are recorded: without secrets, and sealed.
    pub(crate) record: Value,
    pub(crate) secrets: Secrets,
    pub(crate) dir: RunDir,
    pub(crate) events: File,
    pub(crate) start: Start,
}

/// What a run starts from.
#[derive(Debug)]
pub(crate) enum Start {
    /// The task.
    Fresh,
    /// The record of an earlier process.
    Resumed(Box<EarlierProcess>),
}

impl Start {
    /// How the episode ended, where only its results are missing.
    pub(crate) fn ended(&self) -> Option<Ended> {
        match self {
            Self::Fresh => None,
            Self::Resumed(earlier) => earlier.ended.clone(),
        }
    }

    /// The image an earlier process saved.
    pub(crate) fn image(&self) -> Option<String> {
        match self {
            Self::Fresh => None,
            Self::Resumed(earlier) => earlier.image().map(str::to_owned),
        }
    }
}

impl PreparedRun {
    /// Prepares a new run.
    pub(crate) fn new(args: RunArgs, settings: &Settings) -> anyhow::Result<Self> {
        let output = args.output.clone();
        let (run, secrets) = RunSettings::check(args, settings)?;
        let mut record = run.record()?;
        seal(settings)?.sign(&mut record);
        let dir = RunDir::create(&output)?;
        let events = dir.open_events()?;
        Ok(Self { settings: run, record, secrets, dir, events, start: Start::Fresh })
    }

    /// Prepares to resume a run.
    pub(crate) fn resume(path: &Path, args: RunArgs, settings: &Settings) -> anyhow::Result<Self> {
        let dir = RunDir::open(path)?;
        let events = dir.open_events()?;
        let (earlier, record) = EarlierProcess::read(dir.read_events()?, dir.results())?;
        if !args.trust && !seal(settings)?.verify(&record) {
            let text = format!(
                "the settings in {} were not written by you on this machine, or were changed since; they \
                 decide where keys are sent, what is copied in and how strong the sandbox is: check them, \
                 then start a new run with your own, or add --trust",
                path.display()
            );
            return Err(UsageError(text).into());
        }
        let (run, secrets) = RunSettings::resume(&record, args, settings)?;
        // The record decides where a key is sent.
        output::note(&format!("resuming with {} at {}", run.model.name, run.model.location));
        dir.drop_partial_event(&events)?;
        dir.mark_unfinished()?;
        let start = Start::Resumed(Box::new(earlier));
        Ok(Self { settings: run, record, secrets, dir, events, start })
    }

    /// A unique name for the images of this run.
    pub(crate) fn name(&self) -> String {
        let name = self.dir.path().file_name().unwrap_or_default().to_string_lossy();
        // Users may have renamed the directory to something that is not a valid image name.
        let name: String = name.to_ascii_lowercase().chars().take(MAX_NAME).collect();
        let words =
            name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let pid = std::process::id().to_string();
        let parts: Vec<&str> = iter::once("run").chain(words).chain([pid.as_str()]).collect();
        parts.join("-")
    }

    /// Removes the directory of a new run that did not start.
    pub(crate) fn discard(&self) {
        if matches!(self.start, Start::Fresh) {
            self.dir.discard();
        }
    }
}

/// The seal of this user's records.
pub(crate) fn seal(settings: &Settings) -> anyhow::Result<Seal> {
    let home = settings.writable_home()?;
    Seal::of(home).with_context(|| format!("cannot use {}", home.join("record.key").display()))
}

/// What tools may show to a model.
pub(crate) fn vision(images: Images) -> Vision {
    match images {
        Images::Yes => Vision::Images,
        Images::No => Vision::TextOnly,
    }
}
