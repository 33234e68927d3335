//! A repeated run gets the same responses; everything else calls the model.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    task::{Context, Waker},
    time::SystemTime,
};

use serde_json::json;
use tempfile::TempDir;
use trajectory::{Assistant, Stop, ToolCall, Usage};

use super::*;
use crate::Silent;

/// Numbers its responses. Some of them fail, or never come.
#[derive(Default)]
struct Counting {
    name: &'static str,
    calls: AtomicU32,
    fails: Option<u32>,
    hangs: Option<u32>,
}

impl Model for Counting {
    fn name(&self) -> &str {
        self.name
    }

    async fn complete(&self, _: &Request<'_>, listener: &dyn Listener) -> Result<Response, Error> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if self.fails == Some(call) {
            return Err(Error::Cut("in the middle".into()));
        }
        if self.hangs == Some(call) {
            std::future::pending::<()>().await;
        }
        listener.on_delta(Delta::Text("live"));
        Ok(response(call))
    }
}

fn response(number: u32) -> Response {
    let arguments = json!({"command": format!("echo {number}")}).as_object().unwrap().clone();
    let call = |id: &str, arguments| ToolCall { id: id.into(), name: "bash".into(), arguments };
    let malformed = Arguments::Malformed { malformed: "{\"comm".into(), why: "cut".into() };
    Response {
        message: Assistant {
            text: format!("reply {number}"),
            reasoning: "hm".into(),
            calls: vec![call("a", Arguments::Object(arguments)), call("b", malformed)],
            then_submit: true,
            raw: Some("as it was".into()),
            opaque: Some(json!({"signature": "c2ln"})),
        },
        stop: Stop::Length,
        usage: Usage { input: 10, output: u64::from(number), ..Usage::default() },
        from_cache: false,
    }
}

/// Records the pieces.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Listener for Recorder {
    fn on_delta(&self, delta: Delta<'_>) {
        self.0.lock().unwrap().push(format!("{delta:?}"));
    }
}

fn open(dir: &TempDir, model: Counting) -> Cached<Counting> {
    Cached::open(dir.path(), json!({"provider": "x", "url": "y"}), model).unwrap()
}

async fn ask(model: &impl Model, text: &str) -> Result<Response, Error> {
    let messages = [Message::user(text)];
    let sampling = Sampling::default();
    let request = Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens: 9 };
    model.complete(&request, &Silent).await
}

/// The number of the response, and whether it was cached.
async fn heard(model: &impl Model, text: &str) -> (u64, bool) {
    let response = ask(model, text).await.unwrap();
    (response.usage.output, response.from_cache)
}

fn calls(cached: &Cached<Counting>) -> u32 {
    cached.model.calls.load(Ordering::SeqCst)
}

