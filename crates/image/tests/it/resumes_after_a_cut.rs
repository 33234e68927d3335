//! A broken connection costs the bytes in flight, not those that have arrived.

use std::{fs, sync::atomic::Ordering};

use lis_image::{Digest, Error, PullOptions, RegistryError, Silent};

use crate::{
    fake::Proxy,
    registry::{Access, Registry},
    support::{Packing, TestImage, TestStore, chain, noise, quick, tar},
};

const SIZE: usize = 400_000;

fn large() -> TestImage {
    TestImage::new(&[(tar(&[("large", &noise(SIZE, 7))]), Packing::Gzip)])
}

fn check(test: &TestStore, name: &str) {
    let rootfs = test.store.rootfs(name).unwrap();
    assert!(fs::read(rootfs.layers[0].join("large")).unwrap() == noise(SIZE, 7));
    assert_eq!((test.names("downloads"), test.names("tmp")), (vec![], vec![]));
}

#[tokio::test]
async fn a_pull_resumes_where_the_connection_broke() {
    let Some(registry) = Registry::start(Access::Everyone) else { return };
    let image = large();
    registry.push("large", "1", &image);
    let proxy = Proxy::start(registry.port(), 3, 120_000);
    let test = TestStore::new();
    let name = proxy.name("large:1");
    test.store.pull(&name, &quick(), &Silent).await.unwrap();
    check(&test, &name);
    let ranges =
        proxy.requests.lock().unwrap().to_ascii_lowercase().matches("range: bytes=").count();
    assert_eq!(ranges, 3, "each broken connection is followed by one that asks for the rest");
    // Everything arrived about once: some was in the buffers of a broken connection.
    let passed = proxy.passed.load(Ordering::Relaxed);
    assert!(passed < image.layers[0].len() as u64 + 80_000, "{passed}");
}

#[tokio::test]
async fn a_later_pull_resumes_an_earlier_one() {
    let Some(registry) = Registry::start(Access::Everyone) else { return };
    let image = large();
    registry.push("large", "1", &image);
    let broken = Proxy::start(registry.port(), u64::MAX, 150_000);
    let test = TestStore::new();
    let once = PullOptions { attempts: 1, ..quick() };
    let error = test.store.pull(&broken.name("large:1"), &once, &Silent).await.unwrap_err();
    assert!(
        matches!(&error, Error::Pull { source, .. } if matches!(**source, RegistryError::Cut { .. })),
        "{}",
        chain(&error)
    );
    let left = test.path("downloads").join(Digest::of(&image.layers[0]).hex());
    let have = fs::metadata(&left).unwrap().len();
    assert!((50_000..200_000).contains(&have), "{have}");
    assert_eq!(test.store.list().unwrap(), []);

    let proxy = Proxy::start(registry.port(), 0, 0);
    let name = proxy.name("large:1");
    test.store.pull(&name, &quick(), &Silent).await.unwrap();
    check(&test, &name);
    let passed = proxy.passed.load(Ordering::Relaxed);
    assert!(passed < image.layers[0].len() as u64 - have + 10_000, "{passed} bytes after {have}");
}

#[tokio::test]
async fn a_damaged_leftover_is_discarded_and_fetched_again() {
    let Some(registry) = Registry::start(Access::Everyone) else { return };
    let image = large();
    registry.push("large", "1", &image);
    let length = image.layers[0].len();
    // Half of something else, something of the right length, and too much.
    for left in [noise(length / 2, 99), noise(length, 99), noise(length + 1, 99)] {
        let test = TestStore::new();
        fs::create_dir_all(test.path("downloads")).unwrap();
        fs::write(test.path("downloads").join(Digest::of(&image.layers[0]).hex()), left).unwrap();
        let name = registry.name("large:1");
        test.store.pull(&name, &quick(), &Silent).await.unwrap();
        check(&test, &name);
    }
}
