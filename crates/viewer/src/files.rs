//! The files an episode began with and left: listed and opened within bounds, never through links.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{ViewError, discover::Found, row::Format, table::Attempt};

/// Files that are listed.
const MAX_LISTED: usize = 10_000;
/// Directories below each other.
const MAX_DEPTH: usize = 32;
/// Most bytes of a text preview.
const MAX_TEXT: usize = 1 << 20;

/// Where the files of an episode are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    input: Option<PathBuf>,
    output: Option<PathBuf>,
}

impl Places {
    pub(crate) fn of(found: &Found, attempt: &Attempt) -> Self {
        let dir = match found.format {
            Format::Run => &found.path,
            Format::Episodes => &attempt.source,
            _ => return Self::default(),
        };
        let inside = |name: &str| {
            let path = dir.join(name);
            path.symlink_metadata().is_ok_and(|about| about.is_dir()).then_some(path)
        };
        Self { input: inside("input"), output: inside("files") }
    }

    fn area(&self, name: &str) -> Result<&Path, ViewError> {
        let area = match name {
            "input" => self.input.as_deref(),
            "output" => self.output.as_deref(),
            _ => None,
        };
        area.ok_or_else(|| ViewError::not_found("directory of files", name))
    }

    /// Opens a file.
    pub(crate) fn open(&self, area: &str, path: &str) -> Result<File, ViewError> {
        let dir = self.area(area)?;
        if path.is_empty() || path.contains('\0') {
            return Err(ViewError::invalid("it is not the path of a file"));
        }
        let opened = results::open_below(dir, Path::new(path));
        opened.map_err(|error| ViewError::read(Path::new(path), &error))
    }
}

/// A file in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FileRow {
    pub(crate) path: String,
    pub(crate) size: u64,
    #[serde(rename = "type")]
    pub(crate) media_type: &'static str,
    pub(crate) show: &'static str,
}

/// The files of an episode.
#[derive(Debug, Serialize)]
pub(crate) struct FilesPage {
    pub(crate) input: Vec<FileRow>,
    pub(crate) output: Vec<FileRow>,
    pub(crate) truncated: bool,
    /// Whether the record keeps input files, and output files. Where it does not, there may have been some.
    input_known: bool,
    output_known: bool,
}

pub(crate) fn list(places: &Places) -> FilesPage {
    let of = |dir: &Option<PathBuf>| dir.as_deref().map(list_dir).unwrap_or_default();
    let (input, output) = (of(&places.input), of(&places.output));
    let truncated = [&input, &output].iter().any(|files| files.len() >= MAX_LISTED);
    let (input_known, output_known) = (places.input.is_some(), places.output.is_some());
    FilesPage { input, output, truncated, input_known, output_known }
}

pub(crate) fn counts(places: &Places) -> Value {
    let FilesPage { input, output, .. } = list(places);
    json!({ "input": input.len(), "output": output.len() })
}

/// The regular files below a directory, by path. Names that are not UTF-8 are left out: they cannot be named in a request.
fn list_dir(dir: &Path) -> Vec<FileRow> {
    let mut open = vec![(dir.to_owned(), 0)];
    let mut files = Vec::new();
    while let Some((path, depth)) = open.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            if files.len() >= MAX_LISTED {
                break;
            }
            // Of the entry itself: links are not followed.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() && depth < MAX_DEPTH {
                open.push((entry.path(), depth + 1));
            } else if about.is_file()
                && let Ok(path) = entry.path().strip_prefix(dir)
                && let Some(path) = path.to_str()
            {
                let (media_type, show) = media_type(path);
                files.push(FileRow { path: path.to_owned(), size: about.len(), media_type, show });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The type of a file by its name, and how the page shows it.
pub(crate) fn media_type(path: &str) -> (&'static str, &'static str) {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "txt" | "log" | "text" | "out" | "err" => ("text/plain", "text"),
        "py" | "rs" | "js" | "ts" | "c" | "h" | "cpp" | "hpp" | "java" | "go" | "sh" | "rb"
        | "pl" | "r" | "sql" | "toml" | "yaml" | "yml" | "ini" | "cfg" | "conf" | "tex" | "bib"
        | "css" | "diff" | "patch" | "xml" | "jsonl" | "ipynb" | "mk" | "lock" => {
            ("text/plain", "text")
        }
        "md" | "markdown" => ("text/plain", "markdown"),
        "json" => ("application/json", "json"),
        "csv" => ("text/csv", "csv"),
        "tsv" => ("text/tab-separated-values", "csv"),
        "html" | "htm" | "xhtml" => ("text/html", "html"),
        "svg" => ("image/svg+xml", "svg"),
        "png" => ("image/png", "image"),
        "jpg" | "jpeg" => ("image/jpeg", "image"),
        "gif" => ("image/gif", "image"),
        "webp" => ("image/webp", "image"),
        "bmp" => ("image/bmp", "image"),
        "avif" => ("image/avif", "image"),
        "pdf" => ("application/pdf", "pdf"),
        "mp3" => ("audio/mpeg", "audio"),
        "wav" => ("audio/wav", "audio"),
        "ogg" | "oga" => ("audio/ogg", "audio"),
        "flac" => ("audio/flac", "audio"),
        "m4a" => ("audio/mp4", "audio"),
        "mp4" | "m4v" => ("video/mp4", "video"),
        "webm" => ("video/webm", "video"),
        "ogv" => ("video/ogg", "video"),
        "" => ("text/plain", "text"),
        _ => ("application/octet-stream", "binary"),
    }
}

/// A part of a file as text.
pub(crate) fn text(file: &File, from: u64, limit: usize) -> io::Result<Value> {
    let size = file.metadata()?.len();
    let from = from.min(size);
    let limit = limit.clamp(1, MAX_TEXT).min((size - from) as usize);
    let mut bytes = vec![0; limit];
    let mut read = 0;
    while read < limit {
        match file.read_at(&mut bytes[read..], from + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    bytes.truncate(read);
    // A character may be cut at the end: it belongs to the next part.
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        bytes.truncate(error.valid_up_to());
    }
    let utf8 = std::str::from_utf8(&bytes).is_ok() && !bytes.contains(&0);
    let end = from + bytes.len() as u64;
    let text = String::from_utf8_lossy(&bytes);
    Ok(json!({ "size": size, "from": from, "end": end, "text": text, "utf8": utf8 }))
}

/// A small file, whole.
pub(crate) fn whole(file: File, most: u64) -> Option<Vec<u8>> {
    if file.metadata().ok()?.len() > most {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
