//! `str_replace_editor`: shows files and edits them by exact match. Files are written whole or not at all.
//!
//! A request that cannot be executed is an observation for the model; only a failing sandbox is an error.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use sandbox::{Error, Sandbox};
use tokio::io::AsyncReadExt;

use super::{
    Observation, Tools,
    arguments::{ToolArguments, short_name},
    file_kind::{binary_kind, image_info},
    mismatch::explain_mismatch,
    model_error,
    numbered_lines::{counted, one_line, size, snippet},
    text_edit::{self, EditError, Edited, LineEndings, MAX_MATCHES, count_lines, line_of},
    view,
};

/// The largest file that is shown or edited, in bytes.
pub(crate) const MAX_FILE: u64 = 16 << 20;

/// The longest path on Linux, in bytes.
const MAX_PATH: usize = 4095;

/// A validated call.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    path: &'a str,
    action: Action<'a>,
}

#[derive(Debug)]
enum Action<'a> {
    View { range: Option<(i64, i64)> },
    Create { text: &'a str },
    Replace { old: &'a str, new: &'a str },
    Insert { after: i64, new: &'a str },
}

/// Why a call is not executed.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The call is at fault; the text is for the model.
    Rejected(String),
    /// The sandbox failed.
    Sandbox(Error),
}

impl From<String> for CallError {
    fn from(text: String) -> Self {
        Self::Rejected(text)
    }
}

impl<'a> Request<'a> {
    /// Reads the arguments of a call. The error is for the model.
    pub(crate) fn read(given: ToolArguments<'a>) -> Result<Self, String> {
        let command = given.text("command")?;
        let path = given.text("path")?;
        let action = match command {
            "view" => Action::View { range: given.optional_range("view_range")? },
            "create" => Action::Create { text: given.text("file_text")? },
            "str_replace" => Action::Replace {
                old: given.text("old_str")?,
                new: given.optional_text("new_str")?.unwrap_or_default(),
            },
            "insert" => {
                Action::Insert { after: given.integer("insert_line")?, new: given.text("new_str")? }
            }
            other => {
                return Err(format!(
                    "{}: there is no command `{}`; write view, create, str_replace or insert",
                    given.tool,
                    short_name(other)
                ));
            }
        };
        Ok(Self { path, action })
    }
}

/// Executes a call.
pub(crate) async fn execute<S: Sandbox>(
    tools: &Tools,
    request: &Request<'_>,
    sandbox: &S,
) -> Result<Observation, Error> {
    let done = async {
        let path = resolved(&tools.workdir, request.path)?;
        match request.action {
            Action::View { range } => view::view(tools, &path, range, sandbox).await,
            Action::Create { text } => create(&path, text, sandbox).await,
            Action::Replace { old, new } => replace(&path, old, new, sandbox).await,
            Action::Insert { after, new } => insert(&path, after, new, sandbox).await,
        }
    };
    match done.await {
        Ok(observation) => Ok(observation),
        Err(CallError::Rejected(text)) => Ok(Observation::error(text)),
        Err(CallError::Sandbox(error)) => Err(error),
    }
}

/// A path as one line.
pub(crate) fn display_path(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Reads a file up to [`MAX_FILE`] bytes, and whether that is all of it.
pub(crate) async fn load(
    path: &Path,
    input: sandbox::Input,
) -> Result<(Vec<u8>, Extent), CallError> {
    let mut bytes = Vec::new();
    let read = input.take(MAX_FILE + 1).read_to_end(&mut bytes).await;
    // Virtual files of the kernel fail in many ways. If the sandbox has failed, the next call reports it.
    read.map_err(|error| format!("{}: cannot be read: {error}", display_path(path)))?;
    if bytes.len() as u64 > MAX_FILE {
        bytes.truncate(MAX_FILE as usize);
        return Ok((bytes, Extent::Start));
    }
    Ok((bytes, Extent::Whole))
}

/// How much of a file was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// Its start: it is larger than [`MAX_FILE`].
    Start,
}

