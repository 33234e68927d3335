//! Reads the metrics of a run: one JSON object per line. Lines that cannot be parsed are counted and skipped.
//!
//! Sizes are bounded. Of a step that occurs twice, as after a resumed run, the last line counts.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use serde_json::{Map, Value};

/// File name in a run directory.
const FILE: &str = "metrics.jsonl";
/// Largest file, in bytes.
const MOST_BYTES: u64 = 1 << 30;
/// Longest line, in bytes.
const LONGEST_LINE: usize = 1 << 20;
/// Metrics read at most; later ones are ignored.
const MOST_METRICS: usize = 4000;
/// Numbers read at most.
const MOST_NUMBERS: usize = 20_000_000;
/// Numbers beyond this size are ignored: charts could not show anything else.
const LARGEST_NUMBER: f64 = 1e100;
/// Longest name of a metric, in bytes; longer ones are ignored.
const LONGEST_NAME: usize = 200;

/// Reasons why a run cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file system reported an error.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// A directory without metrics.
    #[error("{path} is not a training run: it holds no {FILE}")]
    NoRun {
        /// The directory.
        path: PathBuf,
    },
    /// A file beyond the size limit.
    #[error("{path} has {size} bytes, more than the limit of {MOST_BYTES}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size, in bytes.
        size: u64,
    },
    /// A file with too many numbers.
    #[error("{path} holds more than {MOST_NUMBERS} numbers")]
    TooMany {
        /// The file.
        path: PathBuf,
    },
    /// A file without metrics.
    #[error("{path} holds no metrics: no line is a JSON object with `step` and numbers")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// The metrics of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Name of its directory.
    pub name: String,
    /// Values by metric and step.
    pub metrics: BTreeMap<String, BTreeMap<u64, f64>>,
    /// Lines that could not be parsed.
    pub bad_lines: u64,
}

/// Reads a run from its directory or its `metrics.jsonl`.
pub fn read(path: &Path) -> Result<Run, ReadError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReadError::Io { path, source }
    };
    let file = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
    // Opening a pipe would block and reading a device never end.
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = match options.open(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_dir() => {
            return Err(ReadError::NoRun { path: path.to_owned() });
        }
        opened => opened.map_err(failed(&file))?,
    };
    let metadata = opened.metadata().map_err(failed(&file))?;
    if !metadata.is_file() {
        return Err(failed(&file)(io::Error::other("not a regular file")));
    }
    let size = metadata.len();
    if size > MOST_BYTES {
        return Err(ReadError::TooLarge { path: file, size });
    }
    let mut run = Run { name: name(path), metrics: BTreeMap::new(), bad_lines: 0 };
    let mut numbers = 0;
    let mut input = BufReader::new(opened.take(MOST_BYTES));
    loop {
        let mut line = Vec::new();
        if input
            .by_ref()
            .take(LONGEST_LINE as u64 + 1)
            .read_until(b'\n', &mut line)
            .map_err(failed(&file))?
            == 0
        {
            break;
        }
        if line.len() > LONGEST_LINE && line.last() != Some(&b'\n') {
            input.skip_until(b'\n').map_err(failed(&file))?;
            run.bad_lines += 1;
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match run.add_line(&line) {
            Some(count) => numbers += count,
            None => run.bad_lines += 1,
        }
        if numbers > MOST_NUMBERS {
            return Err(ReadError::TooMany { path: file });
        }
    }
    match run.metrics.is_empty() {
        true => Err(ReadError::Empty { path: file }),
        false => Ok(run),
    }
}

impl Run {
    /// Adds the numbers of a line and returns their count, or `None` where it is not an object with a step.
    fn add_line(&mut self, line: &[u8]) -> Option<usize> {
        let fields: Map<String, Value> = serde_json::from_slice(line).ok()?;
        let step = fields.get("step")?.as_u64()?;
        let metrics = fields.iter().filter(|(name, _)| *name != "step");
        Some(metrics.map(|(name, value)| self.add(name.clone(), step, value)).sum())
    }

