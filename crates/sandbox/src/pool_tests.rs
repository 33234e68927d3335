//! How many sandboxes a pool creates, how fast, and that none is left.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
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
    alive: Arc<AtomicUsize>,
}

/// Exists, and does nothing else.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Runtime for Counting {
    type Sandbox = Counted;

    async fn create(&self, _spec: &Spec) -> Result<Counted, Error> {
        sleep(CREATION).await;
        self.created.fetch_add(1, Ordering::SeqCst);
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Counted(Arc::clone(&self.alive)))
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
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_filled_to_its_size_several_at_once() {
    for size in [2, 3, 8, 9, 100] {
        let runtime = Arc::new(Counting::default());
        let pool = Pool::new(Arc::clone(&runtime), Spec::default(), size);
        let rounds = u32::try_from(size.div_ceil((size - 1).min(AT_ONCE))).unwrap();
        sleep(CREATION * rounds + CREATION / 2).await;
        assert_eq!(runtime.alive.load(Ordering::SeqCst), size);
        sleep(CREATION * 100).await;
        assert_eq!(runtime.created.load(Ordering::SeqCst), size, "no more than asked for");
        let start = Instant::now();
        for _ in 0..size {
            pool.take().await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "all were ready");
        pool.close().await.unwrap();
        assert_eq!(runtime.alive.load(Ordering::SeqCst), 0, "nothing is left");
    }
}
