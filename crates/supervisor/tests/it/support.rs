//! A supervisor in this process, with a runtime of its own.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use lis_supervisor::{Claim, Name, Options, Supervisor, serve};
use sandbox_testkit::Spawner;
use tokio::sync::oneshot;

/// A running supervisor, and where it is.
pub(crate) struct Served {
    pub(crate) home: PathBuf,
    runtime_home: PathBuf,
}

impl Served {
    /// A new connection.
    pub(crate) async fn client(&self) -> Supervisor {
        Supervisor::connect(&self.home).await.unwrap().supervisor.unwrap()
    }

    /// Number of sandboxes of the runtime.
    pub(crate) fn sandboxes(&self) -> usize {
        sandbox_native::list(&self.runtime_home).unwrap().len()
    }

    /// The supervisor's directory.
    pub(crate) fn directory(&self) -> PathBuf {
        let entries = std::fs::read_dir(&self.home).unwrap().map(|entry| entry.unwrap().path());
        let ours = |path: &Path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("supervisor-"))
        };
        entries.into_iter().find(|path| ours(path)).unwrap()
    }
}

/// Runs a test with a supervisor, which ends with it.
pub(crate) fn with_supervisor(test: impl AsyncFnOnce(&Served)) {
    let spawner = Spawner::Example("lis-supervisor-spawner");
    sandbox_testkit::within(Duration::from_secs(60), async {
        let runtime_home = sandbox_testkit::home();
        let runtime = match sandbox_testkit::start(spawner, runtime_home.clone()).await {
            Ok(runtime) => runtime,
            Err(missing) => return sandbox_testkit::skip(&missing.capability, &missing.reason),
        };
        let home = tempfile::tempdir().unwrap();
        let claim = Claim::new(home.path()).unwrap();
        let (ready, is_ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(serve(
            runtime,
            claim,
            Options { linger: Duration::from_secs(60) },
            || ready.send(()).unwrap(),
            async {
                let _ = stopped.await;
            },
        ));
        is_ready.await.unwrap();
        test(&Served { home: home.path().to_owned(), runtime_home }).await;
        // It may have ended by itself.
        let _ = stop.send(());
        serving.await.unwrap().unwrap();
    });
}

/// A name.
pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}
