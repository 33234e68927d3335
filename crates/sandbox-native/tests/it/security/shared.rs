//! What all users of the machine share: the sandbox takes its part, and the host and other sandboxes keep theirs.
//!
//! No attack here takes what the machine needs. Where the kernel compares with the limit of the process that asks, the
//! test lowers its own first, which the sandboxes inherit; otherwise the attack stops at a number that is harmless.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbox::{ByteSize, Cause, Layer, LayerState, Limits, Runtime, Sandbox, Spec};
use sandbox_conformance::skip;

use super::{
    Ground, SCRIPT, ok, on_both, on_the_host, perl, perl_behind, perl_outside, sh_within, store,
};
use crate::support;

/// Lowers a limit of this test, and so of the sandboxes that it creates.
fn lower(resource: Resource, to: u64) {
    let limit = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), ..limit }).unwrap();
}

/// A Perl program that runs `take` as several users, so that limits by user do not stop it, then holds what it has.
fn as_many_users(take: &str) -> String {
    format!(
        "use Socket; $| = 1; pipe(my $r, my $w) or die; for my $user (0..5) {{ my $p = fork; die unless defined $p; next if $p; \
         ($(, $)) = ($user, \"$user $user\"); ($<, $>) = ($user, $user); {take} syswrite($w, '.'); sleep 60; exit }} \
         close $w; for (0..5) {{ sysread($r, my $b, 1) }} print qq(ready\n); sleep 60"
    )
}

/// An attack takes what it can get; then the host and another sandbox do what `works` says.
async fn others_still_can(h: &Ground<'_>, take: &str, one: &str) {
    let attacker = h.sandbox().await;
    let control = perl(&attacker, &format!("{one} print $ok ? 'works' : $!")).await;
    assert_eq!(control, "works", "not even one can be had");
    perl_behind(&attacker, &as_many_users(take)).await;
    let outside = perl_outside(&format!("{one} print $ok ? 'works' : $!"));
    assert_eq!(outside, "works", "the host can no more");
    let neighbour = h.sandbox().await;
    let seen = perl(&neighbour, &format!("{one} print $ok ? 'works' : $!")).await;
    assert_eq!(seen, "works", "another sandbox can no more");
}

/// POSIX timers of the host and of other sandboxes: the kernel counts them up to the user who created the namespace.
#[test]
fn timers_of_others_stay_free() {
    lower(Resource::Sigpending, 2000);
    on_the_host(async |h| {
        let create = format!("syscall({}, 1, 0, $t) == 0", libc::SYS_timer_create);
        let take = format!("my $t = ' ' x 8; for (1..4000) {{ last unless {create} }}");
        let one = format!("my $t = ' ' x 8; my $ok = {create};");
        others_still_can(h, &take, &one).await;
    });
}

/// POSIX message queues of the host and of other sandboxes, likewise.
#[test]
fn message_queues_of_others_stay_free() {
    // Four queues of the usual size.
    lower(Resource::Msgqueue, 400_000);
    on_the_host(async |h| {
        let create = format!("syscall({}, $n, 0102, 0600, 0) >= 0", libc::SYS_mq_open);
        let take = format!("for my $i (1..40) {{ my $n = \"q$user-$i\"; last unless {create} }}");
        let one = format!(
            "my $n = \"lis-$$\"; my $ok = {create}; my $e = $!; syscall({}, $n) if $ok; $! = $e;",
            libc::SYS_mq_unlink
        );
        others_still_can(h, &take, &one).await;
    });
}

/// The machine has a number of events of asynchronous input and output for all users together: a sandbox gets none.
#[test]
fn asynchronous_io_of_others_stays_free() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let program = format!(
            "my $context = qq(\\0) x 8; print syscall({}, 1, $context) == 0 ? 'taken' : 0 + $!",
            libc::SYS_io_setup
        );
        // As on a kernel without it: databases then use threads.
        assert_eq!(perl(&sandbox, &program).await, libc::ENOSYS.to_string());
    });
}

/// Huge pages that the machine has reserved for others: a sandbox gets none, by any of three calls.
#[test]
fn huge_pages_of_others_stay_free() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        // With no length the kernel itself would reject the first differently, whether or not there are huge pages.
        let program = format!(
            "my $n = 'x'; for my $call ([{}, 0, 0, 3, 0x40022, -1, 0], [{memfd}, $n, 4], [{}, 0, 2 << 20, 05600], \
             [{memfd}, $n, 0]) {{ my ($number, @rest) = @$call; print syscall($number, @rest) >= 0 ? 'works' : 0 + $!, ' ' }}",
            libc::SYS_mmap,
            libc::SYS_shmget,
            memfd = libc::SYS_memfd_create
        );
        let none = libc::ENOMEM;
        assert_eq!(perl(&sandbox, &program).await, format!("{none} {none} {none} works "));
    });
}

