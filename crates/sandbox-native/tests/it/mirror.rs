//! A network of test servers: public names and addresses that lead to servers on this machine.
//!
//! The policy of a sandbox decides as in earnest, on the public addresses. An address of this machine is connected to as it
//! is, so that a test would notice one that gets through; nothing else is.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use lis_sandbox_native::{Pending, Upstream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The network.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// The addresses of names: each lookup takes the next of these answers, and the last one again and again.
    names: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    /// Where public addresses lead, at any port.
    servers: Mutex<HashMap<IpAddr, SocketAddr>>,
    /// Every address that was connected to.
    dialed: Mutex<Vec<SocketAddr>>,
}

impl Mirror {
    /// Leads a public address to a server.
    pub(crate) fn lead(&self, address: &str, server: &Server) {
        self.servers.lock().unwrap().insert(address.parse().unwrap(), server.address);
    }

    /// Gives a name addresses, separated by spaces; each further argument is a later answer.
    pub(crate) fn name(&self, name: &str, answers: &[&str]) {
        let parse = |text: &&str| text.split(' ').map(|one| one.parse().unwrap()).collect();
        let answers = answers.iter().map(parse).collect();
        self.names.lock().unwrap().insert(name.into(), answers);
    }

    /// The addresses that were connected to, as text.
    pub(crate) fn dialed(&self) -> Vec<String> {
        self.dialed.lock().unwrap().iter().map(ToString::to_string).collect()
    }
}

impl Upstream for Mirror {
    fn resolve<'a>(&'a self, name: &'a str) -> Pending<'a, Vec<IpAddr>> {
        let mut names = self.names.lock().unwrap();
        let found = names.get_mut(name.trim_end_matches('.')).map(|answers| match answers.len() {
            1 => answers[0].clone(),
            _ => answers.remove(0),
        });
        Box::pin(async move { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }

    fn connect(&self, address: SocketAddr) -> Pending<'_, TcpStream> {
        self.dialed.lock().unwrap().push(address);
        let server = self.servers.lock().unwrap().get(&address.ip()).copied();
        Box::pin(async move {
            match server {
                Some(server) => TcpStream::connect(server).await,
                // A network that drops packets.
                None if address.port() == 9 => std::future::pending().await,
                None if address.ip().is_loopback() => TcpStream::connect(address).await,
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }

    fn has_ipv6(&self) -> bool {
        true
    }
}

/// An HTTP server on this machine with a few files. Other paths are answered with `reached`.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    hits: Arc<AtomicUsize>,
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (hits, files) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let server = Self { address, hits: Arc::clone(&hits), files: Arc::clone(&files) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                hits.fetch_add(1, Ordering::SeqCst);
                let files = Arc::clone(&files);
                tokio::spawn(async move { serve(stream, &files).await });
            }
        });
        server
    }

    /// Adds a file at this path.
    pub(crate) fn add(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.files.lock().unwrap().insert(path.into(), content.into());
    }

    /// The number of connections so far.
    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, files: &Mutex<HashMap<String, Vec<u8>>>) -> Option<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1)?.split('?').next()?.replace("/./", "/");
    let (status, body) = {
        let files = files.lock().unwrap();
        match files.get(&path) {
            Some(file) => ("200 OK", file.clone()),
            None if files.is_empty() => ("200 OK", b"reached".to_vec()),
            None => ("404 Not Found", Vec::new()),
        }
    };
    let kind = if path.ends_with('/') { "text/html" } else { "application/octet-stream" };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.ok()?;
    if !head.starts_with("HEAD") {
        stream.write_all(&body).await.ok()?;
    }
    stream.shutdown().await.ok()
}
