//! The attempts of a run: filtered, sorted and paged.

use std::{collections::HashMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    Scope, ViewError,
    events::EventStore,
    row::{AttemptCount, AttemptResult, AttemptRow, Facets},
};

/// Attempts of a response where the request does not say.
const LIMIT: usize = 100;
/// Most attempts of a response.
pub(crate) const MOST: usize = 1000;
/// Values counted for each filter.
const MOST_VALUES: usize = 2000;

/// An attempt.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) row: AttemptRow,
    /// Its events, where there are some.
    pub(crate) events: Option<EventStore>,
    /// Whose it is, of a server's episodes.
    pub(crate) owner: Option<String>,
    /// What is searched, in lower case.
    pub(crate) searched: String,
    /// The file or member of an archive it was read from.
    pub(crate) source: PathBuf,
}

impl Attempt {
    pub(crate) fn new(row: AttemptRow, events: Option<EventStore>) -> Self {
        let parts = [
            Some(row.title.as_str()),
            row.problem.as_deref(),
            row.task.as_deref(),
            row.answer.as_deref(),
            row.expected.as_deref(),
            row.outcome.as_deref(),
            row.cause.as_deref(),
        ];
        let searched = parts.into_iter().flatten().collect::<Vec<_>>().join("\n").to_lowercase();
        Self { row, events, owner: None, searched, source: PathBuf::new() }
    }

    pub(crate) fn is_visible(&self, scope: &Scope) -> bool {
        match (&scope.owner, &self.owner) {
            (Some(mine), Some(owner)) => mine == owner,
            _ => true,
        }
    }
}

/// All attempts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) attempts: Vec<Attempt>,
    by_id: HashMap<String, usize>,
    /// What could not be read.
    pub(crate) problems: Vec<String>,
    /// Attempts that the run is to have, where known.
    pub(crate) planned: Option<usize>,
}

impl Table {
    pub(crate) fn new(attempts: Vec<Attempt>, problems: Vec<String>) -> Self {
        let ids = attempts.iter().enumerate().map(|(at, attempt)| (attempt.row.id.clone(), at));
        Self { by_id: ids.collect(), attempts, problems, planned: None }
    }

    pub(crate) fn find(&self, id: &str, scope: &Scope) -> Result<(usize, &Attempt), ViewError> {
        let found = self.by_id.get(id).and_then(|at| Some((*at, self.attempts.get(*at)?)));
        let found = found.filter(|(_, attempt)| attempt.is_visible(scope));
        found.ok_or_else(|| ViewError::not_found("attempt", id))
    }

    pub(crate) fn count(&self, scope: &Scope) -> AttemptCount {
        let mut count = AttemptCount { planned: self.planned, ..AttemptCount::default() };
        for attempt in self.attempts.iter().filter(|attempt| attempt.is_visible(scope)) {
            match attempt.row.result {
                AttemptResult::Running => {
                    count.running += 1;
                    continue;
                }
                AttemptResult::Passed => count.passed += 1,
                AttemptResult::Failed => count.failed += 1,
                AttemptResult::Invalid => count.invalid += 1,
                AttemptResult::Ungraded => {}
            }
            count.done += 1;
        }
        count
    }

    pub(crate) fn facets(&self, scope: &Scope) -> Facets {
        let mut facets = Facets::default();
        for Attempt { row, .. } in self.attempts.iter().filter(|it| it.is_visible(scope)) {
            let step = row.step.map(|step| step.to_string());
            for (counts, value) in [
                (&mut facets.task, row.task.as_deref()),
                (&mut facets.mode, row.mode.as_deref()),
                (&mut facets.outcome, row.outcome.as_deref()),
                (&mut facets.result, Some(row.result.name())),
                (&mut facets.set, row.set.as_deref()),
                (&mut facets.step, step.as_deref()),
            ] {
                let Some(value) = value else { continue };
                if let Some(count) = counts.get_mut(value) {
                    *count += 1;
                } else if counts.len() < MOST_VALUES {
                    counts.insert(value.to_owned(), 1);
                }
            }
        }
        facets
    }

