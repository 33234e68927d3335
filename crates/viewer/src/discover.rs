//! Finds runs below a directory, with bounded work: no link is followed, and neither depth nor number of entries is unlimited.

use std::{
    collections::HashSet,
    fs,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{row::Format, text::file_name};

/// Directories below each other.
const MAX_DEPTH: usize = 8;
/// Entries that are looked at.
const MAX_ENTRIES: usize = 200_000;
/// Runs that are found.
pub(crate) const MAX_RUNS: usize = 10_000;
/// Files whose start is read, to tell what they are.
const MAX_SNIFFED: usize = 5000;
/// Bytes of the start.
const SNIFFED: u64 = 64 << 10;
/// Directories that hold no runs.
const SKIPPED: [&str; 5] = ["node_modules", "target", "__pycache__", "checkpoints", "tensorboard"];

/// A run that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: String,
    pub(crate) format: Format,
    /// Its directory or file.
    pub(crate) path: PathBuf,
    /// The path below the directory that is viewed.
    pub(crate) shown: String,
    pub(crate) name: String,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Discovery {
    pub(crate) runs: Vec<Found>,
    /// Whether a bound was reached.
    pub(crate) truncated: bool,
}

/// Looks for runs at and below these paths.
pub(crate) fn discover(roots: &[PathBuf]) -> Discovery {
    let mut walk = Walk {
        found: Discovery::default(),
        entries: 0,
        sniffed: 0,
        ids: HashSet::new(),
        root: PathBuf::new(),
        several: roots.len() > 1,
    };
    for root in roots {
        // A path that the user names may be a link; what is below may not.
        let path = fs::canonicalize(root).unwrap_or_else(|_| root.clone());
        walk.root.clone_from(&path);
        match path.is_dir() {
            true => walk.directory(&path, 0),
            false => {
                if let Some(format) = walk.file_format(&path) {
                    walk.add(&path, format);
                }
            }
        }
    }
    walk.found
}

struct Walk {
    found: Discovery,
    entries: usize,
    sniffed: usize,
    ids: HashSet<String>,
    root: PathBuf,
    several: bool,
}

impl Walk {
    fn directory(&mut self, path: &Path, depth: usize) {
        if let Some(format) = directory_format(path) {
            return self.add(path, format);
        }
        let Ok(entries) = fs::read_dir(path) else { return };
        let (mut directories, mut files) = (Vec::new(), Vec::new());
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                self.found.truncated = true;
                break;
            }
            let name = entry.file_name();
            // The type of a link is that of the link.
            let Ok(kind) = entry.file_type() else { continue };
            if name.as_bytes().starts_with(b".") {
                continue;
            }
            if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
                directories.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
        directories.sort();
        files.sort();
        for file in files {
            if let Some(format) = self.file_format(&file) {
                self.add(&file, format);
            }
        }
        if depth >= MAX_DEPTH {
            self.found.truncated |= !directories.is_empty();
            return;
        }
        for directory in directories {
            if self.found.runs.len() >= MAX_RUNS || self.entries > MAX_ENTRIES {
                self.found.truncated = true;
                return;
            }
            self.directory(&directory, depth + 1);
        }
    }

    /// What a file is, by its name and its start.
    fn file_format(&mut self, path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().into_owned();
        if name.ends_with(".eval") {
            return Some(Format::Inspect);
        }
        let is_events = name.ends_with(".jsonl");
        if !is_events && !name.ends_with(".json") {
            return None;
        }
        self.sniffed += 1;
        if self.sniffed > MAX_SNIFFED {
            self.found.truncated = true;
            return None;
        }
        let start = start_of(path)?;
        let has = |text: &str| start.contains(text);
        match is_events {
            true => has("\"kind\":\"started\"").then_some(Format::Events),
            false if has("\"schema_version\"") && has("ATIF-") => Some(Format::Atif),
            false if has("\"problem_statement\"") && has("\"steps\"") => Some(Format::Reference),
            // The steps of a long prompt may begin later.
            false if name == "trajectory.json" && has("\"problem_statement\"") => {
                Some(Format::Reference)
            }
            false => None,
        }
    }

    fn add(&mut self, path: &Path, format: Format) {
        if self.found.runs.len() >= MAX_RUNS {
            self.found.truncated = true;
            return;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        let shown = match below.as_os_str().is_empty() {
            true => name.clone(),
            false if self.several => {
                let root = self.root.file_name().unwrap_or_default();
                Path::new(root).join(below).to_string_lossy().into_owned()
            }
            false => below.to_string_lossy().into_owned(),
        };
        // The id of a run stays the same wherever the directory above it is viewed from, and when it is moved as a whole.
        let digest = Sha256::digest(shown.as_bytes());
        let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let mut id = format!("{}-{digest}", file_name(&name, 40));
        while !self.ids.insert(id.clone()) {
            id.push('x');
        }
        self.found.runs.push(Found { id, format, path: path.to_owned(), shown, name });
    }
}

/// What a directory is; none where it may hold runs.
pub(crate) fn directory_format(path: &Path) -> Option<Format> {
    let is_file = |name: &str| path.join(name).symlink_metadata().is_ok_and(|it| it.is_file());
    let is_dir = |name: &str| path.join(name).symlink_metadata().is_ok_and(|it| it.is_dir());
    if is_file("events.jsonl") {
        return Some(Format::Run);
    }
    if is_file("metrics.jsonl") || (is_file("config.json") && is_dir("episodes")) {
        return Some(Format::Training);
    }
    if is_dir("attempts") || is_dir("trajectories") {
        return Some(Format::Results);
    }
    holds_episodes(path).then_some(Format::Episodes)
}

/// Whether a directory is a server's directory of episodes.
fn holds_episodes(path: &Path) -> bool {
    let Ok(entries) = fs::read_dir(path) else { return false };
    let mut some = entries.flatten().take(50);
    some.any(|entry| {
        entry.file_name().as_bytes().starts_with(b"ep_")
            && entry.path().join("episode.json").symlink_metadata().is_ok_and(|it| it.is_file())
    })
}

fn start_of(path: &Path) -> Option<String> {
    let (dir, file) = (path.parent()?, Path::new(path.file_name()?));
    let opened = results::open_below(dir, file).ok()?;
    let mut bytes = Vec::new();
    opened.take(SNIFFED).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
