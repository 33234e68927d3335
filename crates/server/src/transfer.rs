//! Contents of files: downloads and uploads, compressed or not, by a token or a signed address.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream, Bytes},
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
};
use futures_util::{Stream, StreamExt, TryStreamExt};
use sandbox::{EntryKind, FileInfo, FileOperation, Input, RemoteSandbox, STORED_ATTRIBUTES};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::{
    app::{DataRequest, FileQuery},
    error::{ApiError, Code, respond},
    form::Arrived,
    gzip,
    live::Live,
    users::User,
};

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;
/// Most files of one upload.
const MAX_FILES: usize = 1000;

/// Sends a file.
pub(crate) async fn download<S: RemoteSandbox>(
    to: &DataRequest<S>,
    query: &FileQuery,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let user = to.live.user(query.username.as_deref().or(to.user.as_deref())).await?;
    let path = user.resolve(query.path.as_deref().unwrap_or_default());
    let encoding = encoding(headers)?;
    let info = describe(&to.live, &user, &path).await?;
    let shown = path.display();
    match info.kind {
        EntryKind::File => {}
        EntryKind::Directory => {
            return Err(ApiError::invalid(format!("path '{shown}' is a directory")));
        }
        EntryKind::Link | EntryKind::Other => {
            return Err(ApiError::invalid(format!("path '{shown}' is not a regular file")));
        }
    }
    let file = to.live.read_file(&user.identity, &path).await.map_err(|e| missing(e, &path))?;
    let end = to.live.end();
    let pieces = ReaderStream::with_capacity(file, CHUNK);
    // A download must not keep a killed sandbox, and must not look complete.
    let pieces = pieces.map(move |piece| match end.has_come() {
        false => piece,
        true => Err(io::Error::other("the sandbox has ended")),
    });
    let mut response = match encoding {
        Encoding::Identity => Response::new(Body::from_stream(pieces)),
        Encoding::Gzip => Response::new(Body::from_stream(gzip::compress(pieces))),
    };
    let head = response.headers_mut();
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    head.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    // What a sandbox holds is never shown as a page of this server.
    head.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    head.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if encoding == Encoding::Gzip {
        head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
}

/// The encoding a client accepts.
fn encoding(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    let Some(accepted) = headers.get(header::ACCEPT_ENCODING) else {
        return Ok(Encoding::Identity);
    };
    let accepted = accepted.to_str().unwrap_or_default().to_ascii_lowercase();
    let mut identity = true;
    let mut gzip = false;
    for part in accepted.split(',') {
        let (name, quality) = part.split_once(";").unwrap_or((part, ""));
        let refused = matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        match name.trim() {
            "gzip" | "x-gzip" => gzip = !refused,
            "identity" | "*" if refused => identity = false,
            _ => {}
        }
    }
    match (gzip, identity) {
        (true, _) => Ok(Encoding::Gzip),
        (false, true) => Ok(Encoding::Identity),
        (false, false) => {
            let message = "no acceptable encoding found, supported: [identity, gzip]";
            Err(ApiError::new(Code::NotAcceptable, message))
        }
    }
}

async fn describe<S: RemoteSandbox>(
    live: &Live<S>,
    user: &User,
    path: &Path,
) -> Result<FileInfo, ApiError> {
    let operation = FileOperation::Describe(path.to_owned());
    let found = live.file_operation(&user.identity, &operation).await;
    found.map_err(|error| missing(error, path))?.pop().ok_or_else(|| live.gone())
}

/// The protocol's words for a file that does not exist.
fn missing(error: ApiError, path: &Path) -> ApiError {
    match error.code {
        Code::NotFound => ApiError::not_found(format!("path '{}' does not exist", path.display())),
        _ => error,
    }
}

/// Receives files from a client that sends nothing for at most `pause`.
pub(crate) async fn upload<S: RemoteSandbox>(
    to: &DataRequest<S>,
    query: &FileQuery,
    request: Request<Body>,
    pause: Duration,
) -> Result<Response<Body>, ApiError> {
    let (head, body) = request.into_parts();
    let incoming = Incoming::new(body, pause);
    let received = receive(to, query, &head.headers, incoming.pieces()).await;
    match received {
        Err(_) if incoming.is_late() => {
            Err(ApiError::new(Code::DeadlineExceeded, incoming.why_late()))
        }
        Err(error) => {
            incoming.discard().await;
            Err(error)
        }
        received => received,
    }
}

async fn receive<S: RemoteSandbox>(
    to: &DataRequest<S>,
    query: &FileQuery,
    headers: &HeaderMap,
    pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Result<Response<Body>, ApiError> {
    let user = to.live.user(query.username.as_deref().or(to.user.as_deref())).await?;
    let attributes = attributes(headers)?;
    let encoding = content_encoding(headers)?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let upload = Upload { live: &to.live, user: &user, attributes: &attributes };
    let written = match kind.map(multer::parse_boundary) {
        Some(Ok(boundary)) => {
            if encoding == Encoding::Gzip {
                let message = "a form cannot be compressed; send the file itself as \
                               application/octet-stream";
                return Err(ApiError::invalid(message));
            }
            let arrived = Arrived::default();
            let parts = multer::Multipart::new(arrived.bound(pieces), boundary);
            upload.parts(parts, &arrived, query.path.as_deref()).await?
        }
        _ => {
            let path = query.path.as_deref().filter(|path| !path.is_empty());
            let path = path.ok_or_else(|| ApiError::invalid("the query needs a path"))?;
            let content: Input = match encoding {
                Encoding::Identity => Box::new(StreamReader::new(Box::pin(pieces))),
                Encoding::Gzip => Box::new(StreamReader::new(Box::pin(gzip::decompress(pieces)))),
            };
            vec![upload.file(path, content).await?]
        }
    };
    Ok(respond(StatusCode::OK, &Value::Array(written)))
}

/// How long the rest of what was refused is read.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// The body of an upload.
pub(crate) struct Incoming {
    body: Arc<Mutex<BodyDataStream>>,
    pause: Duration,
    is_late: Arc<AtomicBool>,
}

impl Incoming {
    /// The client may send nothing for at most `pause`.
    pub(crate) fn new(body: Body, pause: Duration) -> Self {
        let body = Arc::new(Mutex::new(body.into_data_stream()));
        Self { body, pause, is_late: Arc::default() }
    }

    /// What arrives. Fails when nothing does for too long.
    pub(crate) fn pieces(&self) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let (pause, is_late) = (self.pause, Arc::clone(&self.is_late));
        futures_util::stream::unfold(Some(Arc::clone(&self.body)), move |body| {
            let is_late = Arc::clone(&is_late);
            async move {
                let body = body?;
                let next = async { body.lock().await.next().await };
                match tokio::time::timeout(pause, next).await {
                    Ok(next) => next.map(|piece| (piece.map_err(io::Error::other), Some(body))),
                    Err(_) => {
                        is_late.store(true, Ordering::Relaxed);
                        Some((Err(io::ErrorKind::TimedOut.into()), None))
                    }
                }
            }
        })
    }

    /// Whether nothing arrived for too long.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// The error's message then.
    pub(crate) fn why_late(&self) -> String {
        format!("the upload paused for more than {} s", self.pause.as_secs_f64())
    }

    /// Reads what is left for a moment: clients read a refusal only once they have sent, or at least some of, what was
    /// refused.
    pub(crate) async fn discard(&self) {
        let rest = async {
            let mut body = self.body.lock().await;
            while let Some(Ok(_)) = body.next().await {}
        };
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, rest).await;
    }
}

