//! The files of the page itself, as part of the program: compressed when it is built, and cached by browsers for as long as they do
//! not change.

/// Name, content, the same compressed with gzip, and a tag that changes with the content.
type File = (&'static str, &'static [u8], &'static [u8], &'static str);

/// Part of the addresses of all files but the first, and the files as the build script lists them.
const BUILT: (&str, &[File]) = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// What is shown where the page was not built.
const MISSING: &[u8] = b"<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>llm-in-sandbox</title>\
    <p>This program was built without its page. Its data is at <code>page/api/runs</code>.</p></html>";

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    pub(crate) media_type: &'static str,
    pub(crate) plain: &'static [u8],
    /// Compressed with gzip; empty where it was not.
    pub(crate) compressed: &'static [u8],
    pub(crate) etag: &'static str,
}

/// The document.
pub(crate) fn index() -> Asset {
    let missing = Asset {
        media_type: media_type("index.html"),
        plain: MISSING,
        compressed: b"",
        etag: "\"missing\"",
    };
    find("index.html").unwrap_or(missing)
}

/// A file that the document refers to.
pub(crate) fn file(hash: &str, name: &str) -> Option<Asset> {
    find(name).filter(|_| hash == BUILT.0 && name != "index.html")
}

/// A file of the page as text.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    find(name).and_then(|asset| std::str::from_utf8(asset.plain).ok())
}

fn find(name: &str) -> Option<Asset> {
    let (name, plain, compressed, etag) = BUILT.1.iter().find(|(known, ..)| *known == name)?;
    Some(Asset { media_type: media_type(name), plain, compressed, etag })
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
