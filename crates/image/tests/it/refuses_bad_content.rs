//! Content that does not match its digest, size or manifest is refused, and nothing of it is stored.

use std::{fs, sync::Arc};

use lis_image::{Digest, Error, Limits, RegistryError, Silent, Store};

use crate::{
    fake::{Answer, Server},
    registry::{Access, Registry},
    support::{MANIFEST, Packing, TestImage, TestStore, chain, manifest, noise, pack, quick, tar},
};

fn small() -> TestImage {
    TestImage::new(&[(tar(&[("f", &noise(5000, 1))]), Packing::Gzip)])
}

#[tokio::test]
async fn a_layer_tampered_with_on_the_registry_is_refused() {
    let Some(registry) = Registry::start(Access::Everyone) else { return };
    let image = small();
    registry.push("evil", "1", &image);
    let file = registry.blob_file(&Digest::of(&image.layers[0]));
    let mut bytes = fs::read(&file).unwrap();
    bytes[1000] ^= 1;
    fs::write(&file, bytes).unwrap();
    let test = TestStore::new();
    let error = test.store.pull(&registry.name("evil:1"), &quick(), &Silent).await.unwrap_err();
    let Error::Pull { source, .. } = &error else { panic!("{}", chain(&error)) };
    let tampered = Digest::of(&image.layers[0]);
    assert!(
        matches!(**source, RegistryError::WrongDigest { expected, .. } if expected == tampered),
        "{}",
        chain(&error)
    );
    test.assert_empty();
}

/// A registry that serves an image from memory, with some blobs replaced.
fn serving(
    image: TestImage,
    replace: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static,
) -> Server {
    let image = Arc::new(image);
    Server::start(move |request| {
        if let Some(answer) = replace(&request.target) {
            return answer;
        }
        let wanted = request.target.rsplit('/').next().unwrap_or_default();
        if request.target.contains("/manifests/") {
            return Answer::new(200, image.manifest.clone()).with("Content-Type", MANIFEST);
        }
        let blobs = image.layers.iter().chain([&image.config]);
        match blobs.into_iter().find(|blob| Digest::of(blob).to_string() == wanted) {
            Some(blob) => Answer::new(200, blob.clone()),
            None => Answer::new(404, "{}"),
        }
    })
}

async fn refused(server: &Server, reference: &str) -> String {
    let test = TestStore::new();
    let error = test.store.pull(&server.name(reference), &quick(), &Silent).await.unwrap_err();
    test.assert_empty();
    chain(&error)
}

#[tokio::test]
async fn a_layer_other_than_the_configuration_promises_is_refused() {
    // The manifest and the blob agree; only the uncompressed digest tells.
    let mut image = small();
    image.layers = vec![pack(&tar(&[("f", b"other")]), Packing::Gzip)];
    image.manifest = manifest(&image.config, &image.layers);
    let text = refused(&serving(image, |_| None), "x").await;
    assert!(text.contains("a layer has the digest sha256:"), "{text}");
}

#[tokio::test]
async fn documents_other_than_their_digest_are_refused() {
    let pinned = format!("x@{}", Digest::of(b"something else"));
    let text = refused(&serving(small(), |_| None), &pinned).await;
    assert!(text.contains("tampered"), "{text}");
    let config = Digest::of(&small().config).to_string();
    let server =
        serving(small(), move |target| target.ends_with(&config).then(|| Answer::new(200, "{}")));
    let text = refused(&server, "x").await;
    assert!(text.contains("image configuration has the digest"), "{text}");
    let server = serving(small(), |target| {
        let header = Digest::of(b"no").to_string();
        target
            .contains("/manifests/")
            .then(|| Answer::new(200, "{}").with("Docker-Content-Digest", header))
    });
    assert!(refused(&server, "x").await.contains("tampered"));
}

#[tokio::test]
async fn wrong_sizes_are_noticed() {
    let layer = Digest::of(&small().layers[0]).to_string();
    let longer = layer.clone();
    let server = serving(small(), move |target| {
        target.ends_with(&longer).then(|| Answer::new(200, noise(9000, 2)))
    });
    assert!(refused(&server, "x").await.contains("longer than its manifest"));
    let server = serving(small(), move |target| {
        target.ends_with(&layer).then(|| Answer::new(200, noise(90, 2)))
    });
    assert!(refused(&server, "x").await.contains("shorter than its manifest"));
    let server = serving(small(), |target| {
        target.contains("/manifests/").then(|| Answer::new(200, vec![b' '; 9 << 20]))
    });
    assert!(refused(&server, "x").await.contains("longer than 8388608 bytes"));
}

#[tokio::test]
async fn a_bomb_in_a_layer_ends_at_the_limit() {
    let zeros = tar(&[("zeros", &vec![0; 4 << 20])]);
    for packing in [Packing::Gzip, Packing::Zstd] {
        let server = serving(TestImage::new(&[(zeros.clone(), packing)]), |_| None);
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { layer_bytes: 1 << 20, ..Limits::default() };
        let store = Store::with_limits(dir.path(), limits).unwrap();
        let error = store.pull(&server.name("bomb"), &quick(), &Silent).await.unwrap_err();
        assert!(chain(&error).contains("limit of 1048576 bytes"), "{}", chain(&error));
        assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(dir.path().join("downloads")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn what_is_not_an_image_is_refused() {
    let long = Limits { layers: 1, ..Limits::default() };
    let two =
        TestImage::new(&[(tar(&[("a", b"")]), Packing::Gzip), (tar(&[("b", b"")]), Packing::Gzip)]);
    let server = serving(two, |_| None);
    let dir = tempfile::tempdir().unwrap();
    let error = Store::with_limits(dir.path(), long)
        .unwrap()
        .pull(&server.name("x"), &quick(), &Silent)
        .await;
    assert!(chain(&error.unwrap_err()).contains("limit of 1"));
    for body in
        ["<html>", "{}", "[]", r#"{"schemaVersion":1}"#, r#"{"mediaType":"text/plain"}"#, "null"]
    {
        let server = serving(small(), move |target| {
            target.contains("/manifests/").then(|| Answer::new(200, body))
        });
        let text = refused(&server, "x").await;
        assert!(text.contains("manifest or configuration is unusable"), "{body}: {text}");
    }
}
