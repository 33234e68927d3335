//! The directory of a training run: metrics by step, and the episodes of each step in groups.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use report::validation::EpisodeRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Loaded, about, changed_ms, read_below, read_json};
use crate::{
    Scope,
    discover::Found,
    events::EventStore,
    locks,
    row::{AttemptResult, AttemptRow, EXCERPT, RunRow, State, StepCount, TokenCount},
    table::{Attempt, Table},
    text::one_line,
};

/// Episodes that are listed, the first ones.
const MAX_EPISODES: usize = 300_000;
/// Bytes of a file of scores.
const MAX_SCORES: u64 = 64 << 20;
/// Directories of episodes.
const MAX_DIRS: usize = 50_000;

/// A line of `scores.jsonl`.
#[derive(Deserialize)]
struct Score {
    file: String,
    #[serde(default)]
    problem: String,
    #[serde(default)]
    member: u32,
    #[serde(default)]
    score: Option<f64>,
    #[serde(default)]
    end: Option<String>,
    #[serde(default)]
    turns: u32,
    #[serde(default)]
    tokens: u64,
}

pub(super) fn load(found: &Found, _before: Option<&Loaded>) -> Loaded {
    let mut row = RunRow::new(&found.id, found.format, &found.name, &found.shown);
    let config: Value = read_json(&found.path, "config.json").unwrap_or_default();
    let text = |name: &str| config.get(name).and_then(Value::as_str).map(str::to_owned);
    row.model = text("model").map(|model| one_line(&model, EXCERPT));
    row.task = config.pointer("/data/task").or(config.get("task")).and_then(|task| match task {
        Value::String(name) => Some(name.clone()),
        Value::Array(names) => {
            Some(names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
        }
        _ => None,
    });
    let planned = config.get("steps").and_then(Value::as_u64);
    let mut done = 0;
    match curves::read(&found.path) {
        Ok(run) => {
            let last = |name: &str| run.metrics.get(name).and_then(|it| it.last_key_value());
            let steps = run.metrics.values().filter_map(|it| it.last_key_value());
            done = steps.map(|(step, _)| *step).max().unwrap_or(0);
            let names = ["validation/success", "success", "raw_reward_mean", "reward_mean"];
            row.score = names.into_iter().find_map(last).map(|(_, value)| *value);
        }
        Err(curves::ReadError::NoRun { .. }) => {}
        Err(error) => row.problem = Some(error.to_string()),
    }
    row.steps = Some(StepCount { done, planned });
    let metrics = about(&found.path.join("metrics.jsonl"));
    row.updated = metrics.as_ref().and_then(changed_ms);
    row.started = about(&found.path.join("config.json")).as_ref().and_then(changed_ms);
    let is_locked = about(&found.path.join("lock")).is_some_and(|lock| locks::is_locked(&lock));
    row.state = match (is_locked, planned) {
        (true, _) => State::Running,
        (false, Some(planned)) if done < planned => State::Interrupted,
        _ => State::Ended,
    };
    let (attempts, problems) = episodes(&found.path, is_locked);
    let table = Table::new(attempts, problems);
    row.attempts = table.count(&Scope::default());
    Loaded::new(row, table)
}

/// All episodes of the run, by step.
fn episodes(run: &Path, is_locked: bool) -> (Vec<Attempt>, Vec<String>) {
    let mut attempts = Vec::new();
    let mut problems = Vec::new();
    let mut dirs = Vec::new();
    collect_dirs(run, Path::new("episodes"), 0, &mut dirs);
    dirs.sort();
    let validated = validations(run);
    let last = dirs.last().cloned();
    for dir in dirs {
        if attempts.len() >= MAX_EPISODES {
            problems.push(format!("only the first {MAX_EPISODES} episodes are listed"));
            break;
        }
        let may_run = is_locked && last.as_ref() == Some(&dir);
        of_directory(run, &dir, may_run, &validated, &mut attempts);
    }
    attempts.truncate(MAX_EPISODES);
    (attempts, problems)
}

fn collect_dirs(run: &Path, below: &Path, depth: usize, dirs: &mut Vec<PathBuf>) {
    if about(&run.join(below)).is_none_or(|about| !about.is_dir()) || dirs.len() >= MAX_DIRS {
        return;
    }
    dirs.push(below.to_owned());
    if depth >= 2 {
        return;
    }
    for entry in fs::read_dir(run.join(below)).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_dirs(run, &below.join(entry.file_name()), depth + 1, dirs);
        }
    }
}

