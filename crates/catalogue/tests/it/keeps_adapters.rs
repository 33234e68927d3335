//! Adapters that the program contains become files: once, verified, whole, and without a store that can be written.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

use lis_catalogue::{AdapterContent, Catalogue, Error, Sha256Hex, Store, pack_adapter};
use serde_json::json;

use crate::support::{TestStore, Tiny, names, noise};

const SIZE: usize = 300_000;
/// Stores that several processes use for the first time.
const ROUNDS: usize = 20;

/// A list with the model `tiny` and an adapter with this content.
fn list(content: &[u8]) -> Catalogue {
    let list = json!({"models": [{
        "name": "tiny", "file": "tiny.gguf", "size": 1, "licence": "MIT", "sha256": "0".repeat(64),
        "description": "Synthetic.", "sources": [],
        "adapter": {
            "name": "tuned", "size": content.len(), "sha256": Sha256Hex::of_bytes(content),
            "licence": "MIT", "origin": "Synthetic.",
        },
    }]});
    Catalogue::parse(&list.to_string()).unwrap()
}

fn contents(content: &[u8]) -> &'static [AdapterContent] {
    vec![("tuned", &*pack_adapter(content).unwrap().leak())].leak()
}

/// A store whose program contains the adapter.
struct Adapted {
    test: TestStore,
    store: Store,
    content: Vec<u8>,
    sha256: Sha256Hex,
}

impl Adapted {
    fn new() -> Self {
        let (test, content) = (TestStore::new(&Tiny::new(1, 1)), noise(SIZE));
        let store = Store::with(test.dir.path().join("models"), list(&content));
        let sha256 = Sha256Hex::of_bytes(&content);
        Self { test, store: store.with_adapters(contents(&content)), content, sha256 }
    }

    fn copy(&self) -> PathBuf {
        self.test.place().join(format!("adapter-{}.gguf", self.sha256))
    }

    /// Asserts that the copy is stored and right, and nothing else is with it.
    fn check(&self) {
        let file = self.store.adapter("tiny", &self.sha256).unwrap();
        assert_eq!((file.path(), file.is_temporary()), (self.copy().as_path(), false));
        assert!(fs::read(file.path()).unwrap() == self.content);
        assert_eq!(self.test.names().len(), 1, "{:?}", self.test.names());
    }
}

#[test]
fn a_copy_is_written_once() {
    let adapted = Adapted::new();
    adapted.check();
    let time = SystemTime::now() - Duration::from_secs(3600);
    let file = fs::File::options().write(true).open(adapted.copy()).unwrap();
    file.set_modified(time).unwrap();
    adapted.check();
    assert_eq!(fs::metadata(adapted.copy()).unwrap().modified().unwrap(), time);
    adapted.store.remove("tiny").unwrap();
    assert!(!adapted.copy().exists());
    adapted.check();
}

#[test]
fn a_damaged_copy_is_replaced() {
    let adapted = Adapted::new();
    adapted.check();
    let mut flipped = adapted.content.clone();
    flipped[SIZE / 2] ^= 1;
    for damaged in [&flipped[..], &adapted.content[..SIZE / 3], b""] {
        fs::write(adapted.copy(), damaged).unwrap();
        adapted.check();
    }
    // A process was killed while it wrote, long ago.
    fs::remove_file(adapted.copy()).unwrap();
    let leftover = adapted.test.place().join(".x.partial");
    fs::write(&leftover, "half").unwrap();
    let file = fs::File::options().write(true).open(&leftover).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
    adapted.check();
}

