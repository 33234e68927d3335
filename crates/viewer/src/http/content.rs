//! Files that a model wrote, sent so that they can do nothing: no script runs, nothing is loaded, and their origin is not that of the
//! page.

use std::{fs::File, io::SeekFrom};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use crate::{ViewError, files::media_type, text::file_name};

/// For what a browser could take for a document: it has an origin of its own, and neither scripts nor anything from elsewhere.
const SANDBOX: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; font-src data:; \
    form-action 'none'; base-uri 'none'; frame-ancestors 'self'";
/// Viewers of PDF files do not work in a sandbox. They run no script of the page that embeds them.
const PDF: &str = "default-src 'none'; style-src 'unsafe-inline'; object-src 'self'; plugin-types application/pdf; \
    frame-ancestors 'self'";

/// Sends a file, or a part of it.
pub(super) fn send(
    file: File,
    path: &str,
    download: bool,
    request: &HeaderMap,
) -> Result<Response<Body>, ViewError> {
    let failed = |error: std::io::Error| ViewError::read(std::path::Path::new(path), &error);
    let size = file.metadata().map_err(failed)?.len();
    let (media_type, show) = media_type(path);
    let mut response = Response::new(Body::empty());
    let range = request.get(header::RANGE).and_then(|range| range.to_str().ok());
    let (from, length) = match range.and_then(|range| parse_range(range, size)) {
        Some((from, length)) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let text = format!("bytes {from}-{}/{size}", from + length - 1);
            insert(response.headers_mut(), header::CONTENT_RANGE, &text);
            (from, length)
        }
        None => (0, size),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = if show == "pdf" && !download { PDF } else { SANDBOX };
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
    let media_type = match show {
        "text" | "markdown" | "csv" | "json" | "html" => format!("{media_type}; charset=utf-8"),
        _ => media_type.to_owned(),
    };
    insert(headers, header::CONTENT_TYPE, &media_type);
    let name = file_name(path.rsplit('/').next().unwrap_or(path), 100);
    let how = if download || show == "binary" { "attachment" } else { "inline" };
    insert(headers, header::CONTENT_DISPOSITION, &format!("{how}; filename=\"{name}\""));
    let stream = async_stream(file, from, length);
    *response.body_mut() = Body::from_stream(stream);
    Ok(response)
}

/// The bytes of a part of a file.
fn async_stream(
    file: File,
    from: u64,
    length: u64,
) -> impl futures_util::Stream<Item = std::io::Result<bytes::Bytes>> {
    use futures_util::{StreamExt, TryStreamExt, stream};
    let opened = async move {
        let mut file = tokio::fs::File::from_std(file);
        file.seek(SeekFrom::Start(from)).await?;
        Ok::<_, std::io::Error>(ReaderStream::new(file.take(length)))
    };
    stream::once(opened).map_ok(StreamExt::boxed).try_flatten()
}

fn insert(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The first byte and the number of bytes of `bytes=FROM-TO`, `bytes=FROM-` or `bytes=-LAST`; none for anything else.
fn parse_range(range: &str, size: u64) -> Option<(u64, u64)> {
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (from, end) = match (from.trim(), to.trim()) {
        ("", last) => (size.saturating_sub(last.parse().ok()?), size),
        (from, "") => (from.parse().ok()?, size),
        (from, to) => (from.parse().ok()?, to.parse::<u64>().ok()?.saturating_add(1).min(size)),
    };
    (from < end).then(|| (from, end - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_inside_the_file() {
        for (range, expected) in [
            ("bytes=0-", Some((0, 10))),
            ("bytes=2-4", Some((2, 3))),
            ("bytes=8-100", Some((8, 2))),
            ("bytes=-3", Some((7, 3))),
            ("bytes=-30", Some((0, 10))),
            ("bytes=10-", None),
            ("bytes=5-2", None),
            ("bytes=0-1,3-4", None),
            ("bytes=a-", None),
            ("lines=0-", None),
            ("bytes=0-18446744073709551615", Some((0, 10))),
        ] {
            assert_eq!(parse_range(range, 10), expected, "{range}");
        }
    }
}
