//! Layers, images and stores for tests.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

pub(crate) use error_text::chain;
use lis_image::{Digest, Platform, PullOptions, Store};
use serde_json::json;

/// A store in a directory that goes away with it.
pub(crate) struct TestStore {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Store,
}

impl TestStore {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        Self { dir, store }
    }

    pub(crate) fn path(&self, rest: &str) -> PathBuf {
        self.dir.path().join("store").join(rest)
    }

    /// What a folder of the store holds.
    pub(crate) fn names(&self, rest: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(rest)) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Neither images nor layers nor anything on its way.
    pub(crate) fn assert_empty(&self) {
        for rest in ["images", "layers", "downloads", "tmp", "trash"] {
            assert_eq!(self.names(rest), [""; 0], "{rest}");
        }
    }
}

/// How a layer travels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o755);
        }
        builder.append_data(&mut header, name, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(crate) fn pack(data: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Plain => data.to_vec(),
        Packing::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Packing::Zstd => {
            use ruzstd::encoding::{CompressionLevel, compress_to_vec};
            compress_to_vec(data, CompressionLevel::Fastest)
        }
    }
}

/// Bytes that do not compress.
pub(crate) fn noise(length: usize, mut seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(seed >> 16).to_le_bytes()[..4]);
    }
    bytes.truncate(length);
    bytes
}

/// An image as a registry or an archive holds it.
pub(crate) struct TestImage {
    /// Packed layers, lowest first.
    pub(crate) layers: Vec<Vec<u8>>,
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
}

impl TestImage {
    pub(crate) fn new(layers: &[(Vec<u8>, Packing)]) -> Self {
        Self::for_platform(layers, &Platform::here())
    }

    pub(crate) fn for_platform(layers: &[(Vec<u8>, Packing)], platform: &Platform) -> Self {
        let diff_ids: Vec<_> = layers.iter().map(|(tar, _)| Digest::of(tar).to_string()).collect();
        let config = json!({
            "architecture": platform.architecture, "os": platform.os,
            "config": {"Env": ["PATH=/usr/bin", "A=b=c"], "WorkingDir": "/work"},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = config.to_string().into_bytes();
        let layers: Vec<_> = layers.iter().map(|(tar, packing)| pack(tar, *packing)).collect();
        let manifest = manifest(&config, &layers);
        Self { layers, config, manifest }
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }
}

pub(crate) fn manifest(config: &[u8], layers: &[Vec<u8>]) -> Vec<u8> {
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let layers: Vec<_> = layers.iter().map(|layer| descriptor(kind, layer)).collect();
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", config),
        "layers": layers,
    })
    .to_string()
    .into_bytes()
}

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

pub(crate) fn descriptor(kind: &str, bytes: &[u8]) -> serde_json::Value {
    json!({"mediaType": kind, "digest": Digest::of(bytes).to_string(), "size": bytes.len()})
}

/// Pull options that give up early.
pub(crate) fn quick() -> PullOptions {
    PullOptions { attempts: 3, stall: std::time::Duration::from_secs(5), ..PullOptions::default() }
}

/// Says that a test cannot run here, or fails where it must.
pub(crate) fn skip(capability: &str, reason: &str) {
    assert!(!required(capability), "LIS_REQUIRE names {capability}, but {reason}");
    println!("skip: {reason}");
}

/// Whether a list in the environment names a capability.
pub(crate) fn required(capability: &str) -> bool {
    listed("LIS_REQUIRE", capability)
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what must work")]
pub(crate) fn listed(variable: &str, capability: &str) -> bool {
    std::env::var(variable).is_ok_and(|list| list.split(',').any(|name| name.trim() == capability))
}

/// Whether a program is installed.
pub(crate) fn installed(program: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
}
