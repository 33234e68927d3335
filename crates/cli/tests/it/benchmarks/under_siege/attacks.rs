//! The attacks of the siege: names and scripts, each of which ends when it is killed after a few seconds.
//!
//! No script contains a single quote. Each takes as much as it can get; what a single one is refused, tests of
//! `sandbox-native` show.

/// Numbers of system calls.
#[cfg(target_arch = "x86_64")]
macro_rules! number {
    (timer_create) => {
        "222"
    };
    (mq_open) => {
        "240"
    };
    (io_setup) => {
        "206"
    };
    (inotify_init1) => {
        "294"
    };
    (sendmsg) => {
        "46"
    };
    (fallocate) => {
        "285"
    };
    (memfd_create) => {
        "319"
    };
    (timer_delete) => {
        "226"
    };
    (mq_unlink) => {
        "241"
    };
    (io_destroy) => {
        "207"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! number {
    (timer_create) => {
        "107"
    };
    (mq_open) => {
        "180"
    };
    (io_setup) => {
        "0"
    };
    (inotify_init1) => {
        "26"
    };
    (sendmsg) => {
        "211"
    };
    (fallocate) => {
        "47"
    };
    (memfd_create) => {
        "279"
    };
    (timer_delete) => {
        "111"
    };
    (mq_unlink) => {
        "181"
    };
    (io_destroy) => {
        "1"
    };
}
pub(super) use number;

/// Perl that sends a descriptor 200 times over the socket `$a`; `$ok` says whether it was accepted.
macro_rules! send_descriptors {
    ($count:literal) => {
        concat!(
            "my $m = pack(\"Qii\", 16 + 4 * ",
            $count,
            ", 1, 1) . pack(\"i*\", (0) x ",
            $count,
            "); my $d = \"x\"; ",
            "my $iov = pack(\"QQ\", unpack(\"Q\", pack(\"P\", $d)), 1); ",
            "my $h = pack(\"Q I x4 Q Q Q Q i x4\", 0, 0, unpack(\"Q\", pack(\"P\", $iov)), 1, ",
            "unpack(\"Q\", pack(\"P\", $m)), length $m, 0); ",
            "my $ok = syscall(",
            number!(sendmsg),
            ", fileno($a), $h, 0) >= 0; "
        )
    };
}
pub(super) use send_descriptors;

pub(super) const ATTACKS: [(&str, &str); 19] = [
    (
        "timers",
        concat!(
            "exec perl -e \"my \\$t = 0 x 8; 1 while syscall(",
            number!(timer_create),
            ", 1, 0, \\$t) == 0; sleep 9\""
        ),
    ),
    (
        "queues",
        concat!(
            "exec perl -e \"for (1..500) { my \\$n = qq(q\\$_); syscall(",
            number!(mq_open),
            ", \\$n, 0102, 0600, 0) } sleep 9\""
        ),
    ),
    (
        "reserved space",
        "touch b; for i in 1 2 3; do fallocate -n -l 3000M b; fallocate -l 3000M b; done; sleep 9",
    ),
    (
        "hidden files",
        "exec perl -MSocket -e \"for my \\$i (1..99) { open(my \\$f, q(+>), qq(h\\$i)); print \\$f q(x) x (8 << 20); push @k, \\$f; unlink qq(h\\$i) } sleep 9\"",
    ),
    (
        "files and loops",
        "for i in $(seq 60); do while :; do :; done & done; mkdir -p m; cd m; for i in $(seq 20000); do : > f$i; done; dd if=/dev/zero of=big bs=1M count=200",
    ),
    (
        "priorities",
        "while :; do renice -n 19 -p $(ls /proc | grep -E ^[0-9]+$); for p in /proc/[0-9]*; do chrt -i -p 0 ${p#/proc/}; [ ${p#/proc/} = $$ ] || kill -STOP ${p#/proc/}; done; done",
    ),
    (
        "asynchronous I/O",
        concat!(
            "exec perl -e \"my \\$c = qq(\\\\0) x 8; for (1..2000) { syscall(",
            number!(io_setup),
            ", 60000, \\$c) } sleep 9\""
        ),
    ),
    (
        "terminals",
        "exec perl -e \"for (1..500) { open(my \\$m, q(+<), q(/dev/ptmx)); push @k, \\$m } sleep 9\"",
    ),
    (
        "descriptors in flight",
        concat!(
            "cat > d.pl <<\"X\"\nuse Socket; my @k; for (1..400) { socketpair(my $a, my $b, AF_UNIX, SOCK_DGRAM, 0) or last; push @k, $a, $b; fcntl($a, 4, 2048); ",
            "while (1) { ",
            send_descriptors!("200"),
            "last unless $ok } } sleep 9;\nX\nexec perl d.pl"
        ),
    ),
    (
        "socket buffers",
        "exec perl -MSocket -MFcntl -e \"my \\$x = q(x) x 65536; for (1..400) { socketpair(my \\$a, my \\$b, AF_UNIX, SOCK_STREAM, 0) or last; push @k, \\$a, \\$b; fcntl(\\$a, F_SETFL, O_NONBLOCK); 1 while syswrite(\\$a, \\$x) } sleep 9\"",
    ),
    ("crashes", "while :; do sh -c \"kill -SEGV \\$\\$\"; done"),
    ("memory", "exec perl -e \"my @k; push @k, q(x) x (1 << 20) while 1\""),
    ("processes", "f() { f | f & }; f; sleep 9"),
    (
        "watches",
        concat!(
            "exec perl -e \"for (1..500) { syscall(",
            number!(inotify_init1),
            ", 0) } sleep 9\""
        ),
    ),
    (
        "huge pages",
        concat!(
            "exec perl -e \"my \\$n = q(h); for (1..500) { syscall(",
            number!(memfd_create),
            ", \\$n, 4) } sleep 9\""
        ),
    ),
    (
        "shared memory",
        "for i in $(seq 40); do dd if=/dev/zero of=/dev/shm/f$i bs=1M count=16; ipcmk -M 16777216; ipcmk -Q; ipcmk -S 200; done; sleep 9",
    ),
    (
        "names of links",
        "exec perl -e \"mkdir q(t); symlink q(x) x 4000, q(t/0); for (1..30000) { link q(t/0), qq(t/\\$_) } sleep 9\"",
    ),
    (
        "leases",
        "exec perl -e \"\\$SIG{IO} = q(IGNORE); for my \\$i (1..900) { open(my \\$f, q(+>), qq(l\\$i)) or last; fcntl(\\$f, 1024, 1); push @k, \\$f } sleep 9\"",
    ),
    (
        "endless forks",
        "exec perl -e \"for (1..100) { next if fork; while (1) { kill q(CONT), -1; exit if fork } } sleep 9\"",
    ),
];
