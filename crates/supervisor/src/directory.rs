//! The supervisor's directory, `HOME/supervisor-MACHINE`: its socket, its locks, its log and the names of its sandboxes.
//!
//! The directory belongs to the user alone. It is opened once and checked, and everything in it is reached through the open
//! directory: replacing it by another, or by a link, has no effect. That also keeps paths of sockets short.
//!
//! | file | |
//! |---|---|
//! | `lock` | locked by the supervisor for as long as it lives |
//! | `starting` | locked by a client while it starts a supervisor, or looks for the remains of one |
//! | `socket` | where the supervisor listens |
//! | `sandboxes.json` | names of its sandboxes, to report them if they are lost |
//! | `sandboxes.json.next` | the same, while it is written |
//! | `log` | see `log.rs` |

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, open, openat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::{Error, Name, log::Log};

const LOCK: &str = "lock";
const STARTING: &str = "starting";
const SOCKET: &str = "socket";
const SANDBOXES: &str = "sandboxes.json";
/// The next [`SANDBOXES`], while it is written.
const NEXT: &str = "sandboxes.json.next";
/// What a killed supervisor leaves.
const TRACES: [&str; 3] = [SOCKET, SANDBOXES, NEXT];
const LOG: &str = "log";

/// How long a supervisor may take to start or to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How often to look again.
pub(crate) const INTERVAL: Duration = Duration::from_millis(5);
/// Longest accepted list of names, in bytes.
const MAX_NAMES: u64 = 4 << 20;

/// A sandbox whose supervisor was killed, and which is gone with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Its name.
    pub name: Name,
    /// The image it was created from.
    pub image: String,
    /// Time of its creation, in seconds since 1970.
    pub created: u64,
}

