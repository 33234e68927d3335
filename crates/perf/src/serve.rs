//! What sandboxes cost over HTTP: created as fast as one client requests them, commands beside the same ones in this
//! process, concurrent streams, and the memory of the server.
//!
//! With a model that answers at once also chats, streams of events, and episodes. Knows neither how the server is started nor
//! its runtime.

mod client;
mod model;
mod stub;

use std::{
    fs, io,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use sandbox::{Process, Runtime, Sandbox, Spec, Streams};
use serde::Serialize;
use tokio::task::JoinSet;

use self::client::{Created, ServeClient};
pub use self::{
    model::{ChatFigures, EpisodeFigures},
    stub::StubModel,
};
use crate::{Machine, round, sandbox::Spread};

/// Concurrent requests of the client that creates and ends sandboxes.
const CONCURRENCY: usize = 16;

/// The time in which the server ends its sandboxes before its memory is measured.
const SETTLE: Duration = Duration::from_millis(500);

/// The running server.
#[derive(Clone, Debug)]
pub struct Served {
    /// Its address, such as `http://127.0.0.1:7777`.
    pub url: String,
    /// Its process, whose memory is measured.
    pub pid: u32,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct ServeLoad {
    /// Sandboxes alive at once.
    pub count: usize,
    /// How often they are created and ended. The server's memory is compared after the first and the last time.
    pub rounds: usize,
    /// Commands run one after another.
    pub commands: usize,
    /// Streams open at once.
    pub streams: usize,
    /// Concurrent chats.
    pub chats: usize,
    /// Streams of events of running episodes, open at once.
    pub events: usize,
    /// Episodes, a few at once.
    pub episodes: usize,
}

/// The measurements.
#[derive(Clone, Debug, Serialize)]
pub struct ServeReport {
    /// The machine.
    pub machine: Machine,
    /// Sandboxes created by one client.
    pub create: CreateRate,
    /// The same in this process, without a server.
    pub in_process_create: CreateRate,
    /// By how much creating all took longer over HTTP.
    pub create_ratio: f64,
    /// Running `echo hi` over HTTP: a new `bash`, and its output as a stream.
    pub exec_ms: Spread,
    /// The same in this process, without a server.
    pub in_process_exec_ms: Spread,
    /// What HTTP adds to the median, in milliseconds.
    pub http_adds_ms: f64,
    /// By how much the median over HTTP is longer.
    pub exec_ratio: f64,
    /// Streams open at once, each with the output of a running program.
    pub streams: StreamFigures,
    /// The server's memory; `None` where the system does not tell it.
    pub memory: Option<ServerMemory>,
    /// Concurrent chats, each answered by an episode in a sandbox.
    pub chats: ChatFigures,
    /// Streams of events of running episodes, open at once.
    pub events: StreamFigures,
    /// Episodes that are kept, and the server's memory meanwhile.
    pub episodes: EpisodeFigures,
}

/// Sandboxes created as fast as they are requested.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CreateRate {
    /// Number of sandboxes, all alive at the end.
    pub count: usize,
    /// Concurrent requests.
    pub concurrency: usize,
    /// Time for all.
    pub seconds: f64,
    /// Sandboxes created in a second.
    pub per_second: f64,
    /// Requests that failed, in all rounds.
    pub errors: usize,
}

/// Streams open at once.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StreamFigures {
    /// Number of streams requested.
    pub count: usize,
    /// Time until each had its first message.
    pub open_s: f64,
    /// Streams that failed.
    pub errors: usize,
}

/// Resident memory of the server's process without sandboxes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerMemory {
    /// After the first sandboxes or episodes were created and ended, in KiB.
    pub before_kib: u64,
    /// After all were, in KiB.
    pub after_kib: u64,
    /// `after_kib` by `before_kib`.
    pub ratio: f64,
    /// How many were created and ended in all.
    pub count: usize,
}

impl ServerMemory {
    fn new(before_kib: u64, after_kib: u64, count: usize) -> Self {
        let ratio = round(after_kib as f64 / before_kib.max(1) as f64);
        Self { before_kib, after_kib, ratio, count }
    }
}

/// Measures a server whose model is a [`StubModel`], and for comparison a runtime of this process with the same specification.
///
/// # Errors
/// If the server or the runtime fails outside the concurrent parts, where failures are counted.
pub async fn measure<R: Runtime>(
    server: &Served,
    runtime: Arc<R>,
    spec: &Spec,
    load: ServeLoad,
) -> Result<ServeReport> {
    let client = Arc::new(ServeClient::new(&server.url)?);
    // Warm the caches: the first operations are slower.
    client.end(&client.create().await?).await?;

    let mut rounds = Vec::new();
    let mut memory = Vec::new();
    for _ in 0..load.rounds.max(1) {
        let creator = Arc::clone(&client);
        let (rate, created) =
            create_many(load.count, move || create_one(Arc::clone(&creator))).await;
        end_many(&client, created).await;
        rounds.push(rate);
        tokio::time::sleep(SETTLE).await;
        memory.push(resident_kib(server.pid).ok());
    }
    let create = rounds.first().copied().context("nothing was measured")?;
    let create = CreateRate { errors: rounds.iter().map(|rate| rate.errors).sum(), ..create };
    let memory = match memory[..] {
        [Some(before), .., Some(after)] => {
            Some(ServerMemory::new(before, after, load.count * memory.len()))
        }
        _ => None,
    };

    let in_process_create = create_here(&runtime, spec, load.count).await;
    let (exec_ms, in_process_exec_ms) =
        commands(&client, runtime.as_ref(), spec, load.commands).await?;
    let streams = streams(&client, load.streams).await?;
    let chats = model::chats(&client, load.chats).await;
    let events = model::events(&client, load.events).await?;
    let episodes = model::episodes(&client, server.pid, load.episodes).await;
    Ok(ServeReport {
        machine: Machine::current(),
        create,
        in_process_create,
        create_ratio: round(create.seconds / in_process_create.seconds.max(1e-9)),
        exec_ms,
        in_process_exec_ms,
        http_adds_ms: round(exec_ms.p50 - in_process_exec_ms.p50),
        exec_ratio: round(exec_ms.p50 / in_process_exec_ms.p50.max(1e-9)),
        streams,
        memory,
        chats,
        events,
        episodes,
    })
}

