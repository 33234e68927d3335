//! `/v1/files`: upload, list, describe, download, delete, as OpenAI's clients do it.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
};
use openai_wire::ApiError;
use sandbox::RemoteRuntime;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use super::{
    Chat, Shared,
    store::{About, FileStore, NewFile, Room, StoreError, StoredFile},
};
use crate::{
    error::{is_full, respond},
    form::Arrived,
    registry::random,
    tokens::Caller,
    transfer::Incoming,
};

type Answer = Result<Response<Body>, ApiError>;

/// Purposes for which there is a use here. Files of others would be stored for nothing.
const PURPOSES: [&str; 3] = ["user_data", "assistants", "vision"];
/// The purpose of files that an episode made.
pub(super) const OUTPUT: &str = "assistants_output";
/// Letters and digits of an id.
const ID_LENGTH: usize = 24;
/// Most bytes of a file's name.
const MAX_NAME: usize = 255;
/// Most bytes of a field of a form that is not the file.
const MAX_FIELD: usize = 1024;
/// Bytes read at a time.
const CHUNK: usize = 64 << 10;
/// Shortest and longest time after which a file may expire: an hour and 30 days, as OpenAI has it.
const EXPIRY: std::ops::RangeInclusive<u64> = 3600..=30 * 24 * 3600;
/// Most files of one page of a list.
const MAX_PAGE: usize = 10_000;

/// Receives a file.
pub(super) async fn upload<R: RemoteRuntime>(
    State(chat): Shared<R>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Answer {
    let (head, body) = request.into_parts();
    let incoming = Incoming::new(body, chat.server.registry.options.body_timeout);
    let received = async {
        let boundary = boundary(&head.headers)?;
        let arrived = Arrived::default();
        let parts = multer::Multipart::new(arrived.bound(incoming.pieces()), boundary);
        let room = chat.room(&caller);
        let form = Form::receive(parts, &arrived, chat.files(), &room).await?;
        let (file, about) = form.check()?;
        file.finish(about).await.map_err(refused)
    };
    match received.await {
        Ok(file) => Ok(respond(StatusCode::OK, &described(&file))),
        Err(_) if incoming.is_late() => {
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, incoming.why_late()))
        }
        Err(error) => {
            incoming.discard().await;
            Err(error)
        }
    }
}

fn boundary(headers: &HeaderMap) -> Result<String, ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.and_then(|kind| multer::parse_boundary(kind).ok()).ok_or_else(|| {
        let message = "the content type must be multipart/form-data";
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    })
}

/// The form of an upload.
#[derive(Default)]
struct Form {
    file: Option<(NewFile, String)>,
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
}

impl Form {
    async fn receive(
        mut parts: multer::Multipart<'static>,
        arrived: &Arrived,
        store: &Arc<FileStore>,
        room: &Room,
    ) -> Result<Self, ApiError> {
        let malformed =
            |error: multer::Error| ApiError::request(format_args!("is not a form: {error}"));
        let mut form = Self::default();
        while let Some(mut part) = parts.next_field().await.map_err(malformed)? {
            arrived.was_parsed();
            let field = part.name().unwrap_or_default().to_owned();
            if field == "file" {
                if form.file.is_some() {
                    return Err(ApiError::field("file", "only one is supported"));
                }
                let name = part.file_name().unwrap_or("upload").to_owned();
                let mut file = store.begin(&new_id()?, room.clone()).await.map_err(refused)?;
                while let Some(piece) = part.chunk().await.map_err(malformed)? {
                    arrived.was_parsed();
                    file.write(&piece).await.map_err(refused)?;
                }
                form.file = Some((file, name));
                continue;
            }
            let mut text = Vec::new();
            while let Some(piece) = part.chunk().await.map_err(malformed)? {
                arrived.was_parsed();
                text.extend_from_slice(&piece);
                if text.len() > MAX_FIELD {
                    return Err(ApiError::field(field, "is too long"));
                }
            }
            let text = String::from_utf8(text)
                .map_err(|_| ApiError::field(field.clone(), "is not UTF-8"))?;
            let known = match field.as_str() {
                "purpose" => &mut form.purpose,
                "expires_after[anchor]" => &mut form.anchor,
                "expires_after[seconds]" => &mut form.seconds,
                _ => return Err(ApiError::field(field, "is not supported")),
            };
            *known = Some(text);
        }
        Ok(form)
    }

    fn check(self) -> Result<(NewFile, About), ApiError> {
        let missing = |field: &str| ApiError::field(field, "is missing");
        let (file, name) = self.file.ok_or_else(|| missing("file"))?;
        let purpose = self.purpose.ok_or_else(|| missing("purpose"))?;
        if !PURPOSES.contains(&purpose.as_str()) {
            let why = format!("must be one of {}", PURPOSES.join(", "));
            return Err(ApiError::field("purpose", why));
        }
        if self.anchor.as_deref().is_some_and(|anchor| anchor != "created_at") {
            return Err(ApiError::field("expires_after.anchor", "must be created_at"));
        }
        let lifetime = match self.seconds {
            None => None,
            Some(seconds) => {
                let seconds = seconds.parse().ok().filter(|seconds| EXPIRY.contains(seconds));
                let why = format!("must be {} to {} seconds", EXPIRY.start(), EXPIRY.end());
                Some(seconds.ok_or_else(|| ApiError::field("expires_after.seconds", why))?)
            }
        };
        let lifetime = lifetime.map(Duration::from_secs);
        Ok((file, About { name: plain(&name), purpose, lifetime }))
    }
}