/// The memory for compiled filter programs, of which the machine has a few hundred megabytes for all users: a sandbox gets
/// none. Without any left, no ordinary user of the host can install a filter.
#[test]
fn filters_of_others_stay_free() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        // A program that accepts everything, for a socket and by two calls for system calls; then an option of another name.
        let program = format!(
            "use Socket; my $p = pack('S C C L', 6, 0, 0, 0x7fff0000); my $f = pack('S x6 Q', 1, unpack('Q', pack('P', $p))); \
             socket(my $s, AF_INET, SOCK_DGRAM, 0) or die; sub said {{ print $_[0] ? 'works' : 0 + $!, ' ' }} \
             said(setsockopt($s, SOL_SOCKET, $_, $f)) for 26, 51; said(syscall({}, 1, 0, $f) == 0); \
             said(syscall({}, 22, 2, $f, 0, 0) == 0); said(setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1))",
            libc::SYS_seccomp,
            libc::SYS_prctl
        );
        let (option, call) = (libc::ENOPROTOOPT, libc::EINVAL);
        let expected = format!("{option} {option} {call} {call} works ");
        assert_eq!(perl(&sandbox, &program).await, expected);
    });
}

/// The flow labels of IPv6, which all users of the machine have together: a sandbox gets none.
#[test]
fn flow_labels_of_others_stay_free() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let program = "use Socket; socket(my $s, AF_INET6, SOCK_DGRAM, 0) or die; my $to = Socket::inet_pton(AF_INET6, '::1'); \
             for my $option (32, 26) { my $value = $option == 32 ? $to . pack('NCCSSSL', 7, 0, 1, 1, 6, 6, 0) : pack('i', 1); \
             print setsockopt($s, 41, $option, $value) ? 'works' : 0 + $!, ' ' }";
        assert_eq!(perl(&sandbox, program).await, format!("{} works ", libc::ENOBUFS));
    });
}

/// Data of the host that are not on its disk yet: `sync` in a sandbox does not write them, which would take all of the
/// disk's time.
#[test]
fn files_of_others_are_not_written_to_the_disk() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        let file = h.home.join("changed");
        // The kernel itself writes what is half a minute old, and other programs call `sync`.
        for _ in 0..5 {
            std::fs::write(&file, vec![1u8; 1 << 20]).unwrap();
            let Some(before) = not_on_the_disk(&file) else {
                return skip("cachestat", "the kernel does not tell what is not on the disk");
            };
            assert_eq!(perl(&sandbox, &format!("print syscall({})", libc::SYS_sync)).await, "0");
            if before > 0 && not_on_the_disk(&file) == Some(before) {
                return;
            }
        }
        panic!("everything is written");
    });
}

/// The number of pages of a file that were changed in memory only.
fn not_on_the_disk(file: &std::path::Path) -> Option<u64> {
    // `cachestat`, for the whole file: what is cached, changed, and three more numbers.
    let program = "my ($range, $found) = (qq(\\0) x 16, qq(\\0) x 40); open(my $f, '<', 'FILE') or die; \
         syscall(451, fileno $f, $range, $found, 0) == 0 and print unpack 'x8Q', $found";
    perl_outside(&program.replace("FILE", file.to_str()?)).parse().ok()
}

/// An ordinary user keeps half of the files and instances that the user may watch, whatever all sandboxes of a program
/// take together.
#[test]
fn watches_of_the_user_stay_free() {
    on_the_host(async |h| {
        let take = format!("my $n = 0; $n++ while syscall({}, 0) >= 0;", libc::SYS_inotify_init1);
        let mut taken = Vec::new();
        // Each gets 16, and a user has 128 as a rule.
        for _ in 0..9 {
            let sandbox = h.sandbox().await;
            perl_behind(&sandbox, &format!("$| = 1; {take} print qq(ready\n); sleep 60")).await;
            taken.push(sandbox);
        }
        let one = format!("print syscall({}, 0) >= 0 ? 'works' : $!", libc::SYS_inotify_init1);
        assert_eq!(perl(&taken[0], &one).await, "Too many open files", "the attack took nothing");
        assert_eq!(perl_outside(&one), "works", "the host cannot watch files any more");
    });
}

/// Commands cannot run before all others, even where the caller may.
#[test]
fn commands_have_no_rights_to_priorities() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let limits =
            ok(&sandbox, "grep -E 'realtime priority|nice' /proc/self/limits | tr -s ' '").await;
        let seen: Vec<_> = limits.lines().map(str::trim).collect();
        assert_eq!(seen, ["Max nice priority 0 0", "Max realtime priority 0 0"]);
        let other = ok(&sandbox, "chrt -f 1 true 2>/dev/null || echo refused").await;
        assert_eq!(other, "refused\n");
    });
}

