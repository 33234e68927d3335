//! The user that runs the spawner, and the users of the host that those of a sandbox are mapped to.

use std::{
    cell::Cell,
    fs, io,
    os::fd::{AsFd, OwnedFd},
    process::Command,
};

use rustix::{
    mount::{MountPropagationFlags, mount_change},
    process::{DumpableBehavior, Uid, set_dumpable_behavior},
    thread::{CapabilitiesSecureBits, CapabilitySet, UnshareFlags},
};

use super::{
    Users,
    counted::{self, CallerLimits, Shares},
};
use crate::{
    mounts::{Failure, Owners, Step},
    sys::{self, Fork, SingleThreaded},
};

/// First user id of sandboxes created by root: above the ranges that distributions assign. Each spawner has a range of its
/// own, as a rule: the kernel counts descriptors in flight and the memory of pipes by user.
const SHIFTED_ROOT: u32 = 2_000_000_000;
const RANGES: u32 = 32_768;
const USERS: u32 = 65_536;
/// The users that create the namespaces of sandboxes where root runs the spawner: as many, from this one on.
const CREATORS: u32 = 1_900_000_000;
const MAX_CREATORS: u32 = 1 << 26;

/// The spawner's identity, once it has entered its namespaces.
pub(crate) struct Identity {
    users: Users,
    template: Option<Template>,
    count: u32,
    creators: Option<Creators>,
    shares: Shares,
}

/// A user namespace with the map of the sandboxes, for id-mapped mounts.
struct Template {
    userns: OwnedFd,
    /// The host's user id of their root.
    root: u32,
}

/// The users that create the namespaces of sandboxes, each in turn. The kernel counts for the creator what is taken inside:
/// signals, message queues, watched files, namespaces. With one creator for all, a sandbox could take everything.
struct Creators {
    first: u32,
    count: u32,
    next: Cell<u32>,
    /// The spawner's own user.
    own: Uid,
}

impl Creators {
    /// `None` where this process cannot change its user and keep its rights.
    fn new(users: Users) -> Option<Self> {
        let (first, count) = match users {
            Users::Shifted | Users::SameAsHost => (CREATORS, MAX_CREATORS),
            Users::Subordinate => (1, USERS - 1),
            Users::Single => return None,
        };
        let bits = rustix::thread::capabilities_secure_bits().ok()?;
        let bits = bits | CapabilitiesSecureBits::NO_SETUID_FIXUP;
        rustix::thread::set_capabilities_secure_bits(bits).ok()?;
        // Other spawners begin elsewhere, as a rule.
        let begin = std::process::id().wrapping_mul(1021) % count;
        let own = rustix::process::geteuid();
        Some(Self { first, count, next: Cell::new(begin), own })
    }

    fn next(&self) -> Uid {
        let next = self.next.get();
        self.next.set((next + 1) % self.count);
        Uid::from_raw(self.first + next)
    }
}

impl Identity {
    /// Acquires the rights to create sandboxes: root has them, other users get them in a user namespace.
    pub(crate) fn assume(single: SingleThreaded) -> Result<Self, Failure> {
        let limits = CallerLimits::read();
        if has_mount_rights() {
            unshare(UnshareFlags::NEWNS).step("creating a mount namespace")?;
            // Whatever is mounted from here on stays in it, where the host's mounts are shared. The kernel does the same
            // for a namespace of another user.
            mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
                .step("separating the mounts from the host's")?;
            let root = SHIFTED_ROOT + std::process::id() % RANGES * USERS;
            let userns = template_namespace(single, root, USERS);
            let userns = userns.step("creating a user namespace")?;
            return Ok(match can_shift(&userns) {
                true => Self::new(Users::Shifted, Some(Template { userns, root }), USERS, &limits),
                false => Self::new(Users::SameAsHost, None, USERS, &limits),
            });
        }
        counted::halve();
        let count = enter_user_namespace(single)?;
        counted::halve_watches();
        let users = if count > 1 { Users::Subordinate } else { Users::Single };
        Ok(Self::new(users, None, count, &limits))
    }

