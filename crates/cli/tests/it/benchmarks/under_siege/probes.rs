//! What the machine's own programs do meanwhile: take one of each of what all share, again and again.

use std::{
    fmt, fs,
    io::Read,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::fs::statvfs;

use super::attacks::{number, send_descriptors};
use crate::support::{Home, Running};

/// A Perl program that tries each, prints what failed, and at the end how often it tried and how long the slowest took.
/// It ends when its standard input does.
const PROBES: &str = concat!(
    "use strict; use Socket; use Time::HiRes qw(time); $| = 1; my ($rounds, $slowest, $what) = (0, 0, q()); my %do = (",
    "timer => sub { my $t = qq(\\0) x 8; my $ok = syscall(",
    number!(timer_create),
    ", 1, 0, $t) == 0; ",
    "syscall(",
    number!(timer_delete),
    ", unpack(q(i), $t)) if $ok; $ok }, ",
    "queue => sub { my $n = qq(lis-probe-$$); my $ok = syscall(",
    number!(mq_open),
    ", $n, 0102, 0600, 0); ",
    "return 0 if $ok < 0; syscall(",
    number!(mq_unlink),
    ", $n); require POSIX; POSIX::close($ok); 1 }, ",
    "terminal => sub { open(my $m, q(+<), q(/dev/ptmx)) ? 1 : 0 }, ",
    "asynchronous => sub { my $c = qq(\\0) x 8; return 0 if syscall(",
    number!(io_setup),
    ", 1, $c) != 0; ",
    "syscall(",
    number!(io_destroy),
    ", unpack(q(Q), $c)); 1 }, ",
    "watch => sub { my $fd = syscall(",
    number!(inotify_init1),
    ", 0); return 0 if $fd < 0; require POSIX; POSIX::close($fd); 1 }, ",
    "descriptor => sub { socketpair(my $a, my $b, AF_UNIX, SOCK_DGRAM, 0) or return 0; ",
    send_descriptors!("1"),
    " $ok }, ",
    "pipe => sub { pipe(my $r, my $w) or return 0; syswrite($w, q(x)) == 1 }, ",
    "process => sub { system(q(true)) == 0 }); ",
    "while (1) { my $in = q(); vec($in, 0, 1) = 1; last if select($in, undef, undef, 0.05); ",
    "for my $name (sort keys %do) { my $began = time; my $ok = $do{$name}->(); my $error = $!; my $took = time - $began; ",
    "($slowest, $what) = ($took, $name) if $took > $slowest; print qq(failed: $name: $error\\n) unless $ok } $rounds++ } ",
    "printf qq(rounds: %d\\nslowest: %s %.0f ms\\n), $rounds, $what, $slowest * 1000;"
);

/// Running probes.
pub(super) struct Probes {
    program: Running,
    disk: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    used: Arc<AtomicU64>,
}

/// What the probes found.
pub(super) struct Found {
    pub(super) failures: Vec<String>,
    /// The most bytes that were in use besides those at the start.
    pub(super) disk_used: u64,
    summary: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.disk_used >> 20;
        write!(f, "the machine: {}, {used} MiB of disk at most", self.summary)
    }
}

impl Probes {
    pub(super) fn start(home: &Home) -> Self {
        let program = Command::new("perl")
            .args(["-e", PROBES])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stop, used) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ended, most, state) = (Arc::clone(&stop), Arc::clone(&used), home.state());
        fs::create_dir_all(&state).unwrap();
        let free = move || statvfs(&state).map(|disk| disk.f_bavail * disk.f_frsize).unwrap();
        let before = free();
        let disk = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                most.fetch_max(before.saturating_sub(free()), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(50));
            }
        });
        Self { program: Running(program), disk, stop, used }
    }

    pub(super) fn stop(mut self) -> Found {
        self.stop.store(true, Ordering::Relaxed);
        self.disk.join().unwrap();
        drop(self.program.0.stdin.take());
        let mut text = String::new();
        self.program.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let (failures, rest): (Vec<_>, Vec<_>) =
            text.lines().map(str::to_owned).partition(|line| line.starts_with("failed"));
        assert!(rest.iter().any(|line| line.starts_with("rounds: ")), "no probe ran: {text}");
        Found { failures, disk_used: self.used.load(Ordering::Relaxed), summary: rest.join(", ") }
    }
}
