//! After `kill -9` at any moment the store works, and a prune cleans it up.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use lis_image::{DirCheck, Silent, Store};

use crate::support::{TestStore, noise, tar};

const FILES: usize = 40;

/// Not a test of its own: the process that gets killed. It does everything that changes a store, for ever.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn victim() {
    let Some(root) = store_of_victim() else { return };
    let store = Store::open(&root).unwrap();
    let from = std::path::Path::new(&root).with_file_name("from");
    for round in 0u64.. {
        let name = format!("image:{}", round % 3);
        let seed =
            [round.to_le_bytes(), std::process::id().to_le_bytes().repeat(2).try_into().unwrap()]
                .concat();
        let layer = tar(&[("seed", &seed)]);
        store.import_dir(&from, &name, DirCheck::Any, &Silent).unwrap();
        store.commit(&name, Some(&name), &layer[..]).unwrap();
        if round % 3 == 2 {
            store.remove(&name).unwrap();
            store.prune().unwrap();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the parent test tells the child where to work")]
fn store_of_victim() -> Option<String> {
    std::env::var("IMAGE_TEST_VICTIM_STORE").ok()
}

#[test]
fn a_killed_process_leaves_a_store_that_works() {
    let test = TestStore::new();
    let from = test.dir.path().join("from");
    fs::create_dir_all(from.join("d")).unwrap();
    for i in 0..FILES {
        fs::write(from.join(format!("d/{i}")), noise(3000, i as u64)).unwrap();
    }
    let (mut seen, mut round) = (0, 0);
    // On a busy machine the victim may be killed before it has made anything.
    while round < 25 || (seen <= 10 && round < 250) {
        round += 1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "survives_a_kill::victim", "--ignored"])
            .env("IMAGE_TEST_VICTIM_STORE", test.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(15 + (round * 37) % 90 + round / 5));
        assert!(child.try_wait().unwrap().is_none(), "the victim ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();

        // Before and after the prune, every image is whole.
        seen += check_images(&test);
        test.store.prune().unwrap();
        check_images(&test);
        assert_eq!((test.names("tmp"), test.names("downloads")), (vec![], vec![]));
        let needed: std::collections::BTreeSet<_> = test
            .store
            .list()
            .unwrap()
            .iter()
            .flat_map(|image| test.store.rootfs(&image.name).unwrap().layers)
            .collect();
        assert_eq!(test.names("layers").len(), needed.len());
    }
    assert!(seen > 10, "the victim made too few images to tell anything: {seen}");
}

fn check_images(test: &TestStore) -> usize {
    let images = test.store.list().unwrap();
    for image in &images {
        let rootfs = test.store.rootfs(&image.name).unwrap();
        assert!(matches!(rootfs.layers.len(), 1 | 2));
        let low = rootfs.layers.last().unwrap();
        for i in 0..FILES {
            assert!(fs::read(low.join(format!("d/{i}"))).unwrap() == noise(3000, i as u64));
        }
    }
    images.len()
}