    fn new(users: Users, template: Option<Template>, count: u32, limits: &CallerLimits) -> Self {
        let shares = Shares::prepare(users, limits);
        Self { users, template, count, creators: Creators::new(users), shares }
    }

    /// What a sandbox may take of what the kernel counts by user.
    pub(crate) fn shares(&self) -> Shares {
        self.shares
    }

    /// Clones a process into new namespaces, as the next creator. The new process still is that user.
    pub(crate) fn clone_as_creator(
        &self,
        clone: impl FnOnce() -> io::Result<sys::Cloned>,
    ) -> io::Result<sys::Cloned> {
        let Some(creators) = &self.creators else { return clone() };
        become_user(creators.next())?;
        let cloned = clone();
        if !matches!(cloned, Ok(sys::Cloned::Child)) {
            become_user(creators.own)?;
        }
        cloned
    }

    /// Who the users of a sandbox are on the host.
    pub(crate) fn users(&self) -> Users {
        self.users
    }

    /// How layers are mounted.
    pub(crate) fn owners(&self) -> Owners<'_> {
        match &self.template {
            Some(Template { userns, root }) => {
                Owners::Shifted { userns: userns.as_fd(), root: *root }
            }
            None => Owners::Same,
        }
    }

    /// Whether the spawner has root's rights.
    pub(crate) fn is_root(&self) -> bool {
        matches!(self.users, Users::Shifted | Users::SameAsHost)
    }

    /// The user of the host that is root in every sandbox, where that is not the spawner's own.
    pub(crate) fn shifted_root(&self) -> Option<u32> {
        self.template.as_ref().map(|template| template.root)
    }

    /// Writes the user map of a process in a new user namespace.
    pub(crate) fn map(&self, pid: i32) -> io::Result<()> {
        let outside = self.template.as_ref().map_or(0, |template| template.root);
        write_maps(pid, outside, self.count)
    }
}

/// Moves this process into new namespaces.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "the replacement is unsafe only because of CLONE_FILES, which is never passed"
    )]
    Ok(rustix::thread::unshare(flags)?)
}

/// Whether this process may mount in the namespace it was started in.
pub(crate) fn has_mount_rights() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective
            .contains(CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SETGID)
    })
}

fn write_maps(pid: i32, outside: u32, count: u32) -> io::Result<()> {
    let lines = map_lines(outside, count);
    fs::write(format!("/proc/{pid}/uid_map"), &lines)?;
    fs::write(format!("/proc/{pid}/gid_map"), &lines)
}

/// The map of `count` users to those from `outside` on. Root has a line of its own: where the outer namespace is that of an
/// ordinary user, it maps root and the others apart, and the kernel refuses a line that spans both.
fn map_lines(outside: u32, count: u32) -> String {
    match count {
        1 => format!("0 {outside} 1\n"),
        _ => format!("0 {outside} 1\n1 {} {}\n", outside + 1, count - 1),
    }
}

/// Creates a user namespace with this map and no process.
fn template_namespace(single: SingleThreaded, outside: u32, count: u32) -> io::Result<OwnedFd> {
    let (ours, theirs) = rustix::pipe::pipe()?;
    match sys::clone3(single, libc::CLONE_NEWUSER, None)? {
        sys::Cloned::Child => {
            drop(theirs);
            // Lives until the parent has opened its namespace.
            let _ = rustix::io::read(&ours, &mut [0u8; 1]);
            sys::exit_now(0)
        }
        sys::Cloned::Parent { pid, pidfd } => {
            drop(ours);
            let namespace = write_maps(pid, outside, count)
                .and_then(|()| fs::File::open(format!("/proc/{pid}/ns/user")));
            drop(theirs);
            let _ = rustix::process::waitid(
                rustix::process::WaitId::PidFd(pidfd.as_fd()),
                rustix::process::WaitIdOptions::EXITED,
            );
            Ok(namespace?.into())
        }
    }
}