/// The open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens the directory below the state directory; `None` if there is none.
    pub(crate) fn open(home: &Path) -> Result<Option<Self>, Error> {
        let path = home.join(directory_name());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = open(home, flags, Mode::empty()).and_then(|home| {
            openat(home, directory_name(), flags | OFlags::NOFOLLOW, Mode::empty())
        });
        match opened {
            Ok(fd) => Self::check(fd, path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            // A link, or something else in its place.
            Err(Errno::LOOP | Errno::NOTDIR) => {
                Err(Error::Directory { path, reason: "it is not a directory".into() })
            }
            Err(error) => {
                Err(Error::Io { what: format!("opening {}", path.display()), source: error.into() })
            }
        }
    }

    /// Opens the directory, and creates it first if necessary.
    pub(crate) fn create(home: &Path) -> Result<Self, Error> {
        let path = home.join(directory_name());
        let made = fs::create_dir_all(home).and_then(|()| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let home = open(home, flags, Mode::empty())?;
            match mkdirat(home, directory_name(), Mode::RWXU) {
                Err(Errno::EXIST) | Ok(()) => Ok(()),
                Err(error) => Err(error.into()),
            }
        });
        made.map_err(Error::io(format!("creating {}", path.display())))?;
        let gone = || Error::Directory { path, reason: "it was removed".into() };
        Self::open(home)?.ok_or_else(gone)
    }

    fn check(fd: OwnedFd, path: PathBuf) -> Result<Self, Error> {
        let about = fstat(&fd).map_err(io::Error::from);
        let about = about.map_err(Error::io(format!("reading {}", path.display())))?;
        let (user, mode) = (rustix::process::geteuid().as_raw(), about.st_mode & 0o777);
        let reason = if FileType::from_raw_mode(about.st_mode) != FileType::Directory {
            "it is not a directory".to_owned()
        } else if about.st_uid != user {
            format!("it belongs to the user {}, not to {user}", about.st_uid)
        } else if mode & 0o077 != 0 {
            format!("other users may use it (mode {mode:03o}); make it private with chmod 700")
        } else {
            return Ok(Self { fd, path });
        };
        Err(Error::Directory { path, reason })
    }

    /// The directory's path, for people.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The log's path, for people.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// The socket, by a path that works in this process as long as the directory is open.
    pub(crate) fn socket(&self) -> PathBuf {
        self.at(SOCKET)
    }

    fn at(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()))
    }

    fn lock_file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(self.at(name))
    }

    fn try_lock(&self, name: &str) -> Result<Option<File>, Error> {
        let locked = self.lock_file(name).and_then(|file| {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(file)),
                Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
                Err(error) => Err(error.into()),
            }
        });
        locked.map_err(Error::io(format!("locking {}", self.path.join(name).display())))
    }

    /// Waits until no other client starts a supervisor; none does as long as the result lives.
    pub(crate) async fn starting(&self) -> Result<File, Error> {
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            if let Some(lock) = self.try_lock(STARTING)? {
                return Ok(lock);
            }
            if Instant::now() > deadline {
                return Err(Error::Silent { log: self.log_path() });
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Whether a supervisor lives, be it starting or ending. To be called by the holder of [`Directory::starting`] alone: a
    /// starting supervisor must find the lock free.
    pub(crate) fn is_claimed(&self) -> Result<bool, Error> {
        Ok(self.try_lock(LOCK)?.is_none())
    }

    /// Whether a supervisor is, or was, here and may have left something.
    pub(crate) fn has_traces(&self) -> bool {
        TRACES.iter().any(|name| self.at(name).symlink_metadata().is_ok())
    }

    /// Removes what a killed supervisor left; returns its sandboxes. To be called where no supervisor lives.
    pub(crate) fn take_lost(&self) -> Vec<Lost> {
        let lost = self.read_sandboxes().unwrap_or_default();
        for name in TRACES {
            let _ = fs::remove_file(self.at(name));
        }
        lost
    }

    fn read_sandboxes(&self) -> io::Result<Vec<Lost>> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
        let mut bytes = Vec::new();
        options.open(self.at(SANDBOXES))?.take(MAX_NAMES).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

/// The state directory may be shared by several machines, each of which has its own processes.
fn directory_name() -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("supervisor-{}", machine.chars().take(64).map(plain).collect::<String>())
}

/// The right to be the supervisor of a state directory, held until the process ends.
#[derive(Debug)]
pub struct Claim {
    pub(crate) directory: Directory,
    pub(crate) log: Log,
    _lock: File,
}

impl Claim {
    /// Claims the state directory.
    ///
    /// # Errors
    /// If another supervisor has it, or the directory is not safe to use.
    pub fn new(home: &Path) -> Result<Self, Error> {
        let directory = Directory::create(home)?;
        let lock = directory
            .try_lock(LOCK)?
            .ok_or_else(|| Error::NotStarted { reason: "another supervisor is running".into() })?;
        let log = Log::open(&directory.at(LOG));
        let log = log.map_err(Error::io(format!("opening {}", directory.log_path().display())))?;
        Ok(Self { directory, log, _lock: lock })
    }

    /// Appends a line to the log.
    pub fn note(&self, text: &str) {
        self.log.line(text);
    }

    /// Opens the socket. From now on clients can connect.
    pub(crate) fn listen(&self) -> io::Result<tokio::net::UnixListener> {
        let socket = self.directory.socket();
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => tokio::net::UnixListener::bind(socket),
        }
    }

    /// Whether clients can find the socket.
    pub(crate) fn can_be_found(&self) -> bool {
        self.directory.socket().symlink_metadata().is_ok()
    }

    /// Removes the socket: new clients find no supervisor.
    pub(crate) fn close(&self) {
        let _ = fs::remove_file(self.directory.socket());
    }

    /// Writes the names under a fixed name first, by which the next client finds it if this process is killed meanwhile.
    fn write_names(&self, bytes: &[u8]) -> io::Result<()> {
        let next = self.directory.at(NEXT);
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        options.open(&next)?.write_all(bytes)?;
        fs::rename(next, self.directory.at(SANDBOXES))
    }

    /// Stores the names of the sandboxes. They are only needed for a message, so a failure is logged and no more.
    pub(crate) fn record(&self, sandboxes: &[Lost]) {
        let path = self.directory.at(SANDBOXES);
        let stored = match sandboxes {
            [] => fs::remove_file(path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            names => serde_json::to_vec(names)
                .map_err(io::Error::from)
                .and_then(|bytes| self.write_names(&bytes)),
        };
        if let Err(error) = stored {
            self.log.line(&format!("cannot store the names of the sandboxes: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_directory_is_private() {
        let home = tempfile::tempdir().unwrap();
        assert!(Directory::open(home.path()).unwrap().is_none());
        let directory = Directory::create(home.path()).unwrap();
        assert_eq!(mode(directory.path()), 0o700);
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = Directory::open(home.path()).unwrap_err().to_string();
        assert!(error.contains("mode 755") && error.contains("chmod 700"), "{error}");
    }

    #[test]
    fn a_link_in_its_place_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), home.path().join(directory_name())).unwrap();
        for opened in
            [Directory::create(home.path()), Directory::open(home.path()).map(Option::unwrap)]
        {
            assert!(matches!(opened, Err(Error::Directory { .. })), "{opened:?}");
        }
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_supervisor_at_a_time() {
        let home = tempfile::tempdir().unwrap();
        let claim = Claim::new(home.path()).unwrap();
        assert!(claim.directory.is_claimed().unwrap());
        assert!(matches!(Claim::new(home.path()), Err(Error::NotStarted { .. })));
        drop(claim);
        let claim = Claim::new(home.path()).unwrap();
        let sandbox = Lost { name: "a".parse().unwrap(), image: "host".into(), created: 1 };
        claim.record(std::slice::from_ref(&sandbox));
        drop(claim);
        let directory = Directory::open(home.path()).unwrap().unwrap();
        assert!(directory.has_traces() && !directory.is_claimed().unwrap());
        // It was killed while it stored them again.
        fs::write(directory.at(NEXT), "[").unwrap();
        assert_eq!(directory.take_lost(), [sandbox]);
        assert!(!directory.has_traces());
        assert_eq!(directory.take_lost(), []);
    }
}
