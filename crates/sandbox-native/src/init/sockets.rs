//! The buffers of sockets that the kernel charges to nobody: answers that were requested over netlink, errors of
//! datagrams, datagrams that are still being put together. Without a watch they would have no limit.

use std::{
    io::{self, BufRead, BufReader},
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use rustix::fs::{Mode, OFlags, openat};

/// The shortest time between two measurements.
const INTERVAL: Duration = Duration::from_millis(100);
/// A measurement takes at most this part of the time, however many sockets there are.
const SHARE: u32 = 20;
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
}

impl SocketWatch {
    /// Watches the sockets of a network of the sandbox's own, for this memory limit.
    pub(super) fn new(memory: Option<u64>) -> Self {
        Self { limit: memory.map(|memory| (memory / PART).max(LEAST)), due: Instant::now() }
    }

    /// Whether the buffers are larger than they may be; `false` if it is too early to measure again.
    pub(super) fn over(&mut self, proc: BorrowedFd<'_>) -> bool {
        let Some(limit) = self.limit else { return false };
        let start = Instant::now();
        if start < self.due {
            return false;
        }
        let held = held(proc, limit);
        self.due = Instant::now() + INTERVAL.max(start.elapsed() * SHARE);
        held > limit
    }
}

/// The bytes in these buffers, or as many as are counted when they are more than `enough`.
fn held(proc: BorrowedFd<'_>, enough: u64) -> u64 {
    let mut total = 0;
    for (table, of_line) in TABLES {
        // A kernel without IPv6 lacks one of them.
        let Ok(lines) = lines(proc, table) else { continue };
        for line in lines.map_while(Result::ok).skip(1) {
            total += of_line(&line);
            if total > enough {
                return total;
            }
        }
    }
    total
}

fn lines(proc: BorrowedFd<'_>, table: &str) -> io::Result<io::Lines<impl BufRead>> {
    let file = openat(proc, table, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(BufReader::with_capacity(1 << 16, std::fs::File::from(file)).lines())
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
        let proc = std::fs::File::open("/proc").unwrap();
        use std::os::fd::AsFd;
        assert!(!SocketWatch::new(None).over(proc.as_fd()));
        assert!(!SocketWatch::new(Some(u64::MAX)).over(proc.as_fd()));
    }
}
