//! The measurements themselves, the same for every runtime.

use std::{
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use sandbox::{Pool, Runtime, Sandbox, ShellCommand, Spec};
use tokio::task::JoinSet;

use super::{
    CALM,
    figures::{Concurrent, Figures, Spread, memory_line, round},
};

/// How often to measure.
pub(crate) struct Effort {
    creations: usize,
    commands: usize,
    copies: usize,
    forks: usize,
    pool: usize,
    count: usize,
    /// Requests under way at once in the concurrent part.
    at_once: usize,
}

impl Effort {
    /// For something that takes milliseconds.
    pub(crate) fn native(count: usize) -> Self {
        Self { creations: 200, commands: 500, copies: 50, forks: 10, pool: 32, count, at_once: 16 }
    }

    /// For something that takes tenths of seconds.
    pub(crate) fn docker(count: usize) -> Self {
        Self { creations: 15, commands: 30, copies: 10, forks: 3, pool: 4, count, at_once: 8 }
    }
}

/// Everything there is to measure.
pub(crate) async fn all<R: Runtime>(
    runtime: Arc<R>,
    spec: &Spec,
    effort: Effort,
) -> Result<Figures> {
    // The first of everything pays for caches the others find warm.
    let warm = runtime.create(spec).await.context("making a sandbox")?;
    hello(&warm).await?;
    warm.destroy().await?;
    let (create_ms, destroy_ms) = lives(runtime.as_ref(), spec, effort.creations).await?;
    let exec_ms = commands(runtime.as_ref(), spec, effort.commands).await?;
    let copy_in_ms = copies(runtime.as_ref(), spec, effort.copies).await?;
    let fork_ms = forks(runtime.as_ref(), spec, effort.forks).await?;
    let pooled_create_ms = pooled(Arc::clone(&runtime), spec, effort.pool).await?;
    let concurrent = many(runtime, spec, effort.count, effort.at_once).await;
    Ok(Figures {
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
    anyhow::ensure!(
        output.stdout.text() == "hi\n",
        "`echo hi` answered {:?}",
        output.stdout.text()
    );
    Ok(())
}

async fn lives<R: Runtime>(runtime: &R, spec: &Spec, rounds: usize) -> Result<(Spread, Spread)> {
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
    tokio::time::sleep(CALM + single * (3 * size as u32)).await;
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
    at_once: usize,
) -> Concurrent {
    let mut errors = 0;
    let before = memory_line("MemAvailable");
    let start = Instant::now();
    let spec = Arc::new(spec.clone());
    let made = spread_out(count, at_once, |_| {
        let (runtime, spec) = (Arc::clone(&runtime), Arc::clone(&spec));
        async move { runtime.create(&spec).await }
    })
    .await;
    let create_s = round(start.elapsed().as_secs_f64());
    tokio::time::sleep(CALM).await;
    let after = memory_line("MemAvailable");
    let memory = before.zip(after).map(|(before, after)| (before - after) / count.max(1) as i64);
    let mut alive = Vec::new();
    for sandbox in made {
        match sandbox {
            Ok(sandbox) => alive.push(Arc::new(sandbox)),
            Err(_) => errors += 1,
        }
    }
    let start = Instant::now();
    let said = spread_out(alive.len(), at_once, |i| {
        let sandbox = Arc::clone(&alive[i]);
        async move { hello(sandbox.as_ref()).await }
    })
    .await;
    errors += said.iter().filter(|result| result.is_err()).count();
    let exec_s = round(start.elapsed().as_secs_f64());
    let start = Instant::now();
    let mut alive: Vec<_> = alive.into_iter().map(Arc::into_inner).collect();
    let gone = spread_out(alive.len(), at_once, |i| {
        let sandbox = alive[i].take();
        async move {
            match sandbox {
                Some(sandbox) => sandbox.destroy().await.map_err(anyhow::Error::from),
                None => Ok(()),
            }
        }
    })
    .await;
    errors += gone.iter().filter(|result| result.is_err()).count();
    let destroy_s = round(start.elapsed().as_secs_f64());
    Concurrent { count, create_s, exec_s, destroy_s, errors, memory_per_sandbox_bytes: memory }
}

/// Does something `count` times, `at_once` of them at a time.
async fn spread_out<T, F>(count: usize, at_once: usize, mut work: impl FnMut(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut results = Vec::with_capacity(count);
    let mut running = JoinSet::new();
    for i in 0..count {
        if running.len() >= at_once
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

/// What starting `bash` costs without any sandbox.
pub(crate) async fn bare_bash() -> Result<Spread> {
    let mut times = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        let output = tokio::process::Command::new("bash")
            .args(["-c", "echo hi"])
            .stdin(Stdio::null())
            .output()
            .await?;
        times.push(start.elapsed());
        anyhow::ensure!(output.stdout == b"hi\n", "bash answered {:?}", output.stdout);
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    Ok(Spread::of(times))
}