/// Of the machine's terminals a sandbox gets 64.
#[test]
fn terminals_of_others_stay_free() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let program = "my @held; for (1..200) { open(my $m, '+<', '/dev/ptmx') or last; push @held, $m } print scalar @held";
        assert_eq!(perl(&sandbox, program).await, "64");
        let neighbour = h.sandbox().await;
        assert_eq!(perl(&neighbour, program).await, "64");
    });
}

/// A command has 1,024 descriptors and cannot get more.
#[test]
fn descriptors_are_limited() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        let seen =
            ok(&sandbox, "ulimit -Sn; ulimit -Hn; ulimit -n 1025 2>/dev/null || echo no").await;
        assert_eq!(seen, "1024\n1024\nno\n");
    });
}

/// Descriptors in flight and pipes: the requests of another sandbox's caller still work.
#[test]
fn requests_of_others_still_work() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        // As many descriptors as may be, each sent 200 times.
        let program = format!(
            r#"use Socket; $| = 1; my (@keep, $n); my $end = time + 8; my $l = pack("QQ", 0, 0); my $most = pack("QQ", 0, 0);
               syscall({prlimit}, 0, 7, 0, $l); my (undef, $hard) = unpack("QQ", $l); $most = pack("QQ", $hard, $hard);
               syscall({prlimit}, 0, 7, $most, 0);
               S: for (1..4000) {{ socketpair(my $a, my $b, AF_UNIX, SOCK_DGRAM, 0) or last; push @keep, $a, $b;
                 fcntl($a, 4, 2048);
                 while (time < $end) {{ my $m = pack("Qii", 16 + 800, 1, 1) . pack("i*", (0) x 200); my $d = "x";
                   my $iov = pack("QQ", unpack("Q", pack("P", $d)), 1);
                   my $h = pack("Q I x4 Q Q Q Q i x4", 0, 0, unpack("Q", pack("P", $iov)), 1, unpack("Q", pack("P", $m)), length $m, 0);
                   last if syscall({sendmsg}, fileno($a), $h, 0) < 0; $n += 200 }} }}
               print "ready\n"; sleep 60"#,
            prlimit = libc::SYS_prlimit64,
            sendmsg = libc::SYS_sendmsg
        );
        perl_behind(&sandbox, &program).await;
        let neighbour = h.sandbox().await;
        assert_eq!(ok(&neighbour, "echo works | cat").await, "works\n");
        // The file worker sends the caller a descriptor.
        let read = super::soon("read", neighbour.read_file("/etc/passwd".as_ref())).await;
        assert!(read.is_ok(), "{:?}", read.err());
        super::soon("list", neighbour.list("/".as_ref())).await.unwrap();
    });
}

/// Where root runs them, the sandboxes of another program belong to other users: what the kernel counts by user is not
/// shared with them.
#[test]
fn other_programs_sandboxes_have_other_users() {
    on_the_host(async |h| {
        let root_outside =
            "while read -r _ outside _; do echo $outside; break; done < /proc/self/uid_map";
        let ours = ok(&h.sandbox().await, root_outside).await;
        if ours == "0\n" {
            return skip("root", "one user runs all sandboxes");
        }
        let home = support::home();
        let other = support::start(home.clone()).await.unwrap();
        let sandbox = other.create(&h.spec()).await.unwrap();
        assert_ne!(ok(&sandbox, root_outside).await, ours);
        sandbox.destroy().await.unwrap();
        drop(other);
        super::nothing_is_left(&home);
    });
}

/// Perl that fills the buffers of sockets over loopback, TCP and UDP, up to 160 MiB each; prints how many bytes they
/// held.
const FILL_SOCKETS: &str = r#"use Socket; use Fcntl; $| = 1; my (@held, $sent); my $block = "x" x 65536; my $most = 160 << 20;
    socket(my $l, AF_INET, SOCK_STREAM, 0) or die; bind($l, pack_sockaddr_in(0, inet_aton("127.0.0.1"))) or die;
    listen($l, 400); my $at = getsockname($l);
    for (1..300) { last if $sent > $most; socket(my $c, AF_INET, SOCK_STREAM, 0) or last; connect($c, $at) or last;
      accept(my $s, $l) or last; fcntl($c, F_SETFL, O_NONBLOCK); push @held, $c, $s;
      while ($sent < $most) { my $n = syswrite($c, $block); last unless $n; $sent += $n } }
    print "tcp $sent\n"; @held = (); my $got = 0;
    for (1..400) { socket(my $s, AF_INET, SOCK_DGRAM, 0) or last; bind($s, pack_sockaddr_in(0, inet_aton("127.0.0.1"))) or last;
      setsockopt($s, SOL_SOCKET, SO_RCVBUF, 1 << 20); my $to = getsockname($s); socket(my $c, AF_INET, SOCK_DGRAM, 0) or last;
      fcntl($c, F_SETFL, O_NONBLOCK); fcntl($s, F_SETFL, O_NONBLOCK); send($c, substr($block, 0, 60000), 0, $to) for 1..7; push @held, $s }
    for my $s (@held) { while (defined recv($s, my $b, 65536, 0)) { $got += length $b } } print "udp $got\n";"#;

