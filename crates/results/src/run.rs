//! What a run was requested to do.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::{AttemptRecord, Mode};

/// A task of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// The task's name.
    pub name: String,
    /// The number of problems.
    pub problems: usize,
    /// The most repetitions of one problem: rows may repeat some problems and not others.
    pub repeats: u32,
    /// The number of attempts in one mode; 0 in records of versions that did not count them.
    #[serde(default)]
    pub attempts: usize,
    /// The grader's name.
    pub grader: String,
    /// The public names of the benchmark the rows come from, for the leak check.
    #[serde(default)]
    pub known_as: Vec<String>,
    /// A digest of the rows, so that a run is not resumed with other rows.
    #[serde(default)]
    pub rows_sha256: String,
    /// A digest of the prompts, the limits and the image.
    #[serde(default, rename = "words_sha256")]
    pub prompts_sha256: String,
    /// A digest of the grader: of its command and files, where it is a command.
    #[serde(default)]
    pub grader_sha256: String,
}

impl TaskInfo {
    /// The number of planned attempts in one mode.
    pub fn planned(&self) -> usize {
        match self.attempts {
            0 => self.problems.saturating_mul(self.repeats as usize),
            attempts => attempts,
        }
    }
}

/// What a run was requested to do: `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The version of this file.
    pub v: u32,
    /// The version of the program.
    pub program: String,
    /// The first start, in milliseconds since 1970.
    pub started: u64,
    /// The model.
    pub model: String,
    /// The tasks.
    pub tasks: Vec<TaskInfo>,
    /// The modes.
    pub modes: Vec<Mode>,
    /// The capabilities taken away from the model: `external`, `files`, `execution`.
    #[serde(default)]
    pub without: Vec<String>,
    /// Where documents are: `files` or `prompt`.
    #[serde(default, rename = "context")]
    pub documents: String,
    /// All other settings, without secrets.
    #[serde(default, deserialize_with = "null_as_default")]
    pub settings: RunSettings,
}

/// Reads `null` as the default.
fn null_as_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunSettings, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The settings of a run as they are recorded. What they mean is the caller's business; this crate compares them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Everything that may change a result and must not differ when a run is resumed.
    #[serde(default, rename = "same")]
    pub fixed: Value,
    /// Everything that was requested, to resume from.
    #[serde(default, rename = "asked")]
    pub requested: Value,
    /// The judge, once one is named.
    #[serde(default)]
    pub judge: Option<JudgeRecord>,
    /// The problems that commands requested so far; together they are the problems of the run. Read them with
    /// [`Run::requests`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<ProblemRequest>,
    /// How often the answers to a task were graded again, by the task's name; absent for 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub regradings: BTreeMap<String, u32>,
    /// Proves that this user wrote the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// Which problems of some tasks a command requested, and how often each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemRequest {
    /// The names of the tasks.
    pub tasks: Vec<String>,
    /// Which of their problems.
    #[serde(default)]
    pub selection: Selection,
    /// Repetitions of each problem. A problem that the data lists several times is repeated as often for each.
    pub repeats: u32,
}

/// Which problems of a task are selected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// The first problem, from 0. Rows that repeat another count with it, invalid ones not at all.
    pub start: Option<usize>,
    /// The problem after the last.
    pub end: Option<usize>,
    /// The ids; all where this is empty. Some may belong to other tasks.
    pub ids: Vec<String>,
    /// The most problems.
    pub limit: Option<usize>,
}

impl ProblemRequest {
    /// Whether the other requests nothing that this one does not.
    fn covers(&self, other: &Self) -> bool {
        let at_least = match (self.selection.limit, other.selection.limit) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(most), Some(other)) => most >= other,
        };
        let limit = self.selection.limit;
        let same_place = self.selection == Selection { limit, ..other.selection.clone() };
        let tasks = other.tasks.iter().all(|task| self.tasks.contains(task));
        at_least && same_place && tasks && self.repeats >= other.repeats
    }
}

