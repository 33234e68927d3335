//! The command line: arguments become checked settings, one command runs, its end becomes an exit code.
//!
//! The only place that knows every runtime and every vendor of models. Start reading at `commands.rs`; each command has
//! a module of its own below `commands/`, with its arguments in `args.rs`.

mod args;
mod commands;
mod console;
mod exit;
mod model;
mod remedy;
mod runtime;
mod settings;

use std::process::ExitCode;

use clap::Parser;
use startup::Program;

use crate::{
    commands::Cli,
    settings::{Settings, environment::Environment},
};

fn main() -> ExitCode {
    let program = Program::new("llm-in-sandbox");
    if let Some(code) = program.become_spawner() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return startup::argument_error(&error).into(),
    };
    // Before any thread starts, so that nothing of this process is left in the other.
    let command = match cli.command.hand_over(cli.log) {
        Ok(command) => command,
        Err(error) => return exit::report(&error).into(),
    };
    let environment = Environment::read();
    let logging = program.init_logging(&cli.log, environment.log.as_deref());
    let settings = Settings::new(environment, logging);
    let ended = program
        .block_on(async |mut signals| commands::dispatch(command, &settings, &mut signals).await);
    ended.unwrap_or_else(|error| exit::report(&error)).into()
}
