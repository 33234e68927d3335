//! Imports of files: `docker save`, OCI layouts and root file systems, compressed or not.

use std::{fs, path::PathBuf};

use lis_image::{Digest, Error, Silent};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{
    INDEX, MANIFEST, Packing, TestImage, TestStore, chain, descriptor, pack, tar,
};

const PACKINGS: [Packing; 3] = [Packing::Plain, Packing::Gzip, Packing::Zstd];

fn two_layers(packing: Packing) -> TestImage {
    let low = tar(&[("a", b"low"), ("b", b"low")]);
    let high = tar(&[(".wh.a", b""), ("b", b"high")]);
    TestImage::new(&[(low, packing), (high, packing)])
}

fn write(test: &TestStore, bytes: &[u8]) -> PathBuf {
    let file = test.dir.path().join("archive");
    fs::write(&file, bytes).unwrap();
    file
}

fn import(test: &TestStore, bytes: &[u8], name: &str) -> Result<(), Error> {
    test.store.import_archive(&write(test, bytes), name, &Silent).map(drop)
}

/// As `docker save` of the years before OCI layouts.
fn saved(images: &[(&TestImage, &str)]) -> Vec<u8> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut list = Vec::new();
    for (image, tag) in images {
        let config = format!("{}.json", Digest::of(&image.config).hex());
        let paths: Vec<_> =
            image.layers.iter().map(|l| format!("{}/layer.tar", Digest::of(l).hex())).collect();
        for (path, layer) in paths.iter().zip(&image.layers) {
            files.push((path.clone(), layer.clone()));
        }
        files.push((config.clone(), image.config.clone()));
        list.push(json!({"Config": config, "RepoTags": [tag], "Layers": paths}));
    }
    files.push(("manifest.json".into(), json!(list).to_string().into_bytes()));
    let files: Vec<_> = files.iter().map(|(name, data)| (name.as_str(), data.as_slice())).collect();
    tar(&files)
}

fn layout(index: &serde_json::Value, blobs: &[&[u8]]) -> Vec<u8> {
    let blobs: Vec<_> =
        blobs.iter().map(|b| (format!("blobs/sha256/{}", Digest::of(b).hex()), *b)).collect();
    let index = index.to_string();
    let mut files: Vec<(&str, &[u8])> = vec![
        ("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#),
        ("blobs/", b""),
        ("blobs/sha256/", b""),
        ("index.json", index.as_bytes()),
    ];
    files.extend(blobs.iter().map(|(name, data)| (name.as_str(), *data)));
    tar(&files)
}

fn check(test: &TestStore, name: &str) {
    let rootfs = test.store.rootfs(name).unwrap();
    let [high, low] = &rootfs.layers[..] else { panic!("{rootfs:?}") };
    assert_eq!(fs::read(low.join("a")).unwrap(), b"low");
    assert_eq!(fs::read(high.join("b")).unwrap(), b"high");
    assert!(high.join("a").symlink_metadata().is_ok());
    assert_eq!(rootfs.env[1], ("A".into(), "b=c".into()));
    assert_eq!(test.names("tmp"), [""; 0]);
}

#[test]
fn docker_save_archives() {
    for packing in PACKINGS {
        let test = TestStore::new();
        import(&test, &pack(&saved(&[(&two_layers(Packing::Plain), "x:1")]), packing), "mine")
            .unwrap();
        check(&test, "mine");
        let info = &test.store.list().unwrap()[0];
        assert_eq!(info.id, Digest::of(&two_layers(Packing::Plain).config));
    }
}

#[test]
fn of_several_images_the_named_one_is_taken() {
    let test = TestStore::new();
    let other = TestImage::new(&[(tar(&[("o", b"")]), Packing::Plain)]);
    let archive = saved(&[(&other, "o:1"), (&two_layers(Packing::Plain), "mine:latest")]);
    let text = chain(&import(&test, &archive, "x").unwrap_err());
    assert!(text.contains("o:1, mine:latest"), "{text}");
    import(&test, &archive, "mine").unwrap();
    check(&test, "mine");
    import(&test, &archive, "o:1").unwrap();
    assert_eq!(test.store.rootfs("o:1").unwrap().layers.len(), 1);
}

#[test]
fn oci_layouts_with_compressed_layers_and_nested_indexes() {
    for packing in PACKINGS {
        let image = two_layers(packing);
        let blobs = [&image.config[..], &image.manifest, &image.layers[0], &image.layers[1]];
        let index =
            json!({"schemaVersion": 2, "manifests": [descriptor(MANIFEST, &image.manifest)]});
        let test = TestStore::new();
        import(&test, &pack(&layout(&index, &blobs), packing), "flat").unwrap();
        check(&test, "flat");

        let mut entry = descriptor(MANIFEST, &image.manifest);
        entry["platform"] =
            json!({"os": "linux", "architecture": lis_image::Platform::here().architecture});
        let mut foreign = descriptor(MANIFEST, b"not here");
        foreign["platform"] = json!({"os": "linux", "architecture": "s390x"});
        let inner = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [foreign, entry]})
            .to_string();
        let outer = json!({"schemaVersion": 2, "manifests": [descriptor(INDEX, inner.as_bytes())]});
        let test = TestStore::new();
        import(&test, &layout(&outer, &[&blobs[..], &[inner.as_bytes()]].concat()), "nested")
            .unwrap();
        check(&test, "nested");
    }
}