/// Every file below, by its path from there.
fn files(dir: &TempDir) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.path().to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            } else {
                let below = entry.path().strip_prefix(dir.path()).unwrap().to_owned();
                found.insert(below, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_repeated_run_does_not_call_the_model() {
    let dir = TempDir::new().unwrap();
    let first = ask(&open(&dir, Counting::default()), "hi").await.unwrap();
    assert_eq!(first, response(1));
    let again = open(&dir, Counting::default());
    assert_eq!(ask(&again, "hi").await.unwrap(), Response { from_cache: true, ..response(1) });
    assert_eq!(calls(&again), 0);
}

#[tokio::test]
async fn every_sample_of_a_prompt_has_its_own_response() {
    let dir = TempDir::new().unwrap();
    let first = open(&dir, Counting::default());
    for number in 1..=3 {
        assert_eq!(heard(&first, "hi").await, (number, false));
    }
    let again = open(&dir, Counting::default());
    for number in 1..=3 {
        assert_eq!(heard(&again, "hi").await, (number, true));
    }
    assert_eq!(heard(&again, "hi").await, (1, false), "nobody had asked a fourth time");
}

#[tokio::test]
async fn files_are_where_the_docs_say() {
    let dir = TempDir::new().unwrap();
    let cached = open(&dir, Counting::default());
    ask(&cached, "hi").await.unwrap();
    ask(&cached, "hi").await.unwrap();
    let names: Vec<String> =
        files(&dir).into_keys().map(|path| path.to_str().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for (n, name) in names.iter().enumerate() {
        let (start, file) = name.split_once('/').unwrap();
        let key = file.strip_suffix(&format!("-{n}.json")).unwrap();
        assert_eq!((key.len(), &key[..2]), (64, start));
        assert!(key.chars().all(|digit| digit.is_ascii_hexdigit()));
    }
}

#[tokio::test]
async fn whatever_determines_a_response_is_part_of_the_key() {
    let dir = TempDir::new().unwrap();
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: json!({}),
    };
    let variants = [
        ("m", json!({"a": 1, "b": {"c": 2, "d": 3}}), "hi", vec![], None, 9),
        ("n", json!({"a": 1, "b": {"c": 2, "d": 3}}), "hi", vec![], None, 9),
        ("m", json!({"a": 1, "b": {"c": 2, "d": 4}}), "hi", vec![], None, 9),
        ("m", json!({"a": 1, "b": {"c": 2, "d": 3}}), "ho", vec![], None, 9),
        ("m", json!({"a": 1, "b": {"c": 2, "d": 3}}), "hi", vec![tool("t")], None, 9),
        ("m", json!({"a": 1, "b": {"c": 2, "d": 3}}), "hi", vec![], Some(0.5), 9),
        ("m", json!({"a": 1, "b": {"c": 2, "d": 3}}), "hi", vec![], None, 10),
    ];
    for kept in [false, true] {
        for (name, scope, text, tools, temperature, max_tokens) in &variants {
            let model = Counting { name, ..Counting::default() };
            let cached = Cached::open(dir.path(), scope.clone(), model).unwrap();
            let messages = [Message::user(*text)];
            let sampling = Sampling { temperature: *temperature, ..Sampling::default() };
            let request = Request {
                messages: &messages,
                tools,
                sampling: &sampling,
                max_tokens: *max_tokens,
            };
            let response = cached.complete(&request, &Silent).await.unwrap();
            assert_eq!(response.from_cache, kept, "{name} {scope} {text}");
        }
    }
    assert_eq!(files(&dir).len(), variants.len());
    let turned: Value = serde_json::from_str(r#"{"b": {"d": 3, "c": 2}, "a": 1}"#).unwrap();
    let model = Counting { name: "m", ..Counting::default() };
    let cached = Cached::open(dir.path(), turned, model).unwrap();
    assert!(ask(&cached, "hi").await.unwrap().from_cache, "the order of keys says nothing");
}

#[tokio::test]
async fn a_listener_receives_a_cached_response_in_one_piece() {
    let dir = TempDir::new().unwrap();
    let messages = [Message::user("hi")];
    let sampling = Sampling::default();
    let request = Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens: 9 };
    let (live, kept) = (Recorder::default(), Recorder::default());
    open(&dir, Counting::default()).complete(&request, &live).await.unwrap();
    open(&dir, Counting::default()).complete(&request, &kept).await.unwrap();
    assert_eq!(*live.0.lock().unwrap(), [r#"Text("live")"#]);
    assert_eq!(
        *kept.0.lock().unwrap(),
        [
            r#"Reasoning("hm")"#,
            r#"Text("reply 1")"#,
            r#"Call("bash")"#,
            r#"Arguments("{\"command\":\"echo 1\"}")"#,
            r#"Call("bash")"#,
            r#"Arguments("{\"comm")"#,
        ]
    );
}

#[tokio::test]
async fn a_failure_is_not_cached_and_its_number_is_reused() {
    let dir = TempDir::new().unwrap();
    let cached = open(&dir, Counting { fails: Some(1), ..Counting::default() });
    assert!(matches!(ask(&cached, "hi").await, Err(Error::Cut(_))));
    assert!(files(&dir).is_empty());
    assert_eq!(heard(&cached, "hi").await, (2, false));
    assert_eq!(heard(&cached, "hi").await, (3, false));
    let again = open(&dir, Counting::default());
    assert_eq!(heard(&again, "hi").await, (2, true));
    assert_eq!(heard(&again, "hi").await, (3, true));
}

#[tokio::test]
async fn an_abandoned_request_gives_its_place_back() {
    let dir = TempDir::new().unwrap();
    let cached = open(&dir, Counting { hangs: Some(1), ..Counting::default() });
    {
        let mut asking = Box::pin(ask(&cached, "hi"));
        while calls(&cached) == 0 {
            // Nobody is woken; the yield lets the file be looked for.
            assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(heard(&cached, "hi").await, (2, false));
    assert_eq!(heard(&open(&dir, Counting::default()), "hi").await, (2, true));
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_replaced() {
    let dir = TempDir::new().unwrap();
    ask(&open(&dir, Counting::default()), "hi").await.unwrap();
    let (below, good) = files(&dir).pop_first().unwrap();
    let file = dir.path().join(&below);
    let text = String::from_utf8(good.clone()).unwrap();
    let strange = [
        String::new(),
        "hello".into(),
        "{}".into(),
        text[..text.len() / 2].into(),
        text.replacen(r#""v":1"#, r#""v":2"#, 1),
        text.replacen(r#""n":0"#, r#""n":1"#, 1),
        text.replacen(r#""key":""#, r#""key":"0"#, 1),
        "[".repeat(100_000),
    ];
    for text in strange {
        assert_ne!(text.as_bytes(), good);
        fs::write(&file, &text).unwrap();
        let short: String = text.chars().take(60).collect();
        assert_eq!(heard(&open(&dir, Counting::default()), "hi").await, (1, false), "{short}");
        assert_eq!(heard(&open(&dir, Counting::default()), "hi").await, (1, true), "{short}");
        assert_eq!(fs::read(&file).unwrap(), good);
    }
    fs::write(&file, b"\xff\xfe\x00").unwrap();
    assert_eq!(heard(&open(&dir, Counting::default()), "hi").await, (1, false));
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_an_error_at_once() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "in the way").unwrap();
    for path in [file.clone(), file.join("below"), PathBuf::from("/dev/null/below")] {
        let opened = Cached::open(&path, Value::Null, Counting::default());
        let Err(Error::Cache { path: named, .. }) = opened else { panic!("{path:?} was opened") };
        assert_eq!(named, path);
    }
}

#[tokio::test]
async fn a_response_that_cannot_be_cached_is_an_error() {
    let dir = TempDir::new().unwrap();
    ask(&open(&dir, Counting::default()), "hi").await.unwrap();
    let (below, _) = files(&dir).pop_first().unwrap();
    let file = dir.path().join(below);
    fs::remove_file(&file).unwrap();
    fs::create_dir_all(file.join("in the way")).unwrap();
    let cached = open(&dir, Counting::default());
    let Err(Error::Cache { path, .. }) = ask(&cached, "hi").await else { panic!("it was kept") };
    assert_eq!(path, file);
    assert!(files(&dir).is_empty(), "an unfinished file was left behind");
}

#[tokio::test]
async fn others_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new().unwrap();
    ask(&open(&dir, Counting::default()), "hi").await.unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode();
    let (below, _) = files(&dir).pop_first().unwrap();
    fs::write(dir.path().join("plain"), "").unwrap();
    assert_eq!(mode(dir.path().join(below)), mode(dir.path().join("plain")));
}

#[tokio::test]
async fn only_what_a_killed_process_left_is_cleared_away() {
    let dir = TempDir::new().unwrap();
    let names = [".1.partial", ".2.partial", "notes.txt"];
    for name in names {
        fs::write(dir.path().join(name), "half").unwrap();
    }
    for name in [names[0], names[2]] {
        let file = fs::File::options().write(true).open(dir.path().join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    open(&dir, Counting::default());
    let left: Vec<PathBuf> = files(&dir).into_keys().collect();
    assert_eq!(left, [PathBuf::from(names[1]), PathBuf::from(names[2])]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_shares_one_cache() {
    let dir = TempDir::new().unwrap();
    let mut runs = Vec::new();
    for kept in [false, true] {
        let cached = Arc::new(open(&dir, Counting::default()));
        let episodes: Vec<_> = (0..100)
            .map(|episode| {
                let cached = Arc::clone(&cached);
                tokio::spawn(async move {
                    let prompt = format!("prompt {}", episode % 10);
                    (prompt.clone(), heard(&cached, &prompt).await)
                })
            })
            .collect();
        let mut responses = Vec::new();
        for episode in episodes {
            let (prompt, (number, from_cache)) = episode.await.unwrap();
            assert_eq!(from_cache, kept);
            responses.push((prompt, number));
        }
        responses.sort();
        runs.push(responses);
        assert_eq!(calls(&cached), if kept { 0 } else { 100 });
    }
    assert_eq!(runs[0], runs[1], "each prompt has the same replies, in whatever order");
    assert_eq!(files(&dir).len(), 100);
}
