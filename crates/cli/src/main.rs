//! The command line: arguments become checked settings, one command runs, its end becomes an exit code.
//!
//! The only place that knows every runtime. It isolates nothing itself and never touches a sandbox but
//! through the traits.

mod agent_args;
mod args;
mod benchmark;
mod config;
mod console;
mod data;
mod doctor;
mod environment;
mod exit;
mod grade;
mod images;
mod interrupt;
mod local;
mod models;
mod output;
mod perf;
mod progress;
mod replay;
mod report;
mod request;
mod run;
mod runtime;
mod sandbox_run;
mod sandboxes;
mod serve;
mod session;
mod settings;
mod shell;
mod streams;
mod terminal;
mod train;
mod values;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    args::{Cli, Command, SandboxCommand},
    environment::Environment,
    exit::Exit,
    interrupt::Interrupts,
    settings::Settings,
};

fn main() -> ExitCode {
    // Before any thread exists: the spawner must be, and stay, single-threaded.
    #[cfg(target_os = "linux")]
    if std::env::args_os().nth(1).is_some_and(|word| word == runtime::SPAWNER) {
        return sandbox_native::spawner_main();
    }
    let settings = Settings::new(Environment::read());
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return exit::refuse_arguments(&error).into(),
    };
    let threads = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(threads) => threads,
        Err(error) => {
            let error = anyhow::Error::new(error).context("cannot start threads");
            return exit::report(&error).into();
        }
    };
    let ended = threads.block_on(dispatch(command, &settings));
    // A thread may wait for input that never comes: leave it behind.
    threads.shutdown_background();
    runtime::await_helpers();
    ended.unwrap_or_else(|error| exit::report(&error).into())
}

/// Runs a command that has nothing to save; the first signal drops it, and with it what it made.
async fn until_cancelled(
    command: impl Future<Output = anyhow::Result<Exit>>,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    tokio::select! {
        ended = command => ended,
        exit = interrupts.cancelled() => Ok(exit),
    }
}

async fn dispatch(command: Command, settings: &Settings) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::listen()?;
    let exit: Exit = match command {
        Command::Run(args) => run::run(*args, settings, &mut interrupts).await?,
        Command::Benchmark(args) => benchmark::run(*args, settings, &mut interrupts).await?,
        Command::Replay(args) => {
            until_cancelled(replay::run(args, settings), &mut interrupts).await?
        }
        Command::Doctor(args) => {
            until_cancelled(doctor::run(&args, settings), &mut interrupts).await?
        }
        Command::Sandbox(SandboxCommand::Run(args)) => {
            sandbox_run::run(args, settings, &mut interrupts).await?
        }
        Command::Sandbox(SandboxCommand::Shell(args)) => {
            shell::run(args, settings, &mut interrupts).await?
        }
        Command::Sandbox(SandboxCommand::List(args)) => {
            until_cancelled(sandboxes::list(&args, settings), &mut interrupts).await?
        }
        Command::Sandbox(SandboxCommand::Prune(args)) => {
            until_cancelled(sandboxes::prune(&args, settings), &mut interrupts).await?
        }
        Command::Image(command) => images::run(command, settings, &mut interrupts).await?,
        Command::Model(command) => models::run(command, settings, &mut interrupts).await?,
        Command::Grade(args) => until_cancelled(grade::run(args), &mut interrupts).await?,
        Command::Report(args) => until_cancelled(report::run(args), &mut interrupts).await?,
        Command::Data(command) => data::run(command, &mut interrupts).await?,
        Command::Train(command) => until_cancelled(train::run(command), &mut interrupts).await?,
        Command::Perf(command) => {
            until_cancelled(perf::run(command, settings), &mut interrupts).await?
        }
    };
    Ok(exit.into())
}
