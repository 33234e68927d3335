//! The Docker runtime against a real daemon: the conformance suite, and tests of what is specific to Docker.
//!
//! `DOCKER_HOST` names the daemon and `LIS_TEST_IMAGE` the image; without a daemon every test is skipped.

mod security;
mod survives_failures;

use std::sync::Arc;

use lis_sandbox_docker::{DockerOptions, DockerRuntime};
use sandbox::ImageRef;
use sandbox_conformance::{Capabilities, Capability, Harness, Missing, conformance_suite};

conformance_suite!(crate::harness);

fn setting(name: &str) -> Option<String> {
    sandbox_conformance::setting(name)?.into_string().ok()
}

async fn harness() -> Result<Harness<DockerRuntime>, Missing> {
    let options = DockerOptions { host: setting("DOCKER_HOST"), ..DockerOptions::default() };
    let runtime = DockerRuntime::connect(options)
        .await
        .map_err(|e| Missing { capability: "docker".into(), reason: e.to_string() })?;
    let image = setting("LIS_TEST_IMAGE").unwrap_or_else(|| "lis-test:latest".into());
    let mut caps = Capabilities::all();
    caps.network_allow = Capability::no("a container without a network cannot reach the proxy");
    caps.exact_signals = Capability::no("Docker reports 128 + signal for either");
    caps.freeze = Capability::no("a container's files cannot be made read-only later");
    if !std::path::Path::new("/sys/fs/cgroup/memory/memory.max_usage_in_bytes").exists() {
        caps.peak_memory = Capability::no("Docker reports it only for version 1 control groups");
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