/// Whether this kernel and file system support id-mapped layers.
fn can_shift(userns: &OwnedFd) -> bool {
    use rustix::mount::{OpenTreeFlags, open_tree};
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // Overlays over id-mapped mounts came later than the mounts themselves.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).filter_map(|part| part.parse::<u32>().ok());
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (5, 19) {
        return false;
    }
    open_tree(rustix::fs::CWD, "/usr", flags)
        .map_err(io::Error::from)
        .and_then(|tree| sys::idmap_mount(tree.as_fd(), userns.as_fd()))
        .is_ok()
}

/// Makes this process root of a new user namespace; returns the number of users it has.
///
/// The full range needs `newuidmap`, run by a process that stays outside.
fn enter_user_namespace(single: SingleThreaded) -> Result<u32, Failure> {
    let what = "creating a user namespace";
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let me = std::process::id();
    let (ready, tell_ready) = rustix::pipe::pipe().step(what)?;
    let (done, tell_done) = rustix::pipe::pipe().step(what)?;
    if let Fork::Child = sys::fork(single).step(what)? {
        drop((tell_ready, done));
        let _ = rustix::io::read(&ready, &mut [0u8; 1]);
        let mapped = map_subordinates(me, uid, gid);
        let _ = rustix::io::write(&tell_done, &[u8::from(mapped)]);
        sys::exit_now(0)
    }
    drop((ready, tell_done));
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).step(what)?;
    drop(tell_ready);
    let mut answer = [0u8; 1];
    let _ = rustix::io::read(&done, &mut answer);
    let _ = rustix::process::wait(rustix::process::WaitOptions::empty());
    if answer[0] == 1 {
        become_root().step(what)?;
        return Ok(USERS);
    }
    fs::write("/proc/self/setgroups", "deny").step(what)?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1\n")).step(what)?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1\n")).step(what)?;
    become_root().step(what)?;
    Ok(1)
}

/// Changes the effective user. That makes a process one that its own user may not inspect, but this one, and the one
/// it clones, have to be found in `/proc`.
fn become_user(user: Uid) -> io::Result<()> {
    rustix::thread::set_thread_res_uid(None, user, None)?;
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Becomes root of a user namespace that was just entered.
pub(crate) fn become_root() -> io::Result<()> {
    use rustix::process::Gid;
    rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    Ok(rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?)
}

fn map_subordinates(pid: u32, uid: u32, gid: u32) -> bool {
    let (Some(sub_uid), Some(sub_gid)) =
        (subordinate("/etc/subuid", uid), subordinate("/etc/subgid", uid))
    else {
        return false;
    };
    let run = |tool: &str, id: u32, first: u32| {
        let rest = (USERS - 1).to_string();
        #[expect(clippy::disallowed_methods, reason = "the helper that may map subordinate users")]
        let status = Command::new(tool)
            .args([&pid.to_string(), "0", &id.to_string(), "1", "1", &first.to_string(), &rest])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    // The spawner's environment is empty; these are where distributions install the tools.
    run("/usr/bin/newuidmap", uid, sub_uid) && run("/usr/bin/newgidmap", gid, sub_gid)
}

/// The first subordinate id of a user that has a range large enough.
pub(crate) fn subordinate(file: &str, uid: u32) -> Option<u32> {
    let name = fs::read_to_string("/etc/passwd").unwrap_or_default().lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    fs::read_to_string(file).ok()?.lines().find_map(|line| {
        let mut fields = line.split(':');
        let owner = fields.next()?;
        let first = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.trim().parse().ok()?;
        let ours = Some(owner) == name.as_deref() || owner.parse() == Ok(uid);
        (ours && count >= USERS - 1).then_some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_map_spans_root_and_other_users() {
        assert_eq!(map_lines(0, 1), "0 0 1\n");
        assert_eq!(map_lines(0, USERS), "0 0 1\n1 1 65535\n");
        assert_eq!(map_lines(7_000_000, 3), "0 7000000 1\n1 7000001 2\n");
    }
}
