//! A hub on this machine with a scripted fault for each request.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use lis_catalogue::{Endpoint, PullOptions, SourceKind};

use crate::support::wait_for;

/// How one request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As a hub should.
    Right,
    /// The whole file, whatever range was requested.
    Whole,
    /// As a hub should, but only this many bytes.
    CutAfter(usize),
    /// Half of what is left, and the rest after `release`.
    Hold,
    /// Slowly.
    Slow,
    /// Other bytes.
    Wrong,
    /// Other bytes, without a length and without end.
    Endless,
    /// Too many bytes, as announced.
    Large,
    /// No file at all.
    Status(u16),
}

pub(crate) struct FakeHub {
    address: String,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    ranges: Arc<Mutex<Vec<usize>>>,
    released: Arc<AtomicBool>,
}

impl FakeHub {
    /// A hub with this file that gives these answers, then correct ones.
    pub(crate) fn new(content: &[u8], answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hub = Self {
            address: format!("http://{}", listener.local_addr().unwrap()),
            answers: Arc::new(Mutex::new(answers.iter().copied().collect())),
            ranges: Arc::default(),
            released: Arc::default(),
        };
        let (answers, ranges) = (Arc::clone(&hub.answers), Arc::clone(&hub.ranges));
        let (released, content) = (Arc::clone(&hub.released), Arc::new(content.to_vec()));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let from = read_request(&stream);
                ranges.lock().unwrap().push(from);
                let answer = answers.lock().unwrap().pop_front().unwrap_or(Answer::Right);
                let (released, content) = (Arc::clone(&released), Arc::clone(&content));
                thread::spawn(move || {
                    // The client may close the connection at any time.
                    let _ = reply(stream, &content, from, answer, &released);
                });
            }
        });
        hub
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn options(&self) -> PullOptions {
        PullOptions {
            sources: vec![SourceKind::Hub],
            hub: Endpoint { base: self.address.clone(), read_timeout: Duration::from_secs(10) },
            ..PullOptions::default()
        }
    }

    /// The offset of each request.
    pub(crate) fn ranges(&self) -> Vec<usize> {
        self.ranges.lock().unwrap().clone()
    }

    /// Continues held answers.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
    }
}

fn read_request(stream: &TcpStream) -> usize {
    let mut from = 0;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        if line.is_empty() {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(range) = lower.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap();
        }
        if lower.starts_with("get ") {
            assert!(line.starts_with("GET /me/tiny/resolve/main/tiny.gguf "), "{line}");
        }
    }
    from
}

fn reply(
    mut to: TcpStream,
    content: &[u8],
    from: usize,
    answer: Answer,
    released: &AtomicBool,
) -> std::io::Result<()> {
    let size = content.len();
    let body = match answer {
        Answer::Whole => content,
        _ => &content[from.min(size)..],
    };
    let close = "Connection: close\r\n";
    match answer {
        Answer::Status(status) => {
            return write!(to, "HTTP/1.1 {status} Hm\r\n{close}Content-Length: 0\r\n\r\n");
        }
        Answer::Endless => {
            write!(to, "HTTP/1.1 200 OK\r\n{close}\r\n")?;
            loop {
                to.write_all(&[7; 4096])?;
            }
        }
        Answer::Large => {
            let large = u64::MAX / 2;
            write!(to, "HTTP/1.1 200 OK\r\n{close}Content-Length: {large}\r\n\r\n")?;
            return to.write_all(&[7; 4096]);
        }
        _ if from > 0 && answer != Answer::Whole => write!(
            to,
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{size}\r\n",
            size - 1
        )?,
        _ => write!(to, "HTTP/1.1 200 OK\r\n")?,
    }
    write!(to, "{close}Content-Length: {}\r\n\r\n", body.len())?;
    match answer {
        Answer::CutAfter(bytes) => to.write_all(&body[..bytes.min(body.len())]),
        Answer::Wrong => to.write_all(&vec![7; body.len()]),
        Answer::Hold => {
            let (first, rest) = body.split_at(body.len() / 2);
            to.write_all(first)?;
            wait_for("the test", || released.load(Ordering::SeqCst));
            to.write_all(rest)
        }
        Answer::Slow => {
            for chunk in body.chunks(8192) {
                to.write_all(chunk)?;
                thread::sleep(Duration::from_micros(500));
            }
            Ok(())
        }
        _ => to.write_all(body),
    }
}
