//! Benchmark runs compared, problem by problem: the statistics are those of `report`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use report::{Fact, Report, Source};
use results::{ResultsDir, Run};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Library, Scope, ViewError,
    discover::Found,
    formats::Loaded,
    row::{AttemptResult, AttemptRow, Format},
};

/// Runs compared at once.
const MOST_RUNS: usize = 8;
/// Problems of a response where the request does not say, and at most.
const LIMIT: usize = 100;
const MOST: usize = 1000;

/// Which runs, and which of their problems.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CompareQuery {
    runs: String,
    only: Option<String>,
    other: Option<usize>,
    task: Option<String>,
    mode: Option<String>,
    q: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
}

type Opened = (Found, Arc<Loaded>);

impl Library {
    /// The runs of a query: two or more benchmarks.
    fn compared(&self, query: &CompareQuery) -> Result<Vec<Opened>, ViewError> {
        let ids: Vec<&str> = query.runs.split(',').filter(|id| !id.is_empty()).collect();
        let distinct: BTreeSet<&str> = ids.iter().copied().collect();
        if !(2..=MOST_RUNS).contains(&ids.len()) || distinct.len() != ids.len() {
            let message = format!("`runs` must name 2 to {MOST_RUNS} different runs");
            return Err(ViewError::invalid(message));
        }
        let open = |id: &str| {
            let (found, loaded) = self.run(id)?;
            match found.format {
                Format::Results | Format::Inspect => Ok((found, loaded)),
                _ => Err(ViewError::invalid(format!("`{id}` is not a benchmark run"))),
            }
        };
        ids.into_iter().map(open).collect()
    }

    /// The comparison in numbers.
    pub(crate) fn compare(&self, query: &CompareQuery) -> Result<Value, ViewError> {
        let runs = self.compared(query)?;
        let sources: Vec<Source> = runs.iter().map(|(found, _)| source(found)).collect();
        Ok(comparison(&runs.iter().collect::<Vec<_>>(), &sources))
    }

    /// The problems of the runs, side by side.
    pub(crate) fn compare_problems(
        &self,
        query: &CompareQuery,
        scope: &Scope,
    ) -> Result<ProblemsPage, ViewError> {
        let runs = self.compared(query)?;
        let other = query.other.unwrap_or(1);
        if other == 0 || other >= runs.len() {
            return Err(ViewError::invalid("`other` must be the index of a run after the first"));
        }
        let mut selected = problems(&runs, scope);
        let total = selected.len();
        selected.retain(|problem| query.selects(problem, other));
        let matched = selected.len();
        let offset = query.offset.unwrap_or(0).min(matched);
        let limit = query.limit.unwrap_or(LIMIT).clamp(1, MOST);
        let problems = selected.into_iter().skip(offset).take(limit).collect();
        Ok(ProblemsPage { total, matched, offset, problems })
    }

    /// All comparisons of a file without a server: the problems of the runs, each run with each as its baseline, and with all
    /// of them. At most [`MOST_RUNS`] benchmarks are compared; none where there are fewer than two.
    pub(crate) fn all_comparisons(
        &self,
        ids: &[String],
        scope: &Scope,
    ) -> Result<Option<Comparisons>, ViewError> {
        let ids = &ids[..ids.len().min(MOST_RUNS)];
        if ids.len() < 2 {
            return Ok(None);
        }
        let opened: Vec<Opened> = ids.iter().map(|id| self.run(id)).collect::<Result<_, _>>()?;
        let sources: Vec<Source> = opened.iter().map(|(found, _)| source(found)).collect();
        let mut chosen = Vec::new();
        for baseline in 0..opened.len() {
            let others = || (0..opened.len()).filter(move |other| *other != baseline);
            chosen.extend(others().map(|other| vec![baseline, other]));
            if opened.len() > 2 {
                chosen.push([baseline].into_iter().chain(others()).collect());
            }
        }
        let of = |chosen: Vec<usize>| {
            let runs: Vec<&Opened> = chosen.iter().map(|at| &opened[*at]).collect();
            let of_runs: Vec<Source> = chosen.iter().map(|at| sources[*at].clone()).collect();
            let names: Vec<&str> = chosen.iter().map(|at| ids[*at].as_str()).collect();
            (names.join(","), comparison(&runs, &of_runs))
        };
        Ok(Some(Comparisons {
            problems: json!({ "runs": ids, "problems": problems(&opened, scope) }),
            runs: chosen.into_iter().map(of).collect(),
        }))
    }
}

