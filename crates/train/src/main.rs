//! The training program: arguments become a configuration, one command runs, its end becomes an exit code.
//!
//! The only program that links libtorch. Training itself is in the crate `training`, start-up in `startup`.

mod args;
mod environment;
mod exit;
mod export;
mod perf;
mod progress;
mod serve;
mod train;

use std::process::ExitCode;

use clap::Parser;
use startup::{Exit, Program};

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let program = Program::new("llm-in-sandbox-train");
    if let Some(code) = program.become_spawner() {
        return code;
    }
    policy::disable_amx();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return startup::argument_error(&error).into(),
    };
    let filter = environment::variable(startup::LOG_VARIABLE);
    program.init_logging(&cli.log, filter.as_deref(), startup::LogFormat::Text);
    let ended = match cli.command {
        Command::Rl(args) => train::rl(program, &args),
        Command::Sft(args) => train::sft(program, &args),
        Command::Sample(args) => train::sample(program, &args),
        Command::Export(args) => export::run(&args).map(|()| Exit::Done),
        Command::Serve(args) => serve::run(program, &args),
        Command::Perf(args) => perf::run(&args).map(|()| Exit::Done),
    };
    ended.unwrap_or_else(|error| exit::report(&error)).into()
}
