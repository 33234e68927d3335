//! Attempts to reach this machine, its network or a cloud's metadata under the policy `internet`, and floods.

use std::{net::UdpSocket, sync::Arc, time::Instant};

use lis_sandbox_native::NativeSandbox;
use sandbox::{ImageRef, Network, RefusalReason, Runtime, Sandbox, Spec};
use sandbox_conformance::{Missing, skip};

use super::{Duration, nothing_is_left, ok, perl, perl_behind, store};
use crate::{
    mirror::{Mirror, Server},
    support,
};

/// A public address and name of a test server.
const PUBLIC: &str = "93.184.216.34";
const NAME: &str = "good.example.com";

/// Where attacks are tried: a runtime whose sandboxes reach a network of test servers.
struct Net {
    runtime: lis_sandbox_native::NativeRuntime,
    mirror: Arc<Mirror>,
    /// The server at `PUBLIC`.
    public: Server,
    /// A server of this machine, which nobody may reach.
    private: Server,
}

impl Net {
    async fn sandbox(&self) -> NativeSandbox {
        let spec = Spec { image: ImageRef::Host, network: Network::Internet, ..Spec::default() };
        self.runtime.create(&spec).await.unwrap()
    }

    /// The server of this machine was not reached, and only public addresses were connected to.
    fn nothing_private_was_reached(&self) {
        assert_eq!(self.private.hits(), 0, "{:?}", self.mirror.dialed());
        for address in self.mirror.dialed() {
            assert!(address.starts_with(PUBLIC), "{address} was connected to");
        }
    }
}

fn on_the_internet(attack: impl AsyncFnOnce(&Net)) {
    let home = support::home();
    sandbox_testkit::within(super::BOUND, async {
        let mirror = Arc::new(Mirror::default());
        let (public, private) = (Server::start().await, Server::start().await);
        mirror.lead(PUBLIC, &public);
        mirror.name(NAME, &[PUBLIC]);
        match support::start_with(home.clone(), Arc::<Mirror>::clone(&mirror)).await {
            Ok(runtime) => attack(&Net { runtime, mirror, public, private }).await,
            Err(Missing { capability, reason }) => skip(&capability, &reason),
        }
    });
    nothing_is_left(&home);
}

/// Perl that asks for a page in four ways, and prints one line for each: by HTTP and a tunnel through the proxy, by SOCKS
/// with a name, and by a plain connection. A line ends with `reached` if the server answered.
const ASK: &str = r#"
use Socket qw(:all); $SIG{PIPE} = 'IGNORE'; $| = 1;
sub to { my ($ip, $port) = @_; my $six = $ip =~ /:/;
  socket(my $s, $six ? AF_INET6 : AF_INET, SOCK_STREAM, 0) or die;
  setsockopt($s, SOL_SOCKET, SO_RCVTIMEO, pack('l!l!', 20, 0));
  my $a = inet_pton($six ? AF_INET6 : AF_INET, $ip) or return;
  connect($s, $six ? pack_sockaddr_in6($port, $a) : pack_sockaddr_in($port, $a)) or return; $s }
sub all { my ($s) = @_; my $all = ''; while (sysread($s, my $more, 4096)) { $all .= $more } $all }
sub said { my ($how, $what, $all) = @_; $all =~ s/\s+/ /g; $all = substr($all, 0, 200); print "$how $what: ",
  ($all =~ /reached$/ ? 'reached' : "no ($all)"), "\n" }
my $page = "GET / HTTP/1.0\r\n\r\n";
sub http { my ($host, $port) = @_; my $s = to('127.0.0.1', 3128) or die;
  syswrite($s, "GET http://$host:$port/ HTTP/1.0\r\n\r\n"); said('http', $host, all($s)) }
sub tunnel { my ($host, $port) = @_; my $s = to('127.0.0.1', 3128) or die;
  syswrite($s, "CONNECT $host:$port HTTP/1.1\r\n\r\n"); sysread($s, my $head, 4096);
  syswrite($s, $page) if $head =~ / 200 /; said('tunnel', $host, $head . all($s)) }
