//! Run directories become facts, one attempt at a time, so that memory does not grow with what models wrote.
//!
//! A damaged file is listed and never hides the rest. Computes nothing.

use std::{
    collections::HashSet,
    path::{Component, Path, PathBuf},
};

use results::{Attempt, Folder, Key, Mode, Run, TaskInfo};
use trajectory::Line;

use crate::{Fact, text::excerpt};

/// Damaged files named one by one.
const DAMAGES: usize = 20;
/// Tasks of a run that are looked at.
const TASKS: usize = 500;
/// Names of a benchmark that are looked for, and the longest of them in bytes.
const KNOWN_AS: usize = 50;
const LONGEST_KNOWN_AS: usize = 100;
/// The longest name of a task or a problem, in bytes.
const LONGEST_NAME: usize = 4096;

/// What was found in the directory of a run.
#[derive(Clone, Debug)]
pub struct Source {
    /// What people call it: the last part of its path.
    pub name: String,
    /// Its path as the report links to it, with slashes; empty where it is the report's own directory.
    pub link: String,
    /// What was asked.
    pub run: Run,
    /// Whether `run` was read, and not made up because it could not be.
    pub begun: bool,
    /// The attempts that could be read.
    pub facts: Vec<Fact>,
    /// Files that could not be, the first of them.
    pub damaged: Vec<String>,
    /// How many there are.
    pub damages: usize,
    /// Attempts with a sandbox whose events are not there.
    pub without_events: usize,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The path leads nowhere, or to a file.
    #[error("there is no directory {}; name one that `benchmark --output` made", .0.display())]
    NoDirectory(PathBuf),
    /// A directory of something else.
    #[error("{} holds no run: neither run.json nor an attempt is there; name a directory that `benchmark --output` made", .0.display())]
    NoRun(PathBuf),
    /// The directory of the run is given twice.
    #[error("{} is named twice; name each run once", .0.display())]
    Twice(PathBuf),
}

/// Reads the directories of runs. `from` is where the report will lie: links lead from there.
pub fn read(directories: &[PathBuf], from: &Path) -> Result<Vec<Source>, ReadError> {
    let mut seen = HashSet::new();
    let mut sources = Vec::new();
    for directory in directories {
        let whole = directory.canonicalize().ok().filter(|path| path.is_dir());
        let Some(whole) = whole else { return Err(ReadError::NoDirectory(directory.clone())) };
        if !seen.insert(whole.clone()) {
            return Err(ReadError::Twice(directory.clone()));
        }
        sources.push(source(&whole, from).ok_or_else(|| ReadError::NoRun(directory.clone()))?);
    }
    Ok(sources)
}

fn source(directory: &Path, from: &Path) -> Option<Source> {
    let folder = Folder::new(directory);
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut source = Source {
        name: excerpt(&name.unwrap_or_default(), 80),
        link: link(from, directory),
        run: nothing_asked(),
        begun: false,
        facts: Vec::new(),
        damaged: Vec::new(),
        damages: 0,
        without_events: 0,
    };
    let asked = match folder.run() {
        Ok(run) => run,
        Err(error) => {
            source.damage(directory, &error.to_string());
            None
        }
    };
    if let Some(run) = asked {
        source.begun = true;
        source.run = run;
    }
    let named = source.run.tasks.len();
    if named > TASKS {
        source.run.tasks.truncate(TASKS);
        let why = format!("run.json: it names {named} tasks; only {TASKS} are looked at");
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
    if !source.begun {
        source.run.tasks = found(&source.facts);
    }
    (source.begun || !source.facts.is_empty() || source.damages > 0).then_some(source)
}

struct Reader<'a> {
    folder: &'a Folder,
    directory: &'a Path,
    seen: HashSet<Key>,
    /// The tasks that were named so far.
    tasks: HashSet<String>,
}

impl Reader<'_> {
    fn take(&mut self, source: &mut Source, attempt: Result<Attempt, results::Error>) {
        let attempt = match attempt {
            Ok(attempt) => attempt,
            Err(error) => return source.damage(self.directory, &error.to_string()),
        };
        let key = &attempt.key;
        let wrong = match attempt.score {
            Some(score) if !(0.0..=1.0).contains(&score) => Some("its score is not from 0 to 1"),
            _ if key.id.len() > LONGEST_NAME || key.task.len() > LONGEST_NAME => {
                Some("its names are too long")
            }
            _ if !self.tasks.contains(&key.task) && self.tasks.len() >= TASKS => {
                Some("too many tasks are named")
            }
            _ if !self.seen.insert(key.clone()) => Some("there is another record of this attempt"),
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

    fn events(&self, source: &mut Source, key: &Key) -> Option<Vec<Line>> {
        if key.mode == Mode::Llm {
            return None;
        }
        if !self.folder.trajectory_path(key).exists() {
            source.without_events += 1;
            return None;
        }
        let read = self.folder.events(key);
        read.inspect_err(|error| source.damage(self.directory, &error.to_string())).ok()
    }
}

impl Source {
    /// Lists a damage, with paths as seen from the directory of the run.
    fn damage(&mut self, directory: &Path, why: &str) {
        self.damages += 1;
        if self.damaged.len() < DAMAGES {
            let prefix = format!("{}/", directory.display());
            self.damaged.push(excerpt(&why.replace(&prefix, ""), 300));
        }
    }
}

fn nothing_asked() -> Run {
    Run {
        v: results::VERSION,
        program: String::new(),
        started: 0,
        model: "unknown model".to_owned(),
        tasks: Vec::new(),
        modes: Vec::new(),
        without: Vec::new(),
        context: String::new(),
        settings: serde_json::Value::Null,
    }
}

/// The tasks attempts belong to, where nothing says what was asked.
fn found(facts: &[Fact]) -> Vec<TaskInfo> {
    let mut tasks: Vec<TaskInfo> = Vec::new();
    for fact in facts {
        if tasks.last().is_none_or(|task| task.name != fact.attempt.key.task) {
            tasks.push(TaskInfo { name: fact.attempt.key.task.clone(), ..TaskInfo::default() });
        }
    }
    tasks
}

/// The way from one directory to another, both whole; `from` may not exist yet.
fn link(from: &Path, to: &Path) -> String {
    let from = std::path::absolute(from).unwrap_or_else(|_| from.to_owned());
    let from = whole(&from);
    let (mut from, mut to) = (from.components().peekable(), to.components().peekable());
    while from.peek().is_some() && from.peek() == to.peek() {
        from.next();
        to.next();
    }
    let up = from.filter(|part| matches!(part, Component::Normal(_))).map(|_| "..".to_owned());
    let down = to.map(|part| part.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

/// A path without links as far as it exists.
fn whole(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(path), _, _) => path,
        (Err(_), Some(parent), Some(name)) => whole(parent).join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_the_report_to_the_run() {
        let link = |from: &str, to: &str| super::link(Path::new(from), Path::new(to));
        assert_eq!(link("/nowhere/a/report", "/nowhere/a"), "..");
        assert_eq!(link("/nowhere/a", "/nowhere/a"), "");
        assert_eq!(link("/nowhere/reports", "/nowhere/runs/x y"), "../runs/x y");
        assert_eq!(link("/nowhere", "/nowhere/runs/1"), "runs/1");
    }

    #[test]
    fn directories_of_something_else_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let read = |paths: &[PathBuf]| super::read(paths, dir.path()).unwrap_err();
        assert!(matches!(read(&[gone]), ReadError::NoDirectory(_)));
        let here = dir.path().to_owned();
        assert!(matches!(read(std::slice::from_ref(&here)), ReadError::NoRun(_)));
    }
}
