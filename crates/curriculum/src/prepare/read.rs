//! Reads input files, line by line or whole, into contexts. Entries that cannot be used are skipped and counted.
//!
//! Sizes are bounded before anything is stored. Objects are interpreted by `shape`.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    PrepareError,
    shape::{self, Context, Fault},
};
use crate::{FolderError, InputInfo, Manifest, OnProgress, Progress, folder::report, text};

/// The maximum size of a file of JSON lines, in bytes.
const MAX_LINES_BYTES: u64 = 4 << 30;
/// The maximum size of a JSON file, in bytes.
const MAX_JSON_BYTES: u64 = 64 << 20;
/// The maximum size of a line, in bytes: its parsed form takes many times as much memory.
const MAX_LINE_BYTES: usize = 8 << 20;

/// An input file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file name has another extension.
    #[error("{path} is not a data file: its name must end in .jsonl or .json")]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// The file is too large.
    #[error("{path} has {size} bytes, more than the maximum of {max}; split it")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The maximum.
        max: u64,
    },
    /// The file is not valid JSON.
    #[error(
        "{path} is not valid JSON; if each line is an object of its own, the name must end in .jsonl"
    )]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
}

/// The form of a file.
#[derive(Clone, Copy)]
enum Form {
    Lines,
    Whole,
}

/// A file being read.
struct Reader<'a> {
    input: usize,
    info: InputInfo,
    manifest: &'a mut Manifest,
    contexts: &'a mut Vec<Context>,
}

/// The contexts of all files, in order.
pub(super) fn files(
    paths: &[PathBuf],
    manifest: &mut Manifest,
    on_progress: OnProgress<'_>,
) -> Result<Vec<Context>, PrepareError> {
    let mut opened = Vec::new();
    for path in paths {
        opened.push(open(path)?);
    }
    report(on_progress, Progress::Reading(opened.iter().map(|(_, _, size)| size).sum()))?;
    let mut contexts = Vec::new();
    for (input, (path, (file, form, bytes))) in paths.iter().zip(opened).enumerate() {
        let name =
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let info =
            InputInfo { file: name, bytes, sha256: String::new(), contexts: 0, questions: 0 };
        let mut reader = Reader { input, info, manifest: &mut *manifest, contexts: &mut contexts };
        let source = Digested { file, digest: Sha256::new(), on_progress };
        let digest = match form {
            Form::Lines => reader.lines(source),
            Form::Whole => reader.whole(path, source)?,
        }
        .map_err(|error| match error.downcast::<FolderError>() {
            Ok(cancelled) => PrepareError::Folder(cancelled),
            Err(source) => InputError::Io { path: path.clone(), source }.into(),
        })?;
        let mut info = reader.info;
        info.sha256 = digest;
        manifest.inputs.push(info);
    }
    Ok(contexts)
}

/// Opens a regular file. Others are rejected: a pipe would block, a device never end.
fn open(path: &Path) -> Result<(File, Form, u64), InputError> {
    let failed = |source| InputError::Io { path: path.to_owned(), source };
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let (form, max) = match extension.to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" => (Form::Lines, MAX_LINES_BYTES),
        "json" => (Form::Whole, MAX_JSON_BYTES),
        _ => return Err(InputError::Kind { path: path.to_owned() }),
    };
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(failed)?;
    let data = file.metadata().map_err(failed)?;
    if !data.is_file() {
        return Err(failed(io::Error::other("not a regular file")));
    }
    match data.len() {
        size if size > max => Err(InputError::TooLarge { path: path.to_owned(), size, max }),
        size => Ok((file, form, size)),
    }
}

impl Reader<'_> {
    fn lines(&mut self, source: Digested<'_>) -> io::Result<String> {
        // The file may grow meanwhile.
        let mut input = BufReader::with_capacity(1 << 16, source.take(MAX_LINES_BYTES));
        let mut number = 0;
        loop {
            let mut line = Vec::new();
            number += 1;
            if input.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.len() > MAX_LINE_BYTES && line.last() != Some(&b'\n') {
                input.skip_until(b'\n')?;
                self.fault(
                    number,
                    Fault::too_long(format!(
                        "the line is longer than {} MiB",
                        MAX_LINE_BYTES >> 20
                    )),
                );
                continue;
            }
            let text = line.strip_prefix(b"\xef\xbb\xbf").filter(|_| number == 1).unwrap_or(&line);
            if text.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice::<Value>(text) {
                Ok(value) => self.value(number, &value),
                Err(error) => self.fault(number, Fault::broken(format!("not JSON: {error}"))),
            }
        }
        Ok(text::hex(&input.into_inner().into_inner().digest.finalize()))
    }

    fn whole(
        &mut self,
        path: &Path,
        mut source: Digested<'_>,
    ) -> Result<io::Result<String>, InputError> {
        let mut bytes = Vec::new();
        // The file may grow meanwhile.
        if let Err(error) = source.by_ref().take(MAX_JSON_BYTES).read_to_end(&mut bytes) {
            return Ok(Err(error));
        }
        let value: Value =
            serde_json::from_slice(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes))
                .map_err(|source| InputError::Json { path: path.to_owned(), source })?;
        drop(bytes);
        let entries = match &value {
            Value::Array(entries) => entries,
            Value::Object(object) => match object.get("data") {
                Some(Value::Array(entries)) => entries,
                _ => std::slice::from_ref(&value),
            },
            _ => std::slice::from_ref(&value),
        };
        for (number, entry) in (1..).zip(entries) {
            self.value(number, entry);
        }
        Ok(Ok(text::hex(&source.digest.finalize())))
    }

    fn value(&mut self, line: u64, value: &Value) {
        let (contexts, faults) = shape::contexts(value, self.input, line);
        for context in contexts {
            self.info.contexts += 1;
            self.info.questions += context.questions.len() as u64;
            self.contexts.push(context);
        }
        for fault in faults {
            self.fault(line, fault);
        }
    }

    fn fault(&mut self, line: u64, fault: Fault) {
        self.manifest.skip(fault.reason, &self.info.file, line, fault.why);
    }
}

/// A file that is hashed, and whose progress is reported, while it is read.
struct Digested<'a> {
    file: File,
    digest: Sha256,
    on_progress: OnProgress<'a>,
}

impl Read for Digested<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.digest.update(&buffer[..read]);
        report(self.on_progress, Progress::Read(read as u64)).map_err(io::Error::other)?;
        Ok(read)
    }
}
