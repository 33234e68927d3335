//! The tools that transfer files between the client and the sandbox. Sizes, numbers of entries and times are bounded.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use model::ToolSpec;
use rmcp::model::{
    CallToolResult, ContentBlock, JsonObject, ResourceContents, Tool, ToolAnnotations,
};
use sandbox::{EntryKind, Error, Input, Sandbox};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::tools::{definition, object, refused};

const READ: &str = "read_file";
const WRITE: &str = "write_file";
const LIST: &str = "list_files";

/// About the path of a file.
const FILE: &str = "The file; relative paths start at the working directory.";

/// Most bytes of a file in one call: in base64, and with the rest of the message, below the longest message.
const MAX_BYTES: u64 = 5 << 20;
/// Most entries of a list, and most bytes of their paths.
const MAX_ENTRIES: usize = 2000;
const MAX_LIST_BYTES: usize = 512 << 10;
/// Deepest list.
const MAX_DEPTH: u32 = 16;
/// How long reading may take: files such as those of `/proc` may never end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The definitions.
pub(crate) fn list() -> [Tool; 3] {
    let hints = ToolAnnotations::new().open_world(false);
    let read_only = hints.clone().read_only(true);
    [
        read_definition().with_annotations(read_only.clone()),
        write_definition().with_annotations(hints.read_only(false).idempotent(true)),
        list_definition().with_annotations(read_only),
    ]
}

fn tool(name: &str, description: String, parameters: Value) -> Tool {
    definition(ToolSpec { name: name.into(), description, parameters })
}

fn read_definition() -> Tool {
    let description = format!(
        "Transfer a file, or a part of it, out of the computer: exact text, or base64 where it is not UTF-8. At most \
         {MAX_BYTES} bytes per call."
    );
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": FILE },
            "encoding": {
                "type": "string",
                "enum": ["auto", "base64"],
                "description": "`base64` for bytes even where they are text; default `auto`.",
            },
            "offset": { "type": "integer", "minimum": 0, "description": "First byte; default 0." },
            "length": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_BYTES,
                "description": "Most bytes; default: to the end. A longer file is an error without it.",
            },
        },
        "required": ["path"],
    });
    tool(READ, description, parameters)
}

fn write_definition() -> Tool {
    let description = format!(
        "Transfer a file into the computer, replacing what was there. Missing directories are made. At most {MAX_BYTES} \
         bytes."
    );
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": FILE },
            "content": { "type": "string", "description": "Everything the file is to hold." },
            "encoding": {
                "type": "string",
                "enum": ["text", "base64"],
                "description": "What `content` is; default `text`.",
            },
        },
        "required": ["path", "content"],
    });
    tool(WRITE, description, parameters)
}

fn list_definition() -> Tool {
    let description =
        format!("List the files of a directory in the computer, at most {MAX_ENTRIES}.");
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "The directory; default: the working directory.",
            },
            "depth": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_DEPTH,
                "description": "1, the default: the directory alone; 2: with the directories in it, and so on.",
            },
        },
    });
    let kinds = ["file", "directory", "link", "other"];
    let entry = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "kind": { "type": "string", "enum": kinds },
            "size": { "type": "integer" },
        },
        "required": ["path", "kind", "size"],
    });
    let output = json!({
        "type": "object",
        "properties": {
            "entries": { "type": "array", "items": entry },
            "truncated": { "type": "boolean" },
        },
        "required": ["entries", "truncated"],
    });
    tool(LIST, description, parameters).with_raw_output_schema(object(output))
}

/// Executes a call to one of the tools. An error means that the sandbox failed.
pub(crate) async fn call<S: Sandbox>(
    tool: &str,
    arguments: &JsonObject,
    workdir: &Path,
    sandbox: &S,
) -> Result<CallToolResult, Error> {
    let done = match tool {
        READ => match arguments_of(arguments) {
            Ok(request) => {
                let reading = read(request, workdir, sandbox);
                let late = || Ok(refused(format!("Reading took longer than {TIMEOUT:?}.")));
                tokio::time::timeout(TIMEOUT, reading).await.unwrap_or_else(|_| late())
            }
            Err(why) => return Ok(refused(why)),
        },
        WRITE => match arguments_of(arguments) {
            Ok(request) => write(request, workdir, sandbox).await,
            Err(why) => return Ok(refused(why)),
        },
        _ => match arguments_of(arguments) {
            Ok(request) => list_files(request, workdir, sandbox).await,
            Err(why) => return Ok(refused(why)),
        },
    };
    done.or_else(explained)
}

