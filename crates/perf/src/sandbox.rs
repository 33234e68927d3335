//! What sandboxes cost: created, used, forked, taken from a pool and destroyed, one by one and concurrently.

use std::{
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use sandbox::{Pool, Runtime, Sandbox, ShellCommand, Spec};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::{Machine, MemoryPerSandbox, memory::MemoryUse, round};

/// Pause between two measurements, so that the machine settles.
const SETTLE: Duration = Duration::from_millis(100);

/// Median and tail of many measurements, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Spread {
    /// Summarizes `times`; zeros if there are none.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let index = ((times.len() as f64 * share).ceil() as usize).saturating_sub(1);
            times.get(index).map_or(0.0, |time| round(time.as_secs_f64() * 1000.0))
        };
        Self { p50: at(0.5), p99: at(0.99) }
    }
}

/// The measurements of one runtime.
#[derive(Clone, Debug, Serialize)]
pub struct RuntimeFigures {
    /// Creating a sandbox.
    pub create_ms: Spread,
    /// Running `echo hi` in the sandbox's shell.
    pub exec_ms: Spread,
    /// Copying in 20 files, 1 MB in total.
    pub copy_in_ms: Spread,
    /// Forking a sandbox that holds 100 MB.
    pub fork_ms: Spread,
    /// Destroying a sandbox.
    pub destroy_ms: Spread,
    /// Taking a sandbox from a warm pool.
    pub pooled_create_ms: Spread,
    /// Many sandboxes alive at once.
    pub concurrent: Concurrent,
}

/// Many sandboxes alive at once. Times are in seconds, for all of them.
#[derive(Clone, Debug, Serialize)]
pub struct Concurrent {
    /// Number of sandboxes.
    pub count: usize,
    /// Time to create all.
    pub create_s: f64,
    /// Time to run one command in each.
    pub exec_s: f64,
    /// Time to destroy all.
    pub destroy_s: f64,
    /// Failed operations.
    pub errors: usize,
    /// Memory of each once all are created.
    pub memory: MemoryPerSandbox,
    /// The same after each has run a command: its shell stays.
    pub memory_with_shell: MemoryPerSandbox,
}

/// The runtimes compared on one machine.
#[derive(Clone, Debug, Serialize)]
pub struct SandboxReport {
    /// The machine.
    pub machine: Machine,
    /// The images the sandboxes started from.
    pub images: Images,
    /// A bare `bash -c 'echo hi'` on this machine, for scale.
    pub bash_ms: Spread,
    /// A whole `sandbox run -- true` of the native runtime, from the start of the program to its end.
    pub one_shot_ms: Option<Spread>,
    /// The native runtime, where there is one.
    pub native: Option<RuntimeFigures>,
    /// The Docker runtime, if it was measured.
    pub docker: Option<RuntimeFigures>,
}

/// The images the sandboxes started from.
#[derive(Clone, Debug, Serialize)]
pub struct Images {
    /// Of the native runtime.
    pub native: Option<String>,
    /// Of the Docker runtime.
    pub docker: Option<String>,
}

/// How many repetitions of each measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    creations: usize,
    commands: usize,
    copies: usize,
    forks: usize,
    pool: usize,
    count: usize,
    /// Concurrent requests in the concurrent part.
    concurrency: usize,
}

impl Effort {
    /// Repetitions for a runtime whose operations take milliseconds; `count` sandboxes alive at once.
    pub fn native(count: usize) -> Self {
        Self {
            creations: 200,
            commands: 500,
            copies: 50,
            forks: 10,
            pool: 32,
            count,
            concurrency: 16,
        }
    }

    /// Repetitions for a runtime whose operations take tenths of a second; `count` sandboxes alive at once.
    pub fn docker(count: usize) -> Self {
        Self { creations: 15, commands: 30, copies: 10, forks: 3, pool: 4, count, concurrency: 8 }
    }
}

