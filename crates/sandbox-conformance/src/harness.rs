//! How a runtime presents itself to the suite: itself, an image, and what it honestly cannot do.
//!
//! A missing capability is a visible skip, and a failure where `LIS_REQUIRE` names it.

use std::{pin::Pin, sync::Arc, time::Duration};

use sandbox::{ImageRef, Runtime, Spec};

/// A runtime ready to be tested.
pub struct Harness<R: Runtime> {
    /// What makes the sandboxes.
    pub runtime: Arc<R>,
    /// An image with bash, coreutils and a few more programs; `perl`, `python3` and `curl` widen the tests.
    pub image: ImageRef,
    /// What this runtime can do on this machine.
    pub caps: Capabilities,
    /// How to remove an image a test made, so that tests leave nothing behind.
    pub remove_image: Option<RemoveImage<R>>,
}

/// Removes an image by name.
pub type RemoveImage<R> = fn(Arc<R>, String) -> Pin<Box<dyn Future<Output = ()> + Send>>;

impl<R: Runtime> Harness<R> {
    /// A harness without a way to remove images.
    pub fn new(runtime: Arc<R>, image: ImageRef, caps: Capabilities) -> Self {
        Self { runtime, image, caps, remove_image: None }
    }

    /// The specification tests start from: default limits, no network.
    pub fn spec(&self) -> Spec {
        Spec { image: self.image.clone(), ..Spec::default() }
    }

    /// A fresh sandbox of [`Harness::spec`].
    pub async fn sandbox(&self) -> R::Sandbox {
        self.create(&self.spec()).await
    }

    /// A fresh sandbox of any specification.
    pub async fn create(&self, spec: &Spec) -> R::Sandbox {
        self.runtime.create(spec).await.unwrap_or_else(|e| panic!("create: {}", chain(&e)))
    }
}

/// What a runtime can do on this machine.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The memory of a sandbox is bounded, and running into the bound is reported.
    pub memory_limit: Capability,
    /// The number of processes is bounded, and running into the bound is reported.
    pub pids_limit: Capability,
    /// The bytes a sandbox stores are bounded, and running into the bound is reported.
    pub disk_limit: Capability,
    /// The processor time is bounded.
    pub cpu_limit: Capability,
    /// File systems can be saved as images.
    pub snapshot: Capability,
    /// Files can be made read-only for good.
    pub freeze: Capability,
    /// The most memory in use is known.
    pub peak_memory: Capability,
    /// Named hosts can be allowed.
    pub network_allow: Capability,
    /// The network of the machine can be given.
    pub network_full: Capability,
    /// A death by signal can be told from an exit with 128 and more.
    pub exact_signals: Capability,
}

impl Capabilities {
    /// Everything works.
    pub fn all() -> Self {
        Self {
            memory_limit: Capability::Yes,
            pids_limit: Capability::Yes,
            disk_limit: Capability::Yes,
            cpu_limit: Capability::Yes,
            snapshot: Capability::Yes,
            freeze: Capability::Yes,
            peak_memory: Capability::Yes,
            network_allow: Capability::Yes,
            network_full: Capability::Yes,
            exact_signals: Capability::Yes,
        }
    }
}

/// Whether something can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// It can.
    Yes,
    /// It cannot, for this reason.
    No(String),
}

impl Capability {
    /// It cannot, for this reason.
    pub fn no(reason: impl Into<String>) -> Self {
        Self::No(reason.into())
    }

    /// Whether the capability is there; its absence is announced as a skip under this name.
    pub fn or_skip(&self, name: &str) -> bool {
        match self {
            Self::Yes => true,
            Self::No(reason) => {
                skip(name, reason);
                false
            }
        }
    }
}

/// Why a runtime cannot be tested here at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The capability's name, as `LIS_REQUIRE` would give it.
    pub capability: String,
    /// What is missing.
    pub reason: String,
}

/// Announces that a test does not run, or fails it where `LIS_REQUIRE` asks for the capability.
pub fn skip(capability: &str, reason: &str) {
    let required = setting("LIS_REQUIRE");
    assert!(
        !required.split(',').any(|name| name.trim() == capability),
        "{capability} is required but missing: {reason}"
    );
    eprintln!("skip: {capability}: {reason}");
}

/// Whether the long versions of tests are asked for.
pub(crate) fn slow() -> bool {
    !setting("LIS_SLOW").is_empty()
}

#[expect(
    clippy::disallowed_methods,
    reason = "how tests are run is told by the environment, and there is no command line above a test"
)]
fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Runs one case on a runtime of its own, in bounded time.
pub fn run<R: Runtime>(
    harness: impl AsyncFnOnce() -> Result<Harness<R>, Missing>,
    case: impl AsyncFnOnce(&Harness<R>),
) {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("tokio starts");
    let bound = Duration::from_secs(if slow() { 1800 } else { 240 });
    tokio.block_on(async {
        match harness().await {
            Ok(harness) => {
                let ended = tokio::time::timeout(bound, case(&harness)).await;
                assert!(ended.is_ok(), "the case did not end within {bound:?}");
            }
            Err(missing) => skip(&missing.capability, &missing.reason),
        }
    });
    tokio.shutdown_timeout(Duration::from_secs(5));
}

/// An error with everything behind it, for messages.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
