//! Opens the directory of a run: a new one, or one that an earlier command started.
//!
//! A run grows: problems, repetitions, modes and tasks of later commands are added to it. What would change the meaning of
//! its attempts is refused. Nothing is written before [`PreparedRun::save`].

use std::collections::HashSet;

use attempt::Settings;
use problems::Grader;
use results::{
    AttemptKey, AttemptRecord, DirLock, JudgeRecord, Mode, ResultsDir, Run, RunSettings, TaskInfo,
};
use serde_json::{Value, json};

use crate::{Difference, Error, Plan, TaskRows};

/// The keys of [`RunSettings::requested`] that say what a run consists of.
const SCOPE: [&str; 3] = ["selection", "repeats", "modes"];

/// The most attempts of a run: all of them are listed in memory. A directory may come from a stranger, and its requests
/// add to those of the user.
const MAX_ATTEMPTS: usize = 2_000_000;

/// Whether answers that have a grade are graded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regrade {
    /// They keep their grade. A grader that has graded something must not change.
    No,
    /// All of them. Graders and the judge may change.
    All,
}

/// A run that may start: its settings fit those of its directory.
#[derive(Debug)]
pub struct PreparedRun {
    dir: ResultsDir,
    /// Absent where the directory does not exist yet.
    lock: Option<DirLock>,
    /// What is recorded once the run is saved.
    pub run: Run,
}

/// Compares what is requested with what the directory holds, and adds both up. Locks the directory where it exists;
/// creates nothing else.
///
/// A run that already has attempts is continued only with the same settings: the model, the tasks with their rows, prompts
/// and graders, the capabilities, where documents are, and [`RunSettings::fixed`]. Problems, modes and tasks add up. A judge
/// may be named later, but not changed. A grader may change as long as it has graded nothing. [`RunSettings::requested`] may
/// differ. `requested` names its problems in [`RunSettings::requests`]; its tasks are those of `rows`.
///
/// With [`Regrade::All`] graders and the judge may change, and the run does not grow: it keeps its problems, repetitions and
/// modes, and a task that it does not have is an error. Another judge makes the grades of all judged tasks outdated, also of
/// those that are not requested.
pub fn prepare_run(
    dir: &ResultsDir,
    requested: Run,
    rows: &[TaskRows],
    regrade: Regrade,
) -> Result<PreparedRun, Error> {
    let tasks = |run: &Run| -> Vec<TaskInfo> {
        rows.iter().map(|rows| rows.select(&run.settings.requests).info()).collect()
    };
    let planned = |run: &Run| -> HashSet<AttemptKey> {
        let tasks = rows.iter().map(|rows| rows.select(&run.settings.requests)).collect();
        let plan = Plan { tasks, modes: run.modes.clone(), settings: Settings::default() };
        let keys = plan.attempts(&plan.modes).map(|planned| planned.key);
        keys.collect()
    };
    prepare(dir, requested, tasks, planned, regrade)
}

/// The same, given the tasks with the problems that a run requests, and its attempts.
fn prepare(
    dir: &ResultsDir,
    mut requested: Run,
    tasks: impl Fn(&Run) -> Vec<TaskInfo>,
    planned: impl Fn(&Run) -> HashSet<AttemptKey>,
    regrade: Regrade,
) -> Result<PreparedRun, Error> {
    let lock = match dir.path().exists() {
        true => Some(dir.lock().map_err(Error::Results)?),
        false => None,
    };
    let recorded = match lock.is_some() {
        true => dir.run().map_err(Error::Results)?,
        false => None,
    };
    // A run without attempts has nothing to lose.
    let recorded = recorded.filter(|_| !is_empty(dir));
    let dir = dir.clone();
    let Some(mut recorded) = recorded else {
        if regrade == Regrade::All {
            return Err(Error::NothingToGrade { path: dir.path().to_owned() });
        }
        requested.tasks = tasks(&requested);
        check_size(&dir, &requested)?;
        return Ok(PreparedRun { dir, lock, run: requested });
    };
    match regrade {
        Regrade::No => requested.add_requests(recorded.requests()),
        Regrade::All => keep_scope(&recorded, &mut requested),
    }
    requested.tasks = tasks(&requested);
    requested.modes = union(&recorded.modes, &requested.modes);
    check_size(&dir, &requested)?;
    requested.settings.regradings.clone_from(&recorded.settings.regradings);
    if regrade == Regrade::All {
        let is_new = |task: &&TaskInfo| !recorded.tasks.iter().any(|known| known.name == task.name);
        if let Some(task) = requested.tasks.iter().find(is_new) {
            let (path, task) = (dir.path().to_owned(), task.name.clone());
            return Err(Error::TaskNotInRun { path, task });
        }
        let planned = planned(&requested);
        count_regradings(&dir, &recorded, &mut requested, &planned);
    }
    inherit_judge(&recorded.settings, &mut requested.settings);
    inherit_judge(&requested.settings, &mut recorded.settings);
    let absent = take_absent(&mut recorded.tasks, &requested.tasks);
    let known = |task: &&TaskInfo| recorded.tasks.iter().any(|known| known.name == task.name);
    let common: Vec<TaskInfo> = requested.tasks.iter().filter(known).cloned().collect();
    tolerate(&dir, &mut recorded, &common, regrade);
    let comparable = Run { tasks: common, ..requested.clone() };
    if regrade == Regrade::All {
        recorded.settings.judge.clone_from(&comparable.settings.judge);
    }
    let differences = differences(&fixed_part(&recorded), &fixed_part(&comparable));
    if !differences.is_empty() {
        let path = dir.path().to_owned();
        return Err(Error::SettingsDiffer { path, program: recorded.program, differences });
    }
    requested.tasks.extend(absent);
    let run = Run { started: recorded.started, program: recorded.program, ..requested };
    Ok(PreparedRun { dir, lock, run })
}

