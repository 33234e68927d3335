//! `str_replace_editor`: files looked at and changed by exact bytes, written whole or not at all.
//!
//! What cannot be done is told to the model; only a broken sandbox is an error.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use sandbox::{Error, Sandbox};
use tokio::io::AsyncReadExt;

use super::{
    Observation, Tools,
    arguments::{Given, short},
    change::{self, Changed, Ends, MOST_MATCHES, NoChange, count_lines, line_of},
    hint::hint,
    page::{counted, one_line, size, snippet},
    picture::{binary_kind, picture},
    refused, view,
};

/// The largest file that is looked at or changed.
pub(crate) const LARGEST: u64 = 16 << 20;

/// The longest path Linux takes.
const LONGEST_PATH: usize = 4095;

/// What the model wants done.
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

/// Why a request ends without being carried out.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The request is at fault: this is what the model is told.
    Told(String),
    /// The sandbox is.
    Broken(Error),
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self::Told(text)
    }
}

impl<'a> Request<'a> {
    /// Takes a call's arguments apart; says what is wrong with them.
    pub(crate) fn read(given: Given<'a>) -> Result<Self, String> {
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
                    short(other)
                ));
            }
        };
        Ok(Self { path, action })
    }
}

/// Does what is asked.
pub(crate) async fn carry_out<S: Sandbox>(
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
        Err(Trouble::Told(text)) => Ok(Observation::error(text)),
        Err(Trouble::Broken(error)) => Err(error),
    }
}

/// A path in one line.
pub(crate) fn name(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// The start of a file, up to [`LARGEST`] bytes, and whether that is all of it.
pub(crate) async fn load(path: &Path, input: sandbox::Input) -> Result<(Vec<u8>, Extent), Trouble> {
    let mut bytes = Vec::new();
    let read = input.take(LARGEST + 1).read_to_end(&mut bytes).await;
    // Files the kernel makes up fail in many ways. If it is the sandbox that broke, the next call says so.
    read.map_err(|error| format!("{}: cannot be read: {error}", name(path)))?;
    if bytes.len() as u64 > LARGEST {
        bytes.truncate(LARGEST as usize);
        return Ok((bytes, Extent::Start));
    }
    Ok((bytes, Extent::Whole))
}

/// How much of a file is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// Its start; it is larger than [`LARGEST`].
    Start,
}

impl Extent {
    /// The size of the file.
    pub(crate) fn size(self, bytes: &[u8]) -> String {
        match self {
            Self::Whole => size(bytes.len() as u64),
            Self::Start => format!("more than {}", size(LARGEST)),
        }
    }
}

/// Refuses what is no text, or too much of it.
pub(crate) fn only_text(path: &Path, bytes: &[u8], extent: Extent) -> Result<(), Trouble> {
    let kind = match picture(bytes) {
        Some(picture) => Some(format!("{} picture", picture.kind)),
        None => binary_kind(bytes).map(str::to_owned),
    };
    let (path, size) = (name(path), extent.size(bytes));
    match (kind, extent) {
        (Some(kind), _) => Err(format!("{path} is not text: {kind}, {size}").into()),
        (None, Extent::Start) => Err(format!(
            "{path} has {size}, too much for this tool: use head, sed, grep or a program of your own"
        )
        .into()),
        (None, Extent::Whole) => Ok(()),
    }
}

/// What to tell about a path that cannot be used. Names what is there instead, where that is easily seen.
pub(crate) async fn explained<S: Sandbox>(path: &Path, error: Error, sandbox: &S) -> Trouble {
    let Some(why) = refused(&error) else { return Trouble::Broken(error) };
    let told = format!("{}: {why}", name(path));
    let (Some(parent), Some(wanted)) = (path.parent(), path.file_name()) else {
        return told.into();
    };
    let entries = sandbox.list(parent).await.unwrap_or_default();
    let names: Vec<_> =
        entries.iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect();
    let near = near_names(wanted, &names);
    if near.is_empty() {
        return told.into();
    }
    let near: Vec<_> = near.iter().map(|near| name(&parent.join(near))).collect();
    format!("{told}. Did you mean {}?", near.join(" or ")).into()
}

async fn create<S: Sandbox>(path: &Path, text: &str, sandbox: &S) -> Result<Observation, Trouble> {
    let existed = sandbox.read_file(path).await.is_ok();
    save(path, text.as_bytes(), sandbox).await?;
    let verb = if existed { "replaced the file that was there" } else { "created" };
    let mut told = format!("[{}: {verb}; {}", name(path), lines_and_size(text.as_bytes()));
    if !text.is_empty() && !text.ends_with('\n') {
        told.push_str(", no newline at the end");
    }
    Ok(Observation::text(told + "]"))
}

