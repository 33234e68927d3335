//! Enforces the disk limit, and stops the sandbox before the host's disk is full.
//!
//! Most file systems offer no quota for a directory, so the written files are measured while anything runs (`walk`). What
//! the whole file system has lost since the last measurement bounds what the sandbox can have written, and costs one
//! system call. So files are measured at once when that bound passes the limit, and rarely otherwise: others may have
//! freed space meanwhile. Measuring takes at most a twentieth of the time, or half of it while the bound passes the limit.

mod walk;

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use sandbox::DiskQuota;

use self::walk::{Progress, UNKNOWN, Walk};

/// How often the free space is looked at while anything runs.
const TICK: Duration = Duration::from_millis(20);
/// The shortest time between two measurements that nothing hints at.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// A measurement goes on for this long before PID 1 looks at its requests again.
const SLICE: Duration = Duration::from_millis(15);
/// How much longer than it takes to measure PID 1 waits until the next measurement, or the next slice.
const COST_FACTOR: u32 = 20;
/// The same while the limit may have been passed.
const URGENT_FACTOR: u32 = 1;
/// A measurement this quick is always done at the end of a command.
const CHEAP: Duration = Duration::from_millis(50);
/// A file system of the sandbox's own with less free bytes than this is full.
const FULL: u64 = 128 << 10;

pub(crate) struct DiskWatch {
    limit: Option<u64>,
    /// The kernel enforces the limit.
    exact: bool,
    /// Use when the running command started: a command that does not add to it is not to blame.
    baseline: u64,
    /// Use after the limit was last passed and writers were killed: those that were spared are not to blame for it.
    tolerated: u64,
    /// Writers were killed, and nothing was measured since.
    settling: bool,
    used: u64,
    /// Free space of the file system when the last measurement began; none before the first.
    free_then: Option<u64>,
    walk: Option<Measuring>,
    /// When to look at the free space, or to go on measuring.
    due: Instant,
    /// When to measure even if nothing hints at it.
    measure_at: Instant,
    looked: Instant,
    cost: Duration,
    /// The shortage of space on the host's file system, while there is one.
    scarcity: Option<Scarcity>,
    /// How long a measurement at the end of a command goes on: [`CHEAP`], less in tests.
    cheap: Duration,
}

/// A shortage of space on the host's file system.
#[derive(Clone, Copy)]
struct Scarcity {
    since: Instant,
    /// Use when it was noticed.
    used: u64,
}

/// A measurement in progress.
struct Measuring {
    walk: Walk,
    /// Free space when it began.
    free: u64,
    /// Time spent so far.
    cost: Duration,
}

/// When to measure.
#[derive(PartialEq, Eq)]
pub(crate) enum Check {
    /// If it is time.
    WhenDue,
    /// Now, or at least for a slice: the kernel stopped a command at the limit on file size.
    Now,
    /// At the end of a command: now, unless measuring is expensive and was just done.
    AtEnd,
}

/// What is measured: the real file system, or a test's.
trait Disk {
    /// Size and free space of the whole file system.
    fn space(&self) -> Space;
    /// Begins to measure the sandbox's own files.
    fn walk(&self) -> Walk;
}

/// The space of a file system.
#[derive(Clone, Copy, Default)]
struct Space {
    used: u64,
    free: u64,
    /// How many more files fit.
    files: u64,
}

impl Space {
    /// Whether a write has failed for lack of space, or the next one will.
    fn is_full(self) -> bool {
        self.free < FULL || self.files == 0
    }
}

impl Disk for &[OwnedFd] {
    fn space(&self) -> Space {
        let first = self.first().and_then(|upper| rustix::fs::fstatvfs(upper).ok());
        first.map_or(Space::default(), |stat| Space {
            used: (stat.f_blocks.saturating_sub(stat.f_bfree)).saturating_mul(stat.f_frsize),
            free: stat.f_bfree.saturating_mul(stat.f_frsize),
            files: stat.f_ffree,
        })
    }

    fn walk(&self) -> Walk {
        Walk::new(self)
    }
}

impl DiskWatch {
    pub(crate) fn new(limit: Option<u64>, quota: DiskQuota) -> Self {
        let now = Instant::now();
        Self {
            limit,
            exact: !matches!(quota, DiskQuota::Auto | DiskQuota::Measured),
            baseline: 0,
            tolerated: 0,
            settling: false,
            used: 0,
            free_then: None,
            walk: None,
            due: now,
            measure_at: now,
            looked: now,
            cost: Duration::ZERO,
            scarcity: None,
            cheap: CHEAP,
        }
    }

