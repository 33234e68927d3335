//! The directory of a run: its files, and how they are read and written.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use trajectory::{Line, Trajectory};

use crate::exit::UsageError;

/// Runs that start in the same second get a number below this.
const MAX_PER_SECOND: u32 = 1000;

/// The largest event file or trajectory that is read, in bytes.
const MAX_SIZE: u64 = 256 << 20;

/// The summary of a run, written last.
const RUN: &str = "run.json";

/// Whether the results of a run are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// All files are saved.
    Saved,
    /// The process ended before the files were saved.
    Missing,
}

/// The directory of one run.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Creates a new one below `parent`, named after the time.
    pub(crate) fn create(parent: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot write results to {}", parent.display());
        fs::create_dir_all(parent).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => UsageError(format!(
                "--output: {} is not a directory; choose another",
                parent.display()
            ))
            .into(),
            _ => anyhow::Error::new(error).context(failed()),
        })?;
        let name = directory_name(Timestamp::now());
        for number in 1..MAX_PER_SECOND {
            let path = parent.join(match number {
                1 => name.clone(),
                _ => format!("{name}-{number}"),
            });
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path: fs::canonicalize(path)? }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(anyhow::Error::new(error).context(failed())),
            }
        }
        anyhow::bail!("too many runs in one second in {}", parent.display())
    }

    /// Opens an existing one.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let folder = Self { path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()) };
        if !folder.events().is_file() {
            let text = format!(
                "{} is not a run directory: it has no events.jsonl; give one such as output/20260101_120000",
                path.display()
            );
            return Err(UsageError(text).into());
        }
        Ok(folder)
    }

    /// Removes it, if nothing was recorded.
    pub(crate) fn discard(&self) {
        if fs::metadata(self.events()).is_ok_and(|events| events.len() == 0) {
            let _ = fs::remove_file(self.events());
        }
        // Fails if it is not empty.
        let _ = fs::remove_dir(&self.path);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory with the files of the sandbox's output directory.
    pub(crate) fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// Whether the results are complete. `run.json` is written last, and its outcome says if they are lost.
    pub(crate) fn results(&self) -> Results {
        let text = text_of(&self.path.join(RUN)).unwrap_or_default();
        match serde_json::from_str::<Value>(&text) {
            Ok(run) if run["outcome"] != "infrastructure" => Results::Saved,
            _ => Results::Missing,
        }
    }

    /// Marks the results as incomplete again.
    pub(crate) fn mark_unfinished(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.path.join(RUN)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot change {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Opens the event file and locks it for this process.
    pub(crate) fn open_events(&self) -> anyhow::Result<File> {
        let path = self.events();
        let mut options = OpenOptions::new();
        options.create(true).append(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| UsageError(format!("another process is using {}", self.path.display())))?;
        atomic_file::remove_leftovers(&self.path, Duration::ZERO);
        Ok(file)
    }

    /// Reads the events. A partial last line of a killed process is ignored.
    pub(crate) fn read_events(&self) -> anyhow::Result<Vec<Line>> {
        let path = self.events();
        let refuse = |why: String| UsageError(format!("{}: {why}", path.display()));
        let text = text_of(&path).map_err(|error| refuse(error.to_string()))?;
        trajectory::read(&text).map_err(|error| refuse(error.to_string()).into())
    }

    /// Removes a partial last line of a killed process.
    pub(crate) fn drop_partial_event(&self, file: &File) -> anyhow::Result<()> {
        let bytes = fs::read(self.events())?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).context("cannot repair events.jsonl")
    }

    /// Writes the trajectory, from the events.
    pub(crate) fn write_trajectory(&self) -> anyhow::Result<()> {
        let record = Trajectory::from_events(&self.read_events()?);
        self.write("trajectory.json", &record)
    }

    /// Writes the summary of the run.
    pub(crate) fn write_run(&self, run: &impl Serialize) -> anyhow::Result<()> {
        self.write(RUN, run)
    }

    /// Writes a file completely or not at all.
    fn write(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let text = serde_json::to_vec_pretty(value).map_err(io::Error::other);
        let written = text.and_then(|mut text| {
            text.push(b'\n');
            atomic_file::write(&path, text)
        });
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Reads a trajectory or event file. A killed process may leave half a character at its end.
pub(crate) fn text_of(path: &Path) -> io::Result<String> {
    // Reading from a pipe would block.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(io::Error::other("it is too large"));
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// A time as the name of a run directory, in UTC: `20260131_235959`.
fn directory_name(time: Timestamp) -> String {
    time.strftime("%Y%m%d_%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn directories_are_named_after_the_time() {
        let name = |seconds| directory_name(Timestamp::from_second(seconds).unwrap());
        assert_eq!(name(0), "19700101_000000");
        assert_eq!(name(951_827_696), "20000229_123456");
        assert_eq!(name(1_767_225_599), "20251231_235959");
        assert_eq!(name(4_102_444_800), "21000101_000000");
    }

    #[test]
    fn runs_of_the_same_second_have_different_directories() {
        let dir = tempfile::tempdir().unwrap();
        let made: Vec<_> =
            (0..3).map(|_| RunDir::create(&dir.path().join("a/b")).unwrap().path).collect();
        assert!(made[0] != made[1] && made[1] != made[2] && made[0] != made[2]);
    }

    #[test]
    fn a_partial_last_line_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunDir::create(dir.path()).unwrap();
        let file = folder.open_events().unwrap();
        let whole = "{\"v\":1,\"at\":1,\"kind\":\"resumed\",\"turn\":1}\n";
        (&file).write_all(format!("{whole}{{\"v\":1,\"at").as_bytes()).unwrap();
        assert_eq!(folder.read_events().unwrap().len(), 1);
        folder.drop_partial_event(&file).unwrap();
        assert_eq!(fs::read_to_string(folder.events()).unwrap(), whole);
        // The file is locked.
        assert!(folder.open_events().is_err());
    }
}