#[test]
fn a_plain_root_file_system() {
    for packing in PACKINGS {
        let test = TestStore::new();
        let files = tar(&[("./etc/", b""), ("./etc/hostname", b"x"), ("./manifest.json", b"[]")]);
        import(&test, &pack(&files, packing), "plain").unwrap();
        let rootfs = test.store.rootfs("plain").unwrap();
        assert_eq!(fs::read(rootfs.layers[0].join("etc/hostname")).unwrap(), b"x");
        assert!(rootfs.layers[0].join("manifest.json").exists());
    }
}

#[test]
fn incomplete_damaged_and_foreign_files_are_refused_whole() {
    let image = two_layers(Packing::Gzip);
    let index = json!({"schemaVersion": 2, "manifests": [descriptor(MANIFEST, &image.manifest)]});
    let [low, high] = &image.layers[..] else { panic!() };
    let swapped = pack(&tar(&[("evil", b"x")]), Packing::Gzip);
    let mut swap = layout(&index, &[&image.config, &image.manifest, low, high]);
    // The right name with other content: found by the digest of the layer.
    let at = swap.windows(low.len()).position(|window| window == &low[..]).unwrap();
    assert!(swapped.len() <= low.len().next_multiple_of(512));
    swap[at..at + swapped.len()].copy_from_slice(&swapped);
    let mut wrong_config = layout(&index, &[&image.config, &image.manifest, low, high]);
    let at = wrong_config.windows(5).position(|window| window == b"A=b=c").unwrap();
    wrong_config[at] = b'B';
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("a missing layer", layout(&index, &[&image.config, &image.manifest, low]), "is missing"),
        ("a missing manifest", layout(&index, &[&image.config, low, high]), "is missing"),
        ("a swapped layer", swap, ""),
        ("a changed configuration", wrong_config, "is damaged"),
        ("bad JSON", layout(&json!("x"), &[]), "is unusable"),
        ("no archive", b"hello, this is no archive".to_vec(), "not a tar archive"),
        ("nothing", Vec::new(), "the archive is empty"),
        ("xz", b"\xfd7zXZ\0rest".to_vec(), "xz -d"),
    ];
    for (what, bytes, says) in cases {
        let test = TestStore::new();
        let error = import(&test, &bytes, "bad").unwrap_err();
        assert!(chain(&error).contains(says), "{what}: {}", chain(&error));
        assert_eq!(test.store.list().unwrap(), [], "{what}");
        assert_eq!(test.names("tmp"), [""; 0], "{what}");
        test.store.prune().unwrap();
        assert_eq!(test.names("layers"), [""; 0], "{what}");
    }
    let test = TestStore::new();
    let error = test.store.import_archive(&test.dir.path().join("none"), "x", &Silent).unwrap_err();
    assert!(chain(&error).contains("cannot open"), "{}", chain(&error));
    assert!(import(&test, &tar(&[("a", b"")]), "../x").unwrap_err().is_usage());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_changed_byte_never_panics_and_never_leaves_anything(at in any::<prop::sample::Index>(), with in 1u8..) {
        let image = two_layers(Packing::Gzip);
        let mut bytes = saved(&[(&image, "x:1")]);
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        let test = TestStore::new();
        if import(&test, &bytes, "x").is_err() {
            prop_assert!(test.store.list().unwrap().is_empty());
        }
        prop_assert!(test.names("tmp").is_empty());
    }
}
