//! What all users of the machine share: a container takes its part, and the machine's users keep theirs.
//!
//! Where the kernel counts by user, containers share with each other, which the report says.

use rustix::process::{Resource, getrlimit, setrlimit};
use sandbox::{Layer, LayerState, Sandbox};

use super::{ok, on_docker, perl, perl_behind, perl_outside};

/// Lowers a limit of this test, and so of the programs it starts: no more than that is ever taken.
fn lower(resource: Resource, to: u64) {
    let mut limit = getrlimit(resource);
    limit.current = Some(to);
    assert!(setrlimit(resource, limit).is_ok());
}

/// POSIX timers of the host stay free: a sandbox gets 1,024.
#[test]
fn timers_of_the_host_stay_free() {
    lower(Resource::Sigpending, 3000);
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let create = format!("syscall({}, 1, 0, $t) == 0", libc::SYS_timer_create);
        let take = format!(
            "my $t = ' ' x 8; my $n = 0; for (1..4000) {{ last unless {create}; $n++ }} print qq($n\\n)"
        );
        let taken: u64 = perl_behind(&sandbox, &take).await.parse().unwrap_or(u64::MAX);
        assert!((1..=1024).contains(&taken), "{taken} were taken");
        let one = format!("my $t = ' ' x 8; print {create} ? 'works' : $!");
        assert_eq!(perl_outside(&one), "works");
    });
}

/// POSIX message queues of the host stay free: a sandbox gets two of the usual size.
#[test]
fn message_queues_of_the_host_stay_free() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let open = format!("syscall({}, $q, 0102, 0600, 0) >= 0", libc::SYS_mq_open);
        let take = format!(
            r#"my $n = 0; for (1..40) {{ my $q = "q$_"; last unless {open}; $n++ }} print "$n\n""#
        );
        let taken: u64 = perl_behind(&sandbox, &take).await.parse().unwrap_or(u64::MAX);
        assert!((1..=2).contains(&taken), "{taken} were taken");
        let unlink = libc::SYS_mq_unlink;
        let one =
            format!(r#"my $q = "lis-$$"; print {open} ? 'works' : $!; syscall({unlink}, $q)"#);
        assert_eq!(perl_outside(&one), "works");
    });
}

/// Watches of files: the host's root has a number of instances for all programs, of which a sandbox gets none, unless its
/// users are others.
#[test]
fn file_watches_of_the_host_stay_free() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let call = format!("syscall({}, 0)", libc::SYS_inotify_init1);
        let seen = perl(&sandbox, &format!("print {call} >= 0 ? 'works' : 0 + $!")).await;
        match sandbox.protection().state(&Layer::UserNamespace) {
            LayerState::Enforced => assert_eq!(seen, "works"),
            _ => assert_eq!(seen, libc::EMFILE.to_string()),
        }
        // As programs do where there are no more instances.
        let follow = "echo one > f; (sleep 0.2; echo two >> f) & timeout 3 tail -f -s 0.1 f 2>/dev/null | head -2";
        assert_eq!(ok(&sandbox, follow).await, "one\ntwo\n");
    });
}

/// The machine has a number of events of asynchronous input and output for all users: a sandbox gets none.
#[test]
fn asynchronous_io_of_others_stays_free() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let program = format!(
            "my $context = qq(\\0) x 8; print syscall({}, 1, $context) == 0 ? 'taken' : 0 + $!",
            libc::SYS_io_setup
        );
        assert_eq!(perl(&sandbox, &program).await, libc::ENOSYS.to_string());
    });
}

/// Of the machine's terminals a sandbox gets 64, and another its own.
#[test]
fn terminals_of_others_stay_free() {
    on_docker(async |h| {
        let program =
            "my @held; for (1..200) { open(my $m, '+<', '/dev/ptmx') or last; push @held, $m }
            print scalar(@held), qq(\\n)";
        let (sandbox, neighbour) = tokio::join!(h.sandbox(), h.sandbox());
        assert_eq!(perl_behind(&sandbox, program).await, "64");
        assert_eq!(perl(&neighbour, program).await, "64\n");
    });
}

