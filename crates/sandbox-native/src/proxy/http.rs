//! HTTP through the proxy: requests by absolute URL, and tunnels by `CONNECT`.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    HEAD_TIME, Policy, Refusal,
    pipe::{Activity, pipe},
    while_wanted,
};

/// Longest request head, in bytes.
const MAX_HEAD: usize = 32 << 10;

/// Serves one request, or one tunnel.
pub(super) async fn serve(mut client: TcpStream, policy: &Policy) -> io::Result<()> {
    let head = match timeout(HEAD_TIME, read_head(&mut client)).await {
        Ok(head) => head?,
        Err(_) => return Ok(()),
    };
    let Some((head, rest)) = head else { return Ok(()) };
    let request = match parse(&head) {
        Ok(request) => request,
        Err(refusal) => return refuse(client, &refusal).await,
    };
    let reach = policy.reach_or_report(&request.host, request.port);
    match while_wanted(&client, reach).await? {
        Ok(server) => relay(client, server, &request, &rest, policy).await,
        Err(refusal) => refuse(client, &refusal).await,
    }
}

/// Reads up to the empty line; returns the head and what was read after it.
async fn read_head(
    client: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    const END: &[u8; 4] = b"\r\n\r\n";
    let mut bytes = Vec::with_capacity(1024);
    // What was searched is not searched again: a client may send byte by byte.
    let mut searched = 0;
    loop {
        if let Some(at) = bytes[searched..].windows(END.len()).position(|four| four == END) {
            let rest = bytes.split_off(searched + at + END.len());
            return Ok(Some((bytes, rest)));
        }
        searched = bytes.len().saturating_sub(END.len() - 1);
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

async fn relay(
    mut client: TcpStream,
    mut server: TcpStream,
    request: &Request,
    rest: &[u8],
    policy: &Policy,
) -> io::Result<()> {
    match &request.mode {
        Mode::Tunnel => {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            server.write_all(rest).await?;
            pipe(&mut client, &mut server, policy.idle).await
        }
        Mode::Forward { head, body } => {
            server.write_all(head).await?;
            let activity = Activity::new();
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let (mut from_client, mut to_client) =
                (activity.watch(from_client), activity.watch(to_client));
            let (mut from_server, mut to_server) =
                (activity.watch(from_server), activity.watch(to_server));
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
                () = activity.ends(policy.idle) => Err(io::ErrorKind::TimedOut.into()),
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

    /// Gives the bytes one at a time.
    struct ByteByByte<'a>(&'a [u8]);

    impl AsyncRead for ByteByByte<'_> {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            if let Some((first, rest)) = self.0.split_first() {
                buffer.put_slice(&[*first]);
                self.0 = rest;
            }
            std::task::Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_head_that_arrives_byte_by_byte_takes_little_time() {
        let long =
            format!("GET http://a/ HTTP/1.1\r\nX: {}\r\n\r\nrest", "x".repeat(MAX_HEAD - 100));
        let begun = std::time::Instant::now();
        let mut client = ByteByByte(long.as_bytes());
        let (head, rest) = read_head(&mut client).await.unwrap().unwrap();
        assert_eq!(
            (head.len(), rest.as_slice(), client.0),
            (long.len() - 4, &b""[..], &b"rest"[..])
        );
        // Without an end it is given up.
        let endless = vec![b'x'; 2 * MAX_HEAD];
        assert!(read_head(&mut ByteByByte(&endless)).await.unwrap().is_none());
        // In all at once, what follows is returned as well.
        let (_, rest) = read_head(&mut long.as_bytes()).await.unwrap().unwrap();
        assert_eq!(rest, b"rest");
        assert!(begun.elapsed() < std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
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
