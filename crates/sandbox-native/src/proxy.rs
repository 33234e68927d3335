//! The allow-listing proxy: the only way out of a sandbox whose network is limited to named hosts.
//!
//! It runs in the caller's process and accepts connections on a socket in the sandbox's otherwise empty network
//! namespace. Clients request HTTP by absolute URL, or a tunnel by CONNECT. Names are matched before they are resolved,
//! and addresses are checked afterwards.
//!
//! Allowed loopback addresses of the host have sockets of their own in the sandbox, because clients do not ask a proxy for
//! them. A connection there leads to the same address of the host, by the same checks.

mod refusals;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use sandbox::{HostPattern, RefusalReason, RefusedConnections};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, lookup_host},
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use self::refusals::Refusals;

/// Longest request head, in bytes.
const MAX_HEAD: usize = 32 << 10;
/// Most concurrent connections of one sandbox.
const MAX_CONNECTIONS: usize = 256;
const HEAD_TIME: Duration = Duration::from_secs(30);
const CONNECT_TIME: Duration = Duration::from_secs(15);

/// A sandbox's proxy, which serves until it is dropped.
pub(crate) struct Proxy {
    tasks: Vec<AbortHandle>,
    policy: Arc<Policy>,
}

/// What a proxy allows, and what it refused.
struct Policy {
    hosts: Vec<HostPattern>,
    refusals: Refusals,
    permits: Arc<Semaphore>,
}

impl Proxy {
    /// Serves on the proxy's socket, and on sockets whose addresses lead to the same ones of the host.
    pub(crate) fn start(
        proxy: OwnedFd,
        forwarded: impl Iterator<Item = OwnedFd>,
        hosts: Vec<HostPattern>,
    ) -> io::Result<Self> {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let policy = Arc::new(Policy { hosts, refusals: Refusals::default(), permits });
        let mut started = Self { tasks: Vec::new(), policy };
        started.listen(proxy, None)?;
        for socket in forwarded {
            let address = std::net::TcpListener::from(socket.try_clone()?).local_addr()?;
            started.listen(socket, Some(address))?;
        }
        Ok(started)
    }

    /// What was refused so far.
    pub(crate) fn refused(&self) -> Vec<RefusedConnections> {
        self.policy.refusals.all()
    }

