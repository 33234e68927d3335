//! The arguments of `replay`.

use std::path::PathBuf;

use clap::Args;

use crate::args::sandbox::SandboxArgs;

/// Options of `replay`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox replay output/20260101_120000
  llm-in-sandbox replay trajectory.json --sandbox --input data/
  llm-in-sandbox replay trajectory.json --sandbox --json | jq '.[] | select(.same | not)'

Without --sandbox the episode is shown. With it, its tool calls are repeated in a new sandbox; the exit code is 1 if a
result differs. Trajectories of the reference package are accepted too.")]
pub(crate) struct ReplayArgs {
    /// Run directory, trajectory.json or events.jsonl
    #[arg(value_name = "TRAJECTORY")]
    pub(crate) record: PathBuf,
    /// Repeat the tool calls in a new sandbox
    #[arg(long = "sandbox")]
    pub(crate) in_sandbox: bool,
    /// Directory or file to copy into the sandbox's input directory first
    #[arg(long, value_name = "DIR", requires = "in_sandbox")]
    pub(crate) input: Option<PathBuf>,
    /// Print JSON: the trajectory, or with --sandbox an array of results
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}
