//! The files of the page itself, as part of the program: compressed once, and cached by browsers for as long as they do not change.

use std::{collections::HashMap, io::Write, sync::OnceLock};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

/// Names and contents, as they were built.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// What is shown where the page was not built.
const MISSING: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>llm-in-sandbox</title>\
    <p>This program was built without its page. Its data is at <code>page/api/runs</code>.</p></html>";

/// A file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    pub(crate) media_type: &'static str,
    pub(crate) plain: Vec<u8>,
    /// Compressed with gzip.
    pub(crate) compressed: Vec<u8>,
    /// Changes with the content.
    pub(crate) etag: String,
}

/// All files of the page.
#[derive(Debug)]
pub(crate) struct Assets {
    /// Part of the addresses of all files but the first.
    pub(crate) hash: String,
    pub(crate) index: Asset,
    files: HashMap<&'static str, Asset>,
}

impl Assets {
    /// The files, prepared once.
    pub(crate) fn get() -> &'static Self {
        static ASSETS: OnceLock<Assets> = OnceLock::new();
        ASSETS.get_or_init(Self::prepare)
    }

    fn prepare() -> Self {
        let mut all = Sha256::new();
        for (name, bytes) in FILES {
            all.update(name.as_bytes());
            all.update(Sha256::digest(bytes));
        }
        let hash = hex(&all.finalize()[..8]);
        let index = text("index.html").unwrap_or(MISSING);
        let index = index.replace("page/assets/", &format!("page/assets/{hash}/"));
        let others = FILES.iter().filter(|(name, _)| *name != "index.html");
        let files = others.map(|(name, bytes)| (*name, Asset::new(name, bytes.to_vec())));
        Self { index: Asset::new("index.html", index.into_bytes()), files: files.collect(), hash }
    }

    pub(crate) fn file(&self, hash: &str, name: &str) -> Option<&Asset> {
        self.files.get(name).filter(|_| hash == self.hash)
    }
}

/// A file of the page as text.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    let found = FILES.iter().find(|(known, _)| *known == name);
    found.and_then(|(_, bytes)| std::str::from_utf8(bytes).ok())
}

impl Asset {
    fn new(name: &str, plain: Vec<u8>) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let written = encoder.write_all(&plain).and_then(|()| encoder.finish());
        let digest = Sha256::digest(&plain);
        Self {
            media_type: media_type(name),
            // Never empty, so that an error falls back to the plain file.
            compressed: written.unwrap_or_default(),
            etag: format!("\"{}\"", hex(&digest[..12])),
            plain,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        "json" => "application/json",
        _ => "application/octet-stream",
    }
}
