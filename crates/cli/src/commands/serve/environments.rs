//! The part of `serve` about environments: which tasks are served, and for how long a session stays.

use std::time::Duration;

use clap::Args;
use environment::{Options, Served};
use sandbox::Spec;
use server::EnvironmentOptions;

use crate::{
    args::values,
    commands::benchmark::{OutputMode, Source, read_task},
    exit::UsageError,
    settings::Settings,
};

/// Bad rows that are reported one by one.
const MAX_REPORTED: usize = 5;

/// Options about environments.
#[derive(Debug, Args)]
#[command(next_help_heading = "Environments for reinforcement learning")]
pub(super) struct EnvironmentArgs {
    /// Task to serve as an environment, by name or directory as for `benchmark`; repeatable
    #[arg(long = "task", value_name = "TASK")]
    tasks: Vec<String>,
    /// Time an environment's session stays without a request, such as 15m
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = values::finite_time)]
    lease: Duration,
}

impl EnvironmentArgs {
    /// Loads the tasks. Sessions have sandboxes as `spec` says; the task chooses the directories, and the image where it
    /// has one.
    pub(super) async fn load(
        self,
        spec: &Spec,
        max_sandboxes: usize,
        settings: &Settings,
    ) -> anyhow::Result<Option<EnvironmentOptions>> {
        let mut tasks: Vec<Served> = Vec::new();
        let output = OutputMode::default();
        for task in self.tasks {
            let (task, rows) = read_task(&Source { task, data: None }, output, settings).await?;
            for note in &task.notes {
                output.note(&format!("{}: {note}", task.name));
            }
            for row in rows.bad.iter().take(MAX_REPORTED) {
                output.note(&format!("a row is left out: {row}"));
            }
            if tasks.iter().any(|served| served.task().name == task.name) {
                let text = format!("two tasks are called {}; serve one of them", task.name);
                return Err(UsageError(text).into());
            }
            let attempts = attempt::Settings { sandbox: spec.clone(), ..Default::default() };
            let served = Served::new(task, rows.problems, attempts)
                .map_err(|error| UsageError(format!("{error}; omit this --task")))?;
            tasks.push(served);
        }
        // As many again may wait for a sandbox, or for their score to be read.
        let sessions = Options { lease: self.lease, max_sessions: max_sandboxes.saturating_mul(2) };
        Ok((!tasks.is_empty()).then_some(EnvironmentOptions { tasks, sessions }))
    }
}
