//! The commands and their top-level arguments. Each command is one module.

pub(crate) mod benchmark;
pub(crate) mod completions;
pub(crate) mod data;
pub(crate) mod doctor;
pub(crate) mod grade;
pub(crate) mod image;
pub(crate) mod mcp;
pub(crate) mod model;
pub(crate) mod perf;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod serve;
pub(crate) mod train;
pub(crate) mod view;

use clap::{Parser, Subcommand};
use startup::{LogArgs, LogFormat, Signals, Threads};

use self::{
    benchmark::BenchmarkArgs, completions::CompletionsArgs, data::DataCommand, doctor::DoctorArgs,
    grade::GradeArgs, image::ImageCommand, mcp::McpArgs, model::ModelCommand, perf::PerfCommand,
    replay::ReplayArgs, report::ReportArgs, run::RunArgs, sandbox::SandboxCommand,
    serve::ServeArgs, train::TrainCommand, view::ViewArgs,
};
use crate::exit::Exit;

/// Run language models in Linux sandboxes: tasks, benchmarks, training.
#[derive(Debug, Parser)]
#[command(
    name = "llm-in-sandbox",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:
  llm-in-sandbox run \"What is the sum of all prime numbers below 1000?\" \\
      --model NAME
  llm-in-sandbox doctor
  llm-in-sandbox sandbox run -- python3 -c 'print(6 * 7)'
  llm-in-sandbox sandbox shell --network internet
  llm-in-sandbox image build

Data is stored in $LLM_IN_SANDBOX_HOME, else in $XDG_DATA_HOME/llm-in-sandbox,
else in ~/.local/share/llm-in-sandbox. `doctor` shows where sandboxes run.
Exit codes: 2 invalid input, 3 the model did not submit, 4 the machine or a
service failed."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a task with a model in a sandbox; save its answer, files and trajectory
    Run(Box<RunArgs>),
    /// Run a model on benchmark tasks, with and without a sandbox; save every attempt
    Benchmark(Box<BenchmarkArgs>),
    /// Summarize and compare benchmark runs, as Markdown, JSON and one HTML page
    Report(ReportArgs),
    /// Show recorded episodes as text or as pages, or repeat their tool calls in a new sandbox
    Replay(ReplayArgs),
    /// Look at runs, benchmarks and training runs in the browser
    View(ViewArgs),
    /// Check which protections this machine can enforce, and what to install for more
    Doctor(DoctorArgs),
    /// Run commands in sandboxes; create, list and remove sandboxes
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Serve sandboxes over HTTP to clients of E2B's protocol
    Serve(Box<ServeArgs>),
    /// Serve a sandbox as tools to a client of the Model Context Protocol
    Mcp(Box<McpArgs>),
    /// Pull, build, import, list and remove images of sandboxes
    #[command(subcommand)]
    Image(ImageCommand),
    /// Pull, list, serve and remove local models
    #[command(subcommand)]
    Model(ModelCommand),
    /// Grade answers as the benchmarks' official graders do
    Grade(GradeArgs),
    /// Create training tasks
    #[command(subcommand)]
    Data(DataCommand),
    /// Train a model in sandboxes; plot training curves
    #[command(subcommand)]
    Train(TrainCommand),
    /// Measure the speed of sandboxes, episodes, local models and graders
    #[command(subcommand)]
    Perf(PerfCommand),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
}

impl Command {
    /// Replaces this process by the training program, if it is one of its commands. Returns the command otherwise.
    pub(crate) fn hand_over(self, log: LogArgs) -> anyhow::Result<Self> {
        match self {
            Self::Train(command) => command.hand_over(log).map(Self::Train),
            command => Ok(command),
        }
    }

    /// How many threads run it.
    pub(crate) fn threads(&self) -> Threads {
        match self {
            Self::Sandbox(_) => Threads::One,
            _ => Threads::AsManyAsProcessors,
        }
    }

    /// How the log is written.
    pub(crate) fn log_format(&self) -> LogFormat {
        match self {
            Self::Serve(args) => args.log_format(),
            _ => LogFormat::default(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Benchmark(_) => "benchmark",
            Self::Report(_) => "report",
            Self::Replay(_) => "replay",
            Self::View(_) => "view",
            Self::Doctor(_) => "doctor",
            Self::Sandbox(_) => "sandbox",
            Self::Serve(_) => "serve",
            Self::Mcp(_) => "mcp",
            Self::Image(_) => "image",
            Self::Model(_) => "model",
            Self::Grade(_) => "grade",
            Self::Data(_) => "data",
            Self::Train(_) => "train",
            Self::Perf(_) => "perf",
            Self::Completions(_) => "completions",
        }
    }
}

/// Runs a command that has nothing to save; the first signal drops it, and with it what it created.
pub(crate) async fn until_cancelled(
    command: impl Future<Output = anyhow::Result<Exit>>,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    tokio::select! {
        ended = command => ended,
        exit = signals.cancelled() => Ok(exit),
    }
}

#[cfg(test)]
mod docs_tests;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::values::Limit;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn visit(command: &clap::Command) {
            let name = command.get_name();
            if command.get_subcommands().next().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example") && help.contains("llm-in-sandbox"), "{name}");
            }
            command.get_subcommands().for_each(visit);
        }
        visit(&Cli::command());
    }

    /// A terminal of 80 columns breaks neither an example nor a paragraph a second time.
    #[test]
    fn what_follows_the_options_fits_into_80_columns() {
        fn visit(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(visit);
        }
        visit(&Cli::command());
    }

    #[test]
    fn the_documentation_knows_every_command_and_option() {
        fn visit(command: &clap::Command, path: &str, text: &str) {
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                let known = text.contains(&format!("--{option}"));
                assert!(known || option == "help" || option == "version", "{path} --{option}");
            }
            for inner in command.get_subcommands() {
                let path = format!("{path} {}", inner.get_name());
                if inner.get_subcommands().next().is_none() {
                    assert!(text.contains(&format!("`{}", path.trim_start())), "{path}");
                }
                visit(inner, &path, text);
            }
        }
        visit(&Cli::command(), "", include_str!("../../../docs/cli.md"));
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        let cli = Cli::try_parse_from([
            "x", "sandbox", "run", "--cpus", "none", "--", "ls", "--json", "--", "-l",
        ]);
        let Command::Sandbox(SandboxCommand::Run(args)) = cli.unwrap().command else {
            panic!("another command");
        };
        assert_eq!(args.command, ["ls", "--json", "--", "-l"]);
        assert!(!args.json);
        assert_eq!(args.sandbox.sandbox.cpus, Limit(None));
    }
}
