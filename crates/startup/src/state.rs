//! Where running sandboxes keep their state: sockets, locks and the files they write.
//!
//! The data directory, with images and models, may be on storage that several machines share and that cannot hold any of
//! these. Then a directory of this machine is used. The rule, in this order:
//!
//! 1. the directory the user chose ([`TemporaryDirs::chosen`]);
//! 2. the data directory, if its file system can hold everything;
//! 3. the directories for temporary files of the job and of the user, the session's, `/tmp` and `/var/tmp`: the first that
//!    can hold everything and has [`ENOUGH`] free, else the one with the most space;
//! 4. the first of all these that can hold at least sockets and locks; what sandboxes write is then kept in memory.
//!
//! In a directory for temporary files, `llm-in-sandbox-UID` is made for this user alone; one that another user made, or
//! could replace, is passed over. In it, every data directory has a directory of its own.

use std::{
    ffi::OsString,
    fmt, fs, io,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sandbox_native::{Suitability, private_directory, suitability};

/// The variable that chooses a directory.
pub const TMPDIR_VARIABLE: &str = "LLM_IN_SANDBOX_TMPDIR";
/// The job's directory on a cluster.
const JOB: &str = "SLURM_TMPDIR";
/// The user's directory for temporary files.
const GENERAL: &str = "TMPDIR";
/// The directory of the user's session, in memory as a rule.
const SESSION: &str = "XDG_RUNTIME_DIR";
/// Where every system has temporary files.
const USUAL: [&str; 2] = ["/tmp", "/var/tmp"];

/// Space for two sandboxes at their default limit. With less, sandboxes could fill what others need.
const ENOUGH: u64 = 4 << 30;
/// Longest accepted record of places, in bytes.
const MAX_RECORD: u64 = 1 << 20;

/// Directories for temporary files, as the environment names them.
#[derive(Clone, Debug, Default)]
pub struct TemporaryDirs {
    /// The one chosen for this program.
    pub chosen: Option<PathBuf>,
    /// Others, best first, with the name of their variable.
    pub others: Vec<(&'static str, PathBuf)>,
}

impl TemporaryDirs {
    /// Takes them from variables, which the caller reads. Relative paths are ignored, but for the chosen one.
    pub fn from_variables(read: impl Fn(&str) -> Option<OsString>) -> Self {
        let absolute = |name| Some((name, PathBuf::from(read(name)?)));
        Self {
            chosen: read(TMPDIR_VARIABLE)
                .map(|dir| std::path::absolute(&dir).unwrap_or_else(|_| dir.into())),
            others: [JOB, GENERAL, SESSION]
                .into_iter()
                .filter_map(absolute)
                .filter(|(_, dir)| dir.is_absolute())
                .collect(),
        }
    }

    /// All but the chosen one, with a word for each.
    fn others(&self) -> Vec<(&'static str, &Path)> {
        let usual = USUAL.iter().map(|dir| (*dir, Path::new(*dir)));
        let mut all: Vec<(&'static str, &Path)> =
            self.others.iter().map(|(name, dir)| (*name, dir.as_path())).collect();
        all.extend(usual);
        let mut seen: Vec<&Path> = Vec::new();
        all.retain(|(_, dir)| !seen.contains(dir) && (seen.push(*dir), true).1);
        all
    }
}

/// The directory for the state of sandboxes, and why it is this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    /// The directory, which exists.
    pub path: PathBuf,
    /// Why it was chosen.
    pub why: String,
    /// Directories that come before it, and why they were not chosen.
    pub passed_over: Vec<(PathBuf, String)>,
}

/// No directory can hold the state of sandboxes.
#[derive(Debug, PartialEq, Eq)]
pub struct NoStateDir {
    tried: Vec<(PathBuf, String)>,
}

impl fmt::Display for NoStateDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no directory can hold the state of running sandboxes:")?;
        for (at, (path, reason)) in self.tried.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma} {} ({reason})", path.display())?;
        }
        write!(f, "; set {TMPDIR_VARIABLE} to a directory on a local disk")
    }
}

impl std::error::Error for NoStateDir {}

