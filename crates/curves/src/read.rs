//! The figures of a run from its file of lines. A line that cannot be read is counted; the rest goes on.
//!
//! Sizes are bounded. A step that occurs twice, as after a run that went on, counts as it came last.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use serde_json::{Map, Value};

/// The file in the directory of a run.
const FILE: &str = "metrics.jsonl";
/// It may have this many bytes.
const LARGEST: u64 = 1 << 30;
/// A line may have so many.
const LONGEST: usize = 1 << 20;
/// So many different figures are kept.
const MOST_FIGURES: usize = 500;
/// And so many numbers in all.
const MOST_NUMBERS: usize = 20_000_000;
/// Larger numbers are none that a run could mean.
const LARGEST_NUMBER: f64 = 1e100;
/// A name may have this many bytes.
const LONGEST_NAME: usize = 200;

/// Why a run cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The disk or its rights.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A directory that is no run.
    #[error("{path} is no run: it holds no {FILE}")]
    NoRun {
        /// The directory.
        path: PathBuf,
    },
    /// A file beyond the bound.
    #[error("{path} has {size} bytes, more than the {LARGEST} that are read")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// A file with too many numbers in it.
    #[error("{path} holds more than {MOST_NUMBERS} numbers")]
    TooMany {
        /// The file.
        path: PathBuf,
    },
    /// A file without a single figure.
    #[error("{path} holds no figures: no line is an object with `step` and numbers")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// The figures of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What it is called.
    pub name: String,
    /// Each figure's numbers by their step.
    pub figures: BTreeMap<String, BTreeMap<u64, f64>>,
    /// How many lines could not be read.
    pub bad_lines: u64,
}

/// Reads a run: its directory, or its file of lines.
pub fn read(path: &Path) -> Result<Run, ReadError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReadError::Io { path, source }
    };
    let file = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
    // It may be anything: a pipe would block for ever, a device never end.
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opened = match options.open(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_dir() => {
            return Err(ReadError::NoRun { path: path.to_owned() });
        }
        opened => opened.map_err(failed(&file))?,
    };
    let about = opened.metadata().map_err(failed(&file))?;
    if !about.is_file() {
        return Err(failed(&file)(io::Error::other("it is no regular file")));
    }
    let size = about.len();
    if size > LARGEST {
        return Err(ReadError::TooLarge { path: file, size });
    }
    let mut run = Run { name: name(path), figures: BTreeMap::new(), bad_lines: 0 };
    let mut numbers = 0;
    let mut input = BufReader::new(opened.take(LARGEST));
    loop {
        let mut line = Vec::new();
        if input
            .by_ref()
            .take(LONGEST as u64 + 1)
            .read_until(b'\n', &mut line)
            .map_err(failed(&file))?
            == 0
        {
            break;
        }
        if line.len() > LONGEST && line.last() != Some(&b'\n') {
            input.skip_until(b'\n').map_err(failed(&file))?;
            run.bad_lines += 1;
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match run.line(&line) {
            Some(many) => numbers += many,
            None => run.bad_lines += 1,
        }
        if numbers > MOST_NUMBERS {
            return Err(ReadError::TooMany { path: file });
        }
    }
    match run.figures.is_empty() {
        true => Err(ReadError::Empty { path: file }),
        false => Ok(run),
    }
}

impl Run {
    /// Takes in a line; how many numbers it had, or none where it is not one of ours.
    fn line(&mut self, line: &[u8]) -> Option<usize> {
        let fields: Map<String, Value> = serde_json::from_slice(line).ok()?;
        let step = fields.get("step")?.as_u64()?;
        let mut many = 0;
        for (name, value) in &fields {
            if name != "step" {
                many += self.figure(name.clone(), step, value);
            }
        }
        Some(many)
    }

