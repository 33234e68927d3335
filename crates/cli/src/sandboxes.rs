//! `sandbox list` and `sandbox prune`: what exists on this machine, and what should not.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::HumanDuration;
use sandbox::{Runtime, SandboxInfo};
use serde::Serialize;

use crate::{
    args::{ListArgs, PruneArgs, RuntimeKind},
    exit::{self, Exit},
    output,
    runtime::AnyRuntime,
    settings::Settings,
};

/// A sandbox and who made it.
#[derive(Serialize)]
struct Found {
    runtime: &'static str,
    #[serde(flatten)]
    info: SandboxInfo,
}

/// Lists sandboxes.
pub(crate) async fn list(args: &ListArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let mut found = Vec::new();
    // Looking must not remove what is looked for: a native runtime that starts cleans up first.
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
        asked => runtimes(asked, settings).await?,
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
pub(crate) async fn prune(args: &PruneArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let mut removed = Vec::new();
    for (kind, runtime) in runtimes(args.runtime, settings).await? {
        let infos = runtime.prune().await?;
        removed.extend(infos.into_iter().map(|info| Found { runtime: kind.name(), info }));
    }
    if args.json {
        output::print_json(&removed)?;
    } else if removed.is_empty() {
        output::note("nothing was left behind");
    } else {
        let ids: Vec<_> = removed.iter().map(|found| found.info.id.as_str()).collect();
        output::print(&ids.join("\n"))?;
    }
    Ok(Exit::Done)
}

/// A daemon, where there is one. One that was named is expected to answer.
async fn docker_if_any(settings: &Settings) -> Vec<(RuntimeKind, AnyRuntime)> {
    match AnyRuntime::start(RuntimeKind::Docker, settings).await {
        Ok(runtime) => vec![(RuntimeKind::Docker, runtime)],
        Err(error) => {
            if settings.docker_host().is_some() {
                output::note(&format!("left out: {}", exit::line(&error)));
            }
            Vec::new()
        }
    }
}

/// The runtime asked for, or every one that answers. None is an error only if none does.
async fn runtimes(
    asked: Option<RuntimeKind>,
    settings: &Settings,
) -> anyhow::Result<Vec<(RuntimeKind, AnyRuntime)>> {
    if let Some(kind) = asked {
        return Ok(vec![(kind, AnyRuntime::start(kind, settings).await?)]);
    }
    let mut found = Vec::new();
    let mut trouble = None;
    for kind in [RuntimeKind::default(), RuntimeKind::Docker] {
        if found.iter().any(|(known, _)| *known == kind) {
            continue;
        }
        match AnyRuntime::start(kind, settings).await {
            Ok(runtime) => found.push((kind, runtime)),
            // Most machines have no daemon; one that was named is expected to answer.
            Err(error) if kind == RuntimeKind::Docker && !found.is_empty() => {
                if settings.docker_host().is_some() {
                    output::note(&format!("left out: {}", exit::line(&error)));
                }
            }
            Err(error) => trouble = trouble.or(Some(error)),
        }
    }
    match trouble {
        Some(error) if found.is_empty() => Err(error),
        Some(error) => {
            output::note(&format!("left out: {}", exit::line(&error)));
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

/// How long ago that was, in words.
pub(crate) fn age(then: SystemTime) -> String {
    let age = SystemTime::now().duration_since(then).unwrap_or_default();
    HumanDuration(Duration::from_secs(age.as_secs())).to_string()
}
