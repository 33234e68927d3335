//! `perf serve`: starts a server as a program of its own, so that its memory can be told from ours, and measures it.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use perf::serve::{ServeLoad, ServeProgress, ServeReport, Served, StubModel};
use sandbox::Spec;
use startup::Signals;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use super::{args::PerfServeArgs, table};
use crate::{args::sandbox::RuntimeKind, console::output, exit::Exit, runtime, settings::Settings};

/// The longest time the server takes to start, and to end its sandboxes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures and prints; after a signal, what was measured so far.
pub(super) async fn run(
    args: &PerfServeArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> Result<Exit> {
    let load = ServeLoad {
        count: args.count,
        rounds: args.rounds,
        commands: args.commands,
        streams: args.streams,
        chats: args.chats,
        events: args.events,
        episodes: args.episodes,
    };
    let model = StubModel::start().await.context("cannot start a model's server")?;
    let data = tempfile::tempdir_in(settings.writable_home()?)?;
    let runtime = runtime::start(RuntimeKind::default(), settings).await?;
    check_descriptors(load);
    let most = args.count.max(args.chats);
    let (mut child, served) = start(args, most, model.base_url(), data.path()).await?;
    let spec = Spec { image: args.image.clone(), workdir: "/home/user".into(), ..Spec::default() };
    let (mut report, mut notes) = (ServeReport::default(), Notes);
    let runtime = Arc::new(runtime);
    let measuring = perf::serve::measure(&served, runtime, &spec, load, &mut report, &mut notes);
    let ended = tokio::select! {
        ended = measuring => ended.map(|()| None),
        exit = signals.cancelled() => Ok(Some(exit)),
    };
    let stopped = stop(&mut child, &served).await;
    super::print(args.json, &report, table::serve)?;
    let interrupted = ended?;
    stopped?;
    if let Some(exit) = interrupted {
        return Ok(exit);
    }
    let missed = if args.assert { report.missed_targets() } else { Vec::new() };
    for target in &missed {
        output::note(&format!("missed: {target}"));
    }
    Ok(if missed.is_empty() { Exit::Done } else { Exit::Differs })
}

/// Shows how far the measurement is.
struct Notes;

impl ServeProgress for Notes {
    fn on_line(&mut self, line: String) {
        output::note(&line);
    }
}

/// Descriptors of a sandbox in the process that made it, and of a connection or an episode, with some to spare.
const PER_SANDBOX: usize = 6;
const PER_STREAM: usize = 3;

/// Warns where the limit of open files, which is raised as far as possible by now, is too low for this load.
fn check_descriptors(load: ServeLoad) {
    let ServeLoad { count, streams, chats, events, .. } = load;
    let needed =
        256 + (PER_SANDBOX * count.max(chats)).max(PER_STREAM * (streams + events + chats));
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if limit.is_some_and(|limit| limit < needed as u64) {
        let limit = limit.unwrap_or_default();
        output::note(&format!(
            "warning: up to {needed} files may be open at once, and the limit is {limit}; raise it with `ulimit -Hn \
             {needed}` as root, or measure less"
        ));
    }
}

/// Starts this program as a server on a free port and waits until it listens.
async fn start(
    args: &PerfServeArgs,
    count: usize,
    base_url: &str,
    data: &Path,
) -> Result<(Child, Served)> {
    let image = args.image.to_string();
    // The sandboxes of the streams and those that are still being removed come on top.
    let most = count.saturating_mul(2).saturating_add(1000).to_string();
    let mut child = Command::new(std::env::current_exe().context("finding this program")?)
        .args(["serve", "--addr", "127.0.0.1:0", "--image", &image, "--max-sandboxes", &most])
        .args(["--model", "perf", "--base-url", base_url, "--data-dir"])
        .arg(data)
        .env_remove("LLM_API_KEY")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the server")?;
    let pid = child.id().context("the server ended at once")?;
    let stderr = child.stderr.take().context("the server has no standard error")?;
    let mut lines = BufReader::new(stderr).lines();
    let listening = async {
        let mut said = String::new();
        while let Some(line) = lines.next_line().await? {
            if let Some(url) = address(&line) {
                return Ok(url);
            }
            said = line;
        }
        anyhow::bail!("the server did not start: {said}")
    };
    let url = tokio::time::timeout(PATIENCE, listening)
        .await
        .context("the server did not start within a minute")??;
    // Whatever else it prints must not fill the pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((child, Served { url, pid }))
}

/// The address in the line with which the server starts.
fn address(line: &str) -> Option<String> {
    let rest = &line[line.find("http://")?..];
    Some(rest.split([';', ' ']).next().unwrap_or(rest).to_owned())
}

/// Ends the server as Ctrl-C does, which removes its sandboxes.
async fn stop(child: &mut Child, served: &Served) -> Result<()> {
    let address = served.url.trim_start_matches("http://");
    // A terminal sends Ctrl-C to both programs, and a second one would end the server before its sandboxes are gone.
    if TcpStream::connect(address).await.is_ok()
        && let Some(pid) = child.id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32))
    {
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
    }
    tokio::time::timeout(PATIENCE, child.wait())
        .await
        .context("the server did not end within a minute")??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn the_address_is_found_in_the_servers_line() {
        let line = "llm-in-sandbox: serving sandboxes at http://127.0.0.1:7777; the template";
        assert_eq!(address(line).as_deref(), Some("http://127.0.0.1:7777"));
        assert_eq!(address("llm-in-sandbox: error: no"), None);
    }
}