    /// Whether the kernel enforces the limit: writes fail by themselves, so nothing has to be killed.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact
    }

    /// Notes the start of a command.
    pub(crate) fn begin(&mut self, written: &[OwnedFd]) {
        self.note_begin(&written);
    }

    fn note_begin(&mut self, disk: &impl Disk) {
        if self.exact {
            self.used = disk.space().used;
        }
        self.baseline = self.used;
        (self.tolerated, self.settling) = (0, false);
        let now = Instant::now();
        // What is due soon is not put off: a writer in the background must not profit from short commands.
        self.due = if self.due > now { self.due.min(now + TICK) } else { now + TICK };
    }

    /// Time until [`Check::WhenDue`] has something to do. Never none: the free space of the host is watched in any case.
    pub(crate) fn due_in(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Measures if it is time, and returns whether the limit was passed since the command started.
    pub(crate) fn over(&mut self, written: &[OwnedFd], check: &Check) -> bool {
        self.is_over(&written, check)
    }

    /// Notes whether the host's file system is nearly full. While it is, files are measured even without a limit. Returns
    /// for how long it has been, and the bytes written since the running command or the shortage began, whichever was
    /// earlier, as of the last measurement.
    pub(crate) fn note_scarcity(&mut self, written: &[OwnedFd], scarce: bool) -> (Duration, u64) {
        self.note_scarcity_of(&written, scarce)
    }

    fn note_scarcity_of(&mut self, disk: &impl Disk, scarce: bool) -> (Duration, u64) {
        if !scarce {
            self.scarcity = None;
            return (Duration::ZERO, 0);
        }
        if self.exact {
            self.used = disk.space().used;
        }
        let now = Instant::now();
        let begins = Scarcity { since: now, used: self.used };
        let Scarcity { since, used } = *self.scarcity.get_or_insert(begins);
        (now - since, self.used.saturating_sub(used.min(self.baseline)))
    }

    /// Bytes written, measured now unless that is expensive and was just done; `None` if there are too many files to
    /// measure, or before the first measurement is finished.
    pub(crate) fn used(&mut self, written: &[OwnedFd]) -> Option<u64> {
        self.used_of(&written)
    }

    fn used_of(&mut self, disk: &impl Disk) -> Option<u64> {
        if self.exact {
            self.used = disk.space().used;
        } else if self.is_affordable(Instant::now()) {
            self.measure(disk);
        }
        let known = self.exact || self.free_then.is_some();
        (known && self.used < UNKNOWN).then_some(self.used)
    }

    fn is_affordable(&self, now: Instant) -> bool {
        let so_far = self.walk.as_ref().map_or(Duration::ZERO, |measuring| measuring.cost);
        let cost = self.cost.max(so_far);
        cost < self.cheap || now.duration_since(self.looked) >= cost * COST_FACTOR
    }

    /// Measures for as long as is cheap. A measurement in progress is continued, never restarted: it would not end where
    /// commands are short and files many. What is left then stays in progress.
    fn measure(&mut self, disk: &impl Disk) {
        let end = Instant::now() + self.cheap;
        let continued = self.walk.is_some();
        if self.go_on(disk, self.cheap) && continued {
            // It may have missed what was written last.
            let left = end.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                self.go_on(disk, left);
            }
        }
    }

    /// Goes on measuring, or begins. Returns whether a measurement was finished.
    fn go_on(&mut self, disk: &impl Disk, most: Duration) -> bool {
        let start = Instant::now();
        let begin =
            || Measuring { walk: disk.walk(), free: disk.space().free, cost: Duration::ZERO };
        let mut measuring = self.walk.take().unwrap_or_else(begin);
        let progress = measuring.walk.until(start + most);
        let now = Instant::now();
        measuring.cost += now - start;
        match progress {
            Progress::Finished(used) => {
                self.used = used;
                if std::mem::take(&mut self.settling) {
                    self.tolerated = used;
                }
                self.free_then = Some(measuring.free);
                self.looked = now;
                self.cost = measuring.cost;
                self.measure_at = now + (self.cost * COST_FACTOR).max(MIN_INTERVAL);
                self.due = now + TICK;
                true
            }
            Progress::Unfinished => {
                let factor = if self.is_urgent(disk) { URGENT_FACTOR } else { COST_FACTOR };
                self.due = now + (now - start) * factor;
                self.walk = Some(measuring);
                false
            }
        }
    }

    /// Whether the file system has lost so much since the last measurement that the sandbox may have passed its limit.
    fn may_be_over(&self, disk: &impl Disk) -> bool {
        let lost = self.free_then.map(|then| then.saturating_sub(disk.space().free));
        let most = lost.map(|lost| self.used.saturating_add(lost));
        // One that is past its limit already is measured in turn, or it would be all the time.
        self.limit.is_some_and(|limit| self.used < limit && most.is_none_or(|most| most >= limit))
    }

    /// Whether to measure at once: the limit may be passed, or nothing was measured since the host's space became scarce.
    fn is_urgent(&self, disk: &impl Disk) -> bool {
        self.scarcity.is_some_and(|scarcity| self.looked < scarcity.since) || self.may_be_over(disk)
    }

    /// Goes on measuring if it is time. Returns whether a measurement was finished.
    fn go_on_if_due(&mut self, disk: &impl Disk, now: Instant) -> bool {
        if now < self.due {
            return false;
        }
        if self.walk.is_some() || now >= self.measure_at || self.is_urgent(disk) {
            return self.go_on(disk, SLICE);
        }
        self.due = now + TICK;
        false
    }

    fn is_over(&mut self, disk: &impl Disk, check: &Check) -> bool {
        let now = Instant::now();
        let Some(limit) = self.limit.filter(|_| !self.exact) else {
            if self.scarcity.is_some() && !self.exact {
                self.go_on_if_due(disk, now);
            } else if now >= self.due {
                self.due = now + TICK;
            }
            let space = disk.space();
            // Writes fail by themselves, so nothing has to be killed.
            return self.exact
                && match check {
                    Check::WhenDue => false,
                    Check::Now => true,
                    Check::AtEnd => space.is_full() && space.used > self.baseline,
                };
        };
        let measured = match check {
            Check::WhenDue => self.go_on_if_due(disk, now),
            Check::Now => {
                self.measure(disk);
                true
            }
            Check::AtEnd => {
                if self.is_affordable(now) {
                    self.measure(disk);
                }
                true
            }
        };
        let is_new = *check != Check::WhenDue || self.used > self.tolerated;
        let over = measured && is_new && self.used >= limit && self.used > self.baseline;
        if over {
            self.settling = true;
            // It would miss what is written until all are killed.
            self.walk = None;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs};

    use super::*;

    /// A directory, on a file system with this much free space.
    struct Fake {
        dir: tempfile::TempDir,
        free: Cell<u64>,
        walks: Cell<u32>,
    }

    impl Fake {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { dir, free: Cell::new(1 << 30), walks: Cell::new(0) }
        }

        fn hold(&self, bytes: usize) {
            fs::write(self.dir.path().join("f"), vec![1u8; bytes]).unwrap();
        }
    }

    impl Disk for Fake {
        fn space(&self) -> Space {
            Space { used: (1 << 30) - self.free.get(), free: self.free.get(), files: 100 }
        }

        fn walk(&self) -> Walk {
            self.walks.set(self.walks.get() + 1);
            Walk::of_trees(&[OwnedFd::from(fs::File::open(self.dir.path()).unwrap())])
        }
    }

    const LIMIT: u64 = 1 << 20;

    #[test]
    fn only_growth_past_the_limit_is_a_violation() {
        let disk = Fake::new();
        let mut watch = DiskWatch::new(Some(LIMIT), DiskQuota::Measured);
        let mut over = |bytes: usize, begin: bool| {
            disk.hold(bytes);
            if begin {
                watch.note_begin(&disk);
            }
            watch.is_over(&disk, &Check::Now)
        };
        assert!(!over(900_000, true));
        assert!(over(1_100_000, false));
        assert!(!over(1_100_000, true), "already full before this command");
        assert!(!over(500_000, false), "files may be removed");
        assert!(over(1_200_000, false));
        assert!(!DiskWatch::new(None, DiskQuota::Measured).is_over(&disk, &Check::Now));
    }

    #[test]
    fn files_are_measured_at_once_when_enough_space_is_lost_and_seldom_otherwise() {
        let disk = Fake::new();
        let mut watch = DiskWatch::new(Some(LIMIT), DiskQuota::Measured);
        watch.note_begin(&disk);
        assert!(!watch.is_over(&disk, &Check::Now));
        // As after a long measurement: the next one is far away.
        watch.measure_at = Instant::now() + Duration::from_secs(3600);
        let check = |watch: &mut DiskWatch, free: u64| {
            disk.free.set(free);
            watch.due = Instant::now();
            (watch.is_over(&disk, &Check::WhenDue), disk.walks.get())
        };
        disk.hold(2 << 20);
        assert_eq!(check(&mut watch, (1 << 30) - 1000), (false, 1), "not that much was lost");
        assert_eq!(check(&mut watch, (1 << 30) - 2 * LIMIT), (true, 2));
        watch.measure_at = Instant::now() + Duration::from_secs(3600);
        assert_eq!(check(&mut watch, 0), (false, 2), "it is known to be full");
        watch.measure_at = Instant::now();
        assert_eq!(check(&mut watch, 0), (false, 3), "it is time, and nothing was added");
    }

    /// What was written before writers were killed is not held against those that were spared.
    #[test]
    fn only_growth_after_a_violation_is_another() {
        let disk = Fake::new();
        let mut watch = DiskWatch::new(Some(LIMIT), DiskQuota::Measured);
        watch.note_begin(&disk);
        let mut over = |bytes: usize| {
            disk.hold(bytes);
            (watch.due, watch.measure_at) = (Instant::now(), Instant::now());
            watch.is_over(&disk, &Check::WhenDue)
        };
        assert!(over(2 << 20));
        assert!(!over(3 << 20), "until the writers had ended");
        assert!(!over(3 << 20));
        assert!(over(4 << 20), "somebody was spared");
        assert!(!over(4 << 20));
        // A command that has reached the limit is told so.
        assert!(watch.is_over(&disk, &Check::AtEnd));
    }

    #[test]
    fn measuring_is_rationed() {
        let disk = Fake::new();
        disk.hold(2 << 20);
        let mut watch = DiskWatch::new(Some(LIMIT), DiskQuota::Measured);
        watch.note_begin(&disk);
        assert!(!watch.is_over(&disk, &Check::WhenDue), "not due yet");
        assert!(watch.is_over(&disk, &Check::AtEnd));
        assert!(watch.measure_at >= watch.looked + MIN_INTERVAL);
        // Right after an expensive measurement its result is used once more.
        watch.cost = CHEAP * 100;
        assert!(watch.is_over(&disk, &Check::AtEnd));
        assert_eq!(disk.walks.get(), 1);
    }

    #[test]
    fn short_commands_do_not_restart_a_long_measurement() {
        let disk = Fake::new();
        disk.hold(2 << 20);
        for i in 0..300 {
            fs::write(disk.dir.path().join(i.to_string()), "").unwrap();
        }
        let mut watch = DiskWatch::new(Some(LIMIT), DiskQuota::Measured);
        // One batch of entries at a time, so that it takes several commands.
        watch.cheap = Duration::ZERO;
        assert_eq!(watch.used_of(&disk), None, "nothing is known yet");
        let mut commands = 0;
        while watch.free_then.is_none() {
            commands += 1;
            assert!(commands < 5000, "the measurement does not end");
            watch.note_begin(&disk);
            let over = watch.is_over(&disk, &Check::AtEnd);
            assert_eq!(over, watch.free_then.is_some(), "after {commands} commands");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(commands >= 3, "{commands}");
        assert_eq!(disk.walks.get(), 1);
        assert!(watch.used_of(&disk).is_some_and(|used| used > 2 << 20));
    }

    #[test]
    fn scarce_space_is_blamed_on_those_that_write() {
        let disk = Fake::new();
        disk.hold(2 << 20);
        for limit in [None, Some(LIMIT * 100)] {
            let mut watch = DiskWatch::new(limit, DiskQuota::Measured);
            let mut written = |bytes: usize, begin: bool, scarce: bool| {
                disk.hold(bytes);
                if begin {
                    watch.note_begin(&disk);
                }
                watch.note_scarcity_of(&disk, scarce);
                (watch.due, watch.measure_at) = (Instant::now(), Instant::now());
                watch.is_over(&disk, &Check::WhenDue);
                watch.note_scarcity_of(&disk, scarce).1
            };
            // What was there before is not measured yet.
            assert!(written(2 << 20, true, true) >= 2 << 20);
            assert_eq!(written(2 << 20, true, false), 0);
            assert!(written(2 << 20, true, true) < 1 << 20, "{limit:?}");
            assert!(written(4 << 20, false, true) > 1 << 20);
            assert!(written(4 << 20, true, true) > 1 << 20, "by a command before, meanwhile");
        }
    }

    #[test]
    fn a_full_file_system_of_its_own_is_reported_and_nothing_is_measured() {
        let disk = Fake::new();
        let mut watch = DiskWatch::new(Some(LIMIT), DiskQuota::Strict);
        watch.note_begin(&disk);
        assert!(!watch.is_over(&disk, &Check::AtEnd));
        disk.free.set(1000);
        assert!(watch.is_over(&disk, &Check::AtEnd));
        assert!(!watch.is_over(&disk, &Check::WhenDue), "writes fail by themselves");
        watch.note_begin(&disk);
        assert!(!watch.is_over(&disk, &Check::AtEnd), "already full before this command");
        assert_eq!(disk.walks.get(), 0);
    }
}
