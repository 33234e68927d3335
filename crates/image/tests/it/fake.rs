//! Servers that misbehave on purpose: one with scripted answers, and a proxy that cuts connections.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// A request as far as tests look at it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) target: String,
    pub(crate) head: String,
}

impl Request {
    /// The value of a header, if it was sent.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// Serves whatever the closure answers, one request a connection; remembers every request.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                thread::spawn(move || serve(stream, &*answer, &log));
            }
        });
        Self { port, seen }
    }

    pub(crate) fn name(&self, rest: &str) -> String {
        format!("127.0.0.1:{}/{rest}", self.port)
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&Request) -> Answer, log: &Mutex<Vec<Request>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let request = Request { target, head };
    log.lock().unwrap().push(request.clone());
    let answer = answer(&request);
    let mut text = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    if !answer.headers.iter().any(|(name, _)| *name == "Content-Length") {
        text.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
    }
    for (name, value) in &answer.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.write_all(&answer.body));
}

/// Passes bytes on to a port, and cuts the first connections after so many bytes of answers.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// Bytes of answers passed on.
    pub(crate) passed: Arc<AtomicU64>,
    /// Everything clients sent.
    pub(crate) requests: Arc<Mutex<String>>,
}

impl Proxy {
    pub(crate) fn start(to: u16, cuts: u64, after: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let passed = Arc::new(AtomicU64::new(0));
        let requests = Arc::new(Mutex::new(String::new()));
        let (count, log) = (Arc::clone(&passed), Arc::clone(&requests));
        thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
                let limit = if (number as u64) < cuts { after } else { u64::MAX };
                let (client2, server2) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (count, log) = (Arc::clone(&count), Arc::clone(&log));
                thread::spawn(move || {
                    pass(client2, server2, u64::MAX, |bytes| {
                        log.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
                    });
                });
                thread::spawn(move || {
                    pass(server, client, limit, |bytes| {
                        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    });
                });
            }
        });
        Self { port, passed, requests }
    }

    pub(crate) fn name(&self, rest: &str) -> String {
        format!("127.0.0.1:{}/{rest}", self.port)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, limit: u64, mut saw: impl FnMut(&[u8])) {
    let mut buffer = [0; 8192];
    let mut left = limit;
    while left > 0 {
        let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match from.read(&mut buffer[..want]) {
            Ok(got) if got > 0 => {
                saw(&buffer[..got]);
                left -= got as u64;
                if to.write_all(&buffer[..got]).is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
