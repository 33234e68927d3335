//! What the loop itself costs: many episodes at once against a server that answers at once.
//!
//! The server and the sandboxes' commands run in other processes; what is measured is this one.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::Instant,
};

use agent::{Episode, Journal, Opening, Prompts, Settings as EpisodeSettings, Watch};
use anyhow::{Context, Result};
use clap::Args;
use model::{Delta, Endpoint, Formatted, Listener, OpenAi, Retry, Retrying, ToolFormat};
use sandbox::{Runtime, Sandbox, Spec};
use serde::Serialize;
use tokio::task::JoinSet;
use trajectory::{Ended, Event, Line, Outcome, Started};

use super::figures::{Machine, round};
use crate::{
    args::RuntimeKind,
    exit::Exit,
    output,
    runtime::{AnyRuntime, AnySandbox},
    settings::Settings,
};

/// The kernel counts processor time in hundredths of a second for programs, on every Linux.
const TICKS: f64 = 100.0;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct AgentPerfArgs {
    /// A server that answers at once, such as the test kit's `mock-server`.
    #[arg(long, value_name = "URL")]
    base_url: String,
    /// How many episodes to play at once.
    #[arg(long, default_value_t = 256)]
    episodes: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    machine: Machine,
    episodes: usize,
    turns: u64,
    /// Episodes that did not end as the server's script has it.
    failures: usize,
    wall_s: f64,
    turns_per_second: f64,
    /// Processor time of this process, for each turn.
    cpu_ms_per_turn: f64,
    /// By how much this process grew, for each episode.
    memory_per_episode_kib: f64,
}

/// Plays the episodes and prints what they cost.
pub(crate) async fn run(args: &AgentPerfArgs, settings: &Settings) -> Result<Exit> {
    let runtime = AnyRuntime::start(RuntimeKind::default(), settings).await?;
    let retry = Retry { attempts: 3, ..Retry::default() };
    let server = OpenAi::new(Endpoint::new("perf", args.base_url.as_str()))?;
    let model = Arc::new(Formatted::new(Retrying::new(server, retry), ToolFormat::Native));
    let dir = tempfile::tempdir_in(settings.writable_home()?)?;
    let (_stopper, watch) = agent::stopper();

    let memory_before = resident_kib()?;
    let sandboxes = make(&runtime, args.episodes).await?;
    let cpu_before = cpu_seconds()?;
    let began = Instant::now();
    let mut playing = JoinSet::new();
    for (number, sandbox) in sandboxes.into_iter().enumerate() {
        let file = File::create(dir.path().join(format!("{number}.jsonl")))?;
        playing.spawn(play(Arc::clone(&model), sandbox, file, watch.clone()));
    }
    let mut ended = Vec::with_capacity(args.episodes);
    let mut peak = memory_before;
    while let Some(episode) = playing.join_next().await {
        let (end, memory) = episode??;
        ended.push(end);
        peak = peak.max(memory);
    }
    let wall = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds()? - cpu_before;

    let turns: u64 = ended.iter().map(|end| u64::from(end.spent.turns)).sum();
    let failures = ended.iter().filter(|end| end.outcome != Outcome::Submitted).count();
    let figures = Figures {
        machine: Machine::here(),
        episodes: args.episodes,
        turns,
        failures,
        wall_s: round(wall),
        turns_per_second: round(turns as f64 / wall),
        cpu_ms_per_turn: round(cpu * 1000.0 / turns.max(1) as f64),
        memory_per_episode_kib: round((peak - memory_before) / args.episodes.max(1) as f64),
    };
    match args.json {
        true => output::print_json(&figures)?,
        false => output::print(&render(&figures))?,
    }
    Ok(Exit::Done)
}

async fn make(runtime: &AnyRuntime, count: usize) -> Result<Vec<AnySandbox>> {
    let spec = Spec::default();
    let mut sandboxes = Vec::with_capacity(count);
    for _ in 0..count {
        sandboxes.push(runtime.create(&spec).await?);
    }
    Ok(sandboxes)
}

/// One episode; also says how large this process was in its last moments.
async fn play(
    model: Arc<Formatted<Retrying<OpenAi>>>,
    sandbox: AnySandbox,
    file: File,
    watch: Watch,
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
    let journal = ToFile(file);
    let episode = Episode::new(&*model, &sandbox, &journal, &settings, opening, watch);
    let ended = agent::run(episode).await;
    let memory = resident_kib()?;
    sandbox.destroy().await?;
    Ok((ended, memory))
}

/// Writes events as `run` does, and shows nothing.
struct ToFile(File);

impl Listener for ToFile {
    fn hear(&self, _: Delta<'_>) {}
}

impl Journal<AnySandbox> for ToFile {
    fn record(&self, event: Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line::new(0, event))?;
        line.push(b'\n');
        (&self.0).write_all(&line)
    }
}

/// Processor time this process has used.
fn cpu_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    // The name in parentheses may hold anything.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks =
        after.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / TICKS)
}

/// Memory this process has in use.
fn resident_kib() -> Result<f64> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).context("reading /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok());
    kib.context("/proc/self/status does not say how large this process is")
}

fn render(figures: &Figures) -> String {
    let Figures { machine, episodes, turns, failures, wall_s, .. } = figures;
    [
        format!("{} cores, {:.1} GiB, {}", machine.cores, machine.memory_gib, machine.system),
        format!("{episodes} episodes at once, {turns} turns, {failures} failed, {wall_s:.2} s"),
        format!("turns per second        {:>10.0}", figures.turns_per_second),
        format!("our processor time      {:>10.3} ms a turn", figures.cpu_ms_per_turn),
        format!("our memory              {:>10.1} KiB an episode", figures.memory_per_episode_kib),
    ]
    .join("\n")
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
