//! How many sandboxes a pool creates, how fast, what it does after failures, and that none is left.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::*;
use crate::{
    ByteSize, CopyReport, Entry, ExecOutput, Exit, Input, Process, Protection, Sandbox,
    SandboxInfo, ShellCommand, Streams,
};

/// How long a creation takes.
const CREATION: Duration = Duration::from_millis(100);

/// Counts what exists.
#[derive(Default)]
struct Counting {
    created: AtomicUsize,
    /// Creations that failed.
    failed: AtomicUsize,
    /// Whether creations fail.
    fails: AtomicBool,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    alive: AtomicUsize,
    /// Sandboxes of which `destroy` was called.
    destroyed: AtomicUsize,
    /// Whether that fails: the first one is gone, the others cannot be destroyed.
    destroying_fails: AtomicBool,
}

impl Counting {
    fn alive(&self) -> usize {
        self.counts.alive.load(Ordering::SeqCst)
    }
}

/// Exists, and does nothing else.
struct Counted(Arc<Counts>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

fn broken(what: String) -> Error {
    Error::Io { what, source: io::Error::other("broken") }
}

impl Runtime for Counting {
    type Sandbox = Counted;

    async fn create(&self, _spec: &Spec) -> Result<Counted, Error> {
        sleep(CREATION).await;
        if self.fails.load(Ordering::SeqCst) {
            let number = self.failed.fetch_add(1, Ordering::SeqCst);
            return Err(broken(format!("creation {number}")));
        }
        self.created.fetch_add(1, Ordering::SeqCst);
        self.counts.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Counted(Arc::clone(&self.counts)))
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>, Error> {
        Ok(Vec::new())
    }

    async fn prune(&self) -> Result<Vec<SandboxInfo>, Error> {
        Ok(Vec::new())
    }
}

fn unused<T>() -> Result<T, Error> {
    Err(Error::Gone("this sandbox only exists".into()))
}

impl Sandbox for Counted {
    fn id(&self) -> &str {
        "counted"
    }
    fn protection(&self) -> &Protection {
        unimplemented!()
    }
    async fn shell(&self, _: &ShellCommand) -> Result<ExecOutput, Error> {
        unused()
    }
    async fn process(&self, _: &Process, _: Streams) -> Result<Exit, Error> {
        unused()
    }
    async fn read_file(&self, _: &Path) -> Result<Input, Error> {
        unused()
    }
    async fn write_file(&self, _: &Path, _: &[u8]) -> Result<(), Error> {
        unused()
    }
    async fn list(&self, _: &Path) -> Result<Vec<Entry>, Error> {
        unused()
    }
    async fn copy_in(&self, _: &Path, _: &Path) -> Result<CopyReport, Error> {
        unused()
    }
    async fn copy_out(&self, _: &Path, _: &Path) -> Result<CopyReport, Error> {
        unused()
    }
    async fn fork(&self) -> Result<Self, Error> {
        unused()
    }
    async fn snapshot(&self, _: &str) -> Result<(), Error> {
        unused()
    }
    async fn freeze(&self) -> Result<(), Error> {
        unused()
    }
    async fn peak_memory(&self) -> Result<Option<ByteSize>, Error> {
        unused()
    }
    async fn destroy(self) -> Result<(), Error> {
        let number = self.0.destroyed.fetch_add(1, Ordering::SeqCst);
        match (self.0.destroying_fails.load(Ordering::SeqCst), number) {
            (false, _) => Ok(()),
            (true, 0) => unused(),
            (true, _) => Err(broken(format!("destruction {number}"))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_filled_to_its_size_several_at_once() {
    for size in [2, 3, 8, 9, 100] {
        let runtime = Arc::new(Counting::default());
        let pool = Pool::new(Arc::clone(&runtime), Spec::default(), size);
        let rounds = u32::try_from(size.div_ceil((size - 1).min(AT_ONCE))).unwrap();
        sleep(CREATION * rounds + CREATION / 2).await;
        assert_eq!(runtime.alive(), size);
        sleep(CREATION * 100).await;
        assert_eq!(runtime.created.load(Ordering::SeqCst), size, "no more than asked for");
        let start = Instant::now();
        for _ in 0..size {
            pool.take().await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "all were ready");
        pool.close().await.unwrap();
        assert_eq!(runtime.alive(), 0, "nothing is left");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_from_before_a_call_are_tried_again() {
    for size in [1, 3, 8, 100] {
        let runtime = Arc::new(Counting::default());
        runtime.fails.store(true, Ordering::SeqCst);
        let pool = Pool::new(Arc::clone(&runtime), Spec::default(), size);
        // All that the pool keeps are failures.
        sleep(CREATION * 200).await;
        let known = runtime.failed.load(Ordering::SeqCst);
        assert!(known >= size, "{known} failures are kept");
        runtime.fails.store(false, Ordering::SeqCst);
        pool.take().await.unwrap();
        runtime.fails.store(true, Ordering::SeqCst);
        // Those that were created in between, and then a failure after the call.
        let mut taken = 0;
        let error = loop {
            match pool.take().await {
                Ok(_) => taken += 1,
                Err(error) => break error,
            }
        };
        assert!(taken <= size, "{taken} were taken");
        let number = error.to_string().strip_prefix("creation ").map(str::to_owned).unwrap();
        assert!(number.parse::<usize>().unwrap() >= known, "{number}: the failure is an old one");
        pool.close().await.unwrap();
        assert_eq!(runtime.alive(), 0, "nothing is left");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_a_pool_destroys_all_and_reports_the_first_failure() {
    let runtime = Arc::new(Counting::default());
    let pool = Pool::new(Arc::clone(&runtime), Spec::default(), 20);
    sleep(CREATION * 10).await;
    runtime.counts.destroying_fails.store(true, Ordering::SeqCst);
    let error = pool.close().await.unwrap_err();
    assert_eq!(error.to_string(), "destruction 1", "a sandbox that is gone is no failure");
    // Those of the fillers are dropped.
    assert_eq!(runtime.counts.destroyed.load(Ordering::SeqCst), 20 - AT_ONCE);
    assert_eq!(runtime.alive(), 0, "nothing is left");
}
