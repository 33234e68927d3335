//! The buffers of sockets that the kernel charges to nobody: answers that were requested over netlink, errors of
//! datagrams, datagrams that are still being put together. Without a watch they would have no limit.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use rustix::fs::{Mode, OFlags, openat};

/// The shortest time between two measurements.
const INTERVAL: Duration = Duration::from_millis(100);
/// A measurement takes at most this part of the time, however many sockets there are.
const SHARE: u32 = 20;
/// A measurement goes on for this long before PID 1 looks at its requests again: tables of very many sockets take seconds.
const SLICE: Duration = Duration::from_millis(5);
/// How much longer than a slice PID 1 waits until the next one.
const SLICE_SHARE: u32 = 4;
/// Lines between two looks at the clock.
const BATCH: usize = 64;
/// The part of the memory limit that these buffers may have.
const PART: u64 = 2;
/// The least they may have: a few sockets.
const LEAST: u64 = 4 << 20;

/// The bytes that a line of a table counts.
type OfLine = fn(&str) -> u64;

/// The kernel's tables of sockets, in `/proc`.
const TABLES: [(&str, OfLine); 3] = [
    ("self/net/netlink", of_netlink),
    ("self/net/udp", of_datagrams),
    ("self/net/udp6", of_datagrams),
];

/// Measures the buffers from time to time.
pub(super) struct SocketWatch {
    /// In bytes. `None` where there is no limit, or the network is the host's.
    limit: Option<u64>,
    due: Instant,
    measuring: Option<Measuring>,
}

/// A measurement in progress.
#[derive(Default)]
struct Measuring {
    /// The tables that are begun.
    tables: usize,
    /// What is left of the last of them.
    lines: Option<io::Lines<BufReader<File>>>,
    /// The bytes so far.
    total: u64,
    /// Time spent so far.
    cost: Duration,
}

impl SocketWatch {
    /// Watches the sockets of a network of the sandbox's own, for this memory limit.
    pub(super) fn new(memory: Option<u64>) -> Self {
        let limit = memory.map(|memory| (memory / PART).max(LEAST));
        Self { limit, due: Instant::now(), measuring: None }
    }

    /// Whether the buffers are larger than they may be; `false` if that is not known yet, or it is too early to measure again.
    pub(super) fn over(&mut self, proc: BorrowedFd<'_>) -> bool {
        let Some(limit) = self.limit else { return false };
        let start = Instant::now();
        if start < self.due {
            return false;
        }
        let mut measuring = self.measuring.take().unwrap_or_default();
        let finished = measuring.until(start + SLICE, proc, limit);
        let now = Instant::now();
        measuring.cost += now - start;
        let over = measuring.total > limit;
        match finished || over {
            true => self.due = now + INTERVAL.max(measuring.cost * SHARE),
            false => {
                self.due = now + (now - start) * SLICE_SHARE;
                self.measuring = Some(measuring);
            }
        }
        over
    }
}

impl Measuring {
    /// Goes on until this moment, until there is more than `enough`, or to the end. Returns whether it is the end.
    fn until(&mut self, end: Instant, proc: BorrowedFd<'_>, enough: u64) -> bool {
        loop {
            let Some(lines) = &mut self.lines else {
                let Some((table, _)) = TABLES.get(self.tables) else { return true };
                self.tables += 1;
                // A kernel without IPv6 lacks one of them. The first line is the heading.
                self.lines = lines(proc, table).ok();
                self.lines.as_mut().and_then(Iterator::next);
                continue;
            };
            let Some((_, of_line)) = TABLES.get(self.tables.wrapping_sub(1)) else { return true };
            for _ in 0..BATCH {
                match lines.next() {
                    Some(Ok(line)) => self.total += of_line(&line),
                    Some(Err(_)) | None => {
                        self.lines = None;
                        break;
                    }
                }
                if self.total > enough {
                    return false;
                }
            }
            if Instant::now() >= end {
                return false;
            }
        }
    }
}

fn lines(proc: BorrowedFd<'_>, table: &str) -> io::Result<io::Lines<BufReader<File>>> {
    let file = openat(proc, table, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(BufReader::with_capacity(1 << 14, File::from(file)).lines())
}

/// Received and unsent bytes of a line `sk Eth Pid Groups Rmem Wmem ...`.
fn of_netlink(line: &str) -> u64 {
    let numbers = line.split_ascii_whitespace().skip(4).take(2);
    numbers.filter_map(|number| number.parse::<u64>().ok()).sum()
}

/// The same of a line `sl local_address rem_address st tx_queue:rx_queue ...`, in hexadecimal.
fn of_datagrams(line: &str) -> u64 {
    let queues = line.split_ascii_whitespace().nth(4).and_then(|queues| queues.split_once(':'));
    let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
    queues.map_or(0, |(unsent, received)| number(unsent) + number(received))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_read_from_the_kernels_tables() {
        let netlink =
            "00000000a7f3bb0a 0   3171       00000000 212736   300      0     2        7     30641";
        assert_eq!(of_netlink(netlink), 213_036);
        let udp = "  103: 0100007F:0035 00000000:0000 07 00000100:0003F000 00:00000000 00000000     0        0 1 2 0 0";
        assert_eq!(of_datagrams(udp), 0x100 + 0x3F000);
        for garbage in ["", "sk Eth", "a b c d e f g"] {
            assert_eq!(of_netlink(garbage) + of_datagrams(garbage), 0);
        }
    }

    #[test]
    fn without_a_limit_nothing_is_measured() {
        let proc = File::open("/proc").unwrap();
        use std::os::fd::AsFd;
        assert!(!SocketWatch::new(None).over(proc.as_fd()));
        assert!(!SocketWatch::new(Some(u64::MAX)).over(proc.as_fd()));
    }
}
