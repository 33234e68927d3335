//! `sandbox list` and `sandbox prune`: the sandboxes on this machine, and leftovers of crashed processes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::{HumanBytes, HumanDuration};
use sandbox::{Runtime, SandboxInfo};
use serde::Serialize;

use super::args::{SandboxListArgs, SandboxPruneArgs};
use crate::{
    args::sandbox::RuntimeKind,
    console::output,
    exit::{self, Exit},
    runtime::{self, AnyRuntime},
    settings::Settings,
};

/// A sandbox and its runtime.
#[derive(Serialize)]
struct Found {
    runtime: &'static str,
    #[serde(flatten)]
    info: SandboxInfo,
    #[serde(flatten)]
    named: Named,
}

/// What is known of a named sandbox only.
#[derive(Default, Serialize)]
struct Named {
    name: Option<String>,
    /// `busy`, `idle` or `gone`.
    state: Option<&'static str>,
    idle_seconds: Option<f64>,
    idle_timeout_seconds: Option<f64>,
    memory_bytes: Option<u64>,
    disk_bytes: Option<u64>,
}

impl Found {
    fn new(kind: RuntimeKind, info: SandboxInfo) -> Self {
        Self { runtime: kind.name(), info, named: Named::default() }
    }
}

/// Lists sandboxes.
pub(crate) async fn list(args: &SandboxListArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let mut found = Vec::new();
    // Without starting a native runtime, which would remove leftovers first.
    #[cfg(target_os = "linux")]
    if args.runtime != Some(RuntimeKind::Docker) {
        let home = settings.home()?;
        if home.exists() && !home.is_dir() {
            settings.writable_home()?;
        }
        for state in settings.states()? {
            let infos = sandbox_native::list(&state)?;
            found.extend(infos.into_iter().map(|info| Found::new(RuntimeKind::Native, info)));
        }
        add_names(&mut found, settings).await;
    }
    let others = match args.runtime {
        None => docker_if_any(settings).await,
        Some(RuntimeKind::Native) if cfg!(target_os = "linux") => Vec::new(),
        requested => runtimes(requested, settings).await?,
    };
    for (kind, runtime) in others {
        let infos = runtime.list().await?;
        found.extend(infos.into_iter().map(|info| Found::new(kind, info)));
    }
    if args.json {
        output::print_json(&found)?;
    } else if found.is_empty() {
        output::note("there are no sandboxes");
    } else {
        output::print(&table(&found))?;
    }
    Ok(Exit::Done)
}

/// Adds what the supervisor knows of its sandboxes. Where it cannot be asked, they are listed without.
#[cfg(target_os = "linux")]
async fn add_names(found: &mut [Found], settings: &Settings) {
    let asked = async {
        match super::supervise::connect(settings).await? {
            Some(supervisor) => Ok(supervisor.list().await?),
            None => Ok(Vec::new()),
        }
    };
    let sandboxes = match asked.await {
        Ok(sandboxes) => sandboxes,
        Err(error) => {
            return output::note(&format!("names are missing: {}", exit::describe(&error)));
        }
    };
    for sandbox in sandboxes {
        let Some(found) = found.iter_mut().find(|found| found.info.id == sandbox.id) else {
            continue;
        };
        found.named = Named {
            name: Some(sandbox.name.into()),
            state: Some(match sandbox.state {
                supervisor::State::Busy => "busy",
                supervisor::State::Idle => "idle",
                supervisor::State::Gone => "gone",
            }),
            idle_seconds: Some(sandbox.idle.as_secs_f64()),
            idle_timeout_seconds: sandbox.idle_timeout.map(|time| time.as_secs_f64()),
            memory_bytes: sandbox.usage.memory.map(|size| size.0),
            disk_bytes: sandbox.usage.disk.map(|size| size.0),
        };
    }
}

