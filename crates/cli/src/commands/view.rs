//! `view`: a page in the browser about runs, benchmarks and training runs below a directory.

mod browser;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use clap::Args;
use http_server::ConnectionLimits;
use startup::Signals;
use tokio::net::TcpListener;
use viewer::{Access, CommandLine, Kind, Library, PageOptions};

use crate::{
    console::output,
    exit::{Exit, UsageError},
};

/// Options of `view`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox view
  llm-in-sandbox view output/20260101_120000
  llm-in-sandbox view benchmark-runs --no-open
  llm-in-sandbox view output/20260101_120000 --export episode.html
  llm-in-sandbox view trajectory.json log.eval

Reads run directories, results of `benchmark`, training runs, episodes of
`serve`, trajectories of the reference, ATIF and logs of Inspect; changes
nothing. On another machine: `ssh -L 8000:127.0.0.1:8000 HOST`, and there
`llm-in-sandbox view --addr 127.0.0.1:8000`.")]
pub(crate) struct ViewArgs {
    /// Runs, or directories with runs at any depth
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Loopback address and port to listen on; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    addr: SocketAddr,
    /// Open a browser [default: if there is a desktop and a terminal]
    #[arg(long, conflicts_with_all = ["no_open", "export"])]
    open: bool,
    /// Only print the address
    #[arg(long)]
    no_open: bool,
    /// Write one HTML file about the run instead, which needs no server
    #[arg(long, value_name = "FILE.html")]
    export: Option<PathBuf>,
}

/// Serves the page until a signal ends it, or writes it to a file.
pub(crate) async fn run(args: ViewArgs, signals: &mut Signals) -> anyhow::Result<Exit> {
    for path in &args.paths {
        if let Err(error) = path.metadata() {
            return Err(UsageError(format!("cannot read {}: {error}", path.display())).into());
        }
    }
    let library = Arc::new(Library::open(args.paths.clone()));
    let options = options(&args.paths);
    if let Some(file) = args.export {
        let writing = tokio::task::spawn_blocking(move || export(&library, options, &file));
        return tokio::select! {
            written = writing => written?,
            exit = signals.cancelled() => Ok(exit),
        };
    }
    if !args.addr.ip().is_loopback() {
        return Err(UsageError(format!(
            "--addr {}: only addresses of this machine itself are allowed, such as 127.0.0.1:8000; reach it from \
             elsewhere with ssh -L",
            args.addr
        ))
        .into());
    }
    let listener = TcpListener::bind(args.addr).await.map_err(|error| {
        UsageError(format!("cannot listen on {}: {error}; choose another --addr", args.addr))
    })?;
    let at = listener.local_addr()?;
    let access = Arc::new(Access::new(at).context("cannot create a token")?);
    // Browsers do not send what follows `#`: the token is in no log.
    let address = format!("http://{at}/#token={}", access.token());
    output::note(&format!("viewing {} at {address}", shown(&args.paths)));
    output::note("stop with Ctrl-C");
    let _opened = match args.open || (!args.no_open && browser::has_desktop()) {
        true => browser::open(&address, args.open)?,
        false => None,
    };
    let app = viewer::app(library, options, access);
    let mut stop = signals.clone();
    let shutdown = async move {
        stop.cancelled().await;
    };
    let limits = ConnectionLimits {
        // Streams to the page end with the server.
        grace: std::time::Duration::from_millis(200),
        ..ConnectionLimits::default()
    };
    http_server::serve(listener, app, &limits, shutdown).await;
    Ok(signals.cancelled().await)
}

fn export(library: &Arc<Library>, options: PageOptions, file: &Path) -> anyhow::Result<Exit> {
    let page = library.export_all(options).map_err(|error| UsageError(error.to_string()))?;
    if file == Path::new("-") {
        output::print_raw(&page)?;
        return Ok(Exit::Done);
    }
    let is_page = file.extension().is_some_and(|it| it == "html" || it == "htm");
    if !is_page || file.is_dir() {
        let name = file.display();
        let text =
            format!("--export: {name} is not the name of a page; give one that ends with .html");
        return Err(UsageError(text).into());
    }
    let written = atomic_file::write(file, page);
    written.with_context(|| format!("cannot write {}", file.display()))?;
    output::note(&format!("wrote {}", file.display()));
    Ok(Exit::Done)
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn options(paths: &[PathBuf]) -> PageOptions {
    let title = match paths {
        [path] => path.canonicalize().ok(),
        _ => None,
    };
    let title = title.as_deref().and_then(Path::file_name).map(|it| it.to_string_lossy().into());
    PageOptions {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        title: title.unwrap_or_else(|| "Runs".to_owned()),
        command_lines: command_lines(),
        ..PageOptions::default()
    }
}

/// The command lines that the page offers to copy.
pub(crate) fn command_lines() -> Vec<CommandLine> {
    let line = |label: &str, template: &str, kinds: &[Kind], of_attempt: bool| CommandLine {
        label: label.to_owned(),
        template: format!("llm-in-sandbox {template}"),
        kinds: kinds.to_vec(),
        of_attempt,
    };
    let any = [Kind::Run, Kind::Benchmark, Kind::Training, Kind::Episodes];
    vec![
        line("view", "view {path}", &[Kind::Benchmark, Kind::Training, Kind::File], false),
        line("report", "report {path}", &[Kind::Benchmark], false),
        line("plot", "train plot {path}", &[Kind::Training], false),
        line("show as text", "replay {path}", &any, true),
        line("repeat in a sandbox", "replay {path} --sandbox", &any, true),
        line("resume", "run --resume {path}", &[Kind::Run], true),
        line("export", "view {path} --export episode.html", &[Kind::Run, Kind::File], true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offered_command_lines_can_be_parsed() {
        use clap::Parser;
        for line in command_lines() {
            let command = line.template.replace("{path}", "runs/a");
            let parsed = crate::commands::Cli::try_parse_from(command.split_whitespace());
            assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
        }
    }
}