sub socks { my ($host, $port) = @_; my $s = to('127.0.0.1', 3128) or die; $host =~ s/^\[|\]$//g;
  syswrite($s, "\x05\x01\x00"); sysread($s, my $ok, 2);
  my $at = inet_pton(AF_INET, $host); my $at6 = $host =~ /:/ ? inet_pton(AF_INET6, $host) : undef;
  my $address = defined $at ? "\x01$at" : defined $at6 ? "\x04$at6" : "\x03" . chr(length $host) . $host;
  syswrite($s, "\x05\x01\x00" . $address . pack('n', $port)); sysread($s, my $reply, 10);
  my $code = unpack('xC', $reply); syswrite($s, $page) if $code == 0; said('socks', $host, "$code " . all($s)) }
sub plain { my ($host, $port) = @_; $host =~ s/^\[|\]$//g; my $s = to($host, $port);
  return said('plain', $host, "$!") unless $s; syswrite($s, $page); said('plain', $host, all($s)) }
"#;

/// Asks for each of these hosts in every way; the lines.
async fn ask(sandbox: &NativeSandbox, hosts: &[&str], port: u16) -> Vec<String> {
    let mut program = String::from(ASK);
    for host in hosts {
        for way in ["http", "tunnel", "socks", "plain"] {
            program.push_str(&format!("{way}('{host}', {port});\n"));
        }
    }
    perl(sandbox, &program).await.lines().map(String::from).collect()
}

fn has_relay(sandbox: &NativeSandbox) -> bool {
    format!("{:?}", sandbox.protection()).contains("relay of all TCP")
}

/// No spelling of an address of this machine, its networks or a cloud's metadata is reached, however a program asks.
#[test]
fn no_spelling_of_a_private_address_is_reached() {
    on_the_internet(async |net| {
        let sandbox = net.sandbox().await;
        let control = ask(&sandbox, &[PUBLIC], 80).await;
        let reached = control.iter().filter(|line| line.ends_with(": reached")).count();
        assert_eq!(reached, if has_relay(&sandbox) { 4 } else { 3 }, "the control: {control:?}");
        let mut hosts: Vec<&str> = "127.0.0.1 127.1 2130706433 0x7f000001 0177.0.0.1 017700000001 0x7f.0.0.1 127.000.000.001 \
            0 0.0.0.0 localhost localhost. LOCALHOST a.localhost 10.0.0.1 10.255.255.255 172.16.0.1 192.168.1.1 100.64.0.1 \
            169.254.169.254 2852039166 0xa9fea9fe 169.254.0.23 100.100.100.200 168.63.129.16 192.0.0.192 192.0.2.1 198.18.0.1 \
            198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 metadata.google.internal router.lan printer.local \
            [::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [::ffff:169.254.169.254] \
            [64:ff9b::7f00:1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::7f00:1] [2002:7f00:1::] [2002:a9fe:a9fe::1] \
            [2001:0:7f00:1::1] [2001:db8::1] [2606:4700::5efe:127.0.0.1] [fc00::1] [fd00:ec2::254] [fd20:ce::254] [fe80::1] \
            [fec0::1] [ff02::1] [3fff::1]"
            .split_whitespace()
            .collect();
        let own = UdpSocket::bind("0.0.0.0:0").unwrap();
        let own = own.connect("8.8.8.8:9").ok().and_then(|()| own.local_addr().ok());
        let own = own.map(|address| address.ip().to_string());
        hosts.extend(own.as_deref());
        let lines = ask(&sandbox, &hosts, net.private.address.port()).await;
        assert_eq!(lines.len(), 4 * hosts.len());
        for line in lines {
            assert!(line.contains(": no ("), "{line}");
        }
        net.nothing_private_was_reached();
        let refused = sandbox.refused_connections();
        assert!(refused.iter().all(|one| one.reason == RefusalReason::NotPublic), "{refused:?}");
        assert!(refused.iter().any(|one| one.host == "169.254.169.254"), "{refused:?}");
    });
}