impl Run {
    /// The problems that commands requested so far. Records of versions that kept only the last request have that one.
    pub fn requests(&self) -> Vec<ProblemRequest> {
        if !self.settings.requests.is_empty() {
            return self.settings.requests.clone();
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Earlier {
            selection: Selection,
            repeats: u32,
        }
        let earlier = Earlier::deserialize(&self.settings.requested).unwrap_or_default();
        let tasks = self.tasks.iter().map(|task| task.name.clone()).collect();
        let Earlier { selection, repeats } = earlier;
        vec![ProblemRequest { tasks, selection, repeats: repeats.max(1) }]
    }

    /// Adds requests to those that commands made so far.
    pub fn add_requests(&mut self, earlier: Vec<ProblemRequest>) {
        let mut all = earlier;
        for request in std::mem::take(&mut self.settings.requests) {
            all.retain(|known| !request.covers(known));
            if !all.iter().any(|known| known.covers(&request)) {
                all.push(request);
            }
        }
        self.settings.requests = all;
    }

    /// An attempt as it counts now: while answers are graded again, those whose turn has not come are ungraded, so that
    /// grades of two graders are never mixed.
    pub fn current(&self, mut attempt: AttemptRecord) -> AttemptRecord {
        if attempt.score.is_some() && self.is_outdated(&attempt) {
            attempt.score = None;
            attempt.grade = json!({ "ungraded": "it is not graded again yet" });
        }
        attempt
    }

    /// Whether an attempt has yet to be graded again.
    pub fn is_outdated(&self, attempt: &AttemptRecord) -> bool {
        attempt.grading.regradings < self.regradings(&attempt.key.task)
    }

    /// How often the answers to a task were graded again.
    pub fn regradings(&self, task: &str) -> u32 {
        self.settings.regradings.get(task).copied().unwrap_or(0)
    }
}

/// The judge of a run. Early versions recorded the name alone, as a string.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "RecordedJudge")]
pub struct JudgeRecord {
    /// The model's name.
    pub name: String,
    /// How it was requested, to resume from.
    #[serde(default, rename = "asked", skip_serializing_if = "Value::is_null")]
    pub requested: Value,
}

/// A judge as any version recorded it.
#[derive(Deserialize)]
#[serde(untagged)]
enum RecordedJudge {
    Name(String),
    Full {
        name: String,
        #[serde(default, rename = "asked")]
        requested: Value,
    },
}

impl From<RecordedJudge> for JudgeRecord {
    fn from(recorded: RecordedJudge) -> Self {
        match recorded {
            RecordedJudge::Name(name) => Self { name, requested: Value::Null },
            RecordedJudge::Full { name, requested } => Self { name, requested },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(limit: Option<usize>, ids: &[&str], repeats: u32) -> ProblemRequest {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let selection = Selection { limit, ids, ..Selection::default() };
        ProblemRequest { tasks: vec!["math".into()], selection, repeats }
    }

    fn run(settings: RunSettings) -> Run {
        let run = json!({"v": 1, "program": "", "started": 0, "model": "m", "modes": [], "tasks": [
            {"name": "math", "problems": 1, "repeats": 1, "grader": "math"},
        ]});
        Run { settings, ..serde_json::from_value(run).unwrap() }
    }

    #[test]
    fn requests_add_up_and_smaller_ones_are_not_kept() {
        let after = |earlier: &ProblemRequest, now: &ProblemRequest| {
            let requests = vec![now.clone()];
            let mut run = run(RunSettings { requests, ..RunSettings::default() });
            run.add_requests(vec![earlier.clone()]);
            run.settings.requests
        };
        let (three, twenty, all) =
            (request(Some(3), &[], 1), request(Some(20), &[], 1), request(None, &[], 1));
        for (earlier, now, left) in
            [(&three, &twenty, &twenty), (&twenty, &three, &twenty), (&twenty, &all, &all)]
        {
            assert_eq!(after(earlier, now), std::slice::from_ref(left));
        }
        for other in [request(None, &["x"], 1), request(Some(2), &[], 2)] {
            assert_eq!(after(&three, &other), [three.clone(), other]);
        }
    }

    #[test]
    fn records_of_earlier_versions_have_their_last_request() {
        let requested =
            json!({"selection": {"start": null, "end": null, "ids": [], "limit": 3}, "repeats": 2});
        let old = run(RunSettings { requested, ..RunSettings::default() });
        assert_eq!(old.requests(), [request(Some(3), &[], 2)]);
        assert_eq!(run(RunSettings::default()).requests(), [request(None, &[], 1)]);
    }
}