/// The episodes of the validation sets, by the file of their events.
fn validations(run: &Path) -> HashMap<PathBuf, EpisodeRecord> {
    let mut found = HashMap::new();
    let steps = fs::read_dir(run.join("validation")).into_iter().flatten().flatten();
    for step in steps.filter(|step| step.file_type().is_ok_and(|kind| kind.is_dir())) {
        for file in fs::read_dir(step.path()).into_iter().flatten().flatten() {
            let path = Path::new("validation").join(step.file_name()).join(file.file_name());
            if path.extension().is_none_or(|extension| extension != "jsonl") {
                continue;
            }
            let Some(bytes) = read_below(run, &path, MAX_SCORES) else { continue };
            let lines = bytes.split(|byte| *byte == b'\n');
            for record in
                lines.filter_map(|line| serde_json::from_slice::<EpisodeRecord>(line).ok())
            {
                if let Some(events) = record.events.clone() {
                    found.insert(PathBuf::from(events), record);
                }
            }
        }
    }
    found
}

fn of_directory(
    run: &Path,
    dir: &Path,
    may_run: bool,
    validated: &HashMap<PathBuf, EpisodeRecord>,
    attempts: &mut Vec<Attempt>,
) {
    let (step, set) = place(dir);
    let scores = read_below(run, &dir.join("scores.jsonl"), MAX_SCORES).unwrap_or_default();
    let lines = scores.split(|byte| *byte == b'\n');
    let scores: HashMap<String, Score> = lines
        .filter_map(|line| serde_json::from_slice::<Score>(line).ok())
        .map(|score| (score.file.clone(), score))
        .collect();
    let entries = fs::read_dir(run.join(dir)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".jsonl") && name != "scores.jsonl")
        .collect();
    names.sort();
    for name in names {
        let path = dir.join(&name);
        let stem = path.strip_prefix("episodes").unwrap_or(&path).with_extension("");
        let id = stem.to_string_lossy().replace('/', ":");
        let numbers = name.trim_end_matches(".jsonl").split_once('-');
        let group = numbers.and_then(|(group, _)| group.parse().ok());
        let member = numbers.and_then(|(_, member)| member.parse().ok());
        let mut row = AttemptRow {
            id,
            step,
            set: Some(set.clone()),
            group,
            member,
            has_events: true,
            state: if may_run { State::Running } else { State::Ended },
            result: if may_run { AttemptResult::Running } else { AttemptResult::Ungraded },
            ..AttemptRow::default()
        };
        if let Some(score) = scores.get(&name) {
            of_score(&mut row, score);
        } else if let Some(record) = validated.get(&path) {
            of_validation(&mut row, record);
        }
        if row.title.is_empty() {
            row.title = row.problem.clone().unwrap_or_else(|| row.id.clone());
        }
        attempts.push(Attempt::new(row, Some(EventStore::file(run, path))));
    }
}

/// Step and set of a directory: `episodes/step-000003-0`, `episodes/validation-000010/gsm8k`.
fn place(dir: &Path) -> (Option<u64>, String) {
    let below = dir.strip_prefix("episodes").unwrap_or(dir);
    let mut parts = below.iter().map(|part| part.to_string_lossy());
    let first = parts.next().unwrap_or_default();
    if let Some(numbers) = first.strip_prefix("step-") {
        let (step, _round) = numbers.split_once('-').unwrap_or((numbers, ""));
        return (step.parse().ok(), "train".to_owned());
    }
    if let Some(step) = first.strip_prefix("validation-") {
        let set = parts.next().map_or_else(|| "validation".to_owned(), |set| set.into_owned());
        return (step.parse().ok(), set);
    }
    (None, "train".to_owned())
}

fn of_score(row: &mut AttemptRow, score: &Score) {
    row.problem = Some(one_line(&score.problem, EXCERPT));
    row.member = Some(score.member);
    row.score = score.score;
    row.outcome.clone_from(&score.end);
    row.turns = Some(score.turns);
    row.tokens = Some(TokenCount { input: 0, output: score.tokens });
    row.state = State::Ended;
    row.result = score.score.map_or(AttemptResult::Invalid, AttemptResult::of_score);
}

fn of_validation(row: &mut AttemptRow, record: &EpisodeRecord) {
    row.problem = Some(one_line(&record.id, EXCERPT));
    row.member = Some(record.member);
    row.score = record.score;
    row.reward = record.reward;
    row.outcome = Some(one_line(&record.end, 40));
    row.answer = Some(one_line(&record.answer, EXCERPT));
    row.cause = record.why.as_deref().map(|why| one_line(why, EXCERPT));
    row.turns = Some(record.turns);
    row.tokens = Some(TokenCount { input: record.prompt_tokens, output: record.response_tokens });
    row.wall_ms = Some((record.seconds * 1000.0).max(0.0) as u64);
    row.state = State::Ended;
    row.result = record.score.map_or(AttemptResult::Invalid, AttemptResult::of_score);
}

