//! Reads run directories into facts, one attempt at a time, so that memory does not grow with the length of answers.
//!
//! A damaged file is listed and hides nothing else. Computes no statistics.

use std::{
    collections::HashSet,
    path::{Component, Path, PathBuf},
};

use results::{AttemptKey, AttemptRecord, Mode, ResultsDir, Run, RunSettings, TaskInfo};
use trajectory::Line;

use crate::{Fact, text::excerpt};

/// Damaged files listed per run.
const DAMAGES: usize = 20;
/// Tasks read per run.
const TASKS: usize = 500;
/// Public names searched for per benchmark, and the longest of them in bytes.
const KNOWN_AS: usize = 50;
const LONGEST_KNOWN_AS: usize = 100;
/// Longest name of a task or problem, in bytes.
const LONGEST_NAME: usize = 4096;

/// The content of a run directory.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name of the directory.
    pub name: String,
    /// Relative path from the report, with slashes; empty where they are the same directory.
    pub link: String,
    /// Directory of the pages of its attempts relative to the report, with slashes; `None` where none are written.
    pub pages: Option<String>,
    /// The run's settings; a placeholder where they could not be read.
    pub run: Run,
    /// Whether `run` was read from `run.json`.
    pub has_run_file: bool,
    /// Attempts that could be read.
    pub facts: Vec<Fact>,
    /// The first unreadable files, with reasons.
    pub damaged: Vec<String>,
    /// Number of all unreadable files.
    pub damaged_total: usize,
    /// Sandbox attempts without a trajectory.
    pub without_events: usize,
}

/// Reasons why a run cannot be reported.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The path does not exist or is not a directory.
    #[error("there is no directory {}", .0.display())]
    NoDirectory(PathBuf),
    /// The directory holds something else.
    #[error("{} is not a run directory: it holds neither run.json nor attempts", .0.display())]
    NotARun(PathBuf),
    /// The same directory is given twice.
    #[error("{} is given twice", .0.display())]
    Duplicate(PathBuf),
}

/// Reads run directories. Links are relative to `from`, the directory of the report.
pub fn read(directories: &[PathBuf], from: &Path) -> Result<Vec<Source>, ReadError> {
    let mut seen = HashSet::new();
    let mut sources = Vec::new();
    for directory in directories {
        let canonical = directory.canonicalize().ok().filter(|path| path.is_dir());
        let Some(canonical) = canonical else {
            return Err(ReadError::NoDirectory(directory.clone()));
        };
        if !seen.insert(canonical.clone()) {
            return Err(ReadError::Duplicate(directory.clone()));
        }
        sources
            .push(source(&canonical, from).ok_or_else(|| ReadError::NotARun(directory.clone()))?);
    }
    Ok(sources)
}

fn source(directory: &Path, from: &Path) -> Option<Source> {
    let _span = tracing::debug_span!("read_run", directory = %directory.display()).entered();
    let folder = ResultsDir::new(directory);
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut source = Source {
        name: excerpt(&name.unwrap_or_default(), 80),
        link: link(from, directory),
        pages: None,
        run: placeholder(),
        has_run_file: false,
        facts: Vec::new(),
        damaged: Vec::new(),
        damaged_total: 0,
        without_events: 0,
    };
    let run = match folder.run() {
        Ok(run) => run,
        Err(error) => {
            source.damage(directory, &error.to_string());
            None
        }
    };
    if let Some(run) = run {
        source.has_run_file = true;
        source.run = run;
    }
    let count = source.run.tasks.len();
    if count > TASKS {
        source.run.tasks.truncate(TASKS);
        let why = format!("run.json: it names {count} tasks; only the first {TASKS} are read");
        source.damage(directory, &why);
    }
    for task in &mut source.run.tasks {
        task.known_as.retain(|name| name.len() <= LONGEST_KNOWN_AS);
        task.known_as.truncate(KNOWN_AS);
    }
    let tasks = source.run.tasks.iter().map(|task| task.name.clone()).collect();
    let mut reader = Reader { folder: &folder, directory, seen: HashSet::new(), tasks };
    match folder.attempts() {
        Ok(attempts) => attempts.for_each(|attempt| reader.take(&mut source, attempt)),
        Err(error) => source.damage(directory, &error.to_string()),
    }
    if !source.has_run_file {
        source.run.tasks = tasks_of(&source.facts);
    }
    (source.has_run_file || !source.facts.is_empty() || source.damaged_total > 0).then_some(source)
}

struct Reader<'a> {
    folder: &'a ResultsDir,
    directory: &'a Path,
    seen: HashSet<AttemptKey>,
    /// Tasks named so far.
    tasks: HashSet<String>,
}