/// Measures a runtime.
///
/// # Errors
/// If the runtime fails, except in the concurrent part, where failures are counted.
pub async fn measure<R: Runtime>(
    runtime: Arc<R>,
    spec: &Spec,
    effort: Effort,
) -> Result<RuntimeFigures> {
    // Warm the caches: the first operations are slower.
    let warm = runtime.create(spec).await.context("creating a sandbox")?;
    hello(&warm).await?;
    warm.destroy().await?;
    let (create_ms, destroy_ms) =
        create_and_destroy(runtime.as_ref(), spec, effort.creations).await?;
    let exec_ms = commands(runtime.as_ref(), spec, effort.commands).await?;
    let copy_in_ms = copies(runtime.as_ref(), spec, effort.copies).await?;
    let fork_ms = forks(runtime.as_ref(), spec, effort.forks).await?;
    let pooled_create_ms = pooled(Arc::clone(&runtime), spec, effort.pool).await?;
    let concurrent = many(runtime, spec, effort.count, effort.concurrency).await;
    Ok(RuntimeFigures {
        create_ms,
        exec_ms,
        copy_in_ms,
        fork_ms,
        destroy_ms,
        pooled_create_ms,
        concurrent,
    })
}

async fn hello<S: Sandbox>(sandbox: &S) -> Result<()> {
    let output = sandbox.shell(&ShellCommand::new("echo hi")).await?;
    anyhow::ensure!(output.stdout.text() == "hi\n", "`echo hi` printed {:?}", output.stdout.text());
    Ok(())
}

async fn create_and_destroy<R: Runtime>(
    runtime: &R,
    spec: &Spec,
    rounds: usize,
) -> Result<(Spread, Spread)> {
    let (mut creations, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        let sandbox = runtime.create(spec).await?;
        creations.push(start.elapsed());
        let start = Instant::now();
        sandbox.destroy().await?;
        ends.push(start.elapsed());
    }
    Ok((Spread::of(creations), Spread::of(ends)))
}

async fn commands<R: Runtime>(runtime: &R, spec: &Spec, rounds: usize) -> Result<Spread> {
    let sandbox = runtime.create(spec).await?;
    hello(&sandbox).await?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        hello(&sandbox).await?;
        times.push(start.elapsed());
    }
    sandbox.destroy().await?;
    Ok(Spread::of(times))
}

/// Twenty files of 50 KiB, about a megabyte.
async fn copies<R: Runtime>(runtime: &R, spec: &Spec, rounds: usize) -> Result<Spread> {
    let tree = tempfile::tempdir()?;
    for i in 0..20u8 {
        std::fs::write(tree.path().join(format!("file-{i}")), vec![i; 50 << 10])?;
    }
    let sandbox = runtime.create(spec).await?;
    let mut times = Vec::new();
    for i in 0..rounds {
        let to = format!("/testbed/copy-{i}");
        let start = Instant::now();
        let report = sandbox.copy_in(tree.path(), Path::new(&to)).await?;
        times.push(start.elapsed());
        anyhow::ensure!(report.files == 20, "{} files were copied instead of 20", report.files);
    }
    sandbox.destroy().await?;
    Ok(Spread::of(times))
}

/// A sandbox that holds 100 MB in a hundred files.
async fn forks<R: Runtime>(runtime: &R, spec: &Spec, rounds: usize) -> Result<Spread> {
    let sandbox = runtime.create(spec).await?;
    let fill = "for i in $(seq 100); do head -c 1000000 /dev/urandom > /testbed/f$i; done";
    let filled = sandbox.shell(&ShellCommand::new(fill)).await?;
    anyhow::ensure!(
        filled.status.success(),
        "filling the sandbox failed: {}",
        filled.stderr.text()
    );
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let fork = sandbox.fork().await?;
        times.push(start.elapsed());
        fork.destroy().await?;
    }
    sandbox.destroy().await?;
    Ok(Spread::of(times))
}

async fn pooled<R: Runtime>(runtime: Arc<R>, spec: &Spec, size: usize) -> Result<Spread> {
    let start = Instant::now();
    let one = runtime.create(spec).await?;
    let single = start.elapsed();
    one.destroy().await?;
    let pool = Pool::new(runtime, spec.clone(), size);
    tokio::time::sleep(SETTLE + single * (3 * size as u32)).await;
    let (mut times, mut taken) = (Vec::new(), Vec::new());
    for _ in 0..size {
        let start = Instant::now();
        taken.push(pool.take().await?);
        times.push(start.elapsed());
    }
    pool.close().await?;
    for sandbox in taken {
        sandbox.destroy().await?;
    }
    Ok(Spread::of(times))
}

