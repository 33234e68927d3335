//! Input files, line by line or whole, into contexts. A line that cannot be used is counted and named.
//!
//! Sizes are bounded before anything is kept. What an object means is the shape's business.

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
use crate::{FolderError, InputInfo, Manifest, Step, Watch, folder::tell, text};

/// A file of lines may have this many bytes.
const LARGEST_LINES: u64 = 4 << 30;
/// One that is read whole may have so many.
const LARGEST_WHOLE: u64 = 64 << 20;
/// And a line so many: what is made of it takes many times as much memory.
const LONGEST_LINE: usize = 8 << 20;

/// Why an input file cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The disk or its rights.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file of some other kind.
    #[error("{path} is no data file: its name has to end in .jsonl or .json")]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// A file beyond the bound.
    #[error("{path} has {size} bytes, more than the {most} that are read; split it")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The bound.
        most: u64,
    },
    /// JSON that breaks off or is none.
    #[error(
        "{path} is not valid JSON; where each line is an object of its own, its name has to end in .jsonl"
    )]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
}

/// How a file is read.
#[derive(Clone, Copy)]
enum Form {
    Lines,
    Whole,
}

/// A file under way.
struct Reading<'a> {
    input: usize,
    info: InputInfo,
    manifest: &'a mut Manifest,
    contexts: &'a mut Vec<Context>,
}

/// The contexts of all files, in their order. Ends where nobody wants more.
pub(super) fn files(
    paths: &[PathBuf],
    manifest: &mut Manifest,
    watch: Watch<'_>,
) -> Result<Vec<Context>, PrepareError> {
    let mut opened = Vec::new();
    for path in paths {
        opened.push(open(path)?);
    }
    tell(watch, Step::Reading(opened.iter().map(|(_, _, size)| size).sum()))?;
    let mut contexts = Vec::new();
    for (input, (path, (file, form, bytes))) in paths.iter().zip(opened).enumerate() {
        let name =
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let info =
            InputInfo { file: name, bytes, sha256: String::new(), contexts: 0, questions: 0 };
        let mut reading =
            Reading { input, info, manifest: &mut *manifest, contexts: &mut contexts };
        let source = Digested { file, digest: Sha256::new(), watch };
        let digest = match form {
            Form::Lines => reading.lines(source),
            Form::Whole => reading.whole(path, source)?,
        }
        .map_err(|error| match error.downcast::<FolderError>() {
            Ok(cancelled) => PrepareError::Folder(cancelled),
            Err(source) => InputError::Io { path: path.clone(), source }.into(),
        })?;
        let mut info = reading.info;
        info.sha256 = digest;
        manifest.inputs.push(info);
    }
    Ok(contexts)
}

/// Opens a file that may be anything: a pipe would block for ever, a device never end.
fn open(path: &Path) -> Result<(File, Form, u64), InputError> {
    let failed = |source| InputError::Io { path: path.to_owned(), source };
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let (form, most) = match extension.to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" => (Form::Lines, LARGEST_LINES),
        "json" => (Form::Whole, LARGEST_WHOLE),
        _ => return Err(InputError::Kind { path: path.to_owned() }),
    };
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(failed)?;
    let data = file.metadata().map_err(failed)?;
    if !data.is_file() {
        return Err(failed(io::Error::other("it is no regular file")));
    }
    match data.len() {
        size if size > most => Err(InputError::TooLarge { path: path.to_owned(), size, most }),
        size => Ok((file, form, size)),
    }
}

impl Reading<'_> {
    fn lines(&mut self, source: Digested<'_>) -> io::Result<String> {
        // It may grow meanwhile.
        let mut input = BufReader::with_capacity(1 << 16, source.take(LARGEST_LINES));
        let mut number = 0;
        loop {
            let mut line = Vec::new();
            number += 1;
            if input.by_ref().take(LONGEST_LINE as u64 + 1).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.len() > LONGEST_LINE && line.last() != Some(&b'\n') {
                input.skip_until(b'\n')?;
                self.fault(
                    number,
                    Fault::too_long(format!("the line is longer than {} MiB", LONGEST_LINE >> 20)),
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
        // It may grow meanwhile.
        if let Err(error) = source.by_ref().take(LARGEST_WHOLE).read_to_end(&mut bytes) {
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
        self.manifest.leave_out(fault.reason, &self.info.file, line, fault.why);
    }
}

/// A file whose bytes are digested and told of as they are read.
struct Digested<'a> {
    file: File,
    digest: Sha256,
    watch: Watch<'a>,
}

impl Read for Digested<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.digest.update(&buffer[..read]);
        tell(self.watch, Step::Read(read as u64)).map_err(io::Error::other)?;
        Ok(read)
    }
}
