//! Stored files are hashed once and trusted as long as they do not change.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use lis_catalogue::{Error, Origin, PullOptions, Silent, State, Store};

use crate::{
    fake_hub::FakeHub,
    support::{TestStore, Tiny, Watcher},
};

const SIZE: usize = 100_000;

#[tokio::test]
async fn a_file_put_there_by_hand_is_read_once() {
    let tiny = Tiny::new(SIZE, 1);
    let test = TestStore::new(&tiny);
    fs::create_dir_all(test.place()).unwrap();
    fs::write(test.place().join("tiny.gguf"), &tiny.content).unwrap();
    let none = PullOptions { sources: Vec::new(), ..PullOptions::default() };
    let watcher = Watcher::default();
    let pulled = test.store.pull("tiny", &none, &watcher).await.unwrap();
    assert_eq!(pulled.origin, Origin::AlreadyStored);
    assert!(watcher.reported("checking"));
    test.check(&tiny);
    let watcher = Watcher::default();
    test.store.pull("tiny", &none, &watcher).await.unwrap();
    assert!(!watcher.reported("checking"));
    // The record is trusted: a change that keeps the time is not noticed, a new time is.
    let path = test.store.path("tiny").unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, vec![7; SIZE]).unwrap();
    let set = |time: SystemTime| {
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    };
    set(time);
    assert!(test.store.path("tiny").is_ok());
    set(time + Duration::from_secs(1));
    let error = test.store.path("tiny").unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("pull the model again"), "{error}");
}

#[tokio::test]
async fn a_damaged_file_is_replaced() {
    let tiny = Tiny::new(SIZE, 1);
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[]));
    for length in [SIZE, 10] {
        fs::create_dir_all(test.place()).unwrap();
        fs::write(test.place().join("tiny.gguf"), vec![7; length]).unwrap();
        let state = test.store.list().unwrap()[0].state.clone();
        assert_eq!(matches!(state, State::Damaged { .. }), length == 10, "{state:?}");
        let watcher = Watcher::default();
        test.store.pull("tiny", &hub.options(), &watcher).await.unwrap();
        assert!(watcher.reported("damaged"));
        test.check(&tiny);
    }
}

#[tokio::test]
async fn removal_leaves_nothing_and_knows_what_is_not_there() {
    let tiny = Tiny::new(SIZE, 1);
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[]));
    assert!(matches!(test.store.remove("tiny"), Err(Error::Missing { .. })));
    test.store.pull("tiny", &hub.options(), &Silent).await.unwrap();
    test.store.remove("tiny").unwrap();
    assert!(!test.place().exists());
    assert!(matches!(test.store.remove("tiny"), Err(Error::Missing { .. })));
    assert!(matches!(test.store.path("tiny"), Err(Error::Missing { .. })));
}

#[tokio::test]
async fn names_are_looked_up_and_never_paths() {
    let tiny = Tiny::new(SIZE, 1);
    let test = TestStore::new(&tiny);
    let outside = test.dir.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(test.dir.path().join("models")).unwrap();
    for name in ["", ".", "..", "../outside", "tiny/", "/", "TINY", "tiny\0", &"x".repeat(100_000)]
    {
        let store = &test.store;
        let pulled = store.pull(name, &PullOptions::default(), &Silent).await.unwrap_err();
        for error in [pulled, store.remove(name).unwrap_err(), store.path(name).unwrap_err()] {
            assert!(matches!(error, Error::Unknown { .. }) && error.is_usage(), "{error}");
            assert!(error.to_string().len() < 200 && error.to_string().contains("tiny"));
        }
    }
    assert!(outside.exists());
}

#[test]
fn an_unused_store_is_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("models")).unwrap();
    assert!(store.list().unwrap().iter().all(|listed| listed.state == State::Absent));
    assert!(!dir.path().join("models").exists());
}
