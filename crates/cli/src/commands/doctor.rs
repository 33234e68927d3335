//! `doctor`: checks what this machine can enforce, by inspecting it and by creating sandboxes.
//!
//! `doctor/show.rs` formats the findings.

mod args;
mod show;

use std::time::Instant;

use sandbox::{DiskQuota, Layer, LayerReport, LayerState, Protection, Runtime, Sandbox, Spec};
use sandbox_docker::DockerRuntime;
use serde::Serialize;

pub(crate) use self::args::DoctorArgs;
use crate::{
    args::sandbox::RuntimeKind,
    console::output,
    exit::{self, Exit},
    runtime::{self, AnyRuntime},
    settings::{Settings, environment},
};

/// The findings.
#[derive(Serialize)]
struct Findings {
    version: &'static str,
    system: String,
    kernel: Option<String>,
    privileged: bool,
    home: Option<String>,
    /// Where running sandboxes keep their state.
    state: Option<State>,
    machine: Vec<LayerReport>,
    native: Native,
    docker: Docker,
    advice: Vec<String>,
}

/// A directory, and why it is used.
#[derive(Serialize)]
struct State {
    path: String,
    why: String,
    /// Directories that come first, and why they are not used.
    passed_over: Vec<PassedOver>,
}

#[derive(Serialize)]
struct PassedOver {
    path: String,
    reason: String,
}

/// The native runtime.
#[derive(Default, Serialize)]
struct Native {
    works: bool,
    error: Option<String>,
    /// Until the first sandbox, including the runtime's start.
    first_start_ms: Option<f64>,
    /// Until another sandbox.
    start_ms: Option<f64>,
    networks: Vec<Mode>,
    disk_quotas: Vec<Quota>,
    protection: Option<Protection>,
}

/// A way to enforce the disk limit.
#[derive(Serialize)]
struct Quota {
    disk_quota: DiskQuota,
    works: bool,
    error: Option<String>,
    /// Until a sandbox with it.
    start_ms: Option<f64>,
}

/// A network policy.
#[derive(Serialize)]
struct Mode {
    network: &'static str,
    works: bool,
    /// How it is enforced, by the protection report.
    detail: Option<String>,
    error: Option<String>,
}

/// The Docker daemon.
#[derive(Default, Serialize)]
struct Docker {
    works: bool,
    error: Option<String>,
    version: Option<String>,
    limits_disk: bool,
    networks: Vec<Mode>,
}

/// Examines the machine and prints the findings.
pub(crate) async fn run(args: &DoctorArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let findings = examine(settings).await;
    if args.json {
        output::print_json(&findings)?;
    } else {
        output::print_raw(&show::text(&findings, settings.color_stdout()))?;
    }
    let works = findings.native.works || findings.docker.works;
    Ok(if works { Exit::Done } else { Exit::Infrastructure })
}

async fn examine(settings: &Settings) -> Findings {
    let machine = machine();
    let native = native(settings).await;
    let docker = docker(settings).await;
    let mut findings = Findings {
        version: env!("CARGO_PKG_VERSION"),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        kernel: machine.0,
        privileged: rustix::process::geteuid().is_root(),
        home: settings.home().ok().map(|home| home.display().to_string()),
        state: state(settings),
        machine: machine.1,
        native,
        docker,
        advice: Vec::new(),
    };
    findings.advice = advice(&findings);
    findings
}

#[cfg(target_os = "linux")]
fn state(settings: &Settings) -> Option<State> {
    // Where there is none, starting the runtime fails with the reason.
    let found = settings.state().ok()?;
    let passed_over = found
        .passed_over
        .into_iter()
        .map(|(path, reason)| PassedOver { path: path.display().to_string(), reason });
    Some(State {
        path: found.path.display().to_string(),
        why: found.why,
        passed_over: passed_over.collect(),
    })
}

#[cfg(not(target_os = "linux"))]
fn state(_: &Settings) -> Option<State> {
    None
}

#[cfg(target_os = "linux")]
fn machine() -> (Option<String>, Vec<LayerReport>) {
    let found = sandbox_native::probe();
    (Some(found.kernel), found.capabilities)
}

#[cfg(not(target_os = "linux"))]
fn machine() -> (Option<String>, Vec<LayerReport>) {
    (None, Vec::new())
}