/// As a function, because the tasks outlive the caller's references.
async fn create_one(client: Arc<ServeClient>) -> Result<Created> {
    client.create().await
}

/// The same number of sandboxes in this process, destroyed at the end.
async fn create_here<R: Runtime>(runtime: &Arc<R>, spec: &Spec, count: usize) -> CreateRate {
    let (runtime, spec) = (Arc::clone(runtime), Arc::new(spec.clone()));
    let create = move || {
        let (runtime, spec) = (Arc::clone(&runtime), Arc::clone(&spec));
        async move { Ok(runtime.create(&spec).await?) }
    };
    let (rate, created) = create_many(count, create).await;
    for sandbox in created {
        // It is gone with its runtime at the latest.
        let _ = sandbox.destroy().await;
    }
    rate
}

/// Calls `create` so many times, a few at once.
async fn create_many<T, F>(count: usize, create: impl Fn() -> F) -> (CreateRate, Vec<T>)
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let start = Instant::now();
    let mut running = JoinSet::new();
    let mut created = Vec::with_capacity(count);
    for number in 0..count {
        if number >= CONCURRENCY {
            created.extend(running.join_next().await.and_then(flatten));
        }
        running.spawn(create());
    }
    while let Some(result) = running.join_next().await {
        created.extend(flatten(result));
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = CreateRate {
        count,
        concurrency: CONCURRENCY,
        seconds: round(seconds),
        per_second: round(created.len() as f64 / seconds.max(1e-9)),
        errors: count - created.len(),
    };
    (rate, created)
}

fn flatten<T>(result: Result<Result<T>, tokio::task::JoinError>) -> Option<T> {
    result.ok()?.ok()
}

async fn end_many(client: &Arc<ServeClient>, created: Vec<Created>) {
    let mut running = JoinSet::new();
    for sandbox in created {
        if running.len() >= CONCURRENCY {
            running.join_next().await;
        }
        let client = Arc::clone(client);
        running.spawn(async move { client.end(&sandbox).await });
    }
    while running.join_next().await.is_some() {}
}

/// The same command over HTTP and in this process in turn, so that whatever else the machine does slows down both.
async fn commands<R: Runtime>(
    client: &ServeClient,
    runtime: &R,
    spec: &Spec,
    rounds: usize,
) -> Result<(Spread, Spread)> {
    let remote = client.create().await?;
    let local = runtime.create(spec).await?;
    let process = Process::new(["/bin/bash", "-c", "echo hi"]);
    let (mut there, mut here) = (Vec::new(), Vec::new());
    // The first round warms the caches and does not count.
    for number in 0..=rounds {
        let start = Instant::now();
        client.hello(&remote).await?;
        let over_http = start.elapsed();
        let start = Instant::now();
        let exit = local.process(&process, Streams::discard()).await?;
        let in_process = start.elapsed();
        ensure!(exit.status.success(), "`echo hi` ended with {:?}", exit.status);
        if number > 0 {
            there.push(over_http);
            here.push(in_process);
        }
    }
    local.destroy().await?;
    client.end(&remote).await?;
    Ok((Spread::of(there), Spread::of(here)))
}

/// Opens streams of programs that print one line and wait, and keeps all of them open.
async fn streams(client: &Arc<ServeClient>, count: usize) -> Result<StreamFigures> {
    /// Programs of one sandbox: fewer than its process limit.
    const PER_SANDBOX: usize = 50;
    let mut sandboxes = Vec::new();
    for _ in 0..count.div_ceil(PER_SANDBOX) {
        sandboxes.push(Arc::new(client.create().await?));
    }
    let start = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..count {
        let client = Arc::clone(client);
        let sandbox = Arc::clone(&sandboxes[number / PER_SANDBOX]);
        running.spawn(async move { client.wait_in(&sandbox).await });
    }
    let mut open = Vec::with_capacity(count);
    while let Some(result) = running.join_next().await {
        open.extend(flatten(result));
    }
    let open_s = round(start.elapsed().as_secs_f64());
    let errors = count - open.len();
    drop(open);
    for sandbox in sandboxes {
        client.end(&sandbox).await?;
    }
    Ok(StreamFigures { count, open_s, errors })
}

/// Resident memory of a process in KiB.
fn resident_kib(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.ok_or_else(|| io::Error::other("the status has no VmRSS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        assert!(resident_kib(std::process::id()).unwrap() > 100);
        assert!(resident_kib(u32::MAX).is_err());
    }
}
