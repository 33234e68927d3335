//! `mcp`: a sandbox as tools of the Model Context Protocol, over standard input and output.

use std::{path::PathBuf, sync::Arc, time::Duration};

use agent::{
    Prompts,
    tools::{Tools, Vision},
};
use anyhow::Context;
use clap::Args;
use mcp::{CreateError, SandboxSource, Session};
use sandbox::{Runtime, Sandbox};
use startup::Signals;
use tokio_util::sync::CancellationToken;

use crate::{
    args::{
        sandbox::SandboxArgs,
        values::{self, Limit},
    },
    commands::{
        run::{FOREVER, readable},
        sandbox::{report_skipped, streams},
    },
    console::output,
    exit::{Exit, UsageError},
    runtime::{self, AnyRuntime, AnySandbox},
    settings::{Settings, sandbox::SandboxSettings},
};

/// Options of `mcp`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox mcp --image python --input data/

A client starts this program and talks to it over standard input and output. The
sandbox is created by the first tool call and destroyed when the client ends.
Most clients read such a configuration:
  {
    \"mcpServers\": {
      \"sandbox\": {
        \"command\": \"llm-in-sandbox\",
        \"args\": [\"mcp\", \"--network\", \"internet\", \"--memory\", \"2G\"]
      }
    }
  }

Tools: execute_bash, str_replace_editor, submit, read_file, write_file and
list_files. `llm-in-sandbox serve` serves them over HTTP at /mcp.")]
pub(crate) struct McpArgs {
    /// Directory or file to copy into the sandbox's input directory, /testbed/input
    #[arg(long, value_name = "DIR")]
    input: Option<PathBuf>,
    /// Time limit of one command: seconds, or 500ms, 2m, 1h; `none` for no limit
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = values::time, allow_hyphen_values = true)]
    command_timeout: Limit<Duration>,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

/// Serves one client until it ends its input, or a signal ends this program.
pub(crate) async fn run(
    args: McpArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let prompts = Prompts::default();
    let sandbox = SandboxSettings::check(args.sandbox, prompts.working_dir.clone())?;
    let input = args.input.map(|input| readable(&input)).transpose()?;
    sandbox.check_size("--input", input.iter().map(PathBuf::as_path))?;
    let stdin = streams::input().ok_or_else(|| {
        UsageError("cannot read standard input: this is a background job of a terminal".into())
    })?;
    let stdout = streams::output().context("cannot write standard output")?;
    let tools = Tools {
        workdir: prompts.working_dir.clone(),
        timeout: args.command_timeout.0.unwrap_or(FOREVER),
        vision: Vision::Images,
        ..Tools::default()
    };
    let starting = runtime::start(sandbox.runtime, settings);
    let runtime = tokio::select! {
        runtime = starting => runtime?,
        exit = signals.cancelled() => return Ok(exit),
    };
    let session = Session::new(Source { runtime, sandbox, prompts, input }, tools);
    let stop = CancellationToken::new();
    let (stopping, mut stopped) = (stop.clone(), signals.clone());
    let listening = tokio::spawn(async move {
        stopped.cancelled().await;
        stopping.cancel();
    });
    let served = mcp::serve_lines(Arc::new(session), stdin, stdout, stop.clone()).await;
    listening.abort();
    served?;
    match stop.is_cancelled() {
        true => Ok(signals.cancelled().await),
        false => Ok(Exit::Done),
    }
}

/// Creates the sandbox, with its directories and input.
struct Source {
    runtime: AnyRuntime,
    sandbox: SandboxSettings,
    prompts: Prompts,
    input: Option<PathBuf>,
}

impl SandboxSource for Source {
    type Sandbox = AnySandbox;
    type Permit = ();

    async fn create(&self) -> Result<(AnySandbox, ()), CreateError> {
        let sandbox = self.runtime.create(&self.sandbox.spec).await?;
        // Before anything enters it or runs in it.
        self.sandbox.accept(sandbox.protection())?;
        attempt::create_directories(&sandbox, &self.prompts).await?;
        if let Some(input) = &self.input {
            report_skipped(&attempt::copy_input(&sandbox, &self.prompts, input).await?);
        }
        if let Some(line) = self.sandbox.weakness_line(sandbox.protection()) {
            output::note(&line);
        }
        Ok((sandbox, ()))
    }
}