async fn native(settings: &Settings) -> Native {
    let mut found = Native::default();
    let began = Instant::now();
    let runtime = match runtime::start(RuntimeKind::Native, settings).await {
        Ok(runtime) => runtime,
        Err(error) => {
            found.error = Some(exit::describe(&error));
            return found;
        }
    };
    match try_sandbox(&runtime, &Spec::default()).await {
        Ok(protection) => {
            found.works = true;
            found.first_start_ms = Some(began.elapsed().as_secs_f64() * 1e3);
            found.protection = Some(protection);
        }
        Err(error) => {
            found.error = Some(exit::describe(&error));
            return found;
        }
    }
    let policies = [
        ("none", "none"),
        ("allow", "allow=example.com"),
        ("internet", "internet"),
        ("full", "full"),
    ];
    for (name, policy) in policies {
        let began = Instant::now();
        let outcome = match policy.parse() {
            Ok(network) => try_sandbox(&runtime, &Spec { network, ..Spec::default() }).await,
            Err(error) => Err(anyhow::Error::new(error)),
        };
        if name == "none" && outcome.is_ok() {
            found.start_ms = Some(began.elapsed().as_secs_f64() * 1e3);
        }
        let detail = outcome.as_ref().ok().and_then(network_detail);
        let error = outcome.err().map(|error| exit::describe(&error));
        found.networks.push(Mode { network: name, works: error.is_none(), detail, error });
    }
    for disk_quota in DiskQuota::ALL {
        let began = Instant::now();
        let outcome = try_sandbox(&runtime, &Spec { disk_quota, ..Spec::default() }).await;
        let start_ms = outcome.is_ok().then(|| began.elapsed().as_secs_f64() * 1e3);
        let error = outcome.err().map(|error| exit::describe(&error));
        found.disk_quotas.push(Quota { disk_quota, works: error.is_none(), error, start_ms });
    }
    found
}

fn network_detail(protection: &Protection) -> Option<String> {
    let network = protection.layers.iter().find(|report| report.layer == Layer::Network);
    network.map(|report| report.detail.clone())
}

/// Creates and removes a sandbox; returns what it enforced.
async fn try_sandbox(runtime: &AnyRuntime, spec: &Spec) -> anyhow::Result<Protection> {
    let made = runtime.create(spec).await?;
    let protection = made.protection().clone();
    made.destroy().await?;
    Ok(protection)
}

async fn docker(settings: &Settings) -> Docker {
    let connecting = async {
        let runtime = DockerRuntime::connect(settings.docker()).await?;
        let version = runtime.version().await?;
        Ok::<_, sandbox::Error>((version, runtime.bounds_disk()))
    };
    match connecting.await {
        Ok((version, limits_disk)) => Docker {
            works: true,
            version: Some(version),
            limits_disk,
            networks: ["none", "full"]
                .map(|network| Mode { network, works: true, detail: None, error: None })
                .into(),
            error: None,
        },
        Err(error) => Docker { error: Some(exit::describe(&error.into())), ..Docker::default() },
    }
}

/// What to install or configure for more protection.
fn advice(findings: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let layers = findings.native.protection.iter().flat_map(|protection| &protection.layers);
    for layer in findings.machine.iter().chain(layers) {
        // The measured disk limit has advice of its own.
        if layer.state != LayerState::Enforced && layer.layer != Layer::DiskLimit {
            advice.push(format!("{}: {}", layer.layer, layer.detail));
        }
    }
    let works =
        |quota| findings.native.disk_quotas.iter().any(|q| q.disk_quota == quota && q.works);
    let exact = match (works(DiskQuota::Project), works(DiskQuota::Strict)) {
        // That is the default.
        (true, _) => None,
        (false, true) => Some("--disk-quota strict makes it exact"),
        (false, false) => works(DiskQuota::Memory).then_some(
            "--disk-quota memory makes it exact, for files that fit into --memory; --disk-quota strict needs root",
        ),
    };
    advice.extend(exact.map(|exact| {
        format!("disk limit: {exact}; project quotas do so without an option, see `project` above")
    }));
    if cfg!(target_os = "linux") && !environment::has_program("mmdebstrap") {
        advice.push("image build: install the package mmdebstrap".into());
    }
    if !findings.docker.works {
        advice.push(
            "docker: only for --runtime docker; install the package docker.io, start it, or set DOCKER_HOST \
             to a running daemon"
                .into(),
        );
    }
    advice.dedup();
    advice
}
