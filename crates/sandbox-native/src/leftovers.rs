//! State of spawners on disk, and finding and removing what a dead spawner left.
//!
//! `STATE/run/NAME/` belongs to one spawner, which locks the file `lock` in it for as long as it lives. A directory whose
//! lock is free is a leftover, unless it is of another machine (`machine.rs`): those are neither listed nor removed.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    process::{Pid, test_kill_process},
};
use sandbox::SandboxInfo;

use crate::{
    cgroup::{Cgroups, PREFIX, pid_namespace, thaw},
    machine,
    spawner::remove_leftover,
    storage,
};

/// A directory this young may belong to a spawner that has not locked it yet.
const GRACE: Duration = Duration::from_secs(10);

/// The locks on a spawner's directory, held for as long as it lives.
pub(crate) struct Claim {
    _own: fs::File,
    /// A shared lock on the directory above. Services that remove old files from `/tmp` leave locked directories alone.
    _above: Option<fs::File>,
}

/// Creates a spawner's directory and locks it.
pub(crate) fn claim(run_dir: &Path) -> io::Result<Claim> {
    use std::os::unix::fs::DirBuilderExt;
    let mut above = None;
    if let Some(parent) = run_dir.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let locked = |file: &fs::File| flock(file, FlockOperation::NonBlockingLockShared).is_ok();
        above = fs::File::open(parent.parent().unwrap_or(parent)).ok().filter(locked);
    }
    fs::DirBuilder::new().mode(0o700).create(run_dir)?;
    machine::record(run_dir)?;
    // Locked before it gets its name, so that it is never taken for that of a dead spawner.
    let (hidden, shown) = (run_dir.join("lock.new"), run_dir.join("lock"));
    let lock = fs::File::create(&hidden)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(hidden, shown)?;
    Ok(Claim { _own: lock, _above: above })
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
pub(crate) fn prune(runs: &Path, cgroups: &Cgroups) -> io::Result<Vec<SandboxInfo>> {
    let mut removed: Vec<_> = list(runs)?.into_iter().filter(|info| !info.alive).collect();
    for run in run_dirs(runs)? {
        if is_alive(&run) {
            continue;
        }
        let name = run.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Its processes died with their spawner, but perhaps only just. While a group stays, so does the directory,
        // without which the group would never be found again.
        let groups = cgroups.named(&format!("{PREFIX}{name}"));
        if !groups.iter().all(|group| remove_group(group)) {
            continue;
        }
        // One that cannot be removed must not prevent the removal of others.
        let _ = remove_leftover(&run);
    }
    remove_ownerless(&cgroups.named(PREFIX));
    removed.iter_mut().for_each(|info| info.alive = false);
    Ok(removed)
}

/// Removes the empty ones among these control groups whose caller is dead: their spawner was killed, and the directory by
/// which they would be found is gone. The kernel keeps groups with processes only, and those of a live caller can be empty
/// too: no command runs. Groups of another pid namespace are therefore kept, where this process cannot see the caller.
fn remove_ownerless(groups: &[PathBuf]) {
    let Some(here) = pid_namespace() else { return };
    let mut callers: HashMap<Pid, bool> = HashMap::new();
    for group in groups {
        let name = group.file_name().unwrap_or_default().to_string_lossy();
        let Some((caller, _)) = caller_of(&name).filter(|(_, namespace)| *namespace == here) else {
            continue;
        };
        let is_dead =
            *callers.entry(caller).or_insert_with(|| test_kill_process(caller) == Err(Errno::SRCH));
        if is_dead && !is_young(group) {
            for inside in inside(group) {
                let _ = fs::remove_dir(inside);
            }
            let _ = fs::remove_dir(group);
        }
    }
}

/// The groups in a control group: version 2 has one per spawner, with those of its sandboxes inside.
fn inside(group: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path())
}

/// The process id in the name of a control group, and the pid namespace it is of: `lis-PROCESS-RANDOM.NAMESPACE`, or with
/// `-NUMBER` or `-init` before the point.
fn caller_of(group: &str) -> Option<(Pid, u64)> {
    let (name, namespace) = group.strip_prefix(PREFIX)?.split_once('.')?;
    let mut parts = name.split('-');
    let (caller, random, rest) = (parts.next()?, parts.next()?, parts.next());
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let hex = random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let known = rest.is_none_or(|rest| rest == "init" || digits(rest));
    let valid = digits(caller) && hex && known && parts.next().is_none();
    let caller = valid.then(|| caller.parse().ok()).flatten().and_then(Pid::from_raw)?;
    Some((caller, u64::from_str_radix(namespace, 16).ok()?))
}

/// Whether a directory was changed so recently that its owner may not be done with it.
fn is_young(dir: &Path) -> bool {
    let made = dir.metadata().and_then(|meta| meta.modified());
    made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < GRACE))
}

/// Removes a control group, and those in it, whose last processes may still be exiting.
fn remove_group(group: &Path) -> bool {
    inside(group).all(|group| remove_empty(&group)) && remove_empty(group)
}

fn remove_empty(group: &Path) -> bool {
    for _ in 0..500 {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                thaw(group);
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return error.kind() == io::ErrorKind::NotFound,
            Ok(()) => return true,
        }
    }
    false
}

