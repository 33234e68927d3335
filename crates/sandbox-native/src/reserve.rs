//! The free space that sandboxes leave on the file system with their files: the backstop of all disk limits together.

use std::{fmt, os::fd::AsFd, time::Duration};

use sandbox::ByteSize;

/// The automatic reserve is the lesser of this and a hundredth of the file system.
const MOST: u64 = 1 << 30;
const SHARE: u64 = 100;
/// A sandbox that has written less than this is not stopped.
const SPARED: u64 = 1 << 20;
/// How long one that has written just more than that is left running: meanwhile those that have written more are stopped,
/// and their files removed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Less is free than has to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    left: u64,
    reserve: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the file system with the sandboxes' files has {} MiB left, and {} MiB have to stay free",
            self.left >> 20,
            self.reserve >> 20
        )
    }
}

impl Shortage {
    /// How long after the beginning of the shortage a sandbox is stopped that has written this many bytes: at once if they
    /// are as many as the reserve, and the later the fewer they are. `None` if it is not stopped at all.
    pub(crate) fn patience(&self, written: u64) -> Option<Duration> {
        let share = written as f64 / self.reserve.max(1) as f64;
        (written >= SPARED).then(|| PATIENCE.mul_f64((1.0 - share).max(0.0)))
    }
}

/// Whether the file system of this file is nearly full.
pub(crate) fn shortage(file: impl AsFd, reserve: Option<ByteSize>) -> Option<Shortage> {
    let stat = rustix::fs::fstatvfs(file).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    missing(bytes(stat.f_blocks), bytes(stat.f_bavail), reserve)
}

fn missing(total: u64, left: u64, reserve: Option<ByteSize>) -> Option<Shortage> {
    let reserve = reserve.map_or((total / SHARE).min(MOST), ByteSize::bytes);
    (left < reserve).then_some(Shortage { left, reserve })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_automatic_reserve_fits_small_and_large_disks() {
        let (gib, tib) = (1 << 30, 1 << 40);
        assert_eq!(missing(tib, gib, None), None);
        assert_eq!(missing(tib, gib - 1, None), Some(Shortage { left: gib - 1, reserve: gib }));
        assert_eq!(missing(10 * gib, gib / 8, None), None);
        assert!(missing(10 * gib, gib / 16, None).is_some());
        assert_eq!(missing(tib, 0, Some(ByteSize(0))), None);
        let shortage = missing(tib, gib, Some(ByteSize::gib(2))).unwrap();
        assert!(shortage.to_string().contains("1024 MiB left, and 2048 MiB"), "{shortage}");
    }

    #[test]
    fn those_that_wrote_most_are_stopped_first() {
        let shortage = Shortage { left: 0, reserve: 1 << 30 };
        assert_eq!(shortage.patience(0), None);
        assert_eq!(shortage.patience(SPARED - 1), None);
        assert_eq!(shortage.patience(1 << 29), Some(PATIENCE / 2));
        for much in [1 << 30, u64::MAX] {
            assert_eq!(shortage.patience(much), Some(Duration::ZERO));
        }
    }
}