/// A step of training or a validation, in numbers.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct StepRow {
    step: Option<u64>,
    set: String,
    groups: usize,
    episodes: usize,
    score_mean: Option<f64>,
    /// Groups whose scores differ.
    spread: usize,
}

/// Some steps.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct StepsPage {
    pub(crate) total: usize,
    pub(crate) steps: Vec<StepRow>,
}

/// A group: the episodes of one problem in one step.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct GroupRow {
    step: Option<u64>,
    set: String,
    group: Option<u32>,
    problem: String,
    title: String,
    mean: Option<f64>,
    members: Vec<Member>,
}

/// An episode of a group.
#[derive(Debug, PartialEq, Serialize)]
struct Member {
    attempt: String,
    member: Option<u32>,
    score: Option<f64>,
    reward: Option<f64>,
    end: Option<String>,
    turns: Option<u32>,
    tokens: Option<u64>,
    state: State,
}

/// Some groups.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct GroupsPage {
    pub(crate) total: usize,
    pub(crate) groups: Vec<GroupRow>,
}

type StepKey = (Option<u64>, String);

fn by_step<'a>(table: &'a Table, scope: &Scope) -> BTreeMap<StepKey, Vec<&'a AttemptRow>> {
    let mut steps: BTreeMap<StepKey, Vec<&AttemptRow>> = BTreeMap::new();
    for Attempt { row, .. } in table.attempts.iter().filter(|attempt| attempt.is_visible(scope)) {
        let set = row.set.clone().unwrap_or_default();
        steps.entry((row.step, set)).or_default().push(row);
    }
    steps
}

fn by_group<'a>(rows: &[&'a AttemptRow]) -> BTreeMap<(Option<u32>, String), Vec<&'a AttemptRow>> {
    let mut groups: BTreeMap<_, Vec<&AttemptRow>> = BTreeMap::new();
    for row in rows {
        let problem = row.problem.clone().unwrap_or_default();
        groups.entry((row.group, problem)).or_default().push(row);
    }
    groups
}

/// The steps of a run with their episodes, as far as somebody sees them.
pub(crate) fn steps(table: &Table, scope: &Scope, offset: usize, limit: usize) -> StepsPage {
    let all = by_step(table, scope);
    let of_step = |((step, set), rows): (StepKey, Vec<&AttemptRow>)| {
        let groups = by_group(&rows);
        let scores: Vec<f64> = rows.iter().filter_map(|row| row.score).collect();
        let differ = |rows: &&Vec<&AttemptRow>| {
            let scores: HashSet<u64> =
                rows.iter().filter_map(|row| row.score).map(f64::to_bits).collect();
            scores.len() > 1
        };
        StepRow {
            step,
            set,
            groups: groups.len(),
            episodes: rows.len(),
            score_mean: mean(&scores),
            spread: groups.values().filter(differ).count(),
        }
    };
    let total = all.len();
    StepsPage { total, steps: all.into_iter().skip(offset).take(limit).map(of_step).collect() }
}

/// The groups of a step, as far as somebody sees them.
pub(crate) fn groups(
    table: &Table,
    scope: &Scope,
    step: (Option<u64>, &str),
    (offset, limit): (usize, usize),
) -> GroupsPage {
    let key = (step.0, step.1.to_owned());
    let rows = by_step(table, scope).remove(&key).unwrap_or_default();
    let all = by_group(&rows);
    let total = all.len();
    let shown = all.into_iter().skip(offset).take(limit);
    GroupsPage { total, groups: shown.map(|group| group_row(&key, group)).collect() }
}

/// The groups of all steps, at most so many.
pub(crate) fn all_groups(table: &Table, scope: &Scope, limit: usize) -> GroupsPage {
    let steps = by_step(table, scope);
    let groups: Vec<_> = steps
        .iter()
        .flat_map(|(step, rows)| by_group(rows).into_iter().map(move |group| (step, group)))
        .collect();
    let total = groups.len();
    let groups = groups.into_iter().take(limit).map(|(step, group)| group_row(step, group));
    GroupsPage { total, groups: groups.collect() }
}

fn group_row(
    (step, set): &StepKey,
    ((group, problem), rows): ((Option<u32>, String), Vec<&AttemptRow>),
) -> GroupRow {
    let scores: Vec<f64> = rows.iter().filter_map(|row| row.score).collect();
    let member = |row: &AttemptRow| Member {
        attempt: row.id.clone(),
        member: row.member,
        score: row.score,
        reward: row.reward,
        end: row.outcome.clone(),
        turns: row.turns,
        tokens: row.tokens.map(|tokens| tokens.output),
        state: row.state,
    };
    GroupRow {
        step: *step,
        set: set.clone(),
        group,
        title: problem.clone(),
        problem,
        mean: mean(&scores),
        members: rows.into_iter().map(member).collect(),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
