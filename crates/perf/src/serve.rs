//! What sandboxes cost over HTTP: created as fast as one client requests them, commands beside the same ones in this
//! process, concurrent streams, and the memory of the server.
//!
//! With a model that answers at once also chats, streams of events, and episodes. Knows neither how the server is started nor
//! its runtime.

mod client;
mod model;
mod report;
mod stub;

use std::{
    fs, io,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use sandbox::{Process, Runtime, Sandbox, Spec, Streams};
use tokio::task::JoinSet;

use self::client::{Created, ServeClient};
pub use self::{
    model::{ChatFigures, EpisodeFigures},
    report::{CreateRate, ServeReport, ServerMemory, StreamFigures},
    stub::StubModel,
};
use crate::{round, sandbox::Spread};

/// Concurrent requests of the client that creates and ends sandboxes.
const CONCURRENCY: usize = 16;

/// Parts in which episodes are played. The server's memory is compared after the first and the last.
const PARTS: usize = 10;

/// Least time between two lines about the same part.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

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

/// Learns how far a measurement is.
pub trait ServeProgress {
    /// Called now and then with a line for people.
    fn on_line(&mut self, line: String);
}

/// A measurement under way: its report has everything measured so far, and is complete at the end.
struct Measuring<'a> {
    client: Arc<ServeClient>,
    pid: u32,
    report: &'a mut ServeReport,
    progress: &'a mut dyn ServeProgress,
    /// When the last line was shown.
    shown: Option<Instant>,
}

/// Measures a server whose model is a [`StubModel`], and for comparison a runtime of this process with the same
/// specification. Every part is in `report` as soon as it is measured: dropping the future loses none.
///
/// # Errors
/// If the server or the runtime fails outside the concurrent parts, where failures are counted.
pub async fn measure<R: Runtime>(
    server: &Served,
    runtime: Arc<R>,
    spec: &Spec,
    load: ServeLoad,
    report: &mut ServeReport,
    progress: &mut dyn ServeProgress,
) -> Result<()> {
    let client = Arc::new(ServeClient::new(&server.url)?);
    let mut measuring = Measuring { client, pid: server.pid, report, progress, shown: None };
    measuring.sandboxes(load).await?;
    measuring.in_process(&runtime, spec, load.count).await;
    measuring.commands(runtime.as_ref(), spec, load.commands).await?;
    measuring.model(load).await?;
    measuring.report.complete = true;
    Ok(())
}

impl Measuring<'_> {
    fn show(&mut self, line: String) {
        self.shown = Some(Instant::now());
        self.progress.on_line(line);
    }

    /// Shows a line unless there was one a moment ago.
    fn show_some(&mut self, line: impl FnOnce() -> String) {
        if self.shown.is_none_or(|shown| shown.elapsed() >= BETWEEN_LINES) {
            self.show(line());
        }
    }

    /// Counts the server's descriptors.
    fn look(&mut self) {
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid)).map(Iterator::count).ok();
        self.report.descriptors = self.report.descriptors.max(open);
    }

    /// Creates and ends many sandboxes, again and again.
    async fn sandboxes(&mut self, load: ServeLoad) -> Result<()> {
        let (rounds, count) = (load.rounds.max(1), load.count);
        self.show(format!("creating {count} sandboxes, {rounds} times"));
        // Warm the caches: the first operations are slower.
        self.client.end(&self.client.create().await?).await?;
        let mut before = None;
        for number in 1..=rounds {
            let creator = Arc::clone(&self.client);
            let (rate, created) =
                create_many(count, move || create_one(Arc::clone(&creator))).await;
            self.look();
            end_many(&self.client, created).await;
            let create = self.report.create.get_or_insert(CreateRate { errors: 0, ..rate });
            create.errors += rate.errors;
            let errors = create.errors;
            tokio::time::sleep(SETTLE).await;
            let now = resident_kib(self.pid).ok();
            let first = *before.get_or_insert(now);
            if number > 1 {
                self.report.memory =
                    first.zip(now).map(|(then, now)| ServerMemory::new(then, now, count * number));
            }
            self.show_some(|| {
                let memory = now.map_or("unknown".into(), |kib| format!("{} MiB", kib / 1024));
                format!(
                    "{number} of {rounds} times: {:.0} sandboxes per second, {errors} errors, memory \
                     {memory}",
                    rate.per_second
                )
            });
        }
        Ok(())
    }

    /// Creates as many sandboxes in this process.
    async fn in_process<R: Runtime>(&mut self, runtime: &Arc<R>, spec: &Spec, count: usize) {
        self.show(format!("creating {count} sandboxes in this process"));
        let here = create_here(runtime, spec, count).await;
        let report = &mut *self.report;
        report.in_process_create = Some(here);
        report.create_ratio =
            report.create.map(|create| round(create.seconds / here.seconds.max(1e-9)));
    }

    /// Runs commands over HTTP and in this process.
    async fn commands<R: Runtime>(&mut self, runtime: &R, spec: &Spec, count: usize) -> Result<()> {
        self.show(format!("running {count} commands, over HTTP and in this process"));
        let (there, here) = commands(&self.client, runtime, spec, count).await?;
        let report = &mut *self.report;
        (report.exec_ms, report.in_process_exec_ms) = (Some(there), Some(here));
        report.http_adds_ms = Some(round(there.p50 - here.p50));
        report.exec_ratio = Some(round(there.p50 / here.p50.max(1e-9)));
        Ok(())
    }

    /// Opens streams, and lets the model work.
    async fn model(&mut self, load: ServeLoad) -> Result<()> {
        self.show(format!("opening {} streams", load.streams));
        self.report.streams = Some(streams(&self.client, load.streams).await?);
        self.show(format!("asking {} questions at once", load.chats));
        self.report.chats = Some(model::chats(&self.client, load.chats).await);
        self.look();
        self.show(format!("following events by {} streams", load.events));
        let client = Arc::clone(&self.client);
        self.report.events = Some(model::events(&client, load.events, || self.look()).await?);
        self.show(format!("playing {} episodes", load.episodes));
        self.episodes(load.episodes).await;
        Ok(())
    }

    /// Plays episodes, a few at once.
    async fn episodes(&mut self, count: usize) {
        let (mut played, mut right, mut seconds, mut before) = (0, 0, 0.0, None);
        for part in 1..=PARTS {
            let more = count * part / PARTS - played;
            let start = Instant::now();
            right += model::play(&self.client, more).await;
            seconds += start.elapsed().as_secs_f64();
            played += more;
            tokio::time::sleep(SETTLE).await;
            let now = resident_kib(self.pid).ok();
            let first = *before.get_or_insert(now);
            let memory = first.zip(now).filter(|_| part > 1 && played > 0);
            self.report.episodes = Some(EpisodeFigures {
                count: played,
                seconds: round(seconds),
                per_second: round(right as f64 / f64::max(seconds, 1e-9)),
                errors: played - right,
                memory: memory.map(|(then, now)| ServerMemory::new(then, now, played)),
            });
            self.show_some(|| format!("{played} of {count} episodes, {} errors", played - right));
        }
    }
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
