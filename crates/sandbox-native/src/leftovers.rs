//! State of spawners on disk, and finding and removing what a dead spawner left.
//!
//! `HOME/run/NAME/` belongs to one spawner, which locks the file `lock` in it for as long as it lives. A directory whose
//! lock is free is a leftover.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::Pid,
};
use sandbox::SandboxInfo;

use crate::{
    cgroup::{Cgroups, PREFIX},
    spawner::remove_leftover,
};

/// A directory this young may belong to a spawner that has not locked it yet.
const GRACE: Duration = Duration::from_secs(10);

/// Creates a spawner's directory and locks it.
pub(crate) fn claim(run_dir: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(parent) = run_dir.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    fs::DirBuilder::new().mode(0o700).create(run_dir)?;
    // Locked before it gets its name, so that it is never taken for that of a dead spawner.
    let (hidden, shown) = (run_dir.join("lock.new"), run_dir.join("lock"));
    let lock = fs::File::create(&hidden)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(hidden, shown)?;
    Ok(lock)
}

/// Returns the record of a sandbox created now.
pub(crate) fn info(id: &str, image: &str, owner: Option<Pid>) -> SandboxInfo {
    SandboxInfo {
        id: id.to_owned(),
        owner_pid: owner.map_or(0, |pid| pid.as_raw_nonzero().get() as u32),
        alive: true,
        image: image.to_owned(),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    }
}

/// Writes a sandbox's record.
pub(crate) fn write_info(run_dir: &Path, info: &SandboxInfo) -> io::Result<()> {
    fs::write(run_dir.join(format!("{}.json", info.id)), serde_json::to_vec(info)?)
}

/// Removes a sandbox's record.
pub(crate) fn remove_info(run_dir: &Path, id: &str) {
    let _ = fs::remove_file(run_dir.join(format!("{id}.json")));
}

/// Lists every sandbox recorded below this directory, including those of dead spawners.
pub(crate) fn list(runs: &Path) -> io::Result<Vec<SandboxInfo>> {
    let mut all = Vec::new();
    for run in run_dirs(runs)? {
        let alive = is_alive(&run);
        for entry in fs::read_dir(&run).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "json")
                && let Ok(bytes) = fs::read(&path)
                && let Ok(info) = serde_json::from_slice::<SandboxInfo>(&bytes)
            {
                all.push(SandboxInfo { alive, ..info });
            }
        }
    }
    all.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
    Ok(all)
}

/// Removes the control groups, directories and records of dead spawners; returns their sandboxes.
pub(crate) fn prune(runs: &Path) -> io::Result<Vec<SandboxInfo>> {
    let mut removed: Vec<_> = list(runs)?.into_iter().filter(|info| !info.alive).collect();
    let cgroups = Cgroups::detect();
    for run in run_dirs(runs)? {
        if is_alive(&run) {
            continue;
        }
        let name = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Its processes died with their spawner, but perhaps only just. While a group stays, so does the directory,
        // without which the group would never be found again.
        let groups = cgroups.named(&format!("{PREFIX}{name}-"));
        if !groups.iter().all(|group| remove_group(group)) {
            continue;
        }
        // One that cannot be removed must not prevent the removal of others.
        let _ = remove_leftover(&run);
    }
    removed.iter_mut().for_each(|info| info.alive = false);
    Ok(removed)
}

/// Removes a control group whose last processes may still be exiting.
fn remove_group(group: &Path) -> bool {
    for _ in 0..500 {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return error.kind() == io::ErrorKind::NotFound,
            Ok(()) => return true,
        }
    }
    false
}

fn run_dirs(runs: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(runs) {
        Ok(entries) => entries.map(|entry| entry.map(|e| e.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether a live spawner has this directory, or is about to lock it.
fn is_alive(run: &Path) -> bool {
    match fs::File::open(run.join("lock")) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockShared).is_err(),
        Err(_) => {
            let made = run.metadata().and_then(|meta| meta.modified());
            let young = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < GRACE));
            // The name starts with the id of the process it was created for.
            let name = run.file_name().unwrap_or_default().to_string_lossy();
            let owner = name.split('-').next().unwrap_or_default();
            young && Path::new("/proc").join(owner).exists()
        }
    }
}
