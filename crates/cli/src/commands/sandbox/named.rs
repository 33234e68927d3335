//! `sandbox create`, `fork`, `save` and `rm`: the life of named sandboxes.

use sandbox::{ImageRef, Protection};
use serde::Serialize;
use supervisor::{Error, Name, Supervisor};

use super::{
    args::named::{SandboxCreateArgs, SandboxForkArgs, SandboxRmArgs, SandboxSaveArgs},
    supervise::{connect, connect_or_start, supervisor_of},
};
use crate::{
    args::sandbox::RuntimeKind,
    console::output,
    exit::{self, Exit, UsageError},
    settings::{Settings, sandbox::SandboxSettings},
};

/// The object `sandbox create --json` prints.
#[derive(Serialize)]
struct Report<'a> {
    name: &'a Name,
    id: &'a str,
    image: String,
    /// The process that owns the sandbox.
    owner_pid: u32,
    idle_timeout_seconds: Option<f64>,
    protection: &'a Protection,
}

/// Creates a sandbox.
pub(crate) async fn create(args: SandboxCreateArgs, settings: &Settings) -> anyhow::Result<Exit> {
    let mut sandbox = SandboxSettings::check(args.sandbox, args.workdir)?;
    if sandbox.runtime != RuntimeKind::Native {
        let text =
            "named sandboxes need the native runtime: omit --runtime, or use `docker run --detach`";
        return Err(UsageError(text.into()).into());
    }
    if let ImageRef::Dir(dir) = &mut sandbox.spec.image {
        // The supervisor has another working directory.
        *dir = std::path::absolute(&*dir)?;
    }
    let supervisor = connect_or_start(settings).await?;
    let created = supervisor.create(&args.name, &sandbox.spec, args.idle_timeout.0).await?;
    if let Err(weak) = sandbox.accept(&created.protection) {
        supervisor.remove(&args.name).await?;
        return Err(weak.into());
    }
    if args.json {
        output::print_json(&Report {
            name: &args.name,
            id: &created.id,
            image: sandbox.spec.image.to_string(),
            owner_pid: supervisor.info().pid,
            idle_timeout_seconds: args.idle_timeout.0.map(|time| time.as_secs_f64()),
            protection: &created.protection,
        })?;
    } else {
        output::print(args.name.as_str())?;
    }
    Ok(Exit::Done)
}

/// Creates a second sandbox with the files of the first.
pub(crate) async fn fork(args: &SandboxForkArgs, settings: &Settings) -> anyhow::Result<Exit> {
    supervisor_of(&args.name, settings).await?.fork(&args.name, &args.new).await?;
    output::print(args.new.as_str())?;
    Ok(Exit::Done)
}

/// Saves the files of a sandbox as an image.
pub(crate) async fn save(args: &SandboxSaveArgs, settings: &Settings) -> anyhow::Result<Exit> {
    image::check_name(&args.image).map_err(image::Error::from)?;
    supervisor_of(&args.name, settings).await?.save(&args.name, &args.image).await?;
    output::print(&args.image)?;
    Ok(Exit::Done)
}

/// Removes sandboxes. One that cannot be removed does not keep the others.
pub(crate) async fn remove(args: &SandboxRmArgs, settings: &Settings) -> anyhow::Result<Exit> {
    if args.all {
        return remove_all(settings).await;
    }
    let supervisor = connect(settings).await?;
    let mut failure = None;
    for name in &args.names {
        let removed = match &supervisor {
            Some(supervisor) => supervisor.remove(name).await,
            None => Err(Error::Unknown(name.clone())),
        };
        match removed {
            Ok(()) => output::print(name.as_str())?,
            Err(error) => {
                // All but the last error are reported here, the last by the caller.
                if let Some(earlier) = failure.replace(anyhow::Error::from(error)) {
                    exit::report(&earlier);
                }
            }
        }
    }
    failure.map_or(Ok(Exit::Done), Err)
}

async fn remove_all(settings: &Settings) -> anyhow::Result<Exit> {
    let supervisor = match connect(settings).await {
        Ok(Some(supervisor)) => supervisor,
        Ok(None) => {
            output::note("there are no named sandboxes");
            return Ok(Exit::Done);
        }
        // One of another version can at least be told to end.
        Err(error) if matches!(error.downcast_ref(), Some(Error::Version { .. })) => {
            for state in settings.states()? {
                Supervisor::stop(&state).await?;
            }
            output::note(&format!("removed all: {}", exit::describe(&error)));
            return Ok(Exit::Done);
        }
        Err(error) => return Err(error),
    };
    let found = supervisor.list().await?;
    for sandbox in &found {
        match supervisor.remove(&sandbox.name).await {
            Ok(()) => output::print(sandbox.name.as_str())?,
            // Another command was faster.
            Err(Error::Unknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if found.is_empty() {
        output::note("there are no named sandboxes");
    }
    Ok(Exit::Done)
}
