//! What the agent loop costs: many concurrent episodes against a server that answers immediately.
//!
//! The server and the sandboxes' commands run in other processes; the cost of this process is measured.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::Instant,
};

use agent::{Episode, EpisodeSettings, Journal, Opening, Prompts};
use anyhow::{Context, Result};
use model::{Delta, Endpoint, Formatted, Listener, OpenAi, Retry, Retrying, ToolFormat};
use sandbox::{Runtime, Sandbox, Spec};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trajectory::{Ended, Event, Line, Outcome, Started};

use crate::{Machine, round};

/// The kernel reports CPU time to programs in hundredths of a second, on every Linux.
const TICKS: f64 = 100.0;

/// The cost of the agent loop.
#[derive(Debug, Serialize)]
pub struct AgentReport {
    /// The machine.
    pub machine: Machine,
    /// Concurrent episodes.
    pub episodes: usize,
    /// Turns of all episodes.
    pub turns: u64,
    /// Episodes that did not end with a submission, as the server's script has it.
    pub failures: usize,
    /// Time for all, in seconds.
    pub wall_s: f64,
    /// Turns per second.
    pub turns_per_second: f64,
    /// CPU time of this process per turn, in milliseconds.
    pub cpu_ms_per_turn: f64,
    /// Growth of this process per episode, in KiB.
    pub memory_per_episode_kib: f64,
}

/// Runs `episodes` episodes at once against the OpenAI-compatible server at `base_url`. Event files are written to a
/// temporary directory below `scratch`.
///
/// # Errors
/// If a sandbox cannot be created or the server is misconfigured.
pub async fn measure<R: Runtime>(
    runtime: &R,
    base_url: &str,
    episodes: usize,
    scratch: &Path,
) -> Result<AgentReport> {
    let retry = Retry { attempts: 3, ..Retry::default() };
    let server = OpenAi::new(Endpoint::new("perf", base_url))?;
    let model = Arc::new(Formatted::new(Retrying::new(server, retry), ToolFormat::Native));
    let dir = tempfile::tempdir_in(scratch)?;
    let cancel = CancellationToken::new();

    let memory_before = resident_kib()?;
    let mut sandboxes = Vec::with_capacity(episodes);
    for _ in 0..episodes {
        sandboxes.push(runtime.create(&Spec::default()).await?);
    }
    let cpu_before = cpu_seconds()?;
    let began = Instant::now();
    let mut running = JoinSet::new();
    for (number, sandbox) in sandboxes.into_iter().enumerate() {
        let file = File::create(dir.path().join(format!("{number}.jsonl")))?;
        running.spawn(run_episode(Arc::clone(&model), sandbox, file, cancel.clone()));
    }
    let mut ended = Vec::with_capacity(episodes);
    let mut peak = memory_before;
    while let Some(episode) = running.join_next().await {
        let (end, memory) = episode??;
        ended.push(end);
        peak = peak.max(memory);
    }
    let wall = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds()? - cpu_before;

    let turns: u64 = ended.iter().map(|end| u64::from(end.spent.turns)).sum();
    let failures = ended.iter().filter(|end| end.outcome != Outcome::Submitted).count();
    Ok(AgentReport {
        machine: Machine::current(),
        episodes,
        turns,
        failures,
        wall_s: round(wall),
        turns_per_second: round(turns as f64 / wall),
        cpu_ms_per_turn: round(cpu * 1000.0 / turns.max(1) as f64),
        memory_per_episode_kib: round((peak - memory_before) / episodes.max(1) as f64),
    })
}

/// Runs one episode; also returns the resident memory of this process at its end, in KiB.
async fn run_episode<S: Sandbox>(
    model: Arc<Formatted<Retrying<OpenAi>>>,
    sandbox: S,
    file: File,
    cancel: CancellationToken,
) -> Result<(Ended, f64)> {
    let settings = EpisodeSettings::default();
    let task = "Measure the loop.";
    let opening = Opening::Fresh(Box::new(Started {
        problem_statement: task.into(),
        messages: Prompts::builtin("general")
            .unwrap_or_default()
            .render(task, &sandbox::Network::None)?
            .messages(),
        model: "perf".into(),
        settings: serde_json::Value::Null,
        protection: serde_json::Value::Null,
        program: env!("CARGO_PKG_VERSION").into(),
    }));
    let journal = EventFile(file);
    let episode = Episode::new(&*model, &sandbox, &journal, &settings, opening, cancel);
    let ended = agent::run(episode).await;
    let memory = resident_kib()?;
    sandbox.destroy().await?;
    Ok((ended, memory))
}

/// Writes events as `llm-in-sandbox run` does.
struct EventFile(File);

impl Listener for EventFile {
    fn on_delta(&self, _: Delta<'_>) {}
}

impl<S: Sandbox> Journal<S> for EventFile {
    fn record(&self, event: Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line::new(0, event))?;
        line.push(b'\n');
        (&self.0).write_all(&line)
    }
}

/// CPU time this process has used.
fn cpu_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    // The name in parentheses may hold anything.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks =
        after.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / TICKS)
}

/// Resident memory of this process.
fn resident_kib() -> Result<f64> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).context("reading /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok());
    kib.context("/proc/self/status has no VmRSS line")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_measured() {
        assert!(cpu_seconds().unwrap() >= 0.0);
        let before = resident_kib().unwrap();
        let grown = vec![1_u8; 8 << 20];
        assert!(resident_kib().unwrap() > before + 4096.0, "{}", grown.len());
    }
}