impl Extent {
    /// The size of the file, for the model.
    pub(crate) fn size(self, bytes: &[u8]) -> String {
        match self {
            Self::Whole => size(bytes.len() as u64),
            Self::Start => format!("more than {}", size(MAX_FILE)),
        }
    }
}

/// Rejects files that are not text or too large.
pub(crate) fn require_text(path: &Path, bytes: &[u8], extent: Extent) -> Result<(), CallError> {
    let kind = match image_info(bytes) {
        Some(picture) => Some(format!("{} picture", picture.kind)),
        None => binary_kind(bytes).map(str::to_owned),
    };
    let (path, size) = (display_path(path), extent.size(bytes));
    match (kind, extent) {
        (Some(kind), _) => Err(format!("{path} is not text: {kind}, {size}").into()),
        (None, Extent::Start) => Err(format!(
            "{path} has {size}, too much for this tool: use head, sed, grep or a program of your own"
        )
        .into()),
        (None, Extent::Whole) => Ok(()),
    }
}

/// The error for a path that cannot be used. Suggests similar names in the same directory.
pub(crate) async fn path_error<S: Sandbox>(path: &Path, error: Error, sandbox: &S) -> CallError {
    let Some(why) = model_error(&error) else { return CallError::Sandbox(error) };
    let text = format!("{}: {why}", display_path(path));
    let (Some(parent), Some(wanted)) = (path.parent(), path.file_name()) else {
        return text.into();
    };
    let entries = sandbox.list(parent).await.unwrap_or_default();
    let names: Vec<_> =
        entries.iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect();
    let near = similar_names(wanted, &names);
    if near.is_empty() {
        return text.into();
    }
    let near: Vec<_> = near.iter().map(|near| display_path(&parent.join(near))).collect();
    format!("{text}. Did you mean {}?", near.join(" or ")).into()
}

async fn create<S: Sandbox>(
    path: &Path,
    text: &str,
    sandbox: &S,
) -> Result<Observation, CallError> {
    let existed = sandbox.read_file(path).await.is_ok();
    save(path, text.as_bytes(), sandbox).await?;
    let verb = if existed { "replaced the file that was there" } else { "created" };
    let mut summary =
        format!("[{}: {verb}; {}", display_path(path), lines_and_size(text.as_bytes()));
    if !text.is_empty() && !text.ends_with('\n') {
        summary.push_str(", no newline at the end");
    }
    Ok(Observation::text(summary + "]"))
}

async fn replace<S: Sandbox>(
    path: &Path,
    old: &str,
    new: &str,
    sandbox: &S,
) -> Result<Observation, CallError> {
    if old.is_empty() {
        return Err("old_str is empty; to add text use insert, to write a file create"
            .to_owned()
            .into());
    }
    if old == new {
        return Err("old_str and new_str are the same: nothing to change".to_owned().into());
    }
    let file = load_text(path, sandbox).await?;
    match text_edit::replace(&file, old, new) {
        Ok(changed) => save_edit(path, &changed, "replaced", sandbox).await,
        Err(EditError::Absent) => {
            Err(format!("old_str is not in {}. {}", display_path(path), explain_mismatch(&file, old)).into())
        }
        Err(EditError::Ambiguous(lines)) => Err(format!(
            "old_str occurs {}{} times in {}, at lines {}. Add neighbouring lines until it is unique.",
            if lines.len() == MAX_MATCHES { "at least " } else { "" },
            lines.len(),
            display_path(path),
            lines.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        )
        .into()),
    }
}

async fn insert<S: Sandbox>(
    path: &Path,
    after: i64,
    new: &str,
    sandbox: &S,
) -> Result<Observation, CallError> {
    let file = load_text(path, sandbox).await?;
    let changed =
        usize::try_from(after).ok().and_then(|after| text_edit::insert(&file, after, new));
    match changed {
        Some(changed) => save_edit(path, &changed, "inserted", sandbox).await,
        None => Err(format!(
            "insert_line {after} is no line of {}, which has {} lines: give 0 for the top, or a line to insert after",
            display_path(path),
            count_lines(&file)
        )
        .into()),
    }
}