/// Removes leftovers.
pub(crate) async fn prune(args: &SandboxPruneArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let mut removed = Vec::new();
    for (kind, runtime) in runtimes(args.runtime, settings).await? {
        let infos = runtime.prune().await?;
        removed.extend(infos.into_iter().map(|info| Found::new(kind, info)));
    }
    #[cfg(target_os = "linux")]
    if args.runtime != Some(RuntimeKind::Docker) {
        prune_elsewhere(&mut removed, settings).await?;
    }
    if args.json {
        output::print_json(&removed)?;
    } else if removed.is_empty() {
        output::note("there are no leftovers");
    } else {
        let ids: Vec<_> = removed.iter().map(|found| found.info.id.as_str()).collect();
        output::print(&ids.join("\n"))?;
    }
    Ok(Exit::Done)
}

/// Removes leftovers from directories that held the state of sandboxes at another time.
#[cfg(target_os = "linux")]
async fn prune_elsewhere(removed: &mut Vec<Found>, settings: &Settings) -> anyhow::Result<()> {
    let usual = settings.state()?.path;
    for state in settings.states()?.into_iter().filter(|state| *state != usual) {
        // Nothing to start a runtime for.
        let mut runs = std::fs::read_dir(state.join("run")).into_iter().flatten();
        if runs.next().is_none() {
            continue;
        }
        let infos = runtime::start_in(&state, settings).await?.prune().await?;
        removed.extend(infos.into_iter().map(|info| Found::new(RuntimeKind::Native, info)));
    }
    Ok(())
}

/// The Docker runtime, if it is available. A daemon that the user named is expected to answer.
async fn docker_if_any(settings: &Settings) -> Vec<(RuntimeKind, AnyRuntime)> {
    match runtime::start(RuntimeKind::Docker, settings).await {
        Ok(runtime) => vec![(RuntimeKind::Docker, runtime)],
        Err(error) => {
            if settings.docker_host().is_some() {
                output::note(&format!("skipped: {}", exit::describe(&error)));
            }
            Vec::new()
        }
    }
}

/// The requested runtime, or every available one. An error only if none is available.
async fn runtimes(
    requested: Option<RuntimeKind>,
    settings: &Settings,
) -> anyhow::Result<Vec<(RuntimeKind, AnyRuntime)>> {
    if let Some(kind) = requested {
        return Ok(vec![(kind, runtime::start(kind, settings).await?)]);
    }
    let mut found = Vec::new();
    let mut failure = None;
    for kind in [RuntimeKind::default(), RuntimeKind::Docker] {
        if found.iter().any(|(known, _)| *known == kind) {
            continue;
        }
        match runtime::start(kind, settings).await {
            Ok(runtime) => found.push((kind, runtime)),
            // Most machines have no daemon; one that the user named is expected to answer.
            Err(error) if kind == RuntimeKind::Docker && !found.is_empty() => {
                if settings.docker_host().is_some() {
                    output::note(&format!("skipped: {}", exit::describe(&error)));
                }
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) if found.is_empty() => Err(error),
        Some(error) => {
            output::note(&format!("skipped: {}", exit::describe(&error)));
            Ok(found)
        }
        None => Ok(found),
    }
}

fn table(found: &[Found]) -> String {
    let heading =
        ["NAME", "IMAGE", "STATE", "AGE", "IDLE", "MEMORY", "DISK", "RUNTIME", "ID", "OWNER"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let absent = || "-".to_owned();
    let size = |bytes: Option<u64>| {
        bytes.map_or_else(absent, |bytes| HumanBytes(bytes).to_string().replace(' ', ""))
    };
    rows.extend(found.iter().map(|Found { runtime, info, named }| {
        let state = if info.alive { "alive" } else { "left over" };
        let idle = |seconds| HumanDuration(Duration::from_secs_f64(seconds)).to_string();
        vec![
            named.name.clone().unwrap_or_else(absent),
            info.image.clone(),
            named.state.unwrap_or(state).to_owned(),
            age(UNIX_EPOCH + Duration::from_secs(info.created)),
            named.idle_seconds.map_or_else(absent, idle),
            size(named.memory_bytes),
            size(named.disk_bytes),
            (*runtime).to_owned(),
            info.id.clone(),
            info.owner_pid.to_string(),
        ]
    }));
    output::table(&rows)
}

/// The time since `then`, as text.
pub(crate) fn age(then: SystemTime) -> String {
    let age = SystemTime::now().duration_since(then).unwrap_or_default();
    HumanDuration(Duration::from_secs(age.as_secs())).to_string()
}