/// A command has 768 descriptors and cannot get more.
#[test]
fn descriptors_are_fewer_than_the_hosts() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let script = "ulimit -Sn; ulimit -Hn; ulimit -n 769 2>/dev/null || echo no";
        assert_eq!(ok(&sandbox, script).await, "768\n768\nno\n");
    });
}

/// Perl that sends as many descriptors as it can to itself, and says how many are in flight.
fn descriptors_in_flight(many: u32) -> String {
    format!(
        r#"use Socket; my (@keep, $n); $n = 0;
        S: for (1..300) {{ socketpair(my $a, my $b, AF_UNIX, SOCK_DGRAM, 0) or last; push @keep, $a, $b; fcntl($a, 4, 2048);
          while ($n < {many}) {{ my $count = $n + 200 > {many} ? {many} - $n : 200;
            my $m = pack("Qii", 16 + 4 * $count, 1, 1) . pack("i*", (0) x $count); my $d = "x";
            my $iov = pack("QQ", unpack("Q", pack("P", $d)), 1);
            my $h = pack("Q I x4 Q Q Q Q i x4", 0, 0, unpack("Q", pack("P", $iov)), 1, unpack("Q", pack("P", $m)), length $m, 0);
            last if syscall({}, fileno($a), $h, 0) < 0; $n += $count }} }} print "$n\n""#,
        libc::SYS_sendmsg
    )
}

/// Descriptors in flight of a user of the host, whose number a command has, stay free.
#[test]
fn descriptors_in_flight_of_the_host_stay_free() {
    if perl_outside("print $<") != "0" {
        return sandbox_conformance::skip("root", "only root can be another user of the host");
    }
    lower(Resource::Nofile, 1024);
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let as_user = "($(, $)) = (4242, '4242 4242'); ($<, $>) = (4242, 4242); ";
        let attack = format!("{as_user}{}", descriptors_in_flight(4000));
        let sent: u64 = perl_behind(&sandbox, &attack).await.parse().unwrap_or(u64::MAX);
        assert!((200..1024).contains(&sent), "{sent} are in flight");
        let control = format!("{as_user}{}", descriptors_in_flight(1));
        assert_eq!(perl_outside(&control), "1\n");
    });
}

/// A crash inside starts no program of the host. The kernel starts the one that `core_pattern` names whatever the limit
/// on core dumps, except where that is 1.
#[test]
fn crashes_start_no_program_of_the_host() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let limits = "limits() { grep 'Max core file size' /proc/self/limits | tr -s ' ' | cut -d' ' -f5,6; }; ";
        let script = format!("{limits} limits; ulimit -c 0; ulimit -c unlimited; limits");
        assert_eq!(ok(&sandbox, &script).await, "1 1\n1 1\n");
        let program = format!(
            "my ($new, $old) = (pack('QQ', 0, 0), pack('QQ', 7, 7)); print syscall({0}, 0, 4, $new, $old), ' ', 0 + $!, ' '; \
             print syscall({0}, 0, 4 + (1 << 32), $new, 0), ' '; \
             print syscall({0}, 0, 4, 0, $old), ' ', join(' ', unpack('QQ', $old))",
            libc::SYS_prlimit64
        );
        assert_eq!(perl(&sandbox, &program).await, format!("-1 {} -1 0 1 1", libc::EPERM));
    });
}

/// What containers share, because the daemon gives them the same users, is reported.
#[test]
fn shared_users_are_reported() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let map = ok(&sandbox, "read -r _ outside _ < /proc/self/uid_map; echo $outside").await;
        let report = sandbox.protection().layers.iter();
        let users = report.clone().find(|layer| layer.layer == Layer::UserNamespace).cloned();
        let users = users.unwrap_or_else(|| panic!("users are not reported"));
        match map.trim() {
            "0" => {
                assert_eq!(users.state, LayerState::Partial);
                assert!(users.detail.contains("counts by user"), "{}", users.detail);
            }
            _ => assert_eq!(users.state, LayerState::Enforced),
        }
    });
}