fn content_encoding(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    let named = headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes());
    match named {
        None | Some(b"" | b"identity") => Ok(Encoding::Identity),
        Some(b"gzip" | b"x-gzip") => Ok(Encoding::Gzip),
        Some(_) => Err(ApiError::invalid("the content encoding must be identity or gzip")),
    }
}

/// The prefix of headers that become attributes of a file.
const METADATA: &str = "x-metadata-";
/// Most bytes of all attributes, each with the prefix of its stored name.
const MAX_METADATA: usize = 4096;
/// Most bytes of a name.
const MAX_KEY: usize = 246;

fn attributes(headers: &HeaderMap) -> Result<Vec<(String, String)>, ApiError> {
    let mut found = Vec::new();
    let mut size = 0;
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(METADATA) else { continue };
        let value = headers.get(name).map_or(&b""[..], |value| value.as_bytes());
        let printable = |bytes: &[u8]| bytes.iter().all(|byte| (0x20..=0x7e).contains(byte));
        if key.is_empty() || key.len() > MAX_KEY || !printable(key.as_bytes()) || !printable(value)
        {
            let message =
                "names and values of metadata are printable ASCII, names at most 246 bytes";
            return Err(ApiError::invalid(message));
        }
        size += STORED_ATTRIBUTES.len() + key.len() + value.len();
        found.push((key.to_owned(), String::from_utf8_lossy(value).into_owned()));
    }
    if size > MAX_METADATA {
        return Err(ApiError::invalid(format!("metadata has more than {MAX_METADATA} bytes")));
    }
    Ok(found)
}