impl PreparedRun {
    /// Records the run, in a new directory where there is none. `seal` signs the settings.
    pub fn save(mut self, seal: impl FnOnce(&mut RunSettings)) -> Result<(DirLock, Run), Error> {
        let lock = match self.lock {
            Some(lock) => lock,
            None => {
                let lock = self.dir.lock().map_err(Error::Results)?;
                if self.dir.run().map_err(Error::Results)?.is_some() {
                    // Another process was faster.
                    let path = self.dir.path().to_owned();
                    return Err(Error::Results(results::Error::Locked { path }));
                }
                lock
            }
        };
        seal(&mut self.run.settings);
        self.dir.save_run(&self.run).map_err(Error::Results)?;
        Ok((lock, self.run))
    }
}

/// Rejects a run whose attempts could not even be listed.
fn check_size(dir: &ResultsDir, run: &Run) -> Result<(), Error> {
    let in_each_mode =
        run.tasks.iter().fold(0_usize, |sum, task| sum.saturating_add(task.planned()));
    let attempts = in_each_mode.saturating_mul(run.modes.len());
    match attempts > MAX_ATTEMPTS {
        true => Err(Error::TooManyAttempts {
            path: dir.path().to_owned(),
            attempts,
            most: MAX_ATTEMPTS,
        }),
        false => Ok(()),
    }
}

/// Makes a run consist of what is recorded, whatever is requested now.
fn keep_scope(recorded: &Run, requested: &mut Run) {
    requested.settings.requests = recorded.requests();
    requested.modes.clone_from(&recorded.modes);
    let settings = (&recorded.settings.requested, &mut requested.settings.requested);
    if let (Value::Object(recorded), Value::Object(requested)) = settings {
        for key in SCOPE {
            if let Some(value) = recorded.get(key) {
                requested.insert(key.to_owned(), value.clone());
            }
        }
    }
}

/// Starts to grade the answers to each requested task again, and with another judge those to all tasks that were judged.
/// Where that was started before and is not finished, with the same graders and judge, it continues.
fn count_regradings(
    dir: &ResultsDir,
    recorded: &Run,
    requested: &mut Run,
    planned: &HashSet<AttemptKey>,
) {
    let judges = [&recorded.settings.judge, &requested.settings.judge];
    let [before, now] = judges.map(|judge| judge.as_ref().map(|judge| judge.name.clone()));
    let same_judge = now.is_none() || before == now;
    let mut started = Vec::new();
    for task in &requested.tasks {
        let same_grader = recorded.tasks.iter().any(|known| {
            known.name == task.name
                && known.grader == task.grader
                && known.grader_sha256 == task.grader_sha256
        });
        let is_unfinished = same_grader && same_judge && {
            // Others, which no command requests any more, are never graded again.
            let of_task = |attempt: &AttemptRecord| {
                attempt.key.task == task.name && planned.contains(&attempt.key)
            };
            let mut attempts = dir.attempts().into_iter().flatten().flatten().filter(of_task);
            attempts.any(|attempt| attempt.is_answered() && recorded.is_outdated(&attempt))
        };
        if !is_unfinished {
            started.push(task.name.clone());
        }
    }
    if before.is_some() && !same_judge {
        let is_absent = |task: &&TaskInfo| {
            task.grader == Grader::Judge.name()
                && !requested.tasks.iter().any(|other| other.name == task.name)
        };
        started.extend(recorded.tasks.iter().filter(is_absent).map(|task| task.name.clone()));
    }
    for task in started {
        let regradings = recorded.regradings(&task).saturating_add(1);
        requested.settings.regradings.insert(task, regradings);
    }
}

