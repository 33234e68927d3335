//! Several users of one store at the same time. Locks belong to open files, so threads stand for processes.

use std::{fs, thread};

use lis_image::{Silent, Store};

use crate::{
    fake::Proxy,
    registry::{Access, Registry},
    support::{Packing, TestImage, TestStore, noise, quick, tar},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_of_the_same_image_share_the_work() {
    let Some(registry) = Registry::start(Access::Everyone) else { return };
    let layers: Vec<_> =
        (0..4).map(|i| (tar(&[("f", &noise(100_000, i))]), Packing::Gzip)).collect();
    // The same layer twice must not wait for itself.
    let image = TestImage::new(&[&layers[..], &layers[..1]].concat());
    registry.push("shared", "1", &image);
    let proxy = Proxy::start(registry.port(), 0, 0);
    let test = TestStore::new();
    let name = proxy.name("shared:1");
    let pulls = (0..4).map(|_| {
        let (root, name) = (test.path(""), name.clone());
        tokio::spawn(async move { Store::open(root).unwrap().pull(&name, &quick(), &Silent).await })
    });
    let pulls: Vec<_> = pulls.collect();
    for pull in pulls {
        assert_eq!(pull.await.unwrap().unwrap().layers, 5);
    }
    let rootfs = test.store.rootfs(&name).unwrap();
    assert_eq!(rootfs.layers[0], rootfs.layers[4]);
    assert_eq!(test.names("layers").len(), 4);
    assert_eq!((test.names("downloads"), test.names("tmp")), (vec![], vec![]));
    let passed = proxy.passed.load(std::sync::atomic::Ordering::Relaxed);
    assert!(passed < 2 * 400_000, "each layer is fetched about once, not {passed} bytes");
}

#[test]
fn pruning_never_takes_what_someone_is_about_to_use() {
    let test = TestStore::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let pruner = scope.spawn(|| {
            let store = Store::open(test.path("")).unwrap();
            let mut rounds = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                store.prune().unwrap();
                rounds += 1;
            }
            rounds
        });
        let makers: Vec<_> = (0..2u32)
            .map(|maker| {
                let store = Store::open(test.path("")).unwrap();
                scope.spawn(move || {
                    for round in 0..40 {
                        let name = format!("image-{maker}");
                        let text = format!("{maker} {round}");
                        let layer = tar(&[("who", text.as_bytes())]);
                        store.commit(&name, None, &layer[..]).unwrap();
                        store
                            .commit(&name, Some(&name), &tar(&[("more", text.as_bytes())])[..])
                            .unwrap();
                        let rootfs = store.rootfs(&name).unwrap();
                        assert_eq!(fs::read_to_string(rootfs.layers[1].join("who")).unwrap(), text);
                        store.remove(&name).unwrap();
                        // Held: it stays, though no image has it any more.
                        assert_eq!(
                            fs::read_to_string(rootfs.layers[0].join("more")).unwrap(),
                            text
                        );
                    }
                })
            })
            .collect();
        let made: Vec<_> = makers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // Whatever happened, the pruner must end, or nothing does.
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(pruner.join().unwrap() > 0);
        made.into_iter().for_each(|made| made.unwrap());
    });
    test.store.prune().unwrap();
    test.assert_empty();
}