/// The arguments of a call, or what is wrong with them.
fn arguments_of<T: for<'a> Deserialize<'a>>(arguments: &JsonObject) -> Result<T, String> {
    let read = T::deserialize(Value::Object(arguments.clone()));
    read.map_err(|error| {
        let why: String = error.to_string().chars().take(300).collect();
        format!("Nothing was done: the arguments cannot be used: {why}")
    })
}

/// An error that the call caused, as its result; others are failures of the sandbox.
fn explained(error: Error) -> Result<CallToolResult, Error> {
    let is_full = |source: &io::Error| {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    };
    match &error {
        Error::Path { .. } => Ok(refused(error.chain())),
        Error::Io { source, .. } if is_full(source) => Ok(refused("The computer's disk is full.")),
        error if error.is_usage() => Ok(refused(error.chain())),
        _ => Err(error),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadRequest {
    path: PathBuf,
    #[serde(default)]
    encoding: ReadEncoding,
    #[serde(default)]
    offset: u64,
    length: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ReadEncoding {
    #[default]
    Auto,
    Base64,
}

async fn read<S: Sandbox>(
    request: ReadRequest,
    workdir: &Path,
    sandbox: &S,
) -> Result<CallToolResult, Error> {
    let path = workdir.join(&request.path);
    let most = request.length.unwrap_or(MAX_BYTES);
    if !(1..=MAX_BYTES).contains(&most) {
        return Ok(refused(format!("`length` must lie between 1 and {MAX_BYTES}.")));
    }
    let failed = |source: io::Error| read_failed(&path, source);
    let mut file = sandbox.read_file(&path).await?;
    skip(&mut file, request.offset).await.map_err(failed)?;
    let mut bytes = Vec::new();
    // One more than wanted tells whether the file is longer.
    let more = u64::from(request.length.is_none());
    (&mut file).take(most + more).read_to_end(&mut bytes).await.map_err(failed)?;
    if bytes.len() as u64 > most {
        let text = format!(
            "{} has more than {MAX_BYTES} bytes from offset {}; read it in parts with `offset` and `length`.",
            path.display(),
            request.offset
        );
        return Ok(refused(text));
    }
    let text = match request.encoding {
        ReadEncoding::Auto => String::from_utf8(bytes).map_err(|error| error.into_bytes()),
        ReadEncoding::Base64 => Err(bytes),
    };
    let content = match text {
        Ok(text) => ContentBlock::text(text),
        Err(bytes) => {
            let blob = BASE64_STANDARD.encode(bytes);
            let contents = ResourceContents::blob(blob, uri(&path));
            ContentBlock::resource(contents.with_mime_type("application/octet-stream"))
        }
    };
    Ok(CallToolResult::success(vec![content]))
}

/// A regular file was opened, and cannot be read. Few of these can be read only in another way, such as those of the kernel;
/// for the rest the machine is at fault.
fn read_failed(path: &Path, source: io::Error) -> Error {
    use io::ErrorKind::{InvalidInput, IsADirectory, PermissionDenied, Unsupported};
    match source.kind() {
        InvalidInput | IsADirectory | PermissionDenied | Unsupported => {
            Error::Path { path: path.to_owned(), source }
        }
        _ => Error::Io { what: format!("reading {}", path.display()), source },
    }
}

/// Reads and forgets the start of a file.
async fn skip(file: &mut Input, bytes: u64) -> io::Result<()> {
    let mut start = file.take(bytes);
    tokio::io::copy(&mut start, &mut tokio::io::sink()).await.map(drop)
}

/// The address of a file: `file://` and the path, with all but plain characters escaped.
fn uri(path: &Path) -> String {
    use std::fmt::Write as _;
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(*byte));
            }
            // Writing to a string cannot fail.
            _ => drop(write!(uri, "%{byte:02X}")),
        }
    }
    uri
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteRequest {
    path: PathBuf,
    content: String,
    #[serde(default)]
    encoding: WriteEncoding,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum WriteEncoding {
    #[default]
    Text,
    Base64,
}

async fn write<S: Sandbox>(
    request: WriteRequest,
    workdir: &Path,
    sandbox: &S,
) -> Result<CallToolResult, Error> {
    let path = workdir.join(&request.path);
    let bytes = match request.encoding {
        WriteEncoding::Text => request.content.into_bytes(),
        WriteEncoding::Base64 => match BASE64_STANDARD.decode(request.content) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(refused(format!("`content` is not base64: {error}."))),
        },
    };
    if bytes.len() as u64 > MAX_BYTES {
        return Ok(refused(format!("`content` has more than {MAX_BYTES} bytes.")));
    }
    sandbox.write_file(&path, &bytes).await?;
    let text = format!("Wrote {} bytes to {}.", bytes.len(), path.display());
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListRequest {
    path: Option<PathBuf>,
    #[serde(default = "one")]
    depth: u32,
}

fn one() -> u32 {
    1
}

async fn list_files<S: Sandbox>(
    request: ListRequest,
    workdir: &Path,
    sandbox: &S,
) -> Result<CallToolResult, Error> {
    if !(1..=MAX_DEPTH).contains(&request.depth) {
        return Ok(refused(format!("`depth` must lie between 1 and {MAX_DEPTH}.")));
    }
    let top = request.path.map_or_else(|| workdir.to_owned(), |path| workdir.join(path));
    let (mut entries, mut bytes, mut truncated) = (Vec::new(), 0, false);
    let mut open = vec![(top.clone(), 1)];
    'all: while let Some((directory, depth)) = open.pop() {
        let listed = match sandbox.list(&directory).await {
            Ok(listed) => listed,
            // A directory below may be gone, or unreadable.
            Err(Error::Path { .. }) if directory != top => continue,
            Err(error) => return Err(error),
        };
        for entry in listed {
            let path = directory.join(&entry.name);
            let text = path.to_string_lossy();
            bytes += text.len();
            if entries.len() == MAX_ENTRIES || bytes > MAX_LIST_BYTES {
                truncated = true;
                break 'all;
            }
            let kind = match entry.kind {
                EntryKind::File => "file",
                EntryKind::Directory => "directory",
                EntryKind::Link => "link",
                EntryKind::Other => "other",
            };
            entries.push(json!({ "path": text, "kind": kind, "size": entry.size }));
            if entry.kind == EntryKind::Directory && depth < request.depth {
                open.push((path, depth + 1));
            }
        }
    }
    entries.sort_by(|one, other| one["path"].as_str().cmp(&other["path"].as_str()));
    Ok(CallToolResult::structured(json!({ "entries": entries, "truncated": truncated })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_files_are_escaped() {
        assert_eq!(uri(Path::new("/a b/ü%.txt")), "file:///a%20b/%C3%BC%25.txt");
    }

    #[test]
    fn a_machine_that_cannot_read_is_not_the_callers_fault() {
        let path = Path::new("/a");
        let read = |errno| explained(read_failed(path, io::Error::from_raw_os_error(errno)));
        // EINVAL and EISDIR; EIO, EMFILE and ESTALE.
        for own in [22, 21] {
            assert_eq!(read(own).unwrap().is_error, Some(true), "{own}");
        }
        for infrastructure in [5, 24, 116] {
            let error = read(infrastructure).unwrap_err();
            assert!(error.chain().contains("/a"), "{}", error.chain());
        }
    }

    #[test]
    fn bad_arguments_are_explained_in_few_words() {
        let read = |value: Value| {
            let Value::Object(map) = value else { panic!("{value}") };
            arguments_of::<WriteRequest>(&map).map(drop)
        };
        assert!(read(json!({ "path": "a", "content": "b" })).is_ok());
        for (bad, why) in [
            (json!({}), "missing field `path`"),
            (json!({ "path": "a", "content": 7 }), "invalid type"),
            (json!({ "path": "a", "content": "b", "mode": 7 }), "unknown field `mode`"),
            (
                json!({ "path": "a", "content": "b", "encoding": "x".repeat(9999) }),
                "unknown variant",
            ),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(why) && error.len() < 400, "{error}");
        }
    }
}