async fn many<R: Runtime>(
    runtime: Arc<R>,
    spec: &Spec,
    count: usize,
    concurrency: usize,
) -> Concurrent {
    let mut errors = 0;
    let before = MemoryUse::now();
    let start = Instant::now();
    let spec = Arc::new(spec.clone());
    let created = run_concurrently(count, concurrency, |_| {
        let (runtime, spec) = (Arc::clone(&runtime), Arc::clone(&spec));
        async move { runtime.create(&spec).await }
    })
    .await;
    let create_s = round(start.elapsed().as_secs_f64());
    tokio::time::sleep(SETTLE).await;
    let memory = MemoryUse::now().since(before, count);
    let mut alive = Vec::new();
    for sandbox in created {
        match sandbox {
            Ok(sandbox) => alive.push(Arc::new(sandbox)),
            Err(_) => errors += 1,
        }
    }
    let start = Instant::now();
    let executed = run_concurrently(alive.len(), concurrency, |i| {
        let sandbox = Arc::clone(&alive[i]);
        async move { hello(sandbox.as_ref()).await }
    })
    .await;
    errors += executed.iter().filter(|result| result.is_err()).count();
    let exec_s = round(start.elapsed().as_secs_f64());
    let memory_with_shell = MemoryUse::now().since(before, count);
    let start = Instant::now();
    let mut alive: Vec<_> = alive.into_iter().map(Arc::into_inner).collect();
    let destroyed = run_concurrently(alive.len(), concurrency, |i| {
        let sandbox = alive[i].take();
        async move {
            match sandbox {
                Some(sandbox) => sandbox.destroy().await.map_err(anyhow::Error::from),
                None => Ok(()),
            }
        }
    })
    .await;
    errors += destroyed.iter().filter(|result| result.is_err()).count();
    let destroy_s = round(start.elapsed().as_secs_f64());
    Concurrent { count, create_s, exec_s, destroy_s, errors, memory, memory_with_shell }
}

/// Runs `work` `count` times, `concurrency` of them at a time.
async fn run_concurrently<T, F>(
    count: usize,
    concurrency: usize,
    mut work: impl FnMut(usize) -> F,
) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut results = Vec::with_capacity(count);
    let mut running = JoinSet::new();
    for i in 0..count {
        if running.len() >= concurrency
            && let Some(Ok(done)) = running.join_next().await
        {
            results.push(done);
        }
        running.spawn(work(i));
    }
    while let Some(done) = running.join_next().await {
        results.extend(done.ok());
    }
    results
}

/// Measures `bash -c 'echo hi'` without any sandbox.
///
/// # Errors
/// If bash cannot be started.
pub async fn bare_bash() -> Result<Spread> {
    process(Path::new("bash"), &["-c", "echo hi"], "hi\n", 200).await
}

/// Measures a process of `program` with these arguments, which has to succeed and print nothing.
///
/// # Errors
/// If it cannot be started, fails or prints anything.
pub async fn one_shot(program: &Path, args: &[&str]) -> Result<Spread> {
    process(program, args, "", 50).await
}

async fn process(program: &Path, args: &[&str], prints: &str, rounds: usize) -> Result<Spread> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let output =
            tokio::process::Command::new(program).args(args).stdin(Stdio::null()).output().await?;
        times.push(start.elapsed());
        anyhow::ensure!(
            output.status.success() && output.stdout == prints.as_bytes(),
            "{} ended with {} and printed {:?}",
            program.display(),
            output.status,
            output.stdout
        );
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    Ok(Spread::of(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(Spread::of(times), Spread { p50: 50.0, p99: 99.0 });
        assert_eq!(Spread::of(vec![Duration::from_millis(3)]), Spread { p50: 3.0, p99: 3.0 });
        assert_eq!(Spread::of(vec![]), Spread { p50: 0.0, p99: 0.0 });
    }
}
