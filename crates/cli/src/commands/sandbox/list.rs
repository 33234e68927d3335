//! `sandbox list` and `sandbox prune`: the sandboxes on this machine, and leftovers of crashed processes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::HumanDuration;
use sandbox::{Runtime, SandboxInfo};
use serde::Serialize;

use super::args::{SandboxListArgs, SandboxPruneArgs};
use crate::{
    args::sandbox::RuntimeKind,
    console::output,
    exit::{self, Exit},
    runtime::AnyRuntime,
    settings::Settings,
};

/// A sandbox and its runtime.
#[derive(Serialize)]
struct Found {
    runtime: &'static str,
    #[serde(flatten)]
    info: SandboxInfo,
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
        let infos = sandbox_native::list(home)?;
        found.extend(
            infos.into_iter().map(|info| Found { runtime: RuntimeKind::Native.name(), info }),
        );
    }
    let others = match args.runtime {
        None => docker_if_any(settings).await,
        Some(RuntimeKind::Native) if cfg!(target_os = "linux") => Vec::new(),
        requested => runtimes(requested, settings).await?,
    };
    for (kind, runtime) in others {
        let infos = runtime.list().await?;
        found.extend(infos.into_iter().map(|info| Found { runtime: kind.name(), info }));
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

/// Removes leftovers.
pub(crate) async fn prune(args: &SandboxPruneArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let mut removed = Vec::new();
    for (kind, runtime) in runtimes(args.runtime, settings).await? {
        let infos = runtime.prune().await?;
        removed.extend(infos.into_iter().map(|info| Found { runtime: kind.name(), info }));
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

/// The Docker runtime, if it is available. A daemon that the user named is expected to answer.
async fn docker_if_any(settings: &Settings) -> Vec<(RuntimeKind, AnyRuntime)> {
    match AnyRuntime::start(RuntimeKind::Docker, settings).await {
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
        return Ok(vec![(kind, AnyRuntime::start(kind, settings).await?)]);
    }
    let mut found = Vec::new();
    let mut failure = None;
    for kind in [RuntimeKind::default(), RuntimeKind::Docker] {
        if found.iter().any(|(known, _)| *known == kind) {
            continue;
        }
        match AnyRuntime::start(kind, settings).await {
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
    let heading = ["RUNTIME", "ID", "IMAGE", "OWNER", "AGE", "STATE"].map(str::to_owned).to_vec();
    let mut rows = vec![heading];
    rows.extend(found.iter().map(|Found { runtime, info }| {
        let state = if info.alive { "alive" } else { "left over" };
        vec![
            (*runtime).to_owned(),
            info.id.clone(),
            info.image.clone(),
            info.owner_pid.to_string(),
            age(UNIX_EPOCH + Duration::from_secs(info.created)),
            state.to_owned(),
        ]
    }));
    output::table(&rows)
}

/// The time since `then`, as text.
pub(crate) fn age(then: SystemTime) -> String {
    let age = SystemTime::now().duration_since(then).unwrap_or_default();
    HumanDuration(Duration::from_secs(age.as_secs())).to_string()
}
