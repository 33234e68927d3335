//! The process that created a container, distinguished from later ones with the same process id. Stored in a label.

use std::{fmt, fs, str::FromStr};

/// A process of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// Its start time, in clock ticks since boot.
    started: String,
    /// The boot id of the machine.
    boot: String,
    host: String,
}

impl Owner {
    /// This process.
    pub(crate) fn current() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            started: start_time(pid).unwrap_or_default(),
            boot: boot_id(),
            host: rustix::system::uname().nodename().to_string_lossy().replace('/', "-"),
        }
    }

    /// Whether the process is alive. Processes of other machines are assumed to be.
    pub(crate) fn is_alive(&self) -> bool {
        let current = Self::current();
        if self.host != current.host {
            return true;
        }
        self.boot == current.boot && exists(self.pid, &self.started)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.pid, self.started, self.boot, self.host)
    }
}

impl FromStr for Owner {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let [pid, started, boot, host] = text.split('/').collect::<Vec<_>>()[..] else {
            return Err(());
        };
        Ok(Self {
            pid: pid.parse().map_err(|_| ())?,
            started: started.into(),
            boot: boot.into(),
            host: host.into(),
        })
    }
}

/// Empty on systems without this file, where the process id alone has to do.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything; it ends at the last parenthesis.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

fn exists(pid: u32, started: &str) -> bool {
    if cfg!(target_os = "linux") {
        return start_time(pid).is_some_and(|time| time == started);
    }
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // A process that may not be signalled exists, too.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_owners_are_recognised() {
        let me = Owner::current();
        assert_eq!(me.to_string().parse(), Ok(me.clone()));
        assert!(me.is_alive());
        assert!(!Owner { boot: "another".into(), ..me.clone() }.is_alive());
        assert!(!Owner { pid: u32::MAX, ..me.clone() }.is_alive());
        assert!(Owner { pid: u32::MAX, host: "elsewhere".into(), ..me.clone() }.is_alive());
        if cfg!(target_os = "linux") {
            assert!(!Owner { started: "1".into(), ..me }.is_alive());
        }
        assert_eq!("1/2/3".parse::<Owner>(), Err(()));
    }
}