fn is_empty(dir: &ResultsDir) -> bool {
    dir.attempts().is_ok_and(|mut attempts| attempts.next().is_none())
}

/// Removes and returns the recorded tasks that are not requested now.
fn take_absent(recorded: &mut Vec<TaskInfo>, requested: &[TaskInfo]) -> Vec<TaskInfo> {
    let is_requested = |task: &TaskInfo| requested.iter().any(|other| other.name == task.name);
    let (common, absent) = std::mem::take(recorded).into_iter().partition(is_requested);
    *recorded = common;
    absent
}

/// Ignores differences that do not matter: digests that an earlier version did not write, and graders that have graded
/// nothing yet or whose answers are all graded again.
fn tolerate(dir: &ResultsDir, recorded: &mut Run, requested: &[TaskInfo], regrade: Regrade) {
    for task in &mut recorded.tasks {
        let Some(now) = requested.iter().find(|now| now.name == task.name) else { continue };
        if task.prompts_sha256.is_empty() {
            task.prompts_sha256.clone_from(&now.prompts_sha256);
        }
        if regrade == Regrade::All {
            task.grader.clone_from(&now.grader);
            task.grader_sha256.clone_from(&now.grader_sha256);
        }
        let differs = task.grader_sha256 != now.grader_sha256;
        if differs && (task.grader_sha256.is_empty() || !has_grades(dir, &task.name)) {
            task.grader_sha256.clone_from(&now.grader_sha256);
        }
    }
    // Earlier versions counted the selection among the settings that must not change.
    if let Value::Object(fixed) = &mut recorded.settings.fixed {
        fixed.remove("selection");
    }
}

fn has_grades(dir: &ResultsDir, task: &str) -> bool {
    let mut attempts = dir.attempts().into_iter().flatten().flatten();
    attempts.any(|attempt| attempt.key.task == task && attempt.score.is_some())
}

/// The part of a run that must not change.
fn fixed_part(run: &Run) -> Value {
    let task = |task: &TaskInfo| {
        let TaskInfo { grader, rows_sha256, prompts_sha256, grader_sha256, .. } = task;
        let info = json!({
            "rows": rows_sha256, "prompts_and_limits": prompts_sha256, "grader": grader,
            "grader_files": grader_sha256,
        });
        (task.name.clone(), info)
    };
    json!({
        "model": run.model,
        "tasks": run.tasks.iter().map(task).collect::<serde_json::Map<_, _>>(),
        "without": run.without,
        "context": run.documents,
        "settings": run.settings.fixed,
        "judge": run.settings.judge.as_ref().map(|judge| &judge.name),
    })
}

/// Where one of both names a judge, the other is taken to mean it too. Only the name: the record may come from anywhere,
/// and the rest could decide where a key is sent once it is sealed.
fn inherit_judge(from: &RunSettings, to: &mut RunSettings) {
    if let (Some(judge), None) = (&from.judge, &to.judge) {
        to.judge = Some(JudgeRecord { name: judge.name.clone(), requested: Value::Null });
    }
}

fn union(recorded: &[Mode], requested: &[Mode]) -> Vec<Mode> {
    let mut modes = [recorded, requested].concat();
    modes.sort();
    modes.dedup();
    modes
}

/// Where two values differ, each with its path from the root.
fn differences(recorded: &Value, requested: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    collect(recorded, requested, &mut Vec::new(), &mut found);
    found
}

fn collect(
    recorded: &Value,
    requested: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<Difference>,
) {
    match (recorded, requested) {
        // A duration is one value.
        (Value::Object(one), Value::Object(other)) if !one.contains_key("nanos") => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            for key in keys {
                path.push(key.clone());
                let at = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                let (one, other) = (at(one).unwrap_or_default(), at(other).unwrap_or_default());
                collect(&one, &other, path, found);
                path.pop();
            }
        }
        (recorded, requested) if recorded == requested => {}
        (recorded, requested) => found.push(Difference {
            setting: path.clone(),
            recorded: recorded.clone(),
            requested: requested.clone(),
        }),
    }
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;