#[test]
fn a_store_that_cannot_be_written_gets_a_temporary_file() {
    let adapted = Adapted::new();
    // Not even root replaces a directory by a file.
    fs::create_dir_all(adapted.copy()).unwrap();
    let file = adapted.store.adapter("tiny", &adapted.sha256).unwrap();
    assert!(file.is_temporary() && !file.path().starts_with(adapted.test.place()));
    assert!(fs::read(file.path()).unwrap() == adapted.content);
    let path = file.path().to_owned();
    drop(file);
    assert!(!path.exists());
    assert_eq!(adapted.test.names().len(), 1, "{:?}", adapted.test.names());
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_disk_is_read_and_otherwise_left_alone() {
    use rustix::mount::{MountFlags, mount_remount};

    let Some(disk) = crate::survives_a_full_disk::Disk::new(c"size=8m") else { return };
    let adapted = Adapted::new();
    let store = Store::with(disk.path().join("models"), list(&adapted.content));
    let store = store.with_adapters(contents(&adapted.content));
    mount_remount(disk.path(), MountFlags::RDONLY, c"").unwrap();
    assert!(store.adapter("tiny", &adapted.sha256).unwrap().is_temporary());
    mount_remount(disk.path(), MountFlags::empty(), c"").unwrap();
    assert!(!store.adapter("tiny", &adapted.sha256).unwrap().is_temporary());
    mount_remount(disk.path(), MountFlags::RDONLY, c"").unwrap();
    assert!(!store.adapter("tiny", &adapted.sha256).unwrap().is_temporary());
}

#[test]
fn a_copy_of_another_version_is_used_as_long_as_it_is_intact() {
    let adapted = Adapted::new();
    adapted.check();
    let next = Store::with(adapted.test.dir.path().join("models"), list(b"next"));
    let next = next.with_adapters(contents(b"next"));
    assert_eq!(next.adapter("tiny", &adapted.sha256).unwrap().path(), adapted.copy());
    assert!(next.adapter("tiny", &Sha256Hex::of_bytes(b"next")).is_ok());
    fs::write(adapted.copy(), "damaged").unwrap();
    let error = next.adapter("tiny", &adapted.sha256).unwrap_err();
    assert!(matches!(error, Error::NoAdapter { .. }) && error.is_usage(), "{error}");
    assert!(error.to_string().contains(&adapted.sha256.to_string()), "{error}");
}

#[test]
fn content_that_is_not_what_the_list_says_is_not_used() {
    let adapted = Adapted::new();
    let wrong = adapted.store.clone().with_adapters(contents(b"other"));
    let error = wrong.adapter("tiny", &adapted.sha256).unwrap_err();
    assert!(matches!(error, Error::WrongAdapter { .. }), "{error}");
    let longer = contents(&[&adapted.content[..], b"more"].concat());
    for bad in [longer, &[("tuned", b"not compressed")]] {
        let bad = adapted.store.clone().with_adapters(bad);
        let error = bad.adapter("tiny", &adapted.sha256).unwrap_err();
        assert!(error.to_string().contains("cannot unpack the adapter tuned"), "{error}");
    }
    let none = adapted.store.clone().with_adapters(&[]);
    let error = none.adapter("tiny", &adapted.sha256).unwrap_err();
    assert!(matches!(error, Error::NoAdapter { .. }), "{error}");
    assert!(matches!(none.adapter("huge", &adapted.sha256), Err(Error::Unknown { .. })));
    assert_eq!(names(&adapted.test.place()), [""; 0]);
}

/// Not a test of its own: one of several processes that need the adapter at the same time.
#[test]
#[ignore = "run by the test below, in processes of its own"]
fn one_of_many() {
    let Some(dir) = env::var_os("CATALOGUE_TEST_STORE") else { return };
    let (dir, content) = (PathBuf::from(dir), noise(SIZE));
    for round in 0..ROUNDS {
        let store = Store::with(dir.join(round.to_string()), list(&content));
        let store = store.with_adapters(contents(&content));
        let file = store.adapter("tiny", &Sha256Hex::of_bytes(&content)).unwrap();
        assert!(!file.is_temporary());
        assert!(fs::read(file.path()).unwrap() == content);
    }
}

#[test]
fn several_processes_may_be_the_first() {
    let adapted = Adapted::new();
    let dir = adapted.test.dir.path();
    for round in (0..ROUNDS).step_by(2) {
        // Every other time there is a damaged copy.
        let place = dir.join(round.to_string()).join("tiny");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(adapted.copy().file_name().unwrap()), "damaged").unwrap();
    }
    let start = || -> Child {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "keeps_adapters::one_of_many", "--ignored"])
            .env("CATALOGUE_TEST_STORE", dir)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<Child> = (0..4).map(|_| start()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    for round in 0..ROUNDS {
        let place = dir.join(round.to_string()).join("tiny");
        let copy = adapted.copy().file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(names(&place), [copy]);
    }
}