/// Comparisons of a file without a server.
pub(crate) struct Comparisons {
    /// The problems, and the ids of the runs of their cells.
    pub(crate) problems: Value,
    /// The comparisons by the ids of their runs, of which the first is the baseline.
    pub(crate) runs: Vec<(String, Value)>,
}

/// Runs compared with the first of them, in numbers.
fn comparison(runs: &[&Opened], sources: &[Source]) -> Value {
    let report = Report::with_baseline(sources, 0);
    // A system is one run, or several that measure the same model on different tasks.
    let run_of = |system: usize| report.systems.get(system).and_then(|it| it.runs.first());
    let label_of = |run: usize| {
        let system = report.systems.iter().find(|system| system.runs.contains(&run));
        system.map(|system| system.label.clone())
    };
    let names = runs.iter().enumerate().map(|(at, (found, loaded))| {
        json!({ "id": found.id, "name": found.name, "model": loaded.row.model, "score": loaded.row.score,
            "label": label_of(at).unwrap_or_else(|| found.name.clone()) })
    });
    let side = |side: &report::Side| json!({ "run": run_of(side.system), "mode": side.mode });
    let comparisons = report.comparisons.iter().map(|row| {
        json!({
            "baseline": side(&row.baseline), "other": side(&row.other), "task": row.task,
            "baseline_score": row.baseline_score, "other_score": row.other_score,
            "difference": row.difference, "p_holm": row.p_holm, "left_out": row.left_out,
            "gained": row.gained.total, "lost": row.lost.total,
        })
    });
    json!({
        "runs": names.collect::<Vec<_>>(),
        "baseline": 0,
        "tasks": report.tasks,
        "notes": report.notes,
        "settings": report.settings,
        "comparisons": comparisons.collect::<Vec<_>>(),
    })
}

/// The problems of runs in order, each with a cell per run.
fn problems(runs: &[Opened], scope: &Scope) -> Vec<Problem> {
    let mut problems: BTreeMap<Key, Problem> = BTreeMap::new();
    for (at, (_, loaded)) in runs.iter().enumerate() {
        let attempts = loaded.table.attempts.iter().filter(|it| it.is_visible(scope));
        for row in attempts.map(|attempt| &attempt.row) {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let key = (text(&row.task), text(&row.mode), text(&row.problem));
            let new = || Problem::new(row, runs.len());
            let problem = problems.entry(key).or_insert_with(new);
            problem.cells[at].get_or_insert_default().add(row);
        }
    }
    let mut problems: Vec<Problem> = problems.into_values().collect();
    problems.sort_by(Problem::order);
    problems
}

type Key = (String, String, String);

/// Some problems.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemsPage {
    total: usize,
    matched: usize,
    offset: usize,
    problems: Vec<Problem>,
}

/// A problem in all runs.
#[derive(Debug, Serialize)]
struct Problem {
    task: Option<String>,
    mode: Option<String>,
    problem: Option<String>,
    title: String,
    expected: Option<String>,
    cells: Vec<Option<Cell>>,
}

/// The attempts of one run at a problem.
#[derive(Debug, Default, Serialize)]
struct Cell {
    score: Option<f64>,
    valid: usize,
    passed: usize,
    attempts: Vec<Tried>,
}

/// An attempt at a problem.
#[derive(Debug, Serialize)]
struct Tried {
    id: String,
    score: Option<f64>,
    result: AttemptResult,
    outcome: Option<String>,
    turns: Option<u32>,
    answer: Option<String>,
    has_events: bool,
}

impl Problem {
    fn new(row: &AttemptRow, runs: usize) -> Self {
        Self {
            task: row.task.clone(),
            mode: row.mode.clone(),
            problem: row.problem.clone(),
            title: row.title.clone(),
            expected: row.expected.clone(),
            cells: (0..runs).map(|_| None).collect(),
        }
    }

    /// Whether a run solves it; none where it has no valid attempt.
    fn solved(&self, run: usize) -> Option<bool> {
        let cell = self.cells.get(run)?.as_ref().filter(|cell| cell.valid > 0)?;
        Some(2 * cell.passed > cell.valid)
    }

    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let [a, b] = [self, other].map(|it| {
            let name = it.problem.as_deref().unwrap_or_default();
            (&it.task, &it.mode, crate::formats::NaturalKey::of(name))
        });
        a.cmp(&b)
    }
}

