//! `sandbox …`: runs a command or a shell in a new sandbox; lists and removes sandboxes.

mod args;
mod list;
mod refused;
mod request;
mod run;
mod session;
mod shell;
mod streams;

use startup::Signals;

pub(crate) use self::{
    args::SandboxCommand, list::age, refused::refused_line, session::report_skipped,
};
use crate::{commands::until_cancelled, exit::Exit, settings::Settings};

/// Runs the command.
pub(crate) async fn run(
    command: SandboxCommand,
    settings: &Settings,
    interrupts: &mut Signals,
) -> anyhow::Result<Exit> {
    match command {
        SandboxCommand::Run(args) => run::run(args, settings, interrupts).await,
        SandboxCommand::Shell(args) => shell::run(args, settings, interrupts).await,
        SandboxCommand::List(args) => {
            until_cancelled(list::list(&args, settings), interrupts).await
        }
        SandboxCommand::Prune(args) => {
            until_cancelled(list::prune(&args, settings), interrupts).await
        }
    }
}
