//! `doctor`: what this machine can enforce, seen by looking and by really making a sandbox.
//!
//! Finds facts and advice; `doctor/show.rs` puts them into words.

mod show;

use std::time::Instant;

use sandbox::{Layer, LayerState, Network, Protection, Runtime, Sandbox, Spec};
use sandbox_docker::DockerRuntime;
use serde::Serialize;

use crate::{
    args::{DoctorArgs, RuntimeKind},
    environment,
    exit::{self, Exit},
    output,
    runtime::AnyRuntime,
    settings::Settings,
};

/// Everything found.
#[derive(Serialize)]
struct Findings {
    version: &'static str,
    system: String,
    kernel: Option<String>,
    privileged: bool,
    home: Option<String>,
    machine: Vec<Layer>,
    native: Native,
    docker: Docker,
    advice: Vec<String>,
}

/// The native runtime, tried.
#[derive(Default, Serialize)]
struct Native {
    works: bool,
    error: Option<String>,
    /// From nothing to the first sandbox.
    first_start_ms: Option<f64>,
    /// One more sandbox.
    start_ms: Option<f64>,
    networks: Vec<Mode>,
    protection: Option<Protection>,
}

/// A network policy, tried.
#[derive(Serialize)]
struct Mode {
    network: &'static str,
    works: bool,
    error: Option<String>,
}

/// The Docker daemon, asked.
#[derive(Default, Serialize)]
struct Docker {
    works: bool,
    error: Option<String>,
    version: Option<String>,
    limits_disk: bool,
    networks: Vec<Mode>,
}

/// Looks, tries, tells.
pub(crate) async fn run(args: &DoctorArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let findings = examine(settings).await;
    if args.json {
        output::print_json(&findings)?;
    } else {
        output::print(&show::text(&findings, settings.color_stdout()))?;
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
        machine: machine.1,
        native,
        docker,
        advice: Vec::new(),
    };
    findings.advice = advice(&findings);
    findings
}

#[cfg(target_os = "linux")]
fn machine() -> (Option<String>, Vec<Layer>) {
    let found = sandbox_native::probe();
    (Some(found.kernel), found.capabilities)
}

#[cfg(not(target_os = "linux"))]
fn machine() -> (Option<String>, Vec<Layer>) {
    (None, Vec::new())
}

async fn native(settings: &Settings) -> Native {
    let mut found = Native::default();
    let begun = Instant::now();
    let runtime = match AnyRuntime::start(RuntimeKind::Native, settings).await {
        Ok(runtime) => runtime,
        Err(error) => {
            found.error = Some(exit::line(&error));
            return found;
        }
    };
    match tried(&runtime, Network::None).await {
        Ok(protection) => {
            found.works = true;
            found.first_start_ms = Some(begun.elapsed().as_secs_f64() * 1e3);
            found.protection = Some(protection);
        }
        Err(error) => {
            found.error = Some(exit::line(&error));
            return found;
        }
    }
    for (name, policy) in [("none", "none"), ("allow", "allow=example.com"), ("full", "full")] {
        let begun = Instant::now();
        let outcome = match policy.parse() {
            Ok(network) => tried(&runtime, network).await,
            Err(error) => Err(anyhow::Error::new(error)),
        };
        if name == "none" && outcome.is_ok() {
            found.start_ms = Some(begun.elapsed().as_secs_f64() * 1e3);
        }
        let error = outcome.err().map(|error| exit::line(&error));
        found.networks.push(Mode { network: name, works: error.is_none(), error });
    }
    found
}

/// Makes a sandbox with the usual limits and removes it; answers what it enforced.
async fn tried(runtime: &AnyRuntime, network: Network) -> anyhow::Result<Protection> {
    let made = runtime.create(&Spec { network, ..Spec::default() }).await?;
    let protection = made.protection().clone();
    made.destroy().await?;
    Ok(protection)
}

async fn docker(settings: &Settings) -> Docker {
    let asked = async {
        let runtime = DockerRuntime::connect(settings.docker()).await?;
        let version = runtime.version().await?;
        Ok::<_, sandbox::Error>((version, runtime.bounds_disk()))
    };
    match asked.await {
        Ok((version, limits_disk)) => Docker {
            works: true,
            version: Some(version),
            limits_disk,
            networks: ["none", "full"]
                .map(|network| Mode { network, works: true, error: None })
                .into(),
            error: None,
        },
        Err(error) => Docker { error: Some(exit::line(&error.into())), ..Docker::default() },
    }
}

/// What to install or to set for more, each thing once.
fn advice(findings: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let layers = findings.native.protection.iter().flat_map(|protection| &protection.layers);
    for layer in findings.machine.iter().chain(layers) {
        // A disk limit that is measured is as good as this runtime has it.
        if layer.state != LayerState::Enforced && layer.name != "disk limit" {
            advice.push(format!("{}: {}", layer.name, layer.detail));
        }
    }
    if cfg!(target_os = "linux") && !environment::has_program("mmdebstrap") {
        advice.push("image build: install the package mmdebstrap".into());
    }
    if !findings.docker.works {
        advice.push(
            "docker: only for --runtime docker; install the package docker.io, start it, or name a \
             running daemon in DOCKER_HOST"
                .into(),
        );
    }
    advice.dedup();
    advice
}
