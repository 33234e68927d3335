//! Which machine a directory of state belongs to. Machines of a cluster may share one directory, but neither processes nor,
//! on many file systems, locks.

use std::{fs, io, path::Path};

/// The file in a spawner's directory that names its machine.
pub(crate) const FILE: &str = "machine";

/// A machine, from one start of its kernel to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    name: String,
    boot: String,
}

impl Machine {
    fn this() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: boot.trim().to_owned(),
        }
    }

    fn read(dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(dir.join(FILE)).ok()?;
        let (name, boot) = text.split_once('\n')?;
        Some(Self { name: name.to_owned(), boot: boot.trim_end().to_owned() })
    }

    /// Whether processes of this machine could be running on the other: they are one, or may be. Containers have names of
    /// their own on one kernel; and a machine that was restarted has another kernel and the same name.
    fn may_be(&self, other: &Self) -> bool {
        self.boot == other.boot || self.name == other.name
    }
}

/// Records that a directory belongs to this machine.
pub(crate) fn record(dir: &Path) -> io::Result<()> {
    let Machine { name, boot } = Machine::this();
    fs::write(dir.join(FILE), format!("{name}\n{boot}\n"))
}

/// Whether the machine of a directory is known.
pub(crate) fn is_recorded(dir: &Path) -> bool {
    Machine::read(dir).is_some()
}

/// Whether a directory belongs to another machine, whose processes and locks cannot be seen from here. One without a
/// record is of an earlier version, and of this machine as far as anybody knows.
pub(crate) fn is_foreign(dir: &Path) -> bool {
    Machine::read(dir).is_some_and(|owner| !owner.may_be(&Machine::this()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_name_with_another_kernel_is_another_machine() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_foreign(dir.path()));
        record(dir.path()).unwrap();
        assert!(!is_foreign(dir.path()));
        let this = Machine::this();
        assert_eq!(Machine::read(dir.path()), Some(this.clone()));
        let foreign = |name: &str, boot: &str| {
            fs::write(dir.path().join(FILE), format!("{name}\n{boot}\n")).unwrap();
            is_foreign(dir.path())
        };
        assert!(!foreign("a-container", &this.boot));
        assert!(!foreign(&this.name, "before-the-restart"));
        assert!(foreign("another-node", "its-own-kernel"));
    }
}