    /// Takes in a figure. Figures within an object bear its name before their own.
    fn figure(&mut self, name: String, step: u64, value: &Value) -> usize {
        if name.len() > LONGEST_NAME {
            return 0;
        }
        match value {
            Value::Object(fields) => {
                let within = fields
                    .iter()
                    .map(|(below, value)| self.figure(format!("{name}/{below}"), step, value));
                within.sum()
            }
            Value::Number(number) => {
                let number = number.as_f64().filter(|number| number.abs() <= LARGEST_NUMBER);
                let known = self.figures.len() < MOST_FIGURES || self.figures.contains_key(&name);
                if let (Some(number), true) = (number, known) {
                    self.figures.entry(name).or_default().insert(step, number);
                }
                1
            }
            _ => 0,
        }
    }
}

/// A run is called as its directory is.
fn name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let dir = if whole.is_dir() { Some(whole.as_path()) } else { whole.parent() };
    let name = dir.and_then(Path::file_name).or_else(|| whole.file_name());
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
    fn lines_become_figures() {
        let run = of(b"{\"step\":1,\"reward_mean\":0.5,\"note\":\"x\",\"seconds\":{\"play\":2}}\n\n\
            {\"step\":2,\"reward_mean\":null,\"loss\":-1}\n{\"step\":2,\"loss\":3}\nbroken\n{\"loss\":1}\n{\"step\":3,\"lo")
            .unwrap();
        assert_eq!((run.name.as_str(), run.bad_lines), ("first", 3));
        assert_eq!(run.figures["reward_mean"], BTreeMap::from([(1, 0.5)]));
        assert_eq!(run.figures["seconds/play"], BTreeMap::from([(1, 2.0)]));
        assert_eq!(run.figures["loss"], BTreeMap::from([(2, 3.0)]));
    }

    #[test]
    fn what_is_no_run_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("holds no metrics.jsonl"));
        assert!(read(&dir.path().join("x")).unwrap_err().to_string().contains("cannot read"));
        assert!(of(b"{}\n").unwrap_err().to_string().contains("holds no figures"));
    }

    #[test]
    fn pipes_and_devices_are_no_runs() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join(FILE);
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [dir.path(), &pipe, Path::new("/dev/zero")] {
            let Err(ReadError::Io { source, .. }) = read(path) else { panic!("read {path:?}") };
            assert!(source.to_string().contains("no regular file"), "{source}");
        }
    }

    #[test]
    fn hostile_lines_are_bounded() {
        let long =
            format!("{{\"step\":1,\"a\":\"{}\"}}\n{{\"step\":1,\"a\":1}}\n", "x".repeat(LONGEST));
        let run = of(long.as_bytes()).unwrap();
        assert_eq!((run.bad_lines, run.figures.len()), (1, 1));
        // The longest line there may be does not take the next one with it.
        let (one, other) = ("{\"step\":1,\"a\":1}", "\n{\"step\":1,\"b\":1}\n");
        let exact = [one, &" ".repeat(LONGEST - one.len()), other].concat();
        let run = of(exact.as_bytes()).unwrap();
        assert_eq!((run.bad_lines, run.figures.len()), (0, 2));
        let many: String =
            (0..MOST_FIGURES + 9).map(|at| format!("{{\"step\":1,\"f{at}\":1}}\n")).collect();
        assert_eq!(of(many.as_bytes()).unwrap().figures.len(), MOST_FIGURES);
        let name = format!("{{\"step\":1,\"a\":1,\"{}\":1}}", "n".repeat(LONGEST_NAME + 1));
        assert_eq!(of(name.as_bytes()).unwrap().figures.len(), 1);
        let large = of(b"{\"step\":1,\"a\":1e101,\"b\":-1e300,\"c\":1e100}").unwrap();
        assert_eq!(large.figures.into_keys().collect::<Vec<_>>(), ["c"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let text = [b"{\"step\":1,\"a\":1}\n".as_slice(), &bytes].concat();
            prop_assert!(of(&text).unwrap().figures.contains_key("a"));
        }
    }
}