/// The last part of a name, without what a terminal or a header would interpret.
pub(super) fn plain(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut plain: String = last.chars().filter(|c| !c.is_control()).collect();
    while plain.len() > MAX_NAME {
        plain.pop();
    }
    match plain.as_str() {
        "" | "." | ".." => "upload".to_owned(),
        _ => plain,
    }
}

/// The query of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
    order: Option<String>,
    purpose: Option<String>,
}

/// The caller's files, a page at a time.
pub(super) async fn list<R: RemoteRuntime>(
    State(chat): Shared<R>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer {
    let Query(query) = query.map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, format!("the query is invalid: {error}"))
    })?;
    let limit = query.limit.unwrap_or(MAX_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(ApiError::field("limit", format!("must be between 1 and {MAX_PAGE}")));
    }
    let mut files = chat.files().list(&caller.name);
    match query.order.as_deref() {
        None | Some("desc") => files.reverse(),
        Some("asc") => {}
        Some(_) => return Err(ApiError::field("order", "must be asc or desc")),
    }
    if let Some(after) = &query.after {
        let at = files.iter().position(|file| file.id == *after).ok_or_else(|| no_file(after))?;
        files.drain(..=at);
    }
    if let Some(purpose) = &query.purpose {
        files.retain(|file| file.purpose == *purpose);
    }
    let has_more = files.len() > limit;
    files.truncate(limit);
    let body = json!({
        "object": "list",
        "data": files.iter().map(described).collect::<Vec<_>>(),
        "first_id": files.first().map(|file| &file.id),
        "last_id": files.last().map(|file| &file.id),
        "has_more": has_more,
    });
    Ok(respond(StatusCode::OK, &body))
}

/// Describes a file.
pub(super) async fn describe<R: RemoteRuntime>(
    State(chat): Shared<R>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    Ok(respond(StatusCode::OK, &described(&found(&chat, &caller, &id)?)))
}

/// Sends the content of a file.
pub(super) async fn content<R: RemoteRuntime>(
    State(chat): Shared<R>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let stored = found(&chat, &caller, &id)?;
    let file = tokio::fs::File::open(chat.files().path(&stored)).await;
    let file = file.map_err(|error| refused(StoreError::Io(error)))?;
    let mut response = Response::new(Body::from_stream(ReaderStream::with_capacity(file, CHUNK)));
    let head = response.headers_mut();
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    head.insert(header::CONTENT_LENGTH, HeaderValue::from(stored.bytes));
    // What a client or a model wrote is never shown as a page of this server.
    head.insert(header::CONTENT_DISPOSITION, disposition(&stored.name));
    head.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// `attachment` with the name, in the encoding of RFC 8187.
fn disposition(name: &str) -> HeaderValue {
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            b'.' | b'-' | b'_' => encoded.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&format!("attachment; filename*=UTF-8''{encoded}"))
        .unwrap_or(HeaderValue::from_static("attachment"))
}

/// Deletes a file.
pub(super) async fn delete<R: RemoteRuntime>(
    State(chat): Shared<R>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    match chat.files().remove(&caller.name, &id) {
        true => {
            let body = json!({ "id": id, "object": "file", "deleted": true });
            Ok(respond(StatusCode::OK, &body))
        }
        false => Err(no_file(&id)),
    }
}

fn found<R: RemoteRuntime>(
    chat: &Chat<R>,
    caller: &Caller,
    id: &str,
) -> Result<StoredFile, ApiError> {
    chat.files().find(&caller.name, id).ok_or_else(|| no_file(id))
}

/// The error for an unknown file, or one of another caller.
pub(super) fn no_file(id: &str) -> ApiError {
    let error = ApiError::new(StatusCode::NOT_FOUND, format!("there is no file {id:?}"));
    error.code("file_not_found").param("id")
}

/// A new random id, without its prefix.
pub(super) fn new_id() -> Result<String, ApiError> {
    random(ID_LENGTH)
        .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.message))
}

/// The response for a file that was not stored.
pub(super) fn refused(error: StoreError) -> ApiError {
    let status = match &error {
        StoreError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        StoreError::TooMany(_)
        | StoreError::Full(_)
        | StoreError::TooManyOwn(_)
        | StoreError::FullOwn(_) => StatusCode::INSUFFICIENT_STORAGE,
        StoreError::Io(error) if is_full(error) => StatusCode::INSUFFICIENT_STORAGE,
        StoreError::Io(error) => {
            tracing::error!("files of clients: {error}");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    ApiError::new(status, error.to_string())
}

/// OpenAI's description of a file.
pub(super) fn described(file: &StoredFile) -> Value {
    json!({
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created / 1000,
        "expires_at": file.expires.map(|at| at / 1000),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_paths_and_no_headers() {
        for (name, expected) in [
            ("a.txt", "a.txt"),
            ("/etc/passwd", "passwd"),
            ("..\\..\\evil.exe", "evil.exe"),
            ("..", "upload"),
            ("a/", "upload"),
            ("\u{1b}[31mred\r\n", "[31mred"),
        ] {
            assert_eq!(plain(name), expected, "{name:?}");
        }
        assert!(plain(&"ü".repeat(300)).len() <= MAX_NAME);
        let header = disposition("grüße \".txt");
        assert_eq!(header, "attachment; filename*=UTF-8''gr%C3%BC%C3%9Fe%20%22.txt");
    }
}
