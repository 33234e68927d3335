//! Rows from a hub on this machine: fetched once, checked, kept, and read without it afterwards.

use std::{
    error::Error,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use hub::Endpoint;
use lis_problems::{
    Task,
    hub::{DatasetCache, HubError, Source},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const ROWS: &str = "{\"id\": \"a\", \"problem_statement\": \"q\", \"ground_truth\": \"1\"}\n";

/// Answers each path with a status and a body, and remembers what was asked.
struct FakeHub {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeHub {
    fn new(answer: impl Fn(&str) -> (u16, Vec<u8>) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let path = path_of(&stream);
                log.lock().unwrap().push(path.clone());
                let (status, body) = answer(&path);
                // The other side may leave whenever it likes.
                let _ = reply(stream, status, &body);
            }
        });
        Self { address, asked }
    }

    fn hub(&self, cache: &Path) -> DatasetCache {
        at(&self.address, DatasetCache::new(cache))
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// The same cache with another hub.
fn at(base: &str, cache: DatasetCache) -> DatasetCache {
    let endpoint = Endpoint { base: base.into(), ..cache.endpoint };
    DatasetCache { endpoint, ..cache }
}

fn path_of(stream: &TcpStream) -> String {
    let mut path = String::new();
    for line in
        BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty())
    {
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split(' ').next().unwrap().to_owned();
        }
    }
    path
}

fn reply(mut to: TcpStream, status: u16, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(to, "HTTP/1.1 {status} Hm\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")?;
    to.write_all(body)
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn listing(files: Value) -> (u16, Vec<u8>) {
    (200, json!({"sha": "c0ffee", "siblings": files}).to_string().into_bytes())
}

/// A hub with the rows of math in one file, which it describes with this digest.
fn with_math(described: &str) -> FakeHub {
    let described = described.to_owned();
    FakeHub::new(move |path| match path {
        "/api/datasets/daixuancheng/llm-in-sandbox-bench/revision/main?blobs=true" => {
            listing(json!([
                {"rfilename": "README.md"},
                {"rfilename": "math/test.jsonl", "lfs": {"sha256": described}},
            ]))
        }
        "/datasets/daixuancheng/llm-in-sandbox-bench/resolve/c0ffee/math/test.jsonl" => {
            (200, ROWS.into())
        }
        _ => (404, Vec::new()),
    })
}

fn rows(hub: &DatasetCache, task: &str) -> Result<lis_problems::Rows, HubError> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(hub.rows(&Task::builtin(task).unwrap()))
}

#[test]
fn rows_are_fetched_once() {
    let cache = tempfile::tempdir().unwrap();
    let fake = with_math(&digest(ROWS));
    let hub = fake.hub(cache.path());
    let first = rows(&hub, "math").unwrap();
    assert_eq!((first.problems.len(), fake.asked()), (1, 2));
    assert_eq!(rows(&hub, "math").unwrap(), first);
    assert_eq!(fake.asked(), 2, "nothing is asked again");
    // Nobody is there any more.
    let offline = at("http://127.0.0.1:1", hub);
    assert_eq!(rows(&offline, "math").unwrap(), first);
    let error = rows(&offline, "chem").unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("cannot fetch"), "{error}");
}

#[test]
fn a_file_that_is_not_what_it_should_be_is_not_kept() {
    let cache = tempfile::tempdir().unwrap();
    let fake = with_math(&digest("something else"));
    let error = rows(&fake.hub(cache.path()), "math").unwrap_err();
    let error = error.source().unwrap().to_string();
    assert!(error.contains("arrived with sha256"), "{error}");
    assert!(rows(&at("http://127.0.0.1:1", fake.hub(cache.path())), "math").is_err());
    assert_eq!(
        rows(&with_math(&digest(ROWS)).hub(cache.path()), "math").unwrap().problems.len(),
        1
    );
}

#[test]
fn what_a_hub_may_answer_instead() {
    let answer = |body: (u16, Vec<u8>)| {
        let cache = tempfile::tempdir().unwrap();
        let fake = FakeHub::new(move |_| body.clone());
        let error = rows(&fake.hub(cache.path()), "math").unwrap_err();
        error.source().map_or(error.to_string(), ToString::to_string)
    };
    assert!(answer((404, Vec::new())).contains("answered 404"));
    assert!(answer((200, b"<html>".to_vec())).contains("malformed listing"));
    let other = answer(listing(json!([{"rfilename": "physics/test.parquet"}])));
    assert!(
        other.contains(
            "no file for configuration `math`, split `test`; it has physics/test.parquet"
        ),
        "{other}"
    );
    let body = json!({"sha": "../../x", "siblings": []}).to_string().into_bytes();
    assert!(answer((200, body)).contains("names no commit"));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let hub = DatasetCache::new("/nonexistent");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (dataset, config) in
        [("../x", "a"), ("o/d", "../a"), ("o", "a"), ("o/d/e", "a"), ("o/d", "")]
    {
        let source =
            Source { dataset: dataset.into(), config: config.into(), split: "test".into() };
        let error = tokio.block_on(hub.fetch(&source)).unwrap_err();
        assert!(matches!(error, HubError::Name { .. }), "{error}");
    }
    let plain = at("http://example.com", hub);
    let source = Source { dataset: "o/d".into(), config: "a".into(), split: "test".into() };
    let error = tokio.block_on(plain.fetch(&source)).unwrap_err();
    assert!(error.source().unwrap().to_string().contains("is not an https address"), "{error}");
}