/// Chooses the directory for the state of sandboxes, and creates it. `home` is the data directory, which exists.
///
/// # Errors
/// If the chosen directory cannot be used, or none can.
pub fn state_dir(home: &Path, temporary: &TemporaryDirs) -> Result<StateDir, NoStateDir> {
    let mut tried = Vec::new();
    if let Some(chosen) = &temporary.chosen {
        let path = state_in(chosen, home);
        let why = match create(&path) {
            Ok(Suitability::Everything) => format!("{TMPDIR_VARIABLE} chooses it"),
            Ok(Suitability::StateOnly(reason)) => {
                format!("{TMPDIR_VARIABLE} chooses it; files are kept in memory: {reason}")
            }
            Ok(Suitability::Nothing(reason)) => {
                return Err(NoStateDir { tried: vec![(chosen.clone(), reason.into())] });
            }
            Err(error) => {
                return Err(NoStateDir { tried: vec![(chosen.clone(), error.to_string())] });
            }
        };
        record(home, &path);
        return Ok(StateDir { path, why, passed_over: tried });
    }
    let mut sockets = None;
    match suitability(home) {
        Ok(Suitability::Everything) => {
            let why = "the data directory can hold it".into();
            return Ok(StateDir { path: home.to_owned(), why, passed_over: tried });
        }
        Ok(Suitability::StateOnly(reason)) => {
            sockets = Some((home.to_owned(), reason));
            tried.push((home.to_owned(), reason.into()));
        }
        Ok(Suitability::Nothing(reason)) => tried.push((home.to_owned(), reason.into())),
        Err(error) => tried.push((home.to_owned(), error.to_string())),
    }
    let mut small: Vec<(PathBuf, u64)> = Vec::new();
    for (name, dir) in temporary.others() {
        let path = state_in(dir, home);
        match create(&path) {
            Ok(Suitability::Everything) => match free_space(&path) {
                free if free >= ENOUGH => {
                    let why = format!("{name}, because the data directory cannot hold it");
                    return Ok(found(home, path, why, tried));
                }
                free => {
                    tried.push((path.clone(), format!("only {} MiB are free", free >> 20)));
                    small.push((path, free));
                }
            },
            Ok(Suitability::StateOnly(reason)) => {
                sockets.get_or_insert((path.clone(), reason));
                tried.push((path, reason.into()));
            }
            Ok(Suitability::Nothing(reason)) => tried.push((path, reason.into())),
            Err(error) => tried.push((path, error.to_string())),
        }
    }
    let largest = small.into_iter().max_by_key(|(_, free)| *free);
    let (path, why) = match (largest, sockets) {
        (Some((path, _)), _) => (path, "no other directory has more space".to_owned()),
        (None, Some((path, reason))) => {
            (path, format!("no directory can hold the files, which are kept in memory: {reason}"))
        }
        (None, None) => return Err(NoStateDir { tried }),
    };
    tried.retain(|(other, _)| *other != path);
    Ok(found(home, path, why, tried))
}

/// Records the directory that was found, and removes those that were made in vain.
fn found(home: &Path, path: PathBuf, why: String, tried: Vec<(PathBuf, String)>) -> StateDir {
    if path != home {
        record(home, &path);
    }
    for (other, _) in tried.iter().filter(|(other, _)| other != home) {
        // Those that hold something stay.
        let own = other.parent().filter(|own| *own != path);
        let _ = fs::remove_dir(other).and_then(|()| own.map_or(Ok(()), fs::remove_dir));
    }
    StateDir { path, why, passed_over: tried }
}

/// Every directory of this machine that may hold state of sandboxes of this data directory, and exists. The data directory
/// itself comes first. Creates nothing.
pub fn state_dirs(home: &Path, temporary: &TemporaryDirs) -> Vec<PathBuf> {
    let chosen = temporary.chosen.iter().map(PathBuf::as_path);
    let others = temporary.others().into_iter().map(|(_, dir)| dir);
    let mut all: Vec<_> = chosen.chain(others).map(|dir| state_in(dir, home)).collect();
    all.extend(recorded(home));
    let mut found = vec![home.to_owned()];
    for path in all {
        // Another user may have made one of this name.
        let is_private =
            path.parent().is_some_and(|own| own.exists() && private_directory(own).is_ok());
        if is_private && path.is_dir() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// The state directory of a data directory in a directory for temporary files.
fn state_in(dir: &Path, home: &Path) -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let home = fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    // FNV-1a: the same for every version of this program.
    let digest =
        home.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    // Without links, whose owner could lead the path elsewhere later.
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    dir.join(format!("llm-in-sandbox-{user}")).join(format!("{digest:016x}"))
}

/// Creates a state directory, and examines its file system.
fn create(path: &Path) -> io::Result<Suitability> {
    if let Some(own) = path.parent() {
        private_directory(own)?;
    }
    private_directory(path)?;
    suitability(path)
}

/// Free space for this user, in bytes.
fn free_space(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |about| about.f_bavail.saturating_mul(about.f_frsize))
}

