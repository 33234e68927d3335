//! The metrics of a run: one JSON line per step in `metrics.jsonl`, and the same numbers for TensorBoard.
//!
//! Knows names and numbers, not what they mean. A resumed run first removes the lines of steps it will repeat.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};

use crate::tensorboard::EventFile;

/// The name of the file in a run directory.
pub const FILE: &str = "metrics.jsonl";

/// The prefix of the names of validation metrics.
const VALIDATION: &str = "validation/";

/// The maximum size of the file that is read back, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The metrics of one step, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<(String, f64)>);

impl Metrics {
    /// Adds a metric.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.0.push((name.into(), value));
    }

    /// Changes the value of a metric, or adds it.
    pub fn set(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.add(name, value),
        }
    }

    /// Appends all metrics of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    /// The same metrics with `prefix/` before their names.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Self {
        Self(self.0.iter().map(|(name, value)| (format!("{prefix}/{name}"), *value)).collect())
    }

    /// The value of a metric.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// A line: the step, then its metrics. Integral values are written as integers, non-finite ones as null.
struct Line<'a> {
    step: u64,
    metrics: &'a Metrics,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("step", &self.step)?;
        for (name, value) in self.metrics.iter() {
            let integral = value.fract() == 0.0 && value.abs() < 1e15;
            match (integral, value.is_finite()) {
                (true, _) => map.serialize_entry(name, &(value as i64))?,
                (false, true) => map.serialize_entry(name, &value)?,
                (false, false) => map.serialize_entry(name, &Value::Null)?,
            }
        }
        map.end()
    }
}

/// Appends the metrics of steps to the files of a run.
#[derive(Debug)]
pub(crate) struct MetricsWriter {
    lines: File,
    events: EventFile,
    validated: Validated,
}

/// The last step with validation metrics, and their names.
type Validated = Option<(u64, Vec<String>)>;

impl MetricsWriter {
    /// Opens the files of a run that continues after a step, or starts; lines of later steps are removed.
    pub(crate) fn open(run: &Path, after: Option<u64>) -> io::Result<Self> {
        let path = run.join(FILE);
        let validated = remove_after(&path, after)?;
        let lines = OpenOptions::new().create(true).append(true).open(&path)?;
        let events = EventFile::create(&run.join("tensorboard"), after.unwrap_or(0))?;
        Ok(Self { lines, events, validated })
    }

    /// The names of the validation metrics of a step at the time of opening.
    pub(crate) fn validated(&self, step: u64) -> &[String] {
        let of_step = self.validated.as_ref().filter(|(at, _)| *at == step);
        of_step.map(|(_, names)| names.as_slice()).unwrap_or_default()
    }

    /// Appends a step.
    pub(crate) fn add(&mut self, step: u64, metrics: &Metrics) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line { step, metrics })?;
        line.push(b'\n');
        self.lines.write_all(&line)?;
        self.events.add(step, &metrics.0)
    }
}

/// Removes the lines of later steps, and a partial line of a killed process. Returns the last remaining step with
/// validation metrics.
fn remove_after(path: &Path, after: Option<u64>) -> io::Result<Validated> {
    let text = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(file) => {
            let mut text = String::new();
            io::Read::read_to_string(&mut io::Read::take(file, MAX_BYTES), &mut text)?;
            text
        }
    };
    let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
    let (mut kept, mut validated): (usize, Validated) = (0, None);
    for line in complete.split_inclusive('\n') {
        let metrics: Option<Map<String, Value>> = serde_json::from_str(line).ok();
        let Some(metrics) = metrics else { break };
        let step = metrics.get("step").and_then(Value::as_u64);
        let Some(step) = step.filter(|step| Some(*step) <= after) else { break };
        kept += line.len();
        let names = metrics.into_iter().map(|(name, _)| name);
        let names: Vec<String> = names.filter(|name| name.starts_with(VALIDATION)).collect();
        match &mut validated {
            _ if names.is_empty() => {}
            // A step that was validated in two processes has two lines.
            Some((at, known)) if *at == step => known.extend(names),
            validated => *validated = Some((step, names)),
        }
    }
    if kept < text.len() {
        atomic_file::write_durable(path, &text.as_bytes()[..kept])?;
    }
    Ok(validated)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn metrics(reward: f64) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.add("reward_mean", reward);
        metrics.add("tokens", 12.0);
        metrics
    }

    #[test]
    fn a_step_is_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = MetricsWriter::open(dir.path(), None).unwrap();
        writer.add(1, &metrics(0.25)).unwrap();
        writer.add(2, &metrics(f64::NAN)).unwrap();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(
            text,
            "{\"step\":1,\"reward_mean\":0.25,\"tokens\":12}\n{\"step\":2,\"reward_mean\":null,\"tokens\":12}\n"
        );
    }

    #[test]
    fn resuming_removes_later_and_partial_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st").unwrap();
        MetricsWriter::open(dir.path(), Some(2)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":1}\n{\"step\":2}\n");
        let of_set =
            "{\"step\":1,\"validation/a/success\":0.5}\n{\"step\":1,\"validation/b/success\":1}\n";
        fs::write(&path, of_set).unwrap();
        let opened = MetricsWriter::open(dir.path(), Some(1)).unwrap();
        assert_eq!(opened.validated(1), ["validation/a/success", "validation/b/success"]);
        assert!(opened.validated(0).is_empty());
        fs::write(&path, "{\"step\":1}\nnonsense\n{\"step\":2}\n").unwrap();
        MetricsWriter::open(dir.path(), Some(2)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":1}\n");
    }
}