    /// The attempts that a query selects, in its order.
    pub(crate) fn page(&self, query: &AttemptQuery, scope: &Scope) -> AttemptsPage<'_> {
        let limit = query.limit.unwrap_or(LIMIT).clamp(1, MOST);
        self.page_within(query, scope, limit)
    }

    /// The same with another bound.
    pub(crate) fn page_within(
        &self,
        query: &AttemptQuery,
        scope: &Scope,
        limit: usize,
    ) -> AttemptsPage<'_> {
        let (matched, total) = self.select(query, scope);
        let offset = query.offset.unwrap_or(0).min(matched.len());
        let shown = matched.iter().skip(offset).take(limit);
        AttemptsPage {
            total,
            matched: matched.len(),
            offset,
            facets: self.facets(scope),
            problems: &self.problems,
            attempts: shown.map(|at| &self.attempts[*at].row).collect(),
        }
    }

    /// Which attempts a query selects, and the number of all.
    pub(crate) fn select(&self, query: &AttemptQuery, scope: &Scope) -> (Vec<usize>, usize) {
        let words: Vec<String> = query
            .q
            .as_deref()
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let mut total = 0;
        let mut matched = Vec::new();
        for (at, attempt) in self.attempts.iter().enumerate() {
            if !attempt.is_visible(scope) {
                continue;
            }
            total += 1;
            let found = words.iter().all(|word| attempt.searched.contains(word.as_str()));
            if found && query.selects(&attempt.row) {
                matched.push(at);
            }
        }
        query.sort(&self.attempts, &mut matched);
        (matched, total)
    }
}

/// Which attempts are wanted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AttemptQuery {
    pub(crate) q: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) outcome: Option<String>,
    pub(crate) result: Option<String>,
    pub(crate) step: Option<u64>,
    pub(crate) set: Option<String>,
    pub(crate) problem: Option<String>,
    pub(crate) sort: Option<String>,
    pub(crate) order: Option<String>,
    pub(crate) offset: Option<usize>,
    pub(crate) limit: Option<usize>,
}

impl AttemptQuery {
    fn selects(&self, row: &AttemptRow) -> bool {
        let same = |wanted: &Option<String>, value: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || Some(wanted) == value)
        };
        same(&self.task, row.task.as_deref())
            && same(&self.mode, row.mode.as_deref())
            && same(&self.outcome, row.outcome.as_deref())
            && same(&self.result, Some(row.result.name()))
            && same(&self.set, row.set.as_deref())
            && same(&self.problem, row.problem.as_deref())
            && self.step.is_none_or(|step| Some(step) == row.step)
    }

    /// Sorts; equal ones stay in the order of the run. What has no value comes last.
    fn sort(&self, attempts: &[Attempt], found: &mut [usize]) {
        let row = |at: usize| &attempts[at].row;
        let number = |at: usize| -> Option<f64> {
            let row = row(at);
            match self.sort.as_deref()? {
                "score" => row.score,
                "turns" => row.turns.map(f64::from),
                "tokens" => row.tokens.map(|tokens| (tokens.input + tokens.output) as f64),
                "cost" => row.cost,
                "time" => {
                    row.wall_ms.or_else(|| Some(row.model_ms? + row.tool_ms?)).map(|ms| ms as f64)
                }
                "started" => row.started.map(|at| at as f64),
                "step" => row.step.map(|step| step as f64),
                _ => None,
            }
        };
        let descending = self.order.as_deref() == Some("desc");
        match self.sort.as_deref() {
            None | Some("" | "task") => {
                if descending {
                    found.reverse();
                }
            }
            Some("problem") => {
                found.sort_by(|a, b| {
                    let order = row(*a).problem.cmp(&row(*b).problem);
                    if descending { order.reverse() } else { order }
                });
            }
            Some(_) => found.sort_by(|a, b| match (number(*a), number(*b)) {
                (Some(a), Some(b)) if descending => b.total_cmp(&a),
                (Some(a), Some(b)) => a.total_cmp(&b),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => std::cmp::Ordering::Equal,
            }),
        }
    }
}

/// Some attempts.
#[derive(Debug, Serialize)]
pub(crate) struct AttemptsPage<'a> {
    pub(crate) total: usize,
    pub(crate) matched: usize,
    pub(crate) offset: usize,
    facets: Facets,
    problems: &'a [String],
    pub(crate) attempts: Vec<&'a AttemptRow>,
}
