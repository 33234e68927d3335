//! Trains models in the sandbox: arguments become a configuration, one command runs, its end becomes an exit code.
//!
//! The only program that links libtorch. What training is lies in `training`; here it gets its sandboxes, its threads
//! and somebody who watches.

mod args;
mod environment;
mod exit;
mod export;
mod perf;
mod show;
mod stop;
mod train;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    args::{Cli, Command},
    exit::Exit,
};

/// The hidden word that makes this program the spawner of sandboxes.
pub(crate) const SPAWNER: &str = "__spawner";

fn main() -> ExitCode {
    // Before any thread exists: the spawner must be, and stay, single-threaded.
    if std::env::args_os().nth(1).is_some_and(|word| word == SPAWNER) {
        return sandbox_native::spawner_main();
    }
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return exit::refuse_arguments(&error).into(),
    };
    let ended = match command {
        Command::Rl(args) => train::rl(&args),
        Command::Sft(args) => train::sft(&args),
        Command::Export(args) => export::run(&args).map(|()| Exit::Done),
        Command::Perf(args) => perf::run(&args).map(|()| Exit::Done),
    };
    ended.unwrap_or_else(|error| exit::report(&error)).into()
}
