//! Tests of the module of the same name: what it must do, and what it must refuse.

use proptest::prelude::*;

use super::*;

fn manifest(layers: &[(&str, u64)]) -> String {
    let layers: Vec<_> = layers
        .iter()
        .map(|(kind, size)| {
            serde_json::json!({"mediaType": kind, "digest": Digest::of(b"l").to_string(), "size": size})
        })
        .collect();
    serde_json::json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": "x", "digest": Digest::of(b"c").to_string(), "size": 3},
        "layers": layers,
    })
    .to_string()
}

fn index(platforms: &[&str]) -> Index {
    let manifests: Vec<_> = platforms
        .iter()
        .map(|text| {
            let digest = Digest::of(text.as_bytes()).to_string();
            match text.parse::<Platform>() {
                Ok(p) => serde_json::json!({"digest": digest, "size": 1, "platform":
                    {"os": p.os, "architecture": p.architecture, "variant": p.variant}}),
                Err(_) => serde_json::json!({"digest": digest, "size": 1}),
            }
        })
        .collect();
    let text = serde_json::json!({"schemaVersion": 2, "manifests": manifests}).to_string();
    match Document::parse(text.as_bytes()).unwrap() {
        Document::Index(index) => index,
        Document::Manifest(_) => panic!("an index was read as a manifest"),
    }
}

#[test]
fn an_index_offers_the_right_platform() {
    let arm: Platform = "linux/arm64".parse().unwrap();
    let v7: Platform = "linux/arm/v7".parse().unwrap();
    let many = index(&[
        "unknown/unknown",
        "windows/arm64",
        "linux/arm/v6",
        "linux/arm/v7",
        "linux/arm64/v8",
    ]);
    let digest = |text: &str| Digest::of(text.as_bytes());
    assert_eq!(many.choose(&arm).unwrap().digest, digest("linux/arm64/v8"));
    assert_eq!(many.choose(&v7).unwrap().digest, digest("linux/arm/v7"));
    let amd: Platform = "linux/amd64".parse().unwrap();
    let error = many.choose(&amd).unwrap_err().to_string();
    assert!(error.contains("linux/amd64") && error.contains("linux/arm/v7"), "{error}");
    assert_eq!(index(&["none"]).choose(&amd).unwrap().digest, digest("none"));
}

#[test]
fn manifests_beyond_the_limits_are_refused() {
    let check = |layers: &[(&str, u64)]| match Document::parse(manifest(layers).as_bytes()).unwrap()
    {
        Document::Manifest(manifest) => {
            manifest.check(&Limits { layers: 2, download_bytes: 100, ..Limits::default() })
        }
        Document::Index(_) => panic!("a manifest was read as an index"),
    };
    let layer = "application/vnd.oci.image.layer.v1.tar+gzip";
    assert!(check(&[(layer, 50), ("", 50)]).is_ok());
    assert!(check(&[(layer, 50), (layer, 51)]).is_err());
    assert!(check(&[(layer, u64::MAX), (layer, u64::MAX)]).is_err());
    assert!(check(&[(layer, 1), (layer, 1), (layer, 1)]).is_err());
    assert!(check(&[("application/vnd.in-toto+json", 1)]).is_err());
    assert!(check(&[("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", 1)]).is_err());
    assert!(Document::parse(br#"{"schemaVersion":1,"name":"x"}"#).is_err());
    assert!(Document::parse(br#"{"mediaType":"text/html"}"#).is_err());
}

#[test]
fn a_configuration_gives_only_what_can_be_used() {
    let text = serde_json::json!({
        "os": "linux", "architecture": "arm64",
        "config": {"Env": ["A=b=c", "=x", "novalue", "N=\u{0}"], "WorkingDir": "/w"},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(b"l").to_string()]},
    });
    let config = ImageConfig::parse(text.to_string().as_bytes()).unwrap();
    assert_eq!(config.env(), [("A".to_owned(), "b=c".to_owned())]);
    assert_eq!(config.workdir(), Some("/w".into()));
    let arm: Platform = "linux/arm64".parse().unwrap();
    assert!(config.check(1, &arm).is_ok());
    assert!(config.check(2, &arm).is_err());
    assert!(config.check(1, &"linux/amd64".parse().unwrap()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_documents_never_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Document::parse(&data);
        let _ = ImageConfig::parse(&data);
    }

    #[test]
    fn mutated_documents_never_panic(
        at in any::<prop::sample::Index>(),
        with in prop::sample::select(vec!["", "\"", "{", "[", "]", "null", "-1", "99999999999999999999", "\\u0000", "sha256:"]),
        cut in 0usize..12,
    ) {
        let config = r#"{"os":"linux","architecture":"amd64","config":{"Env":["A=b"],"WorkingDir":"/"},
            "rootfs":{"type":"layers","diff_ids":["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]}}"#;
        for text in [manifest(&[("", 7)]), config.to_owned()] {
            let start = at.index(text.len());
            let end = (start + cut).min(text.len());
            let mutated = format!("{}{with}{}", &text[..start], &text[end..]);
            if let Ok(Document::Manifest(manifest)) = Document::parse(mutated.as_bytes()) {
                let _ = manifest.check(&Limits::default());
            }
            if let Ok(config) = ImageConfig::parse(mutated.as_bytes()) {
                let _ = (config.env(), config.workdir(), config.check(1, &Platform::here()).is_ok());
            }
        }
    }
}
