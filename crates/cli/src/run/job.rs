//! One run from its arguments: the plan, the directory it writes to, and what it begins with.

use std::{fs::File, iter, path::Path};

use agent::{
    Compaction, Settings as EpisodeSettings,
    tools::{Tools, Vision},
};
use anyhow::Context;
use serde_json::Value;
use trajectory::Ended;

use super::{
    folder::Folder,
    model_plan::Secrets,
    plan::{Compact, Plan},
    resume::Past,
    seal::Seal,
};
use crate::{
    agent_args::{AgentArgs, Images},
    exit::Usage,
    output,
    settings::Settings,
};

/// A command without a limit still ends within a year.
pub(crate) const FOREVER: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);

/// Characters of a directory's name that name what belongs to it.
const LONGEST_NAME: usize = 40;

/// A run about to begin.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) plan: Plan,
    /// The plan as it is recorded: without secrets, and sealed.
    pub(crate) record: Value,
    pub(crate) secrets: Secrets,
    pub(crate) folder: Folder,
    pub(crate) events: File,
    pub(crate) beginning: Beginning,
}

/// What a run begins with.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// The task alone.
    Fresh,
    /// What an earlier process left.
    Resumed(Box<Past>),
}

impl Beginning {
    /// How the episode ended, where only its results are missing.
    pub(crate) fn ended(&self) -> Option<Ended> {
        match self {
            Self::Fresh => None,
            Self::Resumed(past) => past.ended.clone(),
        }
    }

    /// The image an earlier process saved.
    pub(crate) fn image(&self) -> Option<String> {
        match self {
            Self::Fresh => None,
            Self::Resumed(past) => past.image().map(str::to_owned),
        }
    }
}

impl Job {
    /// A new run.
    pub(crate) fn begin(args: AgentArgs, settings: &Settings) -> anyhow::Result<Self> {
        let output = args.output.clone();
        let (plan, secrets) = Plan::check(args, settings)?;
        let mut record = plan.record()?;
        seal(settings)?.put_on(&mut record);
        let folder = Folder::create(&output)?;
        let events = folder.open_events()?;
        Ok(Self { plan, record, secrets, folder, events, beginning: Beginning::Fresh })
    }

    /// A run that goes on.
    pub(crate) fn resume(dir: &Path, args: AgentArgs, settings: &Settings) -> anyhow::Result<Self> {
        let folder = Folder::open(dir)?;
        let events = folder.open_events()?;
        let (past, recorded) = Past::read(folder.read_events()?, folder.results())?;
        if !args.trust && !seal(settings)?.is_on(&recorded) {
            let text = format!(
                "the settings in {} were not written by you on this machine, or were changed since; they \
                 decide where keys are sent, what is copied in and how strong the sandbox is: look at them, \
                 then start anew with your own, or say --trust",
                dir.display()
            );
            return Err(Usage(text).into());
        }
        let (plan, secrets) = Plan::resume(&recorded, args, settings)?;
        // The record decides where a key is sent.
        output::note(&format!("going on with {} at {}", plan.model.name, plan.model.place));
        folder.mend_events(&events)?;
        folder.reopen()?;
        let beginning = Beginning::Resumed(Box::new(past));
        Ok(Self { plan, record: recorded, secrets, folder, events, beginning })
    }

    /// A name for what belongs to this run alone.
    pub(crate) fn name(&self) -> String {
        let name = self.folder.path().file_name().unwrap_or_default().to_string_lossy();
        // Users may have renamed the directory to what no image can be called.
        let name: String = name.to_ascii_lowercase().chars().take(LONGEST_NAME).collect();
        let words =
            name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let pid = std::process::id().to_string();
        let parts: Vec<&str> = iter::once("run").chain(words).chain([pid.as_str()]).collect();
        parts.join("-")
    }

    /// Takes back what was made, if nothing came of it.
    pub(crate) fn give_up(&self) {
        if matches!(self.beginning, Beginning::Fresh) {
            self.folder.discard();
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

impl Plan {
    /// How the episode is played.
    pub(crate) fn episode(&self) -> EpisodeSettings {
        let mut tools = Tools { workdir: self.prompts.working_dir.clone(), ..Tools::default() };
        tools.timeout = self.command_timeout.unwrap_or(FOREVER);
        tools.vision = vision(self.model.images);
        EpisodeSettings {
            limits: self.limits.clone(),
            tools,
            sampling: self.model.sampling.clone(),
            price: self.model.price,
            compaction: match self.compact {
                Compact::NearTheLimit => {
                    let window = self.model.context.unwrap_or(u64::MAX).min(self.limits.tokens);
                    Some(Compaction { window: Some(window), ..Compaction::default() })
                }
                Compact::Never => None,
            },
            deliver_to: Some(self.prompts.output_dir.clone()),
        }
    }
}
