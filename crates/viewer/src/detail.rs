//! All about a run and about an attempt, but for the events.

use serde::Serialize;
use serde_json::{Value, json};
use trajectory::{Ended, Event, Line, Mode, Outcome, Spent};

use crate::{
    Library, PageOptions, Scope, ViewError,
    discover::Found,
    events::{EventIndex, cut_text},
    files::{self, Places},
    formats::{self, Loaded, read_json},
    row::{AttemptRow, Format, Kind, RunRow},
    table::{Attempt, AttemptQuery},
    text::shell_quoted,
};

/// Longer texts are cut, in bytes.
const LONGEST: usize = 64 << 10;
/// Largest recorded settings that are shown, in bytes of JSON.
const LONGEST_SETTINGS: usize = 256 << 10;

/// A command line to copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Command {
    label: String,
    command: String,
}

/// All about a run.
#[derive(Debug, Serialize)]
pub(crate) struct RunDetail {
    #[serde(flatten)]
    row: RunRow,
    settings: Value,
    program: Option<String>,
    results: Vec<TaskResult>,
    commands: Vec<Command>,
    directory: String,
    problems: Vec<String>,
}

/// A task of a benchmark in one mode.
#[derive(Debug, Serialize)]
struct TaskResult {
    task: String,
    mode: String,
    score: Option<f64>,
    se: Option<f64>,
    interval: Option<[f64; 2]>,
    attempts: usize,
    valid: usize,
    passed: usize,
    problems: usize,
    pass_at: Vec<Value>,
    outcomes: std::collections::BTreeMap<String, usize>,
    turns_mean: Option<f64>,
    cost: Option<f64>,
}

/// All about an attempt.
#[derive(Debug, Serialize)]
pub(crate) struct AttemptDetail {
    #[serde(flatten)]
    row: AttemptRow,
    run: Value,
    number: usize,
    previous: Option<String>,
    next: Option<String>,
    task_text: String,
    messages: Value,
    settings: Value,
    protection: Value,
    program: Option<String>,
    outcome_text: Option<String>,
    spent: Option<Spent>,
    grade: Value,
    judgement: Value,
    events: Value,
    steps: u64,
    ended: Option<u64>,
    server_episode: Option<formats::Episode>,
    files: Value,
    exports: [&'static str; 4],
    commands: Vec<Command>,
    directory: String,
    /// Why it can be read only in part.
    damage: Option<String>,
}

impl Library {
    pub(crate) fn run_detail(
        &self,
        id: &str,
        options: &PageOptions,
        scope: &Scope,
    ) -> Result<RunDetail, ViewError> {
        let (found, loaded) = self.run(id)?;
        let run: Value = match found.format {
            Format::Results => read_json(&found.path, "run.json").unwrap_or_default(),
            Format::Training => {
                let config: Value = read_json(&found.path, "config.json").unwrap_or_default();
                json!({ "settings": config })
            }
            _ => Value::Null,
        };
        let program = run.get("program").and_then(Value::as_str).map(str::to_owned);
        Ok(RunDetail {
            results: match found.format {
                Format::Results => task_results(&loaded),
                _ => Vec::new(),
            },
            settings: bounded(run.get("settings").cloned().unwrap_or_default()),
            program,
            commands: options.commands(&found, None),
            directory: found.path.to_string_lossy().into_owned(),
            problems: loaded.table.problems.clone(),
            row: loaded.row_for(scope),
        })
    }

