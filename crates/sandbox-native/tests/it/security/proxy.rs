//! Attempts to get around the allowed hosts, and malformed requests to the proxy.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use sandbox::{Sandbox, Spec};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::Mutex,
};

use super::{Ground, on_the_host, perl};

/// A server on this machine that records what it receives.
struct Server {
    port: u16,
    hits: Arc<AtomicUsize>,
    heard: Arc<Mutex<String>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (hits, heard) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(String::new())));
        let server = Self { port, hits: Arc::clone(&hits), heard: Arc::clone(&heard) };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                hits.fetch_add(1, Ordering::SeqCst);
                let heard = Arc::clone(&heard);
                tokio::spawn(async move {
                    let mut bytes = vec![0; 4096];
                    let n = stream.read(&mut bytes).await.unwrap_or(0);
                    heard.lock().await.push_str(&String::from_utf8_lossy(&bytes[..n]));
                    let _ = stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nreached")
                        .await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        server
    }

    fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

async fn allowing(h: &Ground<'_>, policy: &str) -> impl Sandbox {
    h.create(&Spec { network: policy.parse().unwrap(), ..h.spec() }).await
}

/// Sends each of these to the proxy over a connection of its own; the first lines of the answers.
async fn send(sandbox: &impl Sandbox, requests: &[String]) -> Vec<String> {
    let mut program = String::from("use Socket; $SIG{PIPE} = 'IGNORE'; alarm 14;\n");
    for request in requests {
        let hex: String = request.bytes().map(|byte| format!("{byte:02x}")).collect();
        program.push_str(&format!(
            "{{ socket(my $s, AF_INET, SOCK_STREAM, 0) or die; \
             connect($s, pack_sockaddr_in(3128, inet_aton('127.0.0.1'))) or die $!; \
             syswrite($s, pack('H*', '{hex}')); shutdown($s, 1) if 0; my $a = ''; \
             while (sysread($s, my $more, 4096)) {{ $a .= $more; last if length $a > 60 || $a =~ /established/ }} \
             $a =~ s/[\\r\\n].*//s; print qq([$a]\n); }}\n"
        ));
    }
    let seen = perl(sandbox, &program).await;
    seen.lines().map(String::from).collect()
}

/// No spelling of a host that was not allowed is accepted.
#[test]
fn no_spelling_gets_around_the_list() {
    on_the_host(async |h| {
        let (named, other) = (Server::start().await, Server::start().await);
        let (a, b) = (named.port, other.port);
        let sandbox = allowing(h, &format!("allow=localhost:{a},*.example.invalid:{b}")).await;
        let control = format!("GET http://localhost:{a}/ HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(send(&sandbox, &[control]).await, ["[HTTP/1.1 200 OK]"], "the control fails");
        assert_eq!((named.hits(), other.hits()), (1, 0));
        let mut requests = Vec::new();
        for host in [
            format!("localhost:{b}"),
            format!("localhost.:{b}"),
            format!("127.0.0.1:{a}"),
            format!("127.0.0.1:{b}"),
            format!("127.1:{a}"),
            format!("2130706433:{a}"),
            format!("0x7f000001:{a}"),
            format!("0177.0.0.1:{a}"),
            format!("0:{a}"),
            format!("0.0.0.0:{a}"),
            format!("[::1]:{a}"),
            format!("[::]:{a}"),
            format!("[::ffff:127.0.0.1]:{a}"),
            format!("[::127.0.0.1]:{a}"),
            format!("[64:ff9b::7f00:1]:{a}"),
            format!("[localhost]:{b}"),
            format!("localhost:{a}:{b}"),
            format!("localhost:{a}@localhost:{b}"),
            format!("localhost:{a}#@127.0.0.1:{b}"),
            format!("localhost%00.x:{a}"),
            format!("localhost\0.example.invalid:{b}"),
            format!("127.0.0.1\t.example.invalid:{b}"),
            format!("127.0.0.1\n.example.invalid:{b}"),
            format!("127.0.0.1%1.example.invalid:{b}"),
            format!(".example.invalid:{b}"),
            format!("localhost{}:{a}", "\u{200b}"),
            format!("ⓛocalhost:{a}"),
            "localhost".to_owned(),
            format!("localhost:{}", 65536 + u32::from(a)),
            format!("localhost:-{a}"),
            ":0".to_owned(),
            String::new(),
        ] {
            requests.push(format!("CONNECT {host} HTTP/1.1\r\nHost: localhost:{a}\r\n\r\n"));
            requests.push(format!("GET http://{host}/ HTTP/1.1\r\nHost: localhost:{a}\r\n\r\n"));
        }
        for line in [
            format!("GET https://localhost:{b}/"),
            format!("GET ftp://localhost:{a}/"),
            format!("GET //localhost:{b}/"),
            "GET /".to_owned(),
            "OPTIONS *".to_owned(),
            "GET http:///".to_owned(),
            "CONNECT".to_owned(),
        ] {
            requests.push(format!("{line} HTTP/1.1\r\nHost: localhost:{b}\r\n\r\n"));
        }
        let answers = send(&sandbox, &requests).await;
        assert_eq!(answers.len(), requests.len());
        for (request, answer) in requests.iter().zip(answers) {
            assert!(!answer.contains(" 200"), "{request:?} was accepted: {answer}");
        }
        assert_eq!((named.hits(), other.hits()), (1, 0));
    });
}

/// Only the checked request is forwarded: nothing after it, and no other host name.
#[test]
fn requests_cannot_be_smuggled() {
    on_the_host(async |h| {
        let (named, other) = (Server::start().await, Server::start().await);
        let (a, b) = (named.port, other.port);
        let sandbox = allowing(h, &format!("allow=localhost:{a}")).await;
        let second =
            format!("GET http://localhost:{b}/smuggled HTTP/1.1\r\nHost: localhost:{b}\r\n\r\n");
        let first = format!("GET http://localhost:{a}/first HTTP/1.1\r\n");
        let requests = [
            format!("{first}\r\n{second}"),
            format!("{first}Content-Length: 0\r\n\r\n{second}"),
            format!("{first}Host: localhost:{b}\r\nConnection: keep-alive\r\n\r\n{second}"),
            format!("{first}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n{second}"),
        ];
        let answers = send(&sandbox, &requests).await;
        assert_eq!(answers, ["[HTTP/1.1 200 OK]"; 4], "the control fails");
        assert_eq!((named.hits(), other.hits()), (4, 0));
        let heard = named.heard.lock().await.clone();
        assert!(!heard.contains("smuggled"), "{heard}");
        assert!(!heard.contains(&format!("localhost:{b}")), "another host was named: {heard}");
    });
}

/// A request that servers may read in another way than the proxy is refused: line ends, names and fields must be exact.
#[test]
fn ambiguous_requests_are_refused() {
    on_the_host(async |h| {
        let named = Server::start().await;
        let a = named.port;
        let sandbox = allowing(h, &format!("allow=localhost:{a}")).await;
        let line = format!("GET http://localhost:{a}/ HTTP/1.1\r\n");
        let requests = [
            format!("{line}X: y\nHost: other.invalid\r\n\r\n"),
            format!("{line}X: y\rHost: other.invalid\r\n\r\n"),
            format!("{line}X: y\0Host: other.invalid\r\n\r\n"),
            format!("{line}Host : other.invalid\r\n\r\n"),
            format!("{line}X: y\r\n Host: other.invalid\r\n\r\n"),
            format!("{line}: other.invalid\r\n\r\n"),
            format!("{line}Content-Length: 4\r\nContent-Length: 0\r\n\r\n"),
            format!("{line}Content-Length: +4\r\n\r\nabcd"),
            format!("{line}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            format!("GET http://localhost:{a}/\nHost:other.invalid HTTP/1.1\r\n\r\n"),
            format!("GET http://localhost:{a}/ HTTP/1.1\nHost:other.invalid\r\n\r\n"),
            format!("GET http://localhost:{a}/ HTTP/1.1 HTTP/1.1\r\n\r\n"),
            format!("GET http://localhost:{a}/ HTTP/9.9\r\n\r\n"),
            format!("G\tET http://localhost:{a}/ HTTP/1.1\r\n\r\n"),
            format!("CONNECT localhost:{a} HTTP/1.1\r\nX: y\nHost: other.invalid\r\n\r\n"),
        ];
        let answers = send(&sandbox, &requests).await;
        for (request, answer) in requests.iter().zip(&answers) {
            assert_eq!(answer, "[HTTP/1.1 400 Bad Request]", "{request:?}");
        }
        assert_eq!((answers.len(), named.hits()), (requests.len(), 0));
        let control = format!("{line}X-Some_name.1: a\tb \u{e9}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(send(&sandbox, &[control]).await, ["[HTTP/1.1 200 OK]"]);
    });
}

/// Junk, floods and half requests leave the proxy as it was.
#[test]
fn junk_does_not_break_the_proxy() {
    on_the_host(async |h| {
        let named = Server::start().await;
        let sandbox = allowing(h, &format!("allow=localhost:{}", named.port)).await;
        let seen = perl(
            &sandbox,
            "use Socket; $SIG{PIPE} = 'IGNORE'; alarm 14; my @keep; my $to = pack_sockaddr_in(3128, inet_aton('127.0.0.1')); \
             my $open = sub { socket(my $s, AF_INET, SOCK_STREAM, 0) or die; connect($s, $to) or die; $s }; \
             for my $junk (qq(\\0) x 70000, 'A' x 70000, qq(\\r\\n\\r\\n), qq(GET\\r\\n\\r\\n), qq(\\xff\\xfe \\x80 \\r\\n\\r\\n), \
               qq(GET http://localhost/ HTTP/1.1\\r\\nContent-Length: 99999999999999999999\\r\\n\\r\\n), \
               qq(GET http://localhost/ HTTP/1.1\\r\\nno colon\\r\\n\\r\\n)) { \
               my $s = $open->(); my $at = 0; while ($at < length $junk) { my $n = syswrite($s, $junk, 4096, $at); last unless $n; $at += $n } } \
             for (1..100) { my $s = $open->(); syswrite($s, 'GET http'); push @keep, $s } print qq(sent\n);",
        )
        .await;
        assert_eq!(seen, "sent\n");
        let control = format!("GET http://localhost:{}/ HTTP/1.1\r\n\r\n", named.port);
        assert_eq!(send(&sandbox, &[control]).await, ["[HTTP/1.1 200 OK]"]);
    });
}
