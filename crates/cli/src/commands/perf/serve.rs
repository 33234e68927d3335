//! `perf serve`: starts a server as a program of its own, so that its memory can be told from ours, and measures it.

use std::{path::Path, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use perf::serve::{ServeLoad, Served, StubModel};
use sandbox::Spec;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::{args::PerfServeArgs, table};
use crate::{args::sandbox::RuntimeKind, exit::Exit, runtime, settings::Settings};

/// The longest time the server takes to start, and to end its sandboxes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures and prints.
pub(super) async fn run(args: &PerfServeArgs, settings: &Settings) -> Result<Exit> {
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
    let most = args.count.max(args.chats);
    let (mut child, served) = start(args, most, model.base_url(), data.path()).await?;
    let spec = Spec { image: args.image.clone(), workdir: "/home/user".into(), ..Spec::default() };
    let report = perf::serve::measure(&served, Arc::new(runtime), &spec, load).await;
    stop(&mut child).await?;
    super::print(args.json, &report?, table::serve)
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
async fn stop(child: &mut Child) -> Result<()> {
    if let Some(pid) = child.id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32)) {
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