    pub(crate) fn attempt_detail(
        &self,
        run: &str,
        id: &str,
        options: &PageOptions,
        scope: &Scope,
    ) -> Result<AttemptDetail, ViewError> {
        let (found, loaded) = self.run_of(run, id)?;
        let (at, attempt) = loaded.table.find(id, scope)?;
        let index = match &attempt.events {
            Some(_) => self.events(run, attempt),
            None => Err(ViewError::not_found("record of the attempt", id)),
        };
        let mut row = attempt.row.clone();
        if row.mode.is_none() && found.format != Format::Inspect {
            row.mode = Some(Mode::Sandbox.name().to_owned());
        }
        let (order, _) = loaded.table.select(&AttemptQuery::default(), scope);
        let place = order.iter().position(|other| *other == at).unwrap_or(0);
        let beside = |at: Option<usize>| {
            let at = order.get(at?)?;
            Some(loaded.table.attempts.get(*at)?.row.id.clone())
        };
        let places = Places::of(&found, attempt);
        let counts = files::counts(&places);
        let mut detail = AttemptDetail {
            run: json!({ "id": found.id, "name": loaded.row.name, "kind": found.format.kind(),
                "format": found.format, "model": loaded.row.model,
                "attempt": loaded.only_attempt(scope) }),
            number: place,
            previous: beside(place.checked_sub(1)),
            next: beside(Some(place + 1)),
            task_text: row.title.clone(),
            messages: Value::Null,
            settings: Value::Null,
            protection: Value::Null,
            program: None,
            outcome_text: None,
            spent: None,
            grade: Value::Null,
            judgement: Value::Null,
            events: json!({ "total": 0, "bytes": 0, "complete": true }),
            steps: 0,
            ended: None,
            server_episode: None,
            files: counts,
            exports: ["atif", "messages", "html", "events"],
            commands: options.commands(&found, Some(attempt)),
            directory: found.path.to_string_lossy().into_owned(),
            damage: None,
            row,
        };
        match &index {
            Ok(index) => detail.add_events(index),
            Err(error) => detail.damage = Some(error.message.clone()),
        }
        let saved = index.as_ref().map_or(&[][..], |index| index.saved());
        detail.add_record(&found, attempt, saved);
        if let Some(outcome) = detail.row.outcome.clone() {
            detail.outcome_text = Some(outcome_text(&outcome, detail.row.cause.as_deref()));
        }
        Ok(detail)
    }
}

impl AttemptDetail {
    fn add_events(&mut self, index: &EventIndex) {
        self.events = json!({ "total": index.total(), "bytes": index.size(), "complete": index.is_complete() });
        self.steps = index.calls;
        self.row.state = index.state;
        let started = index.started.and_then(|n| index.event(n).ok());
        if let Some(Value::Object(mut started)) = started {
            let mut take = |name: &str| started.remove(name).unwrap_or_default();
            if let Value::String(task) = take("problem_statement")
                && !task.is_empty()
            {
                self.task_text = task;
            }
            self.messages = cut_texts(take("messages"));
            self.settings = take("settings");
            self.protection = take("protection");
            self.program = take("program").as_str().map(str::to_owned);
            if self.row.model.is_none() {
                self.row.model = take("model").as_str().map(str::to_owned);
            }
        }
        let changed = index.reconfigured.and_then(|n| index.event(n).ok());
        if let Some(settings) = changed.and_then(|event| event.get("settings").cloned()) {
            self.settings = settings;
        }
        self.settings = bounded(std::mem::take(&mut self.settings));
        let ended = index.ended.and_then(|n| index.event(n).ok());
        let ended = ended.and_then(|event| serde_json::from_value::<Line>(event).ok());
        if let Some(Line { at, event: Event::Ended(Ended { outcome, spent }), .. }) = ended {
            self.ended = Some(at);
            self.spent = Some(spent);
            if self.row.outcome.is_none() {
                self.row.outcome = Some(outcome.name().to_owned());
            }
            if let Outcome::Infrastructure { cause, .. } = outcome {
                self.row.cause.get_or_insert(cause);
            }
        } else if let Some((_, last)) = index.times {
            self.ended = index.is_complete().then_some(last);
        }
        self.row.turns = self.row.turns.or(u32::try_from(index.turns().len()).ok());
        if self.task_text.len() > LONGEST {
            self.task_text = cut_text(&self.task_text, LONGEST).unwrap_or_default();
        }
    }

    /// What is known besides the events.
    fn add_record(&mut self, found: &Found, attempt: &Attempt, saved: &[u32]) {
        let whole = |text: String| cut_text(&text, LONGEST).unwrap_or(text);
        match found.format {
            Format::Results if !attempt.source.as_os_str().is_empty() => {
                let results = results::ResultsDir::new(&found.path);
                let path = found.path.join(&attempt.source);
                let Ok(record) = results.read_attempt(&path) else { return };
                let record = match results.run() {
                    Ok(Some(run)) => run.current(record),
                    _ => record,
                };
                self.judgement = json!(results.judgement(&record.key));
                self.task_text = whole(record.problem_statement);
                self.row.answer = Some(whole(record.answer));
                self.row.expected = Some(whole(record.ground_truth));
                self.grade = bounded(record.grade);
                self.spent = Some(record.spent);
            }
            Format::Episodes => {
                self.server_episode = formats::episode(attempt, saved);
                if let Some(episode) = &self.server_episode {
                    self.row.answer = episode.answer.clone().map(whole);
                }
            }
            Format::Run => {
                let run: Value = read_json(&found.path, "run.json").unwrap_or_default();
                if let Some(answer) = run.get("answer").and_then(Value::as_str) {
                    self.row.answer = Some(whole(answer.to_owned()));
                }
            }
            _ => {}
        }
    }
}

/// A value, or a note where it is too large.
fn bounded(value: Value) -> Value {
    let size = serde_json::to_string(&value).map_or(0, |text| text.len());
    match size > LONGEST_SETTINGS {
        true => json!({ "note": format!("{size} bytes are not shown") }),
        false => value,
    }
}

fn cut_texts(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => {
            if let Some(short) = cut_text(text, LONGEST) {
                *text = short;
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| *item = cut_texts(std::mem::take(item)));
        }
        Value::Object(fields) => {
            fields.values_mut().for_each(|item| *item = cut_texts(std::mem::take(item)));
        }
        _ => {}
    }
    value
}

