//! [`Harness`]: a runtime, an image and what the runtime can do, as the suite needs them.
//!
//! A missing capability is a visible skip, and a failure where `LIS_REQUIRE` names it.

use std::{pin::Pin, sync::Arc, time::Duration};

pub(crate) use error_text::chain;
use sandbox::{ImageRef, Runtime, Spec};

/// A runtime ready to be tested.
pub struct Harness<R: Runtime> {
    /// The runtime under test.
    pub runtime: Arc<R>,
    /// An image with bash, coreutils and a few more programs; with `perl`, `python3` and `curl` more is tested.
    pub image: ImageRef,
    /// What this runtime can do on this machine.
    pub caps: Capabilities,
    /// Removes an image that a test created.
    pub remove_image: Option<RemoveImage<R>>,
}

/// Removes an image by name.
pub type RemoveImage<R> = fn(Arc<R>, String) -> Pin<Box<dyn Future<Output = ()> + Send>>;

impl<R: Runtime> Harness<R> {
    /// Creates a harness that does not remove images.
    pub fn new(runtime: Arc<R>, image: ImageRef, caps: Capabilities) -> Self {
        Self { runtime, image, caps, remove_image: None }
    }

    /// The default specification of tests: default limits, no network.
    pub fn spec(&self) -> Spec {
        Spec { image: self.image.clone(), ..Spec::default() }
    }

    /// Creates a sandbox of [`Harness::spec`].
    pub async fn sandbox(&self) -> R::Sandbox {
        self.create(&self.spec()).await
    }

    /// Creates a sandbox of any specification.
    pub async fn create(&self, spec: &Spec) -> R::Sandbox {
        self.runtime.create(spec).await.unwrap_or_else(|e| panic!("create: {}", chain(&e)))
    }
}

/// What a runtime can do on this machine.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The memory limit is enforced, and reaching it is reported.
    pub memory_limit: Capability,
    /// The process limit is enforced, and reaching it is reported.
    pub pids_limit: Capability,
    /// The disk limit is enforced, and reaching it is reported.
    pub disk_limit: Capability,
    /// The processor limit is enforced.
    pub cpu_limit: Capability,
    /// File systems can be saved as images.
    pub snapshot: Capability,
    /// Files can be made read-only permanently.
    pub freeze: Capability,
    /// The peak memory use is known.
    pub peak_memory: Capability,
    /// Named hosts can be allowed.
    pub network_allow: Capability,
    /// The host's network can be used.
    pub network_full: Capability,
    /// A death by signal is distinguished from an exit with 128 and more.
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

/// Whether a runtime can do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// It can.
    Yes,
    /// It cannot, for this reason.
    No(String),
}

impl Capability {
    /// Creates a [`Capability::No`].
    pub fn no(reason: impl Into<String>) -> Self {
        Self::No(reason.into())
    }

    /// Returns whether the capability is there; prints a skip under this name if not.
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

/// Why a runtime cannot be tested on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The capability's name for `LIS_REQUIRE`.
    pub capability: String,
    /// What is missing.
    pub reason: String,
}

/// Reports that a test is skipped, or fails it where `LIS_REQUIRE` names the capability.
pub fn skip(capability: &str, reason: &str) {
    let required = setting("LIS_REQUIRE").unwrap_or_default().to_string_lossy().into_owned();
    assert!(
        !required.split(',').any(|name| name.trim() == capability),
        "{capability} is required but missing: {reason}"
    );
    eprintln!("skip: {capability}: {reason}");
}

/// Whether the long versions of tests are requested.
pub(crate) fn slow() -> bool {
    setting("LIS_SLOW").is_some()
}

/// The factor of time limits that only keep a test from waiting without end: an emulated machine is slow.
pub fn patience() -> u32 {
    let factor = setting("LIS_PATIENCE").unwrap_or_default();
    factor.to_str().and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

/// Reads a setting of the test run; an empty one counts as absent.
///
/// | variable | meaning |
/// |---|---|
/// | `LIS_REQUIRE` | capabilities, separated by commas, whose absence fails a test instead of skipping it |
/// | `LIS_SLOW` | set to anything: run the long versions of tests |
/// | `LIS_PATIENCE` | factor of time limits that only keep a test from waiting without end; 1 where absent |
/// | `LIS_TEST_ROOTFS` | a directory with a root file system, for the native runtime |
/// | `LIS_TEST_HELPER` | the spawner's program, where it was moved after the build |
/// | `LIS_TEST_IMAGE` | an image of the Docker daemon |
/// | `DOCKER_HOST` | the address of the Docker daemon |
#[expect(
    clippy::disallowed_methods,
    reason = "test runs are configured by the environment: there is no command line above a test"
)]
pub fn setting(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Runs one case with a tokio runtime of its own, in bounded time.
pub fn run<R: Runtime>(
    harness: impl AsyncFnOnce() -> Result<Harness<R>, Missing>,
    case: impl AsyncFnOnce(&Harness<R>),
) {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("tokio starts");
    let bound = Duration::from_secs(if slow() { 1800 } else { 240 }) * patience();
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
