//! Under the network policy `internet` programs reach public servers: with the proxy, without it, and package managers.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{path::Path, sync::Arc, time::Duration};

use lis_sandbox_native::{Launcher, NativeOptions, NativeRuntime, NativeSandbox};
use sandbox::{
    ImageRef, Layer, LayerState, Network, RefusalReason, Runtime, Sandbox, ShellCommand, Spec,
};
use sandbox_conformance::{Missing, setting, skip};
use tokio::io::AsyncReadExt;

use crate::{
    mirror::{Mirror, Server},
    support,
};

/// A public address and name of the test's own server.
const ADDRESS: &str = "93.184.216.34";
const NAME: &str = "packages.example.com";

/// Runs a test with a sandbox that reaches `NAME`; skips it where there can be none.
fn with(image: Option<ImageRef>, test: impl AsyncFnOnce(&NativeSandbox, &Mirror, &Server)) {
    let Some(image) = image else {
        return skip("rootfs", "LIS_TEST_ROOTFS does not name a directory with a root file system");
    };
    sandbox_testkit::within(Duration::from_secs(100), async {
        let mirror = Arc::new(Mirror::default());
        let server = Server::start().await;
        mirror.lead(ADDRESS, &server);
        mirror.lead("2606:4700::1111", &server);
        mirror.name(NAME, &[&format!("{ADDRESS} 2606:4700::1111")]);
        let started = support::start_with(support::home(), Arc::<Mirror>::clone(&mirror)).await;
        let runtime: NativeRuntime = match started {
            Ok(runtime) => runtime,
            Err(Missing { capability, reason }) => return skip(&capability, &reason),
        };
        let spec = Spec { image, network: Network::Internet, ..Spec::default() };
        let sandbox = runtime.create(&spec).await.unwrap();
        test(&sandbox, &mirror, &server).await;
        sandbox.destroy().await.unwrap();
    });
}

fn rootfs() -> Option<ImageRef> {
    setting("LIS_TEST_ROOTFS").map(|rootfs| ImageRef::Dir(rootfs.into()))
}

/// Whether programs reach the network without the proxy; prints a skip if not.
fn has_relay(sandbox: &NativeSandbox) -> bool {
    let network = sandbox.protection().layers.iter().find(|one| one.layer == Layer::Network);
    let detail = &network.unwrap().detail;
    let has = detail.contains("relay of all TCP");
    if !has {
        skip("relay", detail);
    }
    has
}

async fn ok(sandbox: &NativeSandbox, script: &str) -> String {
    let command = ShellCommand::new(script).timeout(Duration::from_secs(60));
    let output = sandbox.shell(&command).await.unwrap();
    let (out, err) = (output.stdout.text(), output.stderr.text());
    assert!(output.status.success(), "{script}: {:?}: {out} {err}", output.status);
    out.into_owned()
}