/// A name that leads to a private address is neither resolved nor reached, and one that also leads to a public address is
/// reached there only.
#[test]
fn names_that_lead_home_are_refused() {
    on_the_internet(async |net| {
        let private = [
            "127.0.0.1",
            "10.0.0.1",
            "169.254.169.254",
            "::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
        ];
        for (number, address) in private.iter().enumerate() {
            net.mirror.name(&format!("home{number}.example.com"), &[address]);
        }
        net.mirror.name("mixed.example.com", &[&format!("127.0.0.1 {PUBLIC} ::1 10.0.0.1")]);
        let sandbox = net.sandbox().await;
        let port = net.private.address.port();
        let names: Vec<_> = (0..private.len()).map(|n| format!("home{n}.example.com")).collect();
        for name in &names {
            let found = ok(&sandbox, &format!("getent ahosts {name}; echo $?")).await;
            assert_eq!(found, "2\n", "{name}");
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for line in ask(&sandbox, &names, port).await {
            assert!(line.contains(": no ("), "{line}");
        }
        let found = ok(&sandbox, "getent ahosts mixed.example.com | cut -d' ' -f1 | sort -u").await;
        assert_eq!(found, format!("{PUBLIC}\n"));
        let lines = ask(&sandbox, &["mixed.example.com"], port).await;
        assert!(lines[..3].iter().all(|line| line.ends_with(": reached")), "{lines:?}");
        net.nothing_private_was_reached();
        assert_eq!(net.public.hits(), 3);
    });
}

/// A name whose address changes from a public to a private one between two questions gains nothing: the address that was
/// checked is the one that is connected to.
#[test]
fn a_name_that_is_rebound_gains_nothing() {
    on_the_internet(async |net| {
        let flips: Vec<&str> = [PUBLIC, "127.0.0.1"].into_iter().cycle().take(60).collect();
        net.mirror.name("rebind.example.com", &flips);
        let sandbox = net.sandbox().await;
        let port = net.private.address.port();
        let mut program = String::from(ASK);
        program.push_str(&format!(
            "sub fill {{ my $s; socket($s, AF_INET, SOCK_DGRAM, 0); setsockopt($s, SOL_SOCKET, SO_RCVTIMEO, pack('l!l!', 1, 0)); \
             connect($s, pack_sockaddr_in(53, inet_aton('127.0.0.1'))); my $r = shift; for my $n (1..300) {{ \
             my $l = \"x$r-$n\"; syswrite($s, pack('nnnnnn', $n, 256, 1, 0, 0, 0) . chr(length $l) . $l . \"\\x07example\\x03com\\0\\0\\x01\\0\\x01\"); \
             sysread($s, my $a, 512) }} }}\n\
             for my $r (1..2) {{ http('rebind.example.com', {port}); tunnel('rebind.example.com', {port}); \
             socks('rebind.example.com', {port}); fill($r) }}\n"
        ));
        let lines = perl(&sandbox, &program).await;
        let reached = lines.lines().filter(|line| line.ends_with(": reached")).count();
        assert!(reached > 0 && lines.lines().count() == 6, "the control fails: {lines}");
        assert_eq!(net.public.hits(), reached);
        net.nothing_private_was_reached();
    });
}

/// Sockets inside lead to the proxy and nowhere else: no listening port of the sandbox is a way to this machine.
#[test]
fn the_ports_of_the_proxy_lead_nowhere_else() {
    on_the_internet(async |net| {
        let sandbox = net.sandbox().await;
        let port = net.private.address.port();
        let program = format!(
            "{ASK} my %ports; for my $f ('/proc/net/tcp', '/proc/net/tcp6') {{ open(my $t, '<', $f) or next; while (<$t>) {{ \
             $ports{{hex $1}} = 1 if /^\\s*\\d+: [0-9A-F]+:([0-9A-F]{{4}}) [0-9A-F]+:0000 0A/ }} }}\n\
             for my $p (sort keys %ports, {port}) {{ for my $h ('127.0.0.1', '127.0.0.2', '::1', '192.0.2.1') {{ \
             my $s = to($h, $p) or do {{ print \"closed\\n\"; next }}; \
             syswrite($s, \"GET http://127.0.0.1:{port}/ HTTP/1.0\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n\"); said($h, $p, all($s)) }} }}"
        );
        let lines = perl(&sandbox, &program).await;
        assert!(lines.contains("not a public address"), "the control fails: {lines}");
        assert!(!lines.contains(": reached"), "{lines}");
        net.nothing_private_was_reached();
    });
}

/// Nothing but TCP and names gets out: other datagrams are refused at once, and there are no raw sockets.
#[test]
fn nothing_but_tcp_and_names_gets_out() {
    on_the_internet(async |net| {
        let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
        outside.set_nonblocking(true).unwrap();
        let port = outside.local_addr().unwrap().port();
        let sandbox = net.sandbox().await;
        let program = format!(
            "use Socket qw(:all); for my $to ('8.8.8.8', '127.0.0.1', '10.0.0.1', '169.254.169.254') {{ \
             socket(my $s, AF_INET, SOCK_DGRAM, 0) or die; setsockopt($s, SOL_SOCKET, SO_RCVTIMEO, pack('l!l!', 5, 0)); \
             connect($s, pack_sockaddr_in({port}, inet_aton($to))) or do {{ print \"$to unreachable\\n\"; next }}; \
             syswrite($s, 'x'); my $n = sysread($s, my $a, 9); print \"$to \", (defined $n ? 'answered' : \"$!\"), \"\\n\" }}\n\
             for my $kind (SOCK_RAW, SOCK_DGRAM) {{ print socket(my $s, AF_INET, $kind, 1) ? \"icmp\\n\" : \"none\\n\" }}"
        );
        let lines = perl(&sandbox, &program).await;
        let refused =
            |line: &str| line.ends_with("Connection refused") || line.ends_with("unreachable");
        let all: Vec<_> = lines.lines().collect();
        assert_eq!(all.len(), 6, "{lines}");
        assert!(all[..4].iter().all(|line| refused(line)), "{lines}");
        assert_eq!(all[4..], ["none", "none"], "{lines}");
        assert!(outside.recv(&mut [0; 9]).is_err(), "a datagram got out");
    });
}

/// Connections that never complete, and silent ones, take the sandbox's own share only: its caller and its neighbours
/// reach the network as before.
#[test]
fn half_open_floods_starve_nobody_else() {
    on_the_internet(async |net| {
        let (flooding, neighbour) = (net.sandbox().await, net.sandbox().await);
        // Port 9 of the test network never answers.
        let target = if has_relay(&flooding) { "8.8.4.4" } else { "127.0.0.1" };
        let flood = format!(
            "use Socket qw(:all); my @keep; for my $n (1..400) {{ socket(my $s, AF_INET, SOCK_STREAM, 0) or last; \
             my $p = $n % 2 ? 3128 : 9; my $to = $p == 9 ? '{target}' : '127.0.0.1'; fcntl($s, 4, 2048); \
             connect($s, pack_sockaddr_in($p, inet_aton($to))); push @keep, $s; \
             syswrite($s, 'GET http') if $p == 3128 }} $| = 1; print qq(ready\\n); sleep 60;"
        );
        perl_behind(&flooding, &flood).await;
        let began = Instant::now();
        let lines = ask(&neighbour, &[NAME], 80).await;
        assert!(lines[..3].iter().all(|line| line.ends_with(": reached")), "{lines:?}");
        store(&flooding, "/tmp/file", "still served").await;
        assert_eq!(ok(&flooding, "cat /tmp/file").await, "still served");
        let fresh = net.sandbox().await;
        assert_eq!(ok(&fresh, "echo new").await, "new\n");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        // When the flood ends, the share is free again.
        ok(&flooding, "pkill perl; true").await;
        let lines = ask(&flooding, &[NAME], 80).await;
        assert!(lines[..3].iter().all(|line| line.ends_with(": reached")), "{lines:?}");
    });
}

/// Floods of questions and junk leave the resolver as it was, and a neighbour's untouched.
#[test]
fn junk_does_not_break_the_resolver() {
    on_the_internet(async |net| {
        let (flooding, neighbour) = (net.sandbox().await, net.sandbox().await);
        let program = "use Socket qw(:all); $SIG{PIPE} = 'IGNORE'; my $to = pack_sockaddr_in(53, inet_aton('127.0.0.1')); \
             socket(my $s, AF_INET, SOCK_DGRAM, 0) or die; \
             for my $n (1..5000) { send($s, join('', map { chr(($n * 31 + $_ * 7) % 256) } 0..($n % 600)), 0, $to) } \
             for my $n (1..3000) { send($s, pack('nnnnnn', $n, 256, 1, 0, 0, 0) . qq(\\x03a$n\\x07example\\x03com\\0\\0\\x01\\0\\x01), 0, $to) } \
             for my $junk (qq(\\0\\0), qq(\\xff\\xff) . 'x' x 600, qq(\\0\\x05abc), qq(\\0\\x0c) . qq(\\0) x 12) { \
             socket(my $t, AF_INET, SOCK_STREAM, 0) or die; connect($t, $to) or die; syswrite($t, $junk); shutdown($t, 1); \
             1 while sysread($t, my $a, 4096) } print qq(sent\\n);";
        assert_eq!(perl(&flooding, program).await, "sent\n");
        for sandbox in [&neighbour, &flooding] {
            let script = format!("getent ahostsv4 {NAME} | cut -d' ' -f1 | sort -u");
            assert_eq!(ok(sandbox, &script).await, format!("{PUBLIC}\n"));
        }
    });
}
