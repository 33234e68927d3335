//! The scores of recorded episodes: a line per episode in `scores.jsonl`, beside their event logs, so that later runs can
//! choose among them. Those of benchmarks are found as well.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use rollout::{End, Rollout};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run::check_regular_file;

/// The name of the file.
pub(crate) const FILE: &str = "scores.jsonl";

/// The maximum size of a file that is read, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// The score of an episode. Further fields may be added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Score {
    /// The name of its event log in the same directory.
    pub(crate) file: String,
    /// The id of its problem.
    pub(crate) problem: String,
    /// Its position in the group of its problem.
    pub(crate) member: u32,
    /// The score of its answer; none where it failed on our side.
    pub(crate) score: Option<f64>,
    /// How it ended.
    pub(crate) end: End,
    /// Its responses.
    pub(crate) turns: u32,
    /// Its sampled tokens.
    pub(crate) tokens: usize,
}

impl Score {
    fn of(played: &Rollout) -> Option<Self> {
        let name = played.file.as_deref().and_then(Path::file_name)?;
        Some(Self {
            file: name.to_string_lossy().into_owned(),
            problem: played.problem.clone(),
            member: played.member,
            score: played.raw_reward,
            end: played.end,
            turns: played.turns,
            tokens: played.response_tokens,
        })
    }
}

/// Writes the scores of a directory of event logs, and of episodes that began in others.
#[derive(Debug)]
pub(crate) struct ScoreWriter {
    dir: PathBuf,
    file: ScoreFile,
    /// The files of other directories.
    others: HashMap<PathBuf, ScoreFile>,
}

#[derive(Debug)]
struct ScoreFile {
    path: PathBuf,
    file: io::Result<File>,
}

impl ScoreWriter {
    /// Starts the file of a directory, which is created; one that is there is replaced.
    pub(crate) fn create(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let file = fs::create_dir_all(dir).and_then(|()| File::create(&path));
        let file = ScoreFile { path, file };
        Self { dir: dir.to_owned(), file, others: HashMap::new() }
    }

    /// Appends an episode to the file beside its event log. After a failure nothing more is written to that file.
    pub(crate) fn add(&mut self, played: &Rollout) {
        let Some(score) = Score::of(played) else { return };
        match played.file.as_deref().and_then(Path::parent) {
            Some(dir) if dir != self.dir => {
                let open = || ScoreFile::append(dir);
                self.others.entry(dir.to_owned()).or_insert_with(open).add(&score);
            }
            _ => self.file.add(&score),
        }
    }

    /// Whether everything was written.
    pub(crate) fn finish(self) -> Result<(), crate::FileError> {
        let mut files = std::iter::once(self.file).chain(self.others.into_values());
        files.try_for_each(|ScoreFile { path, file }| {
            file.map(drop).map_err(crate::FileError::new("write", &path))
        })
    }
}

impl ScoreFile {
    fn append(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let file = File::options().append(true).create(true).open(&path);
        Self { path, file }
    }

    fn add(&mut self, score: &Score) {
        let Ok(file) = &mut self.file else { return };
        let line = serde_json::to_vec(score).map_err(io::Error::from).map(|mut line| {
            line.push(b'\n');
            line
        });
        if let Err(error) = line.and_then(|line| file.write_all(&line)) {
            self.file = Err(error);
        }
    }
}

/// The scores in a directory; none where it has no such file. A line that was cut off is skipped.
pub(crate) fn read(dir: &Path) -> io::Result<Vec<Score>> {
    let text = match read_text(&dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Replaces the scores of a directory.
pub(crate) fn replace(dir: &Path, scores: &[Score]) -> io::Result<()> {
    let mut text = Vec::new();
    for score in scores {
        serde_json::to_writer(&mut text, score)?;
        text.push(b'\n');
    }
    atomic_file::write_durable(dir.join(FILE), &text)
}

fn read_text(path: &Path) -> io::Result<String> {
    check_regular_file(path)?;
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Finds the scores of event logs.
#[derive(Debug, Default)]
pub(crate) struct ScoreIndex {
    directories: HashMap<PathBuf, HashMap<String, Option<f64>>>,
}

impl ScoreIndex {
    /// The score of the only episode of an event log, if it is known.
    pub(crate) fn score(&mut self, path: &Path) -> Option<f64> {
        let dir = path.parent()?;
        let scores = self.directories.entry(dir.to_owned()).or_insert_with(|| {
            let scores = read(dir).unwrap_or_default();
            scores.into_iter().map(|score| (score.file, score.score)).collect()
        });
        let name = path.file_name()?.to_string_lossy();
        match scores.get(name.as_ref()) {
            Some(score) => *score,
            None => of_attempt(path),
        }
        .filter(|score| score.is_finite())
    }
}

/// The score of a benchmark's attempt, whose record has the same path below `attempts`.
fn of_attempt(path: &Path) -> Option<f64> {
    let mut parts: Vec<_> = path.iter().collect();
    let at = parts.iter().rposition(|part| *part == "trajectories")?;
    parts[at] = "attempts".as_ref();
    let record = parts.iter().collect::<PathBuf>().with_extension("json");
    let record: Value = serde_json::from_str(&read_text(&record).ok()?).ok()?;
    record.get("score")?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episodes::tests::scored;

    #[test]
    fn scores_are_found_beside_logs_and_in_benchmarks() {
        let dir = tempfile::tempdir().unwrap();
        let steps = dir.path().join("episodes/step-000001-0");
        let mut writer = ScoreWriter::create(&steps);
        for (name, score) in [("a.jsonl", 1.0), ("b.jsonl", 0.25)] {
            writer.add(&Rollout { file: Some(steps.join(name)), ..scored(score) });
        }
        writer.add(&scored(1.0));
        writer.finish().unwrap();
        let mut text = fs::read_to_string(steps.join(FILE)).unwrap();
        assert_eq!(text.lines().count(), 2, "an episode without a log is left out");
        text.push_str("{\"file\":\"c.json");
        fs::write(steps.join(FILE), text).unwrap();
        let attempt = dir.path().join("attempts/math/sandbox/x.0.json");
        fs::create_dir_all(attempt.parent().unwrap()).unwrap();
        fs::write(&attempt, "{\"score\": 0.5, \"answer\": \"7\"}").unwrap();
        let mut index = ScoreIndex::default();
        let mut score = |path: &str| index.score(&dir.path().join(path));
        assert_eq!(score("episodes/step-000001-0/a.jsonl"), Some(1.0));
        assert_eq!(score("episodes/step-000001-0/b.jsonl"), Some(0.25));
        assert_eq!(score("episodes/step-000001-0/c.jsonl"), None);
        assert_eq!(score("trajectories/math/sandbox/x.0.jsonl"), Some(0.5));
        assert_eq!(score("trajectories/math/sandbox/y.0.jsonl"), None);
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_reported_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("file");
        fs::write(&blocked, "").unwrap();
        let mut writer = ScoreWriter::create(&blocked);
        writer.add(&scored(1.0));
        assert!(writer.finish().is_err());
    }
}