async fn read(sandbox: &NativeSandbox, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = sandbox.read_file(Path::new(path)).await.unwrap();
    file.read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// A plain connection of Perl, which asks no proxy.
fn plain(family: &str, host: &str) -> String {
    format!(
        "perl -MIO::Socket::IP -e 'my $s = IO::Socket::IP->new(PeerHost => \"{host}\", PeerPort => 80, Family => {family}, \
         Timeout => 20) or die $@; print $s \"GET / HTTP/1.0\\r\\n\\r\\n\"; local $/; print <$s>' 2>&1 | tail -1"
    )
}

#[test]
fn programs_reach_a_public_server_with_and_without_the_proxy() {
    with(Some(ImageRef::Host), async |sandbox, mirror, server| {
        let protection = sandbox.protection();
        assert_eq!(protection.state(&Layer::Network), LayerState::Enforced);
        let url = format!("http://{NAME}:8080/");
        let mut expected = 0;
        for options in ["", "--proxytunnel", "--noproxy '' -x socks5h://127.0.0.1:3128"] {
            let page = ok(sandbox, &format!("curl -sS --fail --max-time 20 {options} {url}")).await;
            assert_eq!(page, "reached", "with `{options}`");
            expected += 1;
        }
        if has_relay(sandbox) {
            let direct = format!("curl --noproxy '*' -sS --fail --max-time 20 {url}");
            assert_eq!(ok(sandbox, &direct).await, "reached");
            assert_eq!(ok(sandbox, &plain("2", ADDRESS)).await, "reached");
            assert_eq!(ok(sandbox, &plain("2", NAME)).await, "reached");
            assert_eq!(ok(sandbox, &plain("10", "2606:4700::1111")).await, "reached");
            assert_eq!(ok(sandbox, &plain("10", NAME)).await, "reached");
            expected += 5;
        }
        assert_eq!(server.hits(), expected);
        let public = ["93.184.216.34:8080", "93.184.216.34:80", "[2606:4700::1111]:80"];
        let also = "[2606:4700::1111]:8080";
        let dialed = mirror.dialed();
        assert!(
            dialed.iter().all(|one| public.contains(&one.as_str()) || one == also),
            "{dialed:?}"
        );
        assert_eq!(sandbox.refused_connections(), []);
    });
}

#[test]
fn names_are_resolved_and_servers_inside_stay_reachable() {
    with(Some(ImageRef::Host), async |sandbox, _, _| {
        let found = ok(sandbox, &format!("getent ahosts {NAME} | cut -d' ' -f1 | sort -u")).await;
        assert_eq!(found, format!("2606:4700::1111\n{ADDRESS}\n"));
        let missing = ok(sandbox, "getent hosts nothing.example.com; echo $?").await;
        assert_eq!(missing, "2\n");
        assert_eq!(ok(sandbox, "getent hosts localhost | wc -l").await, "1\n");
        // Over TCP, as clients do after an answer that was cut.
        let over_tcp =
            format!("RES_OPTIONS=use-vc getent ahostsv4 {NAME} | cut -d' ' -f1 | sort -u");
        assert_eq!(ok(sandbox, &over_tcp).await, format!("{ADDRESS}\n"));
        let own = "cd /tmp; echo mine > page; (python3 -m http.server 8127 >/dev/null 2>&1 &); \
                   curl -sS --fail --max-time 20 --retry 40 --retry-connrefused --retry-delay 1 http://localhost:8127/page";
        if sandbox.shell(&ShellCommand::new("command -v python3")).await.unwrap().status.success() {
            assert_eq!(ok(sandbox, own).await, "mine\n");
        }
        let closed = "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr => q(127.0.0.1:7)) or print $!{ECONNREFUSED}'";
        assert_ne!(ok(sandbox, closed).await, "");
    });
}

#[test]
fn what_is_not_public_is_refused_and_counted() {
    with(Some(ImageRef::Host), async |sandbox, mirror, _| {
        mirror.name("db.corp.example.com", &["10.0.0.5"]);
        let page = ok(sandbox, "curl -sS --max-time 20 http://192.168.0.1:8000/").await;
        let refusal =
            "sandbox network: 192.168.0.1 is not a public address, and only those can be reached\n";
        assert_eq!(page, refusal);
        assert_eq!(ok(sandbox, "getent ahostsv4 db.corp.example.com; echo $?").await, "2\n");
        let mut expected = vec![("192.168.0.1", 8000), ("db.corp.example.com", 0)];
        if has_relay(sandbox) {
            let script =
                "curl --noproxy '*' -sS --max-time 20 http://10.1.2.3/ 2>/dev/null; echo $?";
            assert_ne!(ok(sandbox, script).await, "0\n");
            expected.push(("10.1.2.3", 80));
        }
        let refused = sandbox.refused_connections();
        let seen: Vec<_> = refused.iter().map(|one| (one.host.as_str(), one.port)).collect();
        assert_eq!(seen, expected);
        assert!(refused.iter().all(|one| one.reason == RefusalReason::NotPublic));
        assert_eq!(mirror.dialed(), Vec::<String>::new());
    });
}

/// Perl that replaces itself by its argument, without the kernel's packet filter: the socket for it cannot be opened.
const WITHOUT_NETFILTER: &str = r#"
my $socket = `uname -m` =~ /x86_64/ ? 41 : 198; my ($prctl, $seccomp) = $socket == 41 ? (157, 317) : (167, 277);
my @lines = ([0x20, 0, 0, 0], [0x15, 0, 5, $socket], [0x20, 0, 0, 16], [0x15, 0, 3, 16], [0x20, 0, 0, 32], [0x15, 0, 1, 12],
  [6, 0, 0, 0x50000 + 93], [6, 0, 0, 0x7fff0000]);
my $filter = join '', map { pack 'SCCL', @$_ } @lines; my $program = pack 'S x6 P', scalar @lines, $filter;
syscall($prctl, 38, 1, 0, 0, 0) == 0 or die; syscall($seccomp, 1, 0, $program) == 0 or die "$!"; exec @ARGV or die;
"#;

#[test]
fn without_a_relay_programs_use_the_proxy() {
    sandbox_testkit::within(Duration::from_secs(100), async {
        let mirror = Arc::new(Mirror::default());
        let server = Server::start().await;
        mirror.lead(ADDRESS, &server);
        mirror.name(NAME, &[ADDRESS]);
        let helper = support::spawner().into_os_string();
        let args = vec!["-e".into(), WITHOUT_NETFILTER.into(), helper];
        let launcher = Launcher { args, ..Launcher::new("/usr/bin/perl") };
        let home = support::home();
        let options = NativeOptions { state: home.clone(), home, launcher };
        let runtime = match NativeRuntime::start_with(options, Arc::<Mirror>::clone(&mirror)).await
        {
            Ok(runtime) => runtime,
            Err(error) => return skip("userns", &error.chain()),
        };
        let spec = Spec { network: Network::Internet, ..Spec::default() };
        let sandbox = runtime.create(&spec).await.unwrap();
        let protection = sandbox.protection();
        assert_eq!(protection.state(&Layer::Network), LayerState::Enforced);
        let detail = format!("{protection:?}");
        assert!(detail.contains("programs have to use its variables"), "{detail}");
        for options in ["", "--proxytunnel", "-x socks5://127.0.0.1:3128"] {
            let fetch = format!("curl -sS --fail --max-time 20 {options} http://{NAME}/");
            assert_eq!(ok(&sandbox, &fetch).await, "reached", "with `{options}`");
        }
        // There is no route that only seems to lead somewhere.
        let direct =
            format!("curl --noproxy '*' -sS --max-time 20 http://{ADDRESS}/ 2>&1; echo $?");
        let direct = ok(&sandbox, &direct).await;
        assert!(direct.ends_with("\n7\n"), "{direct}");
        assert_eq!(server.hits(), 3);
        sandbox.destroy().await.unwrap();
    });
}

/// Builds a wheel in the sandbox itself.
const WHEEL: &str = r#"python3 - <<'END'
import base64, hashlib, zipfile
files = {
    "greeting.py": "print('hello from a wheel')\n",
    "greeting-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
    "greeting-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
def row(name, text):
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(text)}\n"
record = "".join(row(name, text) for name, text in files.items()) + "greeting-1.0.dist-info/RECORD,,\n"
with zipfile.ZipFile("/tmp/greeting-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in [*files.items(), ("greeting-1.0.dist-info/RECORD", record)]:
        wheel.writestr(name, text)
END"#;

#[test]
fn pip_installs_a_package() {
    let host = Path::new("/usr/lib/python3/dist-packages/pip");
    with(rootfs(), async |sandbox, _, server| {
        let has = sandbox.shell(&ShellCommand::new("python3 -m pip --version")).await.unwrap();
        if !has.status.success() {
            if !host.exists() {
                return skip(
                    "pip",
                    "neither the image nor this machine has the package python3-pip",
                );
            }
            sandbox.copy_in(host, host).await.unwrap();
        }
        ok(sandbox, WHEEL).await;
        let wheel = "greeting-1.0-py3-none-any.whl";
        server.add(&format!("/files/{wheel}"), read(sandbox, &format!("/tmp/{wheel}")).await);
        server.add("/simple/greeting/", format!("<a href=\"/files/{wheel}\">{wheel}</a>"));
        let install = format!(
            "rm /tmp/{wheel}; python3 -m pip install --no-cache-dir --disable-pip-version-check --break-system-packages \
             --index-url http://{NAME}/simple --trusted-host {NAME} greeting 2>&1; python3 -c 'import greeting'"
        );
        let output = ok(sandbox, &install).await;
        assert!(output.ends_with("hello from a wheel\n"), "{output}");
        assert!(server.hits() >= 2);
    });
}

/// Builds a package and the index of its repository in the sandbox itself.
const PACKAGE: &str = r#"set -e
mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin
printf '#!/bin/sh\necho hello from a package\n' > /tmp/p/usr/bin/greeting; chmod 755 /tmp/p/usr/bin/greeting
printf 'Package: greeting\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: a greeting\n' \
    > /tmp/p/DEBIAN/control
dpkg-deb --root-owner-group -Zgzip -b /tmp/p /tmp/greeting.deb >/dev/null
{ cat /tmp/p/DEBIAN/control; echo "Filename: greeting.deb"; echo "Size: $(stat -c %s /tmp/greeting.deb)"
  echo "SHA256: $(sha256sum /tmp/greeting.deb | cut -d' ' -f1)"; echo; } > /tmp/Packages"#;

#[test]
fn apt_installs_a_package() {
    with(rootfs(), async |sandbox, _, server| {
        if !sandbox.shell(&ShellCommand::new("command -v apt-get")).await.unwrap().status.success()
        {
            return skip("apt-get", "the image has no apt-get");
        }
        ok(sandbox, PACKAGE).await;
        // Where the sandbox has one user only, apt cannot download as another.
        let one_user = sandbox.protection().state(&Layer::Users) == LayerState::Partial;
        let options = if one_user { "-q -o APT::Sandbox::User=root" } else { "-q" };
        server.add("/repository/greeting.deb", read(sandbox, "/tmp/greeting.deb").await);
        server.add("/repository/Packages", read(sandbox, "/tmp/Packages").await);
        // The second time without the proxy, where there is a relay.
        let mut ways = vec!["true"];
        if has_relay(sandbox) {
            ways.push("dpkg -r greeting >/dev/null; unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy");
        }
        for way in ways {
            let install = format!(
                "{way}; rm -rf /etc/apt/sources.list* /var/lib/apt/lists; mkdir -p /var/lib/apt/lists/partial
                 echo 'deb [trusted=yes] http://{NAME}/repository ./' > /etc/apt/sources.list
                 export DEBIAN_FRONTEND=noninteractive; (apt-get {options} update && apt-get {options} install -y greeting) >/tmp/log 2>&1 \
                 || cat /tmp/log; greeting"
            );
            assert_eq!(ok(sandbox, &install).await, "hello from a package\n");
        }
    });
}