impl Reader<'_> {
    fn take(&mut self, source: &mut Source, attempt: Result<AttemptRecord, results::Error>) {
        let attempt = match attempt {
            Ok(attempt) => source.run.current(attempt),
            Err(error) => return source.damage(self.directory, &error.to_string()),
        };
        let key = &attempt.key;
        let wrong = match attempt.score {
            Some(score) if !(0.0..=1.0).contains(&score) => Some("the score is not from 0 to 1"),
            _ if key.id.len() > LONGEST_NAME || key.task.len() > LONGEST_NAME => {
                Some("the name of its task or problem is too long")
            }
            _ if !self.tasks.contains(&key.task) && self.tasks.len() >= TASKS => {
                Some("too many tasks")
            }
            _ if !self.seen.insert(key.clone()) => Some("duplicate of another attempt"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let path = self.folder.attempt_path(key);
            return source.damage(self.directory, &format!("{}: {wrong}", path.display()));
        }
        if !self.tasks.contains(&key.task) {
            self.tasks.insert(key.task.clone());
        }
        let events = self.events(source, key);
        let task = source.run.tasks.iter().find(|task| task.name == key.task);
        let known_as = task.map(|task| task.known_as.as_slice()).unwrap_or_default();
        let recorded = self.folder.trajectory_path(key).exists();
        let fact = Fact { recorded, ..Fact::of(attempt, events.as_deref(), known_as) };
        source.facts.push(fact);
    }

    fn events(&self, source: &mut Source, key: &AttemptKey) -> Option<Vec<Line>> {
        if !self.folder.trajectory_path(key).exists() {
            source.without_events += usize::from(key.mode == Mode::Sandbox);
            return None;
        }
        let read = self.folder.events(key);
        read.inspect_err(|error| source.damage(self.directory, &error.to_string())).ok()
    }
}

impl Source {
    /// Lists an unreadable file, with paths relative to the run directory.
    fn damage(&mut self, directory: &Path, why: &str) {
        self.damaged_total += 1;
        if self.damaged.len() < DAMAGES {
            let prefix = format!("{}/", directory.display());
            self.damaged.push(excerpt(&why.replace(&prefix, ""), 300));
        }
    }
}

/// Stands for the settings of a run without a readable `run.json`.
fn placeholder() -> Run {
    Run {
        v: results::VERSION,
        program: String::new(),
        started: 0,
        model: "unknown model".to_owned(),
        tasks: Vec::new(),
        modes: Vec::new(),
        without: Vec::new(),
        documents: String::new(),
        settings: RunSettings::default(),
    }
}

/// Tasks named by attempts.
fn tasks_of(facts: &[Fact]) -> Vec<TaskInfo> {
    let mut tasks: Vec<TaskInfo> = Vec::new();
    for fact in facts {
        if tasks.last().is_none_or(|task| task.name != fact.attempt.key.task) {
            tasks.push(TaskInfo { name: fact.attempt.key.task.clone(), ..TaskInfo::default() });
        }
    }
    tasks
}

/// Relative path from one absolute directory to another; `from` may not exist yet.
fn link(from: &Path, to: &Path) -> String {
    let from = std::path::absolute(from).unwrap_or_else(|_| from.to_owned());
    let from = canonical(&from);
    let (mut from, mut to) = (from.components().peekable(), to.components().peekable());
    while from.peek().is_some() && from.peek() == to.peek() {
        from.next();
        to.next();
    }
    let up = from.filter(|part| matches!(part, Component::Normal(_))).map(|_| "..".to_owned());
    let down = to.map(|part| part.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

/// Resolves symbolic links as far as the path exists.
fn canonical(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(path), _, _) => path,
        (Err(_), Some(parent), Some(name)) => canonical(parent).join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_the_report() {
        let link = |from: &str, to: &str| super::link(Path::new(from), Path::new(to));
        assert_eq!(link("/nowhere/a/report", "/nowhere/a"), "..");
        assert_eq!(link("/nowhere/a", "/nowhere/a"), "");
        assert_eq!(link("/nowhere/reports", "/nowhere/runs/x y"), "../runs/x y");
        assert_eq!(link("/nowhere", "/nowhere/runs/1"), "runs/1");
    }

    #[test]
    fn other_directories_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let read = |paths: &[PathBuf]| super::read(paths, dir.path()).unwrap_err();
        assert!(matches!(read(&[gone]), ReadError::NoDirectory(_)));
        let here = dir.path().to_owned();
        assert!(matches!(read(std::slice::from_ref(&here)), ReadError::NotARun(_)));
    }
}
