//! Two processes pull the same model: one downloads it, the other waits.

use std::sync::Arc;

use lis_catalogue::{Error, Origin, SourceKind};

use crate::{
    fake_hub::{Answer, FakeHub},
    support::{TestStore, Tiny, Watcher, wait_for},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_second_waits_for_the_first() {
    let tiny = Tiny::new(1_000_000, 1);
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[Answer::Hold]));
    let begin = || {
        let (store, options) = (test.store.clone(), hub.options());
        let watcher = Arc::new(Watcher::default());
        let shown = Arc::clone(&watcher);
        let task = tokio::spawn(async move { store.pull("tiny", &options, &*shown).await });
        (watcher, task)
    };
    let (_, first) = begin();
    wait_for("the first half", || test.partial().metadata().is_ok_and(|there| there.len() > 0));
    let (watcher, second) = begin();
    wait_for("the second to wait", || watcher.reported("waiting"));
    assert!(matches!(test.store.remove("tiny"), Err(Error::Busy { .. })));
    hub.release();
    assert_eq!(first.await.unwrap().unwrap().origin, Origin::Source(SourceKind::Hub));
    assert_eq!(second.await.unwrap().unwrap().origin, Origin::AlreadyStored);
    test.check(&tiny);
    assert_eq!(hub.ranges(), [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_pull_can_be_resumed() {
    let tiny = Tiny::new(1_000_000, 1);
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[Answer::Hold]));
    let (store, options) = (test.store.clone(), hub.options());
    let task = tokio::spawn(async move {
        store.pull("tiny", &options, &lis_catalogue::Silent).await.map(drop)
    });
    let half = tiny.content.len() as u64 / 2;
    wait_for("the first half", || test.partial().metadata().is_ok_and(|there| there.len() == half));
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    hub.release();
    test.store.pull("tiny", &hub.options(), &lis_catalogue::Silent).await.unwrap();
    test.check(&tiny);
    assert_eq!(hub.ranges(), [0, tiny.content.len() / 2]);
}
