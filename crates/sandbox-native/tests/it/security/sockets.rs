//! Sockets: the host's abstract ones, and families that lead to the hypervisor, the wire or the kernel.

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixDatagram, UnixListener},
};

use sandbox::{Network, Spec};

use super::{on_both, perl, perl_outside};

/// Connects to, and sends to, an abstract socket.
fn knock(stream: &str, datagram: &str) -> String {
    format!(
        "use Socket; my $name = sub {{ pack('S a*', AF_UNIX, qq(\\0) . shift) }}; \
         socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; \
         print connect($s, $name->('{stream}')) ? qq(connected\n) : qq(refused\n); \
         socket(my $d, AF_UNIX, SOCK_DGRAM, 0) or die; \
         print send($d, 'x', 0, $name->('{datagram}')) ? qq(sent\n) : qq(refused\n);"
    )
}

/// Abstract sockets of the host cannot be reached, with the host's network neither.
#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    on_both(async |h| {
        let names = [0, 1].map(|i| format!("lis-abstract-{}-{i}", std::process::id()));
        let address = |i: usize| SocketAddr::from_abstract_name(&names[i]).unwrap();
        let _stream = UnixListener::bind_addr(&address(0)).unwrap();
        let _datagram = UnixDatagram::bind_addr(&address(1)).unwrap();
        let attempt = knock(&names[0], &names[1]);
        assert_eq!(perl_outside(&attempt), "connected\nsent\n", "the control fails");
        for network in [Network::None, "allow=example.com".parse().unwrap(), Network::Full] {
            if network == Network::Full && landlock_version() < 6 {
                sandbox_conformance::skip("landlock", "this kernel cannot scope abstract sockets");
                continue;
            }
            let sandbox = h.create(&Spec { network: network.clone(), ..h.spec() }).await;
            assert_eq!(perl(&sandbox, &attempt).await, "refused\nrefused\n", "{network}");
            // Programs' own abstract sockets work.
            let own = format!(
                "use Socket; socket(my $l, AF_UNIX, SOCK_STREAM, 0); \
                 bind($l, pack('S a*', AF_UNIX, qq(\\0own-{0}))) or die; listen($l, 1); \
                 socket(my $c, AF_UNIX, SOCK_STREAM, 0); \
                 print connect($c, pack('S a*', AF_UNIX, qq(\\0own-{0}))) ? qq(own\n) : $!;",
                std::process::id()
            );
            assert_eq!(perl(&sandbox, &own).await, "own\n", "{network}");
        }
    });
}

fn landlock_version() -> i64 {
    let program = format!("print syscall({}, 0, 0, 1)", libc::SYS_landlock_create_ruleset);
    perl_outside(&program).parse().unwrap_or(0)
}

/// Families besides the usual four are refused before the kernel looks at them.
#[test]
fn unusual_socket_families_are_refused() {
    on_both(async |h| {
        for network in [Network::None, Network::Full] {
            let sandbox = h.create(&Spec { network, ..h.spec() }).await;
            let usual = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
            let seen = perl(
                &sandbox,
                &format!(
                    "for my $f (0..60) {{ for my $t (1, 2, 3, 5) {{ my $r = syscall({}, $f, $t, 0); \
                     my $e = $r < 0 ? 0 + $! : 'made'; my $pair = qq(\\0) x 8; my $q = syscall({}, $f, $t, 0, $pair); \
                     my $g = $q < 0 ? 0 + $! : 'made'; print qq($f $t $e $g\n) }} }}",
                    libc::SYS_socket,
                    libc::SYS_socketpair
                ),
            )
            .await;
            assert_eq!(seen.lines().count(), 61 * 4);
            let made = |family: i32| {
                seen.lines().any(|l| l.starts_with(&format!("{family} ")) && l.contains("made"))
            };
            assert!(usual.iter().all(|family| made(*family)), "the control fails: {seen}");
            for line in seen.lines() {
                let words: Vec<_> = line.split(' ').collect();
                if !usual.contains(&words[0].parse().unwrap()) {
                    assert_eq!(words[2], "1", "family {}: socket: {line}", words[0]);
                    assert_eq!(words[3], "1", "family {}: socketpair: {line}", words[0]);
                } else if words[1] == "3" && words[0] != "1" && words[0] != "16" {
                    assert_ne!(words[2], "made", "a raw socket: {line}");
                }
            }
        }
    });
}