/// The record of the state directories that this machine has used: what a killed process left there is found again, even
/// if the variables have changed.
fn record_of(home: &Path) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    home.join("places").join(machine.chars().take(64).map(plain).collect::<String>())
}

fn recorded(home: &Path) -> Vec<PathBuf> {
    let mut bytes = Vec::new();
    let file = fs::File::open(record_of(home));
    let read = file
        .and_then(|file| io::Read::read_to_end(&mut io::Read::take(file, MAX_RECORD), &mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"/"));
    lines.map(|line| PathBuf::from(std::ffi::OsStr::from_bytes(line))).collect()
}

/// Adds a directory to the record. Without the record, all that is lost is a place to look for leftovers.
fn record(home: &Path, path: &Path) {
    let known = recorded(home);
    if known.iter().any(|known| known == path) {
        return;
    }
    let file = record_of(home);
    let mut lines: Vec<u8> = Vec::new();
    // Those of jobs that are over are forgotten.
    let kept = known.iter().filter(|known| known.exists()).map(PathBuf::as_path);
    for path in kept.chain([path]) {
        lines.extend(path.as_os_str().as_bytes());
        lines.push(b'\n');
    }
    let partial = file.with_extension(format!("partial-{}", std::process::id()));
    let _ = file
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::File::create(&partial)?.write_all(&lines))
        .and_then(|()| fs::rename(&partial, &file))
        .inspect_err(|_| drop(fs::remove_file(&partial)));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn chosen(dir: &Path) -> TemporaryDirs {
        TemporaryDirs { chosen: Some(dir.to_owned()), others: Vec::new() }
    }

    #[test]
    fn a_local_data_directory_holds_the_state_itself() {
        let home = tempfile::tempdir().unwrap();
        let found = state_dir(home.path(), &TemporaryDirs::default()).unwrap();
        // Where temporary files are on overlayfs, another directory may be better.
        if suitability(home.path()).unwrap() == Suitability::Everything {
            assert_eq!((found.path.as_path(), found.passed_over.len()), (home.path(), 0));
            assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_chosen_directory_is_used_for_each_data_directory_apart() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tmp = tempfile::tempdir().unwrap();
        let first = state_dir(home.path(), &chosen(tmp.path())).unwrap();
        assert_eq!(state_dir(home.path(), &chosen(tmp.path())).unwrap(), first);
        let second = state_dir(other.path(), &chosen(tmp.path())).unwrap();
        assert!(first.path.starts_with(tmp.path()) && first.path != second.path);
        let mode = fs::metadata(first.path.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        // Found again, though the variable is not set any more, and only for its data directory.
        let found = state_dirs(home.path(), &TemporaryDirs::default());
        assert_eq!(found[0], home.path());
        assert!(found.contains(&first.path) && !found.contains(&second.path), "{found:?}");
    }

    #[test]
    fn what_another_user_prepared_is_refused() {
        let (home, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = state_in(tmp.path(), home.path()).parent().unwrap().to_owned();
        let refused = || {
            let error = state_dir(home.path(), &chosen(tmp.path())).unwrap_err().to_string();
            assert!(error.contains(TMPDIR_VARIABLE), "{error}");
            assert_eq!(state_dirs(home.path(), &chosen(tmp.path())), [home.path()]);
            error
        };
        symlink(home.path(), &own).unwrap();
        assert!(refused().contains("symbolic link"));
        fs::remove_file(&own).unwrap();
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused().contains("mode 777"));
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&own, Some(12345), None).unwrap();
            assert!(refused().contains("belongs to the user 12345"));
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "it wrote through the link");
    }

    #[test]
    fn variables_are_taken_in_order_and_relative_ones_ignored() {
        let read = |name: &str| match name {
            JOB => Some("/job".into()),
            GENERAL => Some("relative".into()),
            SESSION => Some("/tmp".into()),
            TMPDIR_VARIABLE => Some("mine".into()),
            _ => None,
        };
        let dirs = TemporaryDirs::from_variables(read);
        assert!(dirs.chosen.as_ref().is_some_and(|dir| dir.is_absolute() && dir.ends_with("mine")));
        let paths: Vec<_> = dirs.others().into_iter().map(|(_, dir)| dir.to_owned()).collect();
        assert_eq!(paths, [Path::new("/job"), Path::new("/tmp"), Path::new("/var/tmp")]);
    }
}