async fn replace<S: Sandbox>(
    path: &Path,
    old: &str,
    new: &str,
    sandbox: &S,
) -> Result<Observation, Trouble> {
    if old.is_empty() {
        return Err("old_str is empty; to add text use insert, to write a file create"
            .to_owned()
            .into());
    }
    if old == new {
        return Err("old_str and new_str are the same: nothing to change".to_owned().into());
    }
    let file = text(path, sandbox).await?;
    match change::replace(&file, old, new) {
        Ok(changed) => keep(path, &changed, "replaced", sandbox).await,
        Err(NoChange::Absent) => {
            Err(format!("old_str is not in {}. {}", name(path), hint(&file, old)).into())
        }
        Err(NoChange::Ambiguous(lines)) => Err(format!(
            "old_str occurs {}{} times in {}, at lines {}. Add neighbouring lines until it is unique.",
            if lines.len() == MOST_MATCHES { "at least " } else { "" },
            lines.len(),
            name(path),
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
) -> Result<Observation, Trouble> {
    let file = text(path, sandbox).await?;
    let changed = usize::try_from(after).ok().and_then(|after| change::insert(&file, after, new));
    match changed {
        Some(changed) => keep(path, &changed, "inserted", sandbox).await,
        None => Err(format!(
            "insert_line {after} is no line of {}, which has {} lines: give 0 for the top, or a line to insert after",
            name(path),
            count_lines(&file)
        )
        .into()),
    }
}

/// Writes a changed file and shows the change.
async fn keep<S: Sandbox>(
    path: &Path,
    changed: &Changed,
    verb: &str,
    sandbox: &S,
) -> Result<Observation, Trouble> {
    save(path, &changed.bytes, sandbox).await?;
    let line = line_of(&changed.bytes, changed.new.start);
    let ends = match changed.ends {
        Ends::AsGiven => "",
        Ends::MadeCrlf => ", with CR LF line ends like the rest of the file",
    };
    let size = lines_and_size(&changed.bytes);
    let head = format!("[{}: {verb} at line {line}{ends}; now {size}]\n", name(path));
    let text = head + &snippet(&changed.bytes, changed.new.clone());
    Ok(Observation::text(text.trim_end_matches('\n')))
}

fn lines_and_size(bytes: &[u8]) -> String {
    format!("{}, {}", counted(count_lines(bytes), "line"), size(bytes.len() as u64))
}

async fn text<S: Sandbox>(path: &Path, sandbox: &S) -> Result<Vec<u8>, Trouble> {
    let input = match sandbox.read_file(path).await {
        Ok(input) => input,
        Err(error) => return Err(explained(path, error, sandbox).await),
    };
    let (bytes, extent) = load(path, input).await?;
    only_text(path, &bytes, extent)?;
    Ok(bytes)
}

async fn save<S: Sandbox>(path: &Path, bytes: &[u8], sandbox: &S) -> Result<(), Trouble> {
    sandbox.write_file(path, bytes).await.map_err(|error| match refused(&error) {
        Some(why) => Trouble::Told(format!("{}: not written: {why}", name(path))),
        None => Trouble::Broken(error),
    })
}

fn resolved(workdir: &Path, path: &str) -> Result<PathBuf, Trouble> {
    let why = match path {
        "" => "the path is empty",
        path if path.len() > LONGEST_PATH => "the path is too long",
        path if path.contains('\0') => "the path has a NUL byte",
        path if path == "~" || path.starts_with("~/") => {
            "~ is not expanded here: write the path in full"
        }
        _ => return Ok(workdir.join(path)),
    };
    Err(why.to_owned().into())
}

/// At most three names much like the wanted one, unless that itself is among them.
fn near_names<'a>(wanted: &OsStr, names: &'a [String]) -> Vec<&'a str> {
    let wanted = wanted.to_string_lossy();
    if names.iter().any(|name| *name == wanted) {
        return Vec::new();
    }
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_lowercase();
    let wanted_stem = stem(&wanted);
    let near = names.iter().map(String::as_str).filter(|name| {
        stem(name) == wanted_stem || one_slip(&name.to_lowercase(), &wanted.to_lowercase())
    });
    near.take(3).collect()
}

/// Whether two names differ by one character that is wrong, missing, added, or swapped with the next.
fn one_slip(a: &str, b: &str) -> bool {
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
    fn near_names_are_found() {
        let names = ["main.py", "Main.txt", "mian.py", "other.rs", "util.py"].map(str::to_owned);
        let near = |wanted: &str| near_names(OsStr::new(wanted), &names);
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