/// The buffers of sockets count as memory.
#[test]
fn socket_buffers_count_as_memory() {
    on_the_host(async |h| {
        if !h.caps.memory_limit.or_skip("memory_limit") {
            return;
        }
        let limits = Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() };
        let sandbox = h.create(&Spec { limits, ..h.spec() }).await;
        super::store(&sandbox, "/tmp/attack.pl", FILL_SOCKETS).await;
        let output = super::sh(&sandbox, "perl /tmp/attack.pl </dev/null").await;
        // Version 2 counts them with all other memory, so the command is killed instead of refused more.
        if output.cause == Some(sandbox::Cause::Oom) {
            return;
        }
        assert!(output.status.success(), "{output:?}");
        let seen = output.stdout.text();
        for line in seen.lines() {
            let held: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(held < 64 << 20, "64 MiB allowed: {line}");
        }
        assert_eq!(seen.lines().count(), 2, "{seen}");
    });
}

/// Buffers of sockets that the kernel charges to nobody count too: unread answers over netlink, unfinished datagrams,
/// unread errors of datagrams.
#[test]
fn buffers_that_nobody_is_charged_for_are_limited() {
    let netlink = r#"for (1..300) { socket(my $s, 16, 3, 0) or last; push @held, $s; setsockopt($s, 1, 8, 1 << 20);
        bind($s, pack("SSII", 16, 0, 0, 0)); fcntl($s, 4, 2048);
        for (1..$each) { send($s, pack("ISSII", 32, 18, 1, 1, 0) . pack("CxSiII", 0, 0, 1, 0, 0), 0) or last } }"#;
    let unfinished = r#"my $to = pack_sockaddr_in(9, inet_aton("127.0.0.1")); for (1..900) { socket(my $s, AF_INET, SOCK_DGRAM, 0) or last;
        push @held, $s; send($s, "x" x (100 * $each), 0x8000, $to) }"#;
    let errors = r#"my $to = pack_sockaddr_in(9, inet_aton("127.0.0.1")); for (1..300) { socket(my $s, AF_INET, SOCK_DGRAM, 0) or last;
        push @held, $s; setsockopt($s, 1, 8, 1 << 20); setsockopt($s, 0, 11, 1);
        for (1..$each) { send($s, "x" x 400, 0x4000, $to); send($s, "x", 0x4000, $to) } }"#;
    on_the_host(async |h| {
        for attack in [netlink, unfinished, errors] {
            let limits = Limits { memory: Some(ByteSize::mib(64)), ..Limits::default() };
            let sandbox = h.create(&Spec { limits, ..h.spec() }).await;
            let program = |each: u32| {
                format!("use Socket; my @held; my $each = {each}; {attack} sleep 5; print 'all'")
            };
            store(&sandbox, "/tmp/attack.pl", &program(600)).await;
            let output = sh_within(&sandbox, "perl /tmp/attack.pl", SCRIPT).await;
            assert_eq!(output.cause, Some(Cause::Oom), "{attack}: {output:?}");
            // A little is no reason to kill anybody.
            let little = program(1).replace("sleep 5", "select(undef, undef, undef, 0.3)");
            assert_eq!(perl(&sandbox, &little).await, "all");
        }
    });
}

/// A crash inside starts no program of the host. The kernel starts the one that `core_pattern` names whatever the limit
/// on core dumps, except where that is 1.
#[test]
fn crashes_start_no_program_of_the_host() {
    on_both(async |h| {
        let sandbox = h.sandbox().await;
        if sandbox.protection().state(&Layer::SystemCalls) == LayerState::Partial {
            return skip("core", "the hard limit on core dumps is 0");
        }
        let seen = ok(
            &sandbox,
            "limits() { grep 'Max core file size' /proc/self/limits | tr -s ' ' | cut -d' ' -f5,6; }; limits; \
             ulimit -c 0; ulimit -c unlimited; limits",
        )
        .await;
        assert_eq!(seen, "1 1\n1 1\n");
        let program = format!(
            "my ($new, $old) = (pack('QQ', 0, 0), pack('QQ', 7, 7)); print syscall({0}, 0, 4, $new, $old), ' ', 0 + $!, ' '; \
             print syscall({0}, 0, 4, 0, $old), ' ', join(' ', unpack('QQ', $old))",
            libc::SYS_prlimit64
        );
        assert_eq!(perl(&sandbox, &program).await, format!("-1 {} 0 1 1", libc::EPERM));
    });
}
