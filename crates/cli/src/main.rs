//! The command line: arguments become checked settings, one command runs, its end becomes an exit code.
//!
//! The only place that knows every runtime and every vendor of models. Start reading at `dispatch`; each command is a
//! module below `commands/`, with its arguments in `args.rs`.

mod args;
mod commands;
mod console;
mod episode_pages;
mod exit;
mod model;
mod outcome_text;
mod remedy;
mod runtime;
mod settings;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use startup::{Program, Signals};
use tracing::Instrument;

use crate::{
    commands::{
        Cli, Command, benchmark, completions, data, doctor, grade, image, mcp, perf, replay,
        report, run, sandbox, serve, train, until_cancelled, view,
    },
    exit::Exit,
    settings::{Settings, environment::Environment},
};

/// How long a cancelled copy may take to remove what it has written.
const LONGEST_REMOVAL: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let program = Program::new("llm-in-sandbox");
    if let Some(code) = program.become_spawner() {
        return code;
    }
    if let Some(code) = image::deleter::become_deleter() {
        return code;
    }
    #[cfg(target_os = "linux")]
    if let Some(code) = sandbox::become_supervisor() {
        return code;
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    // The command that is run for its speed. Others have more to do before they need a sandbox, or need none.
    if arguments.iter().skip(1).map(|argument| argument.as_os_str()).take(2).eq(["sandbox", "run"])
    {
        program.start_spawner_early();
    }
    if let Err(error) = args::mounts::refuse(&arguments) {
        return exit::report(&error.into()).into();
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return startup::argument_error(&error).into(),
    };
    // Before any thread starts, so that nothing of this process is left in the other.
    let command = match cli.command.hand_over(cli.log) {
        Ok(command) => command,
        Err(error) => return exit::report(&error).into(),
    };
    if matches!(command, Command::Serve(_)) {
        program.run_long();
    }
    let environment = Environment::read();
    let logging = program.init_logging(&cli.log, environment.log.as_deref(), command.log_format());
    let settings = Settings::new(environment, logging);
    let ended = program.block_on(command.threads(), async |mut signals| {
        dispatch(command, &settings, &mut signals).await
    });
    ended.unwrap_or_else(|error| exit::report(&error)).into()
}

/// Runs a command to its end.
async fn dispatch(
    command: Command,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let span = tracing::info_span!("command", name = command.name());
    let running = async {
        match command {
            Command::Run(args) => run::run(*args, settings, signals).await,
            Command::Benchmark(args) => benchmark::run(*args, settings, signals).await,
            Command::Report(args) => until_cancelled(report::run(args), signals).await,
            Command::Replay(args) => until_cancelled(replay::run(args, settings), signals).await,
            Command::View(args) => view::run(args, signals).await,
            Command::Doctor(args) => until_cancelled(doctor::run(&args, settings), signals).await,
            Command::Sandbox(command) => sandbox::run(command, settings, signals).await,
            Command::Serve(args) => serve::run(*args, settings, signals).await,
            Command::Mcp(args) => mcp::run(*args, settings, signals).await,
            Command::Image(command) => image::run(command, settings, signals).await,
            Command::Model(command) => commands::model::run(command, settings, signals).await,
            Command::Grade(args) => until_cancelled(grade::run(args), signals).await,
            Command::Data(command) => data::run(command, signals).await,
            Command::Train(command) => until_cancelled(train::run(command), signals).await,
            Command::Perf(command) => perf::run(command, settings, signals).await,
            Command::Completions(args) => completions::run(&args),
        }
    };
    let ended = running.instrument(span).await;
    // A second signal ends the program meanwhile.
    ::sandbox::archive::until_removed(LONGEST_REMOVAL).await;
    ended
}
