//! `completions`: prints the completion script of a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::{console::output, exit::Exit};

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(llm-in-sandbox completions bash)
  llm-in-sandbox completions bash \\
      > ~/.local/share/bash-completion/completions/llm-in-sandbox
  llm-in-sandbox completions zsh > ~/.zfunc/_llm-in-sandbox
  llm-in-sandbox completions fish \\
      > ~/.config/fish/completions/llm-in-sandbox.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "llm-in-sandbox", &mut script);
    let script = String::from_utf8_lossy(&script);
    // clap_complete 4.6 spells a hyphen of the program's name in two ways, so that no label of bash's matches
    // (clap-rs/clap#6421).
    let script = script.replace("llm__subcmd__in__subcmd__sandbox", "llm__in__sandbox");
    output::print_raw(&script)?;
    Ok(Exit::Done)
}
