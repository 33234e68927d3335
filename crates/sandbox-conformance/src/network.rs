//! Which hosts can be reached under each network policy, tested with servers on this machine.

use std::{net::UdpSocket, time::Duration};

use sandbox::{Network, RefusalReason, RefusedConnections, Runtime, Sandbox, Spec};

use crate::{
    Harness,
    support::{Server, has, ok, sh, wait_for},
};

/// Whether a plain connection from inside succeeds.
async fn connects(sandbox: &impl Sandbox, host: &str, port: u16) -> bool {
    sh(sandbox, format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{host}/{port}' 2>/dev/null"))
        .await
        .status
        .success()
}

/// The address this machine would use to talk to others, if it has one.
fn own_address() -> Option<String> {
    // Connecting a datagram socket sends nothing; it only chooses the route.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

/// Without a network nothing outside can be reached, this machine's own servers included.
pub async fn none_has_no_way_out<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let loopback = Server::start("127.0.0.1").await;
    let everywhere = Server::start("0.0.0.0").await;
    assert!(!connects(&sandbox, "127.0.0.1", loopback.port).await);
    assert!(!connects(&sandbox, "192.0.2.1", 80).await);
    if let Some(address) = own_address() {
        assert!(!connects(&sandbox, &address, everywhere.port).await);
    }
    assert_eq!((loopback.hits(), everywhere.hits()), (0, 0));
    assert_eq!(ok(&sandbox, "wc -l < /proc/net/route").await.trim(), "1", "there is a route");
    assert_eq!(ok(&sandbox, "env | grep -ci _proxy= || true").await.trim(), "0");
}

/// Inside, loopback works, and it is not the neighbour's.
pub async fn none_has_its_own_loopback<R: Runtime>(h: &Harness<R>) {
    let (sandbox, neighbour) = (h.sandbox().await, h.sandbox().await);
    if !has(&sandbox, "perl").await {
        return;
    }
    ok(
        &sandbox,
        "perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(Listen => 9, LocalAddr => \"127.0.0.1\", \
         LocalPort => 8124) or die; while (my $c = $s->accept) { close $c }' &",
    )
    .await;
    wait_for("the server listens", Duration::from_secs(60), async || {
        connects(&sandbox, "127.0.0.1", 8124).await
    })
    .await;
    assert!(connects(&sandbox, "localhost", 8124).await, "localhost has no meaning inside");
    assert!(!connects(&neighbour, "127.0.0.1", 8124).await);
}

/// With the full network this machine can be reached by its address.
pub async fn full_reaches_this_machine<R: Runtime>(h: &Harness<R>) {
    if !h.caps.network_full.or_skip("network_full") {
        return;
    }
    let Some(address) = own_address() else {
        return crate::skip("address", "this machine has no address but loopback");
    };
    let server = Server::start("0.0.0.0").await;
    let sandbox = h.create(&Spec { network: Network::Full, ..h.spec() }).await;
    assert!(connects(&sandbox, &address, server.port).await);
    // The kernel connects before the server accepts.
    wait_for("the server accepts", Duration::from_secs(60), async || server.hits() == 1).await;
}

async fn allowing<R: Runtime>(h: &Harness<R>, policy: &str) -> Option<R::Sandbox> {
    if !h.caps.network_allow.or_skip("network_allow") {
        return None;
    }
    let network = policy.parse().expect("a policy");
    let sandbox = h.create(&Spec { network, ..h.spec() }).await;
    has(&sandbox, "curl").await.then_some(sandbox)
}

/// Fetches a page through the proxy the environment names; the body, or nothing.
async fn fetch(sandbox: &impl Sandbox, options: &str, url: &str) -> Option<String> {
    let script = format!("curl --noproxy '' -sS --fail --max-time 20 {options} '{url}'");
    let output = sh(sandbox, script).await;
    output.status.success().then(|| output.stdout.text().into_owned())
}

/// A named host is reached, by plain requests and through a tunnel.
pub async fn allow_reaches_the_named_host<R: Runtime>(h: &Harness<R>) {
    let server = Server::start("127.0.0.1").await;
    let Some(sandbox) = allowing(h, &format!("allow=localhost:{}", server.port)).await else {
        return;
    };
    let script = r#"for v in http_proxy https_proxy HTTP_PROXY HTTPS_PROXY; do [ -n "${!v}" ] || echo "no $v"; done"#;
    assert_eq!(ok(&sandbox, script).await, "");
    let url = format!("http://localhost:{}/page", server.port);
    for options in ["", "--proxytunnel", "--proxytunnel --http1.0"] {
        let page = fetch(&sandbox, options, &url).await;
        assert_eq!(page.as_deref(), Some("host server here"), "with `{options}`");
    }
    assert_eq!(server.hits(), 3);
    assert_eq!(ok(&sandbox, "echo still | cat").await, "still\n");
}

/// Other ports, other names of the same place and other places are refused.
pub async fn allow_refuses_everything_else<R: Runtime>(h: &Harness<R>) {
    let (named, other) = (Server::start("127.0.0.1").await, Server::start("127.0.0.1").await);
    let Some(sandbox) = allowing(h, &format!("allow=localhost:{}", named.port)).await else {
        return;
    };
    let urls = [
        format!("http://localhost:{}/", other.port),
        format!("http://127.0.0.1:{}/", named.port),
        format!("http://[::1]:{}/", named.port),
        format!("http://evil.localhost:{}/", named.port),
        format!("http://localhost.example.com:{}/", named.port),
        format!("http://localhost@127.0.0.1:{}/", other.port),
        "http://localhost/".to_owned(),
        "http://192.0.2.1/".to_owned(),
        "http://169.254.169.254/latest/".to_owned(),
    ];
    for url in urls {
        for options in ["", "--proxytunnel"] {
            assert_eq!(fetch(&sandbox, options, &url).await, None, "{url} was reached");
        }
        // A different host in the header must not change the server that is contacted.
        let header = format!("-H 'Host: localhost:{}'", named.port);
        assert_eq!(fetch(&sandbox, &header, &url).await, None, "{url} was reached");
    }
    assert_eq!((named.hits(), other.hits()), (0, 0));
}

/// A wildcard does not allow loopback, private or link-local targets.
pub async fn allow_refuses_private_targets_of_wildcards<R: Runtime>(h: &Harness<R>) {
    let server = Server::start("127.0.0.1").await;
    let everywhere = Server::start("0.0.0.0").await;
    let (port, open) = (server.port, everywhere.port);
    let policy = format!(
        "allow=*.0.0.1:{port},*.0.0.1:{open},*.0.0:{open},*.254.169.254,*.localhost:{port}"
    );
    let Some(sandbox) = allowing(h, &policy).await else {
        return;
    };
    let mut urls = vec![
        format!("http://127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{open}/"),
        format!("http://0.0.0.0:{open}/"),
        format!("http://a.localhost:{port}/"),
        "http://169.254.169.254/".to_owned(),
    ];
    urls.extend(own_address().map(|address| format!("http://{address}:{open}/")));
    for url in urls {
        for options in ["", "--proxytunnel"] {
            assert_eq!(fetch(&sandbox, options, &url).await, None, "{url} was reached");
        }
    }
    assert_eq!((server.hits(), everywhere.hits()), (0, 0));
}

/// Only the proxy and allowed loopback ports lead out: any other direct connection finds nothing.
pub async fn allow_leaves_no_direct_way<R: Runtime>(h: &Harness<R>) {
    let (loopback, everywhere) = (Server::start("127.0.0.1").await, Server::start("0.0.0.0").await);
    let policy = format!("allow=localhost:{},127.0.0.1:{}", loopback.port, loopback.port);
    let Some(sandbox) = allowing(h, &policy).await else {
        return;
    };
    assert!(!connects(&sandbox, "127.0.0.1", everywhere.port).await);
    assert!(!connects(&sandbox, "192.0.2.1", 80).await);
    if let Some(address) = own_address() {
        assert!(!connects(&sandbox, &address, everywhere.port).await);
    }
    assert_eq!((loopback.hits(), everywhere.hits()), (0, 0));
    let url = format!("http://127.0.0.1:{}/", loopback.port);
    assert_eq!(fetch(&sandbox, "", &url).await.as_deref(), Some("host server here"));
}

/// An allowed loopback port of this machine answers at the same place inside, whichever name of it is allowed and used,
/// and whether or not a client uses the proxy. Programs inside can still serve each other there.
pub async fn allow_reaches_loopback_by_any_name<R: Runtime>(h: &Harness<R>) {
    let server = Server::start("127.0.0.1").await;
    let port = server.port;
    for name in ["127.0.0.1", "localhost"] {
        let Some(sandbox) = allowing(h, &format!("allow={name}:{port}")).await else {
            return;
        };
        for host in ["127.0.0.1", "localhost"] {
            let script = format!("curl -sS --fail --max-time 20 http://{host}:{port}/");
            assert_eq!(ok(&sandbox, script).await, "host server here", "{name}: {host}");
        }
        let page = fetch(&sandbox, "", &format!("http://{name}:{port}/")).await;
        assert_eq!(page.as_deref(), Some("host server here"), "{name} through the proxy");
        if has(&sandbox, "python3").await {
            let own = "cd /tmp; echo mine > page; (python3 -m http.server 8127 >/dev/null 2>&1 &); \
                       curl -sS --fail --max-time 20 --retry 40 --retry-connrefused --retry-delay 1 \
                       http://localhost:8127/page";
            assert_eq!(ok(&sandbox, own).await, "mine\n", "{name}");
        }
    }
}

/// Refused connections are counted by host, port and reason; others are not.
pub async fn allow_counts_what_it_refuses<R: Runtime>(h: &Harness<R>) {
    let server = Server::start("127.0.0.1").await;
    let policy = format!("allow=127.0.0.1:{},*.localhost:81", server.port);
    let Some(sandbox) = allowing(h, &policy).await else {
        return;
    };
    assert!(sandbox.refused_connections().is_empty());
    let refused = ["http://a.example/", "https://A.example/", "http://a.example/"];
    for url in refused.into_iter().chain(["http://b.localhost:81/"]) {
        assert_eq!(fetch(&sandbox, "", url).await, None, "{url}");
    }
    let url = format!("http://127.0.0.1:{}/", server.port);
    assert_eq!(fetch(&sandbox, "", &url).await.as_deref(), Some("host server here"));
    let one = |host: &str, port, reason, count| RefusedConnections {
        host: host.into(),
        port,
        reason,
        count,
    };
    let mut expected = vec![
        one("a.example", 80, RefusalReason::NotAllowed, 2),
        one("a.example", 443, RefusalReason::NotAllowed, 1),
    ];
    let refused = sandbox.refused_connections();
    // Not every machine resolves names below localhost.
    if refused.len() > expected.len() {
        expected.push(one("b.localhost", 81, RefusalReason::PrivateAddress, 1));
    }
    assert_eq!(refused, expected);
}