/// Writes a changed file and shows the change.
async fn save_edit<S: Sandbox>(
    path: &Path,
    changed: &Edited,
    verb: &str,
    sandbox: &S,
) -> Result<Observation, CallError> {
    save(path, &changed.bytes, sandbox).await?;
    let line = line_of(&changed.bytes, changed.new.start);
    let line_endings = match changed.line_endings {
        LineEndings::AsGiven => "",
        LineEndings::ConvertedToCrlf => ", with CR LF line ends like the rest of the file",
    };
    let size = lines_and_size(&changed.bytes);
    let head =
        format!("[{}: {verb} at line {line}{line_endings}; now {size}]\n", display_path(path));
    let text = head + &snippet(&changed.bytes, changed.new.clone());
    Ok(Observation::text(text.trim_end_matches('\n')))
}

fn lines_and_size(bytes: &[u8]) -> String {
    format!("{}, {}", counted(count_lines(bytes), "line"), size(bytes.len() as u64))
}

async fn load_text<S: Sandbox>(path: &Path, sandbox: &S) -> Result<Vec<u8>, CallError> {
    let input = match sandbox.read_file(path).await {
        Ok(input) => input,
        Err(error) => return Err(path_error(path, error, sandbox).await),
    };
    let (bytes, extent) = load(path, input).await?;
    require_text(path, &bytes, extent)?;
    Ok(bytes)
}

async fn save<S: Sandbox>(path: &Path, bytes: &[u8], sandbox: &S) -> Result<(), CallError> {
    sandbox.write_file(path, bytes).await.map_err(|error| match model_error(&error) {
        Some(why) => CallError::Rejected(format!("{}: not written: {why}", display_path(path))),
        None => CallError::Sandbox(error),
    })
}

fn resolved(workdir: &Path, path: &str) -> Result<PathBuf, CallError> {
    let why = match path {
        "" => "the path is empty",
        path if path.len() > MAX_PATH => "the path is too long",
        path if path.contains('\0') => "the path has a NUL byte",
        path if path == "~" || path.starts_with("~/") => {
            "~ is not expanded here: write the path in full"
        }
        _ => return Ok(workdir.join(path)),
    };
    Err(why.to_owned().into())
}

/// At most three names similar to the wanted one, unless that itself is among them.
fn similar_names<'a>(wanted: &OsStr, names: &'a [String]) -> Vec<&'a str> {
    let wanted = wanted.to_string_lossy();
    if names.iter().any(|name| *name == wanted) {
        return Vec::new();
    }
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_lowercase();
    let wanted_stem = stem(&wanted);
    let near = names.iter().map(String::as_str).filter(|name| {
        stem(name) == wanted_stem || is_one_typo(&name.to_lowercase(), &wanted.to_lowercase())
    });
    near.take(3).collect()
}

/// Whether two names differ by one character that is wrong, missing, added, or swapped with the next.
fn is_one_typo(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let start = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    match (&a[..a.len() - end], &b[..b.len() - end]) {
        ([] | [_], [] | [_]) => true,
        ([x, y], [u, v]) => x == v && y == u,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_found() {
        let names = ["main.py", "Main.txt", "mian.py", "other.rs", "util.py"].map(str::to_owned);
        let near = |wanted: &str| similar_names(OsStr::new(wanted), &names);
        assert_eq!(near("main.pyx"), ["main.py", "Main.txt"]);
        assert_eq!(near("utils.py"), ["util.py"]);
        assert_eq!(near("otehr.rs"), ["other.rs"]);
        assert_eq!(near("unlike"), [""; 0]);
        assert_eq!(near("main.py"), [""; 0]);
    }

    #[test]
    fn paths_start_at_the_working_directory() {
        let resolve = |path: &str| resolved(Path::new("/testbed"), path).ok();
        assert_eq!(resolve("a/b"), Some("/testbed/a/b".into()));
        assert_eq!(resolve("/etc/x"), Some("/etc/x".into()));
        for bad in ["", "a\0b", "~", "~/x", &"x".repeat(5000)] {
            assert_eq!(resolve(bad), None, "{bad:?}");
        }
    }
}