/// The directories of spawners that ran on this machine.
fn run_dirs(runs: &Path) -> io::Result<Vec<PathBuf>> {
    let ours = |dir: &io::Result<PathBuf>| !dir.as_ref().is_ok_and(|dir| machine::is_foreign(dir));
    match fs::read_dir(runs) {
        Ok(entries) => entries.map(|entry| entry.map(|e| e.path())).filter(ours).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether a live spawner has this directory, or is about to lock it.
fn is_alive(run: &Path) -> bool {
    match fs::File::open(run.join("lock")) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockShared).is_err(),
        Err(_) => {
            // The name starts with the id of the process it was created for.
            let name = run.file_name().unwrap_or_default().to_string_lossy();
            let owner = name.split('-').next().unwrap_or_default();
            let may_run = Path::new("/proc").join(owner).exists() || may_begin_elsewhere(run);
            is_young(run) && may_run
        }
    }
}

/// Whether a directory may be of a spawner that begins on another machine, whose processes cannot be seen from here: one
/// records its machine first of all. With other files but without that record, its removal was interrupted.
fn may_begin_elsewhere(run: &Path) -> bool {
    let is_new =
        |entries: fs::ReadDir| entries.flatten().all(|entry| entry.file_name() == machine::FILE);
    storage::is_shared(run) && !machine::is_recorded(run) && fs::read_dir(run).is_ok_and(is_new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_of_another_machine_are_neither_listed_nor_removed() {
        let runs = tempfile::tempdir().unwrap();
        let make = |name: &str, machine: Option<&str>| {
            let run = runs.path().join(name);
            fs::create_dir(&run).unwrap();
            fs::write(run.join("lock"), "").unwrap();
            if let Some(machine) = machine {
                fs::write(run.join("machine"), machine).unwrap();
            }
            write_info(&run, &info(&format!("{name}-1"), "host", None)).unwrap();
            run
        };
        // Their locks are free, as seen from here: the file system does not share them.
        let foreign = make("7-00000001", Some("another-node\nits-boot\n"));
        let older = make("7-00000002", None);
        let own = make("7-00000003", None);
        machine::record(&own).unwrap();
        let listed: Vec<_> = list(runs.path()).unwrap().into_iter().map(|info| info.id).collect();
        assert_eq!(listed, ["7-00000002-1", "7-00000003-1"]);
        assert_eq!(prune(runs.path(), &Cgroups::default()).unwrap().len(), 2);
        assert!(foreign.exists() && !older.exists() && !own.exists());
    }

    #[test]
    fn a_removal_that_was_interrupted_is_completed() {
        let runs = tempfile::tempdir().unwrap();
        // Of a process that cannot exist.
        let runs_of = |number: u32| runs.path().join(format!("99999999-{number:08x}"));
        fs::create_dir(runs_of(1)).unwrap();
        fs::create_dir_all(runs_of(2).join("state")).unwrap();
        fs::create_dir(runs_of(3)).unwrap();
        fs::write(runs_of(3).join(machine::FILE), "").unwrap();
        prune(runs.path(), &Cgroups::default()).unwrap();
        assert_eq!(fs::read_dir(runs.path()).unwrap().count(), 0);
    }

    #[test]
    fn groups_are_known_by_their_names() {
        for own in ["lis-4015-8dcbf0c6-12", "lis-4015-8dcbf0c6", "lis-4015-8dcbf0c6-init"] {
            assert_eq!(caller_of(&format!("{own}.f0")), Pid::from_raw(4015).map(|p| (p, 0xf0)));
            assert_eq!(caller_of(own), None, "{own} may be of any namespace");
        }
        for foreign in
            ["lis-4015", "lis-x-8dcbf0c6-1", "lis-1-2-3", "lis-1-8dcbf0c6-1-1", "lis-1-8dcbf0c6-x"]
        {
            assert_eq!(caller_of(&format!("{foreign}.f0")), None, "{foreign}");
        }
    }

    #[test]
    fn groups_are_removed_only_if_their_caller_is_known_to_be_dead() {
        let top = tempfile::tempdir().unwrap();
        let (here, alive, dead) = (pid_namespace().unwrap(), std::process::id(), i32::MAX);
        let make = |name: String| {
            let group = top.path().join(name);
            fs::create_dir(&group).unwrap();
            let old = SystemTime::now() - GRACE * 2;
            fs::File::open(&group).unwrap().set_modified(old).unwrap();
            group
        };
        let gone = ["", "-1", "-init"].map(|end| format!("lis-{dead}-8dcbf0c6{end}.{here:x}"));
        let kept = [
            format!("lis-{alive}-8dcbf0c6-1.{here:x}"),
            format!("lis-{dead}-8dcbf0c6-1.{:x}", here + 1),
            format!("lis-{dead}-8dcbf0c6-1"),
        ];
        let (gone, kept) = (gone.map(make), kept.map(make));
        remove_ownerless(&[gone.as_slice(), kept.as_slice()].concat());
        assert!(gone.iter().all(|group| !group.exists()));
        assert!(kept.iter().all(|group| group.exists()));
    }
}