    /// Adds a value and returns how many numbers it had. Members of an object are named `object/member`.
    fn add(&mut self, name: String, step: u64, value: &Value) -> usize {
        if name.len() > LONGEST_NAME {
            return 0;
        }
        match value {
            Value::Object(fields) => {
                let members = fields.iter();
                members
                    .map(|(member, value)| self.add(format!("{name}/{member}"), step, value))
                    .sum()
            }
            Value::Number(number) => {
                let number = number.as_f64().filter(|number| number.abs() <= LARGEST_NUMBER);
                let known = self.metrics.len() < MOST_METRICS || self.metrics.contains_key(&name);
                if let (Some(number), true) = (number, known) {
                    self.metrics.entry(name).or_default().insert(step, number);
                }
                1
            }
            _ => 0,
        }
    }
}

/// Name of the run directory.
fn name(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let dir = if path.is_dir() { Some(path.as_path()) } else { path.parent() };
    let name = dir.and_then(Path::file_name).or_else(|| path.file_name());
    name.map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn of(text: &[u8]) -> Result<Run, ReadError> {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("first");
        fs::create_dir(&run).unwrap();
        fs::write(run.join(FILE), text).unwrap();
        read(&run)
    }

    #[test]
    fn lines_become_metrics() {
        let run = of(b"{\"step\":1,\"reward_mean\":0.5,\"note\":\"x\",\"seconds\":{\"play\":2}}\n\n\
            {\"step\":2,\"reward_mean\":null,\"loss\":-1}\n{\"step\":2,\"loss\":3}\nbroken\n{\"loss\":1}\n{\"step\":3,\"lo")
            .unwrap();
        assert_eq!((run.name.as_str(), run.bad_lines), ("first", 3));
        assert_eq!(run.metrics["reward_mean"], BTreeMap::from([(1, 0.5)]));
        assert_eq!(run.metrics["seconds/play"], BTreeMap::from([(1, 2.0)]));
        assert_eq!(run.metrics["loss"], BTreeMap::from([(2, 3.0)]));
    }

    #[test]
    fn other_directories_and_files_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("holds no metrics.jsonl"));
        assert!(read(&dir.path().join("x")).unwrap_err().to_string().contains("cannot read"));
        assert!(of(b"{}\n").unwrap_err().to_string().contains("holds no metrics"));
    }

    #[test]
    fn pipes_and_devices_are_rejected() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join(FILE);
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [dir.path(), &pipe, Path::new("/dev/zero")] {
            let Err(ReadError::Io { source, .. }) = read(path) else { panic!("read {path:?}") };
            assert!(source.to_string().contains("not a regular file"), "{source}");
        }
    }

    #[test]
    fn hostile_lines_are_bounded() {
        let long = format!(
            "{{\"step\":1,\"a\":\"{}\"}}\n{{\"step\":1,\"a\":1}}\n",
            "x".repeat(LONGEST_LINE)
        );
        let run = of(long.as_bytes()).unwrap();
        assert_eq!((run.bad_lines, run.metrics.len()), (1, 1));
        // A line of exactly the longest length leaves the next one alone.
        let (one, other) = ("{\"step\":1,\"a\":1}", "\n{\"step\":1,\"b\":1}\n");
        let exact = [one, &" ".repeat(LONGEST_LINE - one.len()), other].concat();
        let run = of(exact.as_bytes()).unwrap();
        assert_eq!((run.bad_lines, run.metrics.len()), (0, 2));
        let many: String =
            (0..MOST_METRICS + 9).map(|at| format!("{{\"step\":1,\"f{at}\":1}}\n")).collect();
        assert_eq!(of(many.as_bytes()).unwrap().metrics.len(), MOST_METRICS);
        let name = format!("{{\"step\":1,\"a\":1,\"{}\":1}}", "n".repeat(LONGEST_NAME + 1));
        assert_eq!(of(name.as_bytes()).unwrap().metrics.len(), 1);
        let large = of(b"{\"step\":1,\"a\":1e101,\"b\":-1e300,\"c\":1e100}").unwrap();
        assert_eq!(large.metrics.into_keys().collect::<Vec<_>>(), ["c"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let text = [b"{\"step\":1,\"a\":1}\n".as_slice(), &bytes].concat();
            prop_assert!(of(&text).unwrap().metrics.contains_key("a"));
        }
    }
}
