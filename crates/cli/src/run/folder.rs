//! The directory of one run: which files it holds and how they are written, whole or line by line.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use trajectory::{Line, Trajectory};

use crate::exit::Usage;

/// Runs that start in the same second get a number.
const SAME_SECOND: u32 = 1000;

/// A larger record is not read.
const LARGEST: u64 = 256 << 20;

/// The summary of a run, written when everything else is in place.
const RUN: &str = "run.json";

/// Whether the results of a run are in its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// All of them.
    Kept,
    /// The process died before it had brought them back.
    Missing,
}

/// The directory of one run.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A new one below `parent`, named after the time.
    pub(crate) fn create(parent: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot write results to {}", parent.display());
        fs::create_dir_all(parent).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                Usage(format!("--output: {} is not a directory; name another", parent.display()))
                    .into()
            }
            _ => anyhow::Error::new(error).context(failed()),
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for number in 1..SAME_SECOND {
            let path = parent.join(match number {
                1 => stamp(now),
                _ => format!("{}-{number}", stamp(now)),
            });
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path: fs::canonicalize(path)? }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(anyhow::Error::new(error).context(failed())),
            }
        }
        anyhow::bail!("too many runs at once in {}", parent.display())
    }

    /// One that is there.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let folder = Self { path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()) };
        if !folder.events().is_file() {
            let text = format!(
                "{} is no directory of a run: it has no events.jsonl; name one like output/20260101_120000",
                path.display()
            );
            return Err(Usage(text).into());
        }
        Ok(folder)
    }

    /// Takes it away, if nothing came of the run.
    pub(crate) fn discard(&self) {
        if fs::metadata(self.events()).is_ok_and(|events| events.len() == 0) {
            let _ = fs::remove_file(self.events());
        }
        // What is not empty is kept.
        let _ = fs::remove_dir(&self.path);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the model left.
    pub(crate) fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// Whether the results of the last end are there. `run.json` is written last, and says if they are lost.
    pub(crate) fn results(&self) -> Results {
        let text = text_of(&self.path.join(RUN)).unwrap_or_default();
        match serde_json::from_str::<Value>(&text) {
            Ok(run) if run["outcome"] != "infrastructure" => Results::Kept,
            _ => Results::Missing,
        }
    }

    /// Takes back the word that the results are there.
    pub(crate) fn reopen(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.path.join(RUN)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot change {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }

    /// The file of events, for one process alone.
    pub(crate) fn open_events(&self) -> anyhow::Result<File> {
        let path = self.events();
        let mut options = OpenOptions::new();
        options.create(true).append(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Usage(format!("another process works on {}", self.path.display())))?;
        Ok(file)
    }

    /// The events so far. What a killed process wrote of a last line is left out.
    pub(crate) fn read_events(&self) -> anyhow::Result<Vec<Line>> {
        let path = self.events();
        let refuse = |why: String| Usage(format!("{}: {why}", path.display()));
        let text = text_of(&path).map_err(|error| refuse(error.to_string()))?;
        trajectory::read(&text).map_err(|error| refuse(error.to_string()).into())
    }

    /// Cuts off for good what a killed process wrote of a last line.
    pub(crate) fn mend_events(&self, file: &File) -> anyhow::Result<()> {
        let bytes = fs::read(self.events())?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).context("cannot mend events.jsonl")
    }

    /// Writes the record of the episode, from its events.
    pub(crate) fn write_trajectory(&self) -> anyhow::Result<()> {
        let record = Trajectory::from_events(&self.read_events()?);
        self.write("trajectory.json", &record)
    }

    /// Writes the summary of the run.
    pub(crate) fn write_run(&self, run: &impl Serialize) -> anyhow::Result<()> {
        self.write(RUN, run)
    }

    /// Whole or not at all.
    fn write(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let partial = self.path.join(format!(".{name}.partial"));
        let written = (|| {
            let mut text = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
            text.push(b'\n');
            // Whatever lies there, a link for instance, is not written through.
            let _ = fs::remove_file(&partial);
            let mut file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
            file.write_all(&text)?;
            fs::rename(&partial, &path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The text of a record. Half a character at its end is what a killed process leaves.
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    // A pipe would keep us waiting.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other("it is too large for a record"));
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// A time as a name, in UTC: `20260131_235959`.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}")
}

/// The date of a day counted from 1970. Years begin in March here, so that leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_names() {
        assert_eq!(stamp(0), "19700101_000000");
        assert_eq!(stamp(951_827_696), "20000229_123456");
        assert_eq!(stamp(1_767_225_599), "20251231_235959");
        assert_eq!(stamp(4_102_444_800), "21000101_000000");
    }

    #[test]
    fn runs_of_one_second_have_directories_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let made: Vec<_> =
            (0..3).map(|_| Folder::create(&dir.path().join("a/b")).unwrap().path).collect();
        assert!(made[0] != made[1] && made[1] != made[2] && made[0] != made[2]);
    }

    #[test]
    fn half_a_last_line_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(dir.path()).unwrap();
        let file = folder.open_events().unwrap();
        let whole = "{\"v\":1,\"at\":1,\"kind\":\"resumed\",\"turn\":1}\n";
        (&file).write_all(format!("{whole}{{\"v\":1,\"at").as_bytes()).unwrap();
        assert_eq!(folder.read_events().unwrap().len(), 1);
        folder.mend_events(&file).unwrap();
        assert_eq!(fs::read_to_string(folder.events()).unwrap(), whole);
        // Whoever holds the file keeps others away.
        assert!(folder.open_events().is_err());
    }
}