/// Files on their way into a sandbox.
struct Upload<'a, S> {
    live: &'a Live<S>,
    user: &'a User,
    attributes: &'a [(String, String)],
}

impl<S: RemoteSandbox> Upload<'_, S> {
    /// Writes one file.
    async fn file(&self, path: &str, content: Input) -> Result<Value, ApiError> {
        let path = self.user.resolve(path);
        let write =
            self.live.sandbox.write_file_as(&self.user.identity, &path, content, self.attributes);
        let info = self.live.unless_ended(write).await.map_err(|error| explain(error, &path))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut value =
            json!({ "path": info.path.to_string_lossy(), "name": name, "type": "file" });
        if !self.attributes.is_empty() {
            let map: serde_json::Map<_, _> =
                info.attributes.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
            value["metadata"] = Value::Object(map);
        }
        Ok(value)
    }

    /// Writes the files of a form: to the path of the query, or each to the path that is its name.
    async fn parts(
        &self,
        mut parts: multer::Multipart<'static>,
        arrived: &Arrived,
        path: Option<&str>,
    ) -> Result<Vec<Value>, ApiError> {
        let malformed = |error: multer::Error| ApiError::invalid(format!("bad form: {error}"));
        let path = path.filter(|path| !path.is_empty());
        let mut written = Vec::new();
        while let Some(mut part) = parts.next_field().await.map_err(malformed)? {
            arrived.was_parsed();
            if part.name() != Some("file") {
                while part.chunk().await.map_err(malformed)?.is_some() {
                    arrived.was_parsed();
                }
                continue;
            }
            if written.len() == MAX_FILES || path.is_some() && !written.is_empty() {
                return Err(ApiError::invalid("the form has more files than paths"));
            }
            let name = part.file_name().map(str::to_owned);
            let to = path.map(str::to_owned).or(name).filter(|to| !to.is_empty());
            let to = to.ok_or_else(|| ApiError::invalid("a file of the form has no name"))?;
            let of_part = arrived.clone();
            let part = part.map_err(io::Error::other).inspect(move |_| of_part.was_parsed());
            let content = Box::new(StreamReader::new(Box::pin(part)));
            written.push(self.file(&to, content).await?);
        }
        Ok(written)
    }
}

/// The protocol's words for what cannot be written.
fn explain(error: ApiError, path: &Path) -> ApiError {
    let shown = path.display();
    match error.code {
        Code::DiskFull => ApiError::new(Code::DiskFull, "not enough disk space available"),
        Code::InvalidArgument => {
            ApiError::invalid(format!("path '{shown}' cannot be written: {}", error.message))
        }
        _ => error,
    }
}