/// How an episode ended, in words.
pub(crate) fn outcome_text(outcome: &str, cause: Option<&str>) -> String {
    let text = match outcome {
        "submitted" => "the model submitted",
        "max_turns" => "the turn limit was reached",
        "max_tokens" | "truncated" => "the token limit was reached",
        "context_full" => "the model's context is full",
        "deadline" | "timeout" => "the time limit was reached",
        "cost" => "the cost limit was reached",
        "no_tool_calls" | "no_calls" => "no usable tool call in several turns in a row",
        "cancelled" => "cancelled",
        "infrastructure" => "the infrastructure failed",
        other => other,
    };
    match cause {
        Some(cause) => format!("{text}: {cause}"),
        None => text.to_owned(),
    }
}

fn task_results(loaded: &Loaded) -> Vec<TaskResult> {
    let scores = formats::scores(&loaded.table);
    let facets = loaded.table.facets(&Scope::default());
    let mut results = Vec::new();
    for task in facets.task.keys() {
        for mode in facets.mode.keys() {
            let rows = || {
                let rows = loaded.table.attempts.iter().map(|attempt| &attempt.row);
                rows.filter(|row| row.task.as_ref() == Some(task))
                    .filter(|row| row.mode.as_ref() == Some(mode))
            };
            let attempts = rows().count();
            if attempts == 0 {
                continue;
            }
            let problems = scores.get(&(task.clone(), mode.clone())).cloned().unwrap_or_default();
            let estimate = report::stats::clustered(&problems);
            let turns: Vec<f64> = rows().filter_map(|row| row.turns).map(f64::from).collect();
            let costs: Vec<f64> = rows().filter_map(|row| row.cost).collect();
            let mut outcomes = std::collections::BTreeMap::new();
            for outcome in rows().filter_map(|row| row.outcome.clone()) {
                *outcomes.entry(outcome).or_insert(0) += 1;
            }
            results.push(TaskResult {
                task: task.clone(),
                mode: mode.clone(),
                score: estimate.as_ref().map(|it| it.mean),
                se: estimate.as_ref().and_then(|it| it.se),
                interval: estimate.as_ref().and_then(|it| it.interval),
                attempts,
                valid: rows().filter(|row| row.score.is_some()).count(),
                passed: rows().filter(|row| row.result.name() == "passed").count(),
                problems: problems.len(),
                pass_at: report::stats::pass_at(&problems)
                    .iter()
                    .map(|it| json!({ "k": it.k, "value": it.mean, "problems": it.problems }))
                    .collect(),
                outcomes,
                turns_mean: (!turns.is_empty())
                    .then(|| turns.iter().sum::<f64>() / turns.len() as f64),
                cost: (!costs.is_empty()).then(|| costs.iter().sum()),
            });
        }
    }
    results
}

impl PageOptions {
    /// The command lines for a run or an attempt of one.
    fn commands(&self, found: &Found, attempt: Option<&Attempt>) -> Vec<Command> {
        let whole = attempt.is_none_or(|_| found.format.kind() == Kind::Run);
        let path = match attempt.and_then(|attempt| attempt.events.as_ref()) {
            Some(crate::events::EventStore::File { dir, file }) if !whole => dir.join(file),
            _ => found.path.clone(),
        };
        let path = shell_quoted(&path.to_string_lossy());
        let wanted = self.command_lines.iter().filter(|line| {
            line.kinds.contains(&found.format.kind()) && line.of_attempt == attempt.is_some()
        });
        let filled = wanted.map(|line| Command {
            label: line.label.clone(),
            command: line.template.replace("{path}", &path),
        });
        filled.collect()
    }
}
