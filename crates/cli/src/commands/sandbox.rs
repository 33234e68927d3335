//! `sandbox …`: runs a command or a shell in a new sandbox; creates, uses, lists and removes sandboxes that last.

mod args;
#[cfg(target_os = "linux")]
mod copy;
#[cfg(target_os = "linux")]
mod exec;
mod list;
#[cfg(target_os = "linux")]
mod named;
mod refused;
mod request;
mod run;
mod session;
mod shell;
pub(crate) mod streams;
#[cfg(target_os = "linux")]
mod supervise;

use startup::Signals;

use self::args::NamedCommand;
#[cfg(target_os = "linux")]
pub(crate) use self::supervise::become_supervisor;
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
        SandboxCommand::Named(command) => {
            until_cancelled(run_named(command, settings), interrupts).await
        }
    }
}

/// Runs a command on named sandboxes. Being dropped cancels what it does in a sandbox.
#[cfg(target_os = "linux")]
async fn run_named(command: NamedCommand, settings: &Settings) -> anyhow::Result<Exit> {
    match command {
        NamedCommand::Create(args) => named::create(args, settings).await,
        NamedCommand::Exec(args) => exec::run(args, settings).await,
        NamedCommand::Cp(args) => copy::run(&args, settings).await,
        NamedCommand::Fork(args) => named::fork(&args, settings).await,
        NamedCommand::Save(args) => named::save(&args, settings).await,
        NamedCommand::Rm(args) => named::remove(&args, settings).await,
    }
}

#[cfg(not(target_os = "linux"))]
async fn run_named(_: NamedCommand, _: &Settings) -> anyhow::Result<Exit> {
    let text = "named sandboxes need the native runtime, which needs the Linux kernel; use a container of Docker";
    Err(crate::exit::UsageError(text.into()).into())
}
