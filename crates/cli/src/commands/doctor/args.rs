//! The arguments of `doctor`.

use clap::Args;

/// Options of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox doctor
  llm-in-sandbox doctor --json \\
      | jq '.native.protection.layers[] | select(.state != \"enforced\")'

It starts a sandbox to check what is enforced. The exit code is 0 if a runtime
works, else 4.")]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
