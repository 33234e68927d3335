//! The Docker runtime against a real daemon: everything every sandbox guarantees, and what is Docker's own.
//!
//! `DOCKER_HOST` names the daemon and `LIS_TEST_IMAGE` the image; without a daemon every test is skipped.

mod survives_trouble;

use std::sync::Arc;

use sandbox::ImageRef;
use sandbox_conformance::{Capabilities, Capability, Harness, Missing, conformance_suite};
use sandbox_docker::{DockerOptions, DockerRuntime};

conformance_suite!(crate::harness);

#[expect(clippy::disallowed_methods, reason = "how tests are run is told by the environment")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

async fn harness() -> Result<Harness<DockerRuntime>, Missing> {
    let options = DockerOptions { host: setting("DOCKER_HOST"), default_image: None };
    let runtime = DockerRuntime::connect(options)
        .await
        .map_err(|e| Missing { capability: "docker".into(), reason: e.to_string() })?;
    let image = setting("LIS_TEST_IMAGE").unwrap_or_else(|| "lis-test:latest".into());
    let mut caps = Capabilities::all();
    caps.network_allow = Capability::no("a container without a network cannot reach our proxy");
    caps.exact_signals = Capability::no("Docker reports 128 + signal for either");
    caps.freeze = Capability::no("a container's files cannot be made read-only later");
    if !std::path::Path::new("/sys/fs/cgroup/memory/memory.max_usage_in_bytes").exists() {
        caps.peak_memory = Capability::no("Docker tells it for version 1 control groups alone");
    }
    if !runtime.bounds_disk() {
        caps.disk_limit = Capability::no("the daemon's storage driver has no quota");
    }
    let mut harness = Harness::new(Arc::new(runtime), ImageRef::Name(image), caps);
    harness.remove_image = Some(|runtime, name| {
        Box::pin(async move {
            let removed = runtime.remove_image(&name).await;
            assert!(removed.is_ok(), "{removed:?}");
        })
    });
    Ok(harness)
}