impl Cell {
    fn add(&mut self, row: &AttemptRow) {
        if let Some(score) = row.score {
            let sum = self.score.unwrap_or(0.0) * self.valid as f64 + score;
            self.valid += 1;
            self.passed += usize::from(row.result == AttemptResult::Passed);
            self.score = Some(sum / self.valid as f64);
        }
        self.attempts.push(Tried {
            id: row.id.clone(),
            score: row.score,
            result: row.result,
            outcome: row.outcome.clone(),
            turns: row.turns,
            answer: row.answer.clone(),
            has_events: row.has_events,
        });
    }
}

impl CompareQuery {
    fn selects(&self, problem: &Problem, other: usize) -> bool {
        let same = |wanted: &Option<String>, value: &Option<String>| {
            wanted.as_ref().is_none_or(|it| it.is_empty() || Some(it) == value.as_ref())
        };
        if !same(&self.task, &problem.task) || !same(&self.mode, &problem.mode) {
            return false;
        }
        let words = self.q.as_deref().unwrap_or_default().to_lowercase();
        let name = problem.problem.as_deref().unwrap_or_default();
        let searched = format!("{name}\n{}", problem.title).to_lowercase();
        if !words.split_whitespace().all(|word| searched.contains(word)) {
            return false;
        }
        let sides = (problem.solved(0), problem.solved(other));
        match self.only.as_deref() {
            None | Some("" | "all") => true,
            Some("gained") => sides == (Some(false), Some(true)),
            Some("lost") => sides == (Some(true), Some(false)),
            Some("both") => sides == (Some(true), Some(true)),
            Some("neither") => sides == (Some(false), Some(false)),
            Some("disagree") => {
                let all = (0..problem.cells.len()).filter_map(|run| problem.solved(run));
                all.collect::<BTreeSet<bool>>().len() > 1
            }
            Some(_) => false,
        }
    }
}

/// A run as reports read it, but without its trajectories: comparisons do not need them.
fn source(found: &Found) -> Source {
    let results = ResultsDir::new(&found.path);
    let run = results.run().ok().flatten();
    let has_run_file = run.is_some();
    let run = run.unwrap_or_else(placeholder);
    let mut facts = Vec::new();
    let mut damaged_total = 0;
    for attempt in results.attempts().into_iter().flatten() {
        match attempt {
            Ok(attempt) => facts.push(Fact::of(run.current(attempt), None, &[])),
            Err(_) => damaged_total += 1,
        }
    }
    Source {
        name: found.name.clone(),
        link: String::new(),
        pages: None,
        run,
        has_run_file,
        facts,
        damaged: Vec::new(),
        damaged_total,
        without_events: 0,
    }
}

fn placeholder() -> Run {
    Run {
        v: results::VERSION,
        program: String::new(),
        started: 0,
        model: String::new(),
        tasks: Vec::new(),
        modes: Vec::new(),
        without: Vec::new(),
        documents: String::new(),
        settings: results::RunSettings::default(),
    }
}

/// The curves of a training run.
pub(crate) fn metrics(path: &Path, names: Option<&str>) -> Result<Value, ViewError> {
    let run = curves::read(path).map_err(|error| {
        ViewError::new(crate::Code::NotFound, format!("there are no metrics: {error}"))
    })?;
    let wanted: Option<BTreeSet<&str>> = names.map(|names| names.split(',').collect());
    let shown = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.contains(name));
    let steps: BTreeSet<u64> = run
        .metrics
        .iter()
        .filter(|(name, _)| shown(name))
        .flat_map(|(_, values)| values.keys().copied())
        .collect();
    let column = |values: &BTreeMap<u64, f64>| {
        steps.iter().map(|step| values.get(step).copied()).collect::<Vec<_>>()
    };
    let mut described: Vec<_> = run
        .metrics
        .iter()
        .filter(|(name, _)| shown(name))
        .map(|(name, values)| (curves::describe(name), name, values))
        .collect();
    described.sort_by(|(a, name, _), (b, other, _)| {
        (a.section_order, a.position, *name).cmp(&(b.section_order, b.position, *other))
    });
    let metrics = described.into_iter().map(|(label, name, values)| {
        let errors = run.metrics.get(&format!("{name}_se")).map(column);
        json!({ "name": name, "title": label.title, "section": label.section, "axis": label.axis,
            "values": column(values), "se": errors })
    });
    let metrics: Vec<Value> = metrics.collect();
    let sets: BTreeSet<&str> = run.metrics.keys().filter_map(|name| curves::set_of(name)).collect();
    Ok(json!({ "steps": steps, "metrics": metrics, "bad_lines": run.bad_lines, "sets": sets }))
}