    /// Serves on one socket: as a proxy, or as a way to this address of the host.
    fn listen(&mut self, socket: OwnedFd, address: Option<SocketAddr>) -> io::Result<()> {
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let task = tokio::spawn(accept(listener, address, Arc::clone(&self.policy)));
        self.tasks.push(task.abort_handle());
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn accept(listener: TcpListener, address: Option<SocketAddr>, policy: Arc<Policy>) {
    // Dropped, and so closed, with the sandbox.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&policy.permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                let policy = Arc::clone(&policy);
                connections.spawn(async move {
                    let _ = match address {
                        None => serve(client, &policy).await,
                        Some(address) => forward(client, address, &policy).await,
                    };
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Connects a client to this loopback address of the host, by whichever name the policy allows it.
async fn forward(mut client: TcpStream, address: SocketAddr, policy: &Policy) -> io::Result<()> {
    for host in [address.ip().to_string().as_str(), "localhost"] {
        if let Ok(mut server) = reach(host, address.port(), &policy.hosts).await {
            return copy_bidirectional(&mut client, &mut server).await.map(drop);
        }
    }
    // Nothing answers there. The client sees that its connection is reset, not that it ended in good order.
    client.set_zero_linger()
}

/// Why a request was rejected.
enum Refusal {
    Malformed(&'static str),
    NotAllowed(RefusalReason, String),
    Unreachable(String),
}

async fn serve(mut client: TcpStream, policy: &Policy) -> io::Result<()> {
    let head = match timeout(HEAD_TIME, read_head(&mut client)).await {
        Ok(head) => head?,
        Err(_) => return Ok(()),
    };
    let Some((head, rest)) = head else { return Ok(()) };
    let request = match parse(&head) {
        Ok(request) => request,
        Err(refusal) => return refuse(client, &refusal).await,
    };
    match reach(&request.host, request.port, &policy.hosts).await {
        Ok(server) => relay(client, server, &request, &rest).await,
        Err(refusal) => {
            if let Refusal::NotAllowed(reason, _) = &refusal {
                policy.refusals.add(&request.host, request.port, *reason);
            }
            refuse(client, &refusal).await
        }
    }
}

/// Reads up to the empty line; returns the head and what was read after it.
async fn read_head(client: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok(Some((bytes, rest)));
        }
        if bytes.len() > MAX_HEAD || client.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

/// A request of the client.
struct Request {
    host: String,
    port: u16,
    mode: Mode,
}

enum Mode {
    Tunnel,
    /// One HTTP request, rewritten for the server, with the length of its body.
    Forward {
        head: Vec<u8>,
        body: Body,
    },
}

#[derive(PartialEq, Eq, Debug)]
enum Body {
    Length(u64),
    /// Of unknown length, for example chunked.
    UntilClosed,
}

fn parse(head: &[u8]) -> Result<Request, Refusal> {
    let text =
        std::str::from_utf8(head).map_err(|_| Refusal::Malformed("the request is not text"))?;
    let mut lines = text.split("\r\n").take_while(|line| !line.is_empty());
    let (method, target, version) = request_line(lines.next().unwrap_or_default())?;
    let fields = lines.map(field).collect::<Result<Vec<_>, _>>()?;
    if method == "CONNECT" {
        let (host, port) = split_port(target, None)?;
        return Ok(Request { host, port, mode: Mode::Tunnel });
    }
    let rest = target
        .strip_prefix("http://")
        .ok_or(Refusal::Malformed("only http:// and CONNECT go through this proxy"))?;
    let (authority, path) = match rest.find(['/', '?']) {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = split_port(authority, Some(80))?;
    let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
    let mut rewritten =
        format!("{method} {path} {version}\r\nHost: {authority}\r\nConnection: close\r\n");
    let mut body = None;
    for (name, value) in fields {
        let framing = match name.to_ascii_lowercase().as_str() {
            "host"
            | "connection"
            | "proxy-connection"
            | "proxy-authorization"
            | "keep-alive"
            | "upgrade" => {
                continue;
            }
            "content-length" => Some(Body::Length(length(value)?)),
            "transfer-encoding" => Some(Body::UntilClosed),
            _ => None,
        };
        if framing.is_some() && body.is_some() {
            return Err(Refusal::Malformed("the length of the body is given twice"));
        }
        body = framing.or(body);
        rewritten.push_str(&format!("{name}:{value}\r\n"));
    }
    rewritten.push_str("\r\n");
    let body = body.unwrap_or(Body::Length(0));
    Ok(Request { host, port, mode: Mode::Forward { head: rewritten.into_bytes(), body } })
}

/// Splits the first line. Whatever another reader could take for something else is refused, here and in [`field`].
fn request_line(line: &str) -> Result<(&str, &str, &str), Refusal> {
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(version @ ("HTTP/1.0" | "HTTP/1.1")), None)
            if is_token(method) && !target.contains(char::is_control) =>
        {
            Ok((method, target, version))
        }
        _ => Err(Refusal::Malformed("the request line is not one")),
    }
}

/// Splits a header line into name and value. A lone line feed or carriage return, which some servers take for the end of
/// the line, is among the control characters.
fn field(line: &str) -> Result<(&str, &str), Refusal> {
    let (name, value) =
        line.split_once(':').ok_or(Refusal::Malformed("a header line has no colon"))?;
    if !is_token(name) {
        return Err(Refusal::Malformed("the name of a header is not one"));
    }
    match value.contains(|c: char| c.is_control() && c != '\t') {
        true => Err(Refusal::Malformed("a header has a control character")),
        false => Ok((name, value)),
    }
}

/// The value of a content length: digits only.
fn length(value: &str) -> Result<u64, Refusal> {
    let bad = Refusal::Malformed("a bad content length");
    let digits = value.trim_matches([' ', '\t']);
    match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => digits.parse().map_err(|_| bad),
        false => Err(bad),
    }
}

/// Whether a text is a method or the name of a header, as HTTP defines them.
fn is_token(text: &str) -> bool {
    let mark = |byte: u8| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || mark(byte))
}

fn split_port(authority: &str, default: Option<u16>) -> Result<(String, u16), Refusal> {
    let bad = Refusal::Malformed("the host and port are not understood");
    let (host, port) = if let Some(inner) = authority.strip_prefix('[') {
        let Some((host, tail)) = inner.split_once(']') else { return Err(bad) };
        match tail.strip_prefix(':') {
            None if !tail.is_empty() => return Err(bad),
            port => (host, port),
        }
    } else {
        match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    match (host, port.map(str::parse), default) {
        ("", ..) => Err(bad),
        (host, Some(Ok(port)), _) => Ok((host.to_owned(), port)),
        (host, None, Some(port)) => Ok((host.to_owned(), port)),
        _ => Err(bad),
    }
}

/// Connects to the requested host, if the patterns and its addresses allow that.
async fn reach(host: &str, port: u16, hosts: &[HostPattern]) -> Result<TcpStream, Refusal> {
    if !hosts.iter().any(|pattern| pattern.matches(host, port)) {
        let why = format!("{host}:{port} is not among the allowed hosts");
        return Err(Refusal::NotAllowed(RefusalReason::NotAllowed, why));
    }
    let named = hosts.iter().any(|pattern| pattern.allows_private(host, port));
    let literal = host.parse::<IpAddr>().is_ok();
    let found = timeout(CONNECT_TIME, lookup_host((host, port))).await;
    let addresses: Vec<SocketAddr> = match found {
        Ok(Ok(found)) => found.collect(),
        _ => return Err(Refusal::Unreachable(format!("{host} cannot be resolved"))),
    };
    let permitted = |address: &&SocketAddr| match scope_of(address.ip()) {
        AddressScope::Public => true,
        AddressScope::Private => named,
        AddressScope::LinkLocal => named && literal,
    };
    let mut last = None;
    for address in addresses.iter().filter(permitted) {
        match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = Some(error.to_string()),
            Err(_) => last = Some("no answer in time".into()),
        }
    }
    Err(match last {
        Some(why) => Refusal::Unreachable(format!("{host}:{port}: {why}")),
        None => Refusal::NotAllowed(
            RefusalReason::PrivateAddress,
            format!(
                "{host} leads to this machine or its private network, which has to be allowed by that name"
            ),
        ),
    })
}

/// What kind of network an address belongs to.
#[derive(PartialEq, Eq, Debug)]
enum AddressScope {
    Public,
    Private,
    /// Includes the metadata services of clouds.
    LinkLocal,
}

fn scope_of(address: IpAddr) -> AddressScope {
    let private_v4 = |v4: Ipv4Addr| {
        let [a, b, ..] = v4.octets();
        let carrier = a == 100 && (64..128).contains(&b);
        let benchmark = a == 198 && (18..20).contains(&b);
        v4.is_loopback()
            || v4.is_private()
            || v4.is_unspecified()
            || v4.is_broadcast()
            || v4.is_multicast()
            || v4.is_documentation()
            || a == 0
            || a >= 240
            || carrier
            || benchmark
    };
    match address {
        IpAddr::V4(v4) if v4.is_link_local() => AddressScope::LinkLocal,
        IpAddr::V4(v4) if private_v4(v4) => AddressScope::Private,
        IpAddr::V4(_) => AddressScope::Public,
        IpAddr::V6(v6) => {
            let s = v6.segments();
            // Addresses that embed an IPv4 address: mapped, compatible, and translated.
            let inner = v6.to_ipv4_mapped().or(match s {
                [0x64, 0xff9b, 0, 0, 0, 0, hi, lo]
                | [0x2002, hi, lo, ..]
                | [0, 0, 0, 0, 0, 0, hi, lo]
                    if !v6.is_loopback() && !v6.is_unspecified() =>
                {
                    Some(Ipv4Addr::from((u32::from(hi) << 16) | u32::from(lo)))
                }
                _ => None,
            });
            match inner {
                Some(v4) => scope_of(IpAddr::V4(v4)),
                None if v6.is_unicast_link_local() => AddressScope::LinkLocal,
                None if v6.is_loopback()
                    || v6.is_unspecified()
                    || v6.is_unique_local()
                    || v6.is_multicast()
                    || (s[0] & 0xffc0) == 0xfec0 =>
                {
                    AddressScope::Private
                }
                None => AddressScope::Public,
            }
        }
    }
}

async fn relay(
    mut client: TcpStream,
    mut server: TcpStream,
    request: &Request,
    rest: &[u8],
) -> io::Result<()> {
    match &request.mode {
        Mode::Tunnel => {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            server.write_all(rest).await?;
            copy_bidirectional(&mut client, &mut server).await.map(drop)
        }
        Mode::Forward { head, body } => {
            server.write_all(head).await?;
            let (mut from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = server.split();
            let send = async {
                match body {
                    // No more than the body: a second request would not be checked.
                    Body::Length(length) => {
                        let given =
                            &rest[..rest.len().min(usize::try_from(*length).unwrap_or(usize::MAX))];
                        to_server.write_all(given).await?;
                        let mut left = (&mut from_client).take(*length - given.len() as u64);
                        tokio::io::copy(&mut left, &mut to_server).await?;
                    }
                    Body::UntilClosed => {
                        to_server.write_all(rest).await?;
                        tokio::io::copy(&mut from_client, &mut to_server).await?;
                    }
                }
                std::future::pending::<io::Result<()>>().await
            };
            tokio::select! {
                result = send => result,
                result = tokio::io::copy(&mut from_server, &mut to_client) => result.map(drop),
            }
        }
    }
}

async fn refuse(mut client: TcpStream, refusal: &Refusal) -> io::Result<()> {
    let (status, why) = match refusal {
        Refusal::Malformed(why) => ("400 Bad Request", (*why).to_owned()),
        Refusal::NotAllowed(_, why) => ("403 Forbidden", why.clone()),
        Refusal::Unreachable(why) => ("502 Bad Gateway", why.clone()),
    };
    let body = format!("sandbox network: {why}\n");
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_classified() {
        for (text, reach) in [
            ("8.8.8.8", AddressScope::Public),
            ("127.0.0.1", AddressScope::Private),
            ("10.1.2.3", AddressScope::Private),
            ("172.16.0.1", AddressScope::Private),
            ("192.168.1.1", AddressScope::Private),
            ("100.64.0.1", AddressScope::Private),
            ("0.0.0.0", AddressScope::Private),
            ("169.254.169.254", AddressScope::LinkLocal),
            ("::1", AddressScope::Private),
            ("::", AddressScope::Private),
            ("fe80::1", AddressScope::LinkLocal),
            ("fd00::1", AddressScope::Private),
            ("::ffff:127.0.0.1", AddressScope::Private),
            ("::ffff:169.254.169.254", AddressScope::LinkLocal),
            ("64:ff9b::7f00:1", AddressScope::Private),
            ("2002:a9fe:a9fe::1", AddressScope::LinkLocal),
            ("::7f00:1", AddressScope::Private),
            ("2606:4700::1", AddressScope::Public),
        ] {
            assert_eq!(scope_of(text.parse().unwrap()), reach, "{text}");
        }
    }

    #[test]
    fn a_forwarded_request_is_rewritten_for_its_server() {
        let head = b"POST http://u:p@Example.com:8080/a?b HTTP/1.1\r\nHost: evil\r\nProxy-Connection: x\r\n\
                     Content-Length: 3\r\nX: y\r\n\r\n";
        let Ok(Request { host, port, mode: Mode::Forward { head, body } }) = parse(head) else {
            panic!("not forwarded");
        };
        assert_eq!((host.as_str(), port, body), ("Example.com", 8080, Body::Length(3)));
        let head = String::from_utf8(head).unwrap();
        assert!(
            head.starts_with(
                "POST /a?b HTTP/1.1\r\nHost: Example.com:8080\r\nConnection: close\r\n"
            )
        );
        assert!(
            !head.contains("evil") && !head.contains("Proxy") && head.ends_with("X: y\r\n\r\n")
        );
    }

    proptest! {
        #[test]
        fn arbitrary_heads_never_panic(head in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&head);
        }

        #[test]
        fn arbitrary_targets_never_panic(target in "\\PC{0,60}", method in "(GET|CONNECT)") {
            let _ = parse(format!("{method} {target} HTTP/1.1\r\n\r\n").as_bytes());
        }
    }
}
