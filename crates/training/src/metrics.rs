//! The figures of a run: one line of JSON for each step, and the same as curves for TensorBoard.
//!
//! Knows names and numbers, not what they mean. A run that goes on first takes back the lines of steps it will take
//! again.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};

use crate::{run::write_whole, tensorboard::EventFile};

/// The file of lines in the directory of a run.
pub const FILE: &str = "metrics.jsonl";

/// Names of figures of held-out problems begin so.
const VALIDATION: &str = "validation/";

/// No file of lines is longer.
const LONGEST: u64 = 1 << 30;

/// The figures of one step, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(Vec<(String, f64)>);

impl Figures {
    /// Adds a figure.
    pub fn add(&mut self, name: impl Into<String>, number: f64) {
        self.0.push((name.into(), number));
    }

    /// Adds all figures of another step, or of a part of one.
    pub fn extend(&mut self, figures: &Self) {
        self.0.extend(figures.0.iter().cloned());
    }

    /// The same figures with the name of their kind before their own.
    #[must_use]
    pub fn of_kind(&self, kind: &str) -> Self {
        Self(self.0.iter().map(|(name, number)| (format!("{kind}/{name}"), *number)).collect())
    }

    /// A figure.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, number)| (name.as_str(), *number))
    }
}

/// A line: the step, then its figures. Whole numbers are written as such, and what is no number as null.
struct Line<'a> {
    step: u64,
    figures: &'a Figures,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("step", &self.step)?;
        for (name, number) in self.figures.iter() {
            let whole = number.fract() == 0.0 && number.abs() < 1e15;
            match (whole, number.is_finite()) {
                (true, _) => map.serialize_entry(name, &(number as i64))?,
                (false, true) => map.serialize_entry(name, &number)?,
                (false, false) => map.serialize_entry(name, &Value::Null)?,
            }
        }
        map.end()
    }
}

/// Writes down figures as they come.
#[derive(Debug)]
pub(crate) struct Metrics {
    lines: File,
    events: EventFile,
    validated: Option<u64>,
}

impl Metrics {
    /// Goes on in the directory of a run after a step, or begins; lines of later steps are taken back.
    pub(crate) fn open(run: &Path, after: Option<u64>) -> io::Result<Self> {
        let path = run.join(FILE);
        let validated = take_back(&path, after)?;
        let lines = OpenOptions::new().create(true).append(true).open(&path)?;
        let events = EventFile::create(&run.join("tensorboard"), after.unwrap_or(0))?;
        Ok(Self { lines, events, validated })
    }

    /// The last step that had figures of held-out problems when this was opened.
    pub(crate) fn validated(&self) -> Option<u64> {
        self.validated
    }

    /// Writes down a step.
    pub(crate) fn add(&mut self, step: u64, figures: &Figures) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line { step, figures })?;
        line.push(b'\n');
        self.lines.write_all(&line)?;
        self.events.add(step, &figures.0)
    }
}

/// Removes lines of later steps, and what a killed process left of a line. Returns the last step of those that are left
/// that has figures of held-out problems.
fn take_back(path: &Path, after: Option<u64>) -> io::Result<Option<u64>> {
    let text = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(file) => {
            let mut text = String::new();
            io::Read::read_to_string(&mut io::Read::take(file, LONGEST), &mut text)?;
            text
        }
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let (mut kept, mut validated) = (0, None);
    for line in whole.split_inclusive('\n') {
        let figures: Option<Map<String, Value>> = serde_json::from_str(line).ok();
        let Some(figures) = figures else { break };
        let step = figures.get("step").and_then(Value::as_u64);
        if step.is_none() || step > after {
            break;
        }
        kept += line.len();
        if figures.keys().any(|name| name.starts_with(VALIDATION)) {
            validated = step;
        }
    }
    if kept == text.len() {
        return Ok(validated);
    }
    write_whole(path, &text.as_bytes()[..kept])?;
    Ok(validated)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn figures(reward: f64) -> Figures {
        let mut figures = Figures::default();
        figures.add("reward_mean", reward);
        figures.add("tokens", 12.0);
        figures
    }

    #[test]
    fn a_step_is_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut metrics = Metrics::open(dir.path(), None).unwrap();
        metrics.add(1, &figures(0.25)).unwrap();
        metrics.add(2, &figures(f64::NAN)).unwrap();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(
            text,
            "{\"step\":1,\"reward_mean\":0.25,\"tokens\":12}\n{\"step\":2,\"reward_mean\":null,\"tokens\":12}\n"
        );
    }

    #[test]
    fn going_on_takes_back_later_lines_and_half_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st").unwrap();
        Metrics::open(dir.path(), Some(2)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":1}\n{\"step\":2}\n");
        fs::write(&path, "{\"step\":1}\nnonsense\n{\"step\":2}\n").unwrap();
        Metrics::open(dir.path(), Some(2)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":1}\n");
    }
}
