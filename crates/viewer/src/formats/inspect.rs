//! A log of Inspect: its samples are the attempts.

use super::{Loaded, about, changed_ms, single::split};
use crate::{
    discover::Found,
    events::EventStore,
    import::{Log, SampleSummary},
    row::{AttemptResult, AttemptRow, EXCERPT, Format, RunRow, State, TokenCount},
    table::{Attempt, Table},
    text::one_line,
};

/// Samples that are listed.
const MAX_SAMPLES: usize = 200_000;

pub(super) fn load(found: &Found) -> Loaded {
    let mut row = RunRow::new(&found.id, found.format, &found.name, &found.shown);
    row.updated = about(&found.path).as_ref().and_then(changed_ms);
    match read(found, &mut row) {
        Ok(attempts) => {
            let table = Table::new(attempts, Vec::new());
            row.attempts = table.count(&crate::Scope::default());
            let scores: Vec<f64> =
                table.attempts.iter().filter_map(|attempt| attempt.row.score).collect();
            row.score =
                (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64);
            Loaded::new(row, table)
        }
        Err(error) => {
            row.problem = Some(error.clone());
            Loaded::new(row, Table::new(Vec::new(), vec![error]))
        }
    }
}

fn read(found: &Found, row: &mut RunRow) -> Result<Vec<Attempt>, String> {
    let (dir, file) = split(&found.path);
    let mut log = Log::open(&dir, &file)?;
    let (facts, _) = log.facts()?;
    row.model = facts.model.map(|model| one_line(&model, EXCERPT));
    row.task = Some(one_line(&facts.task, EXCERPT));
    row.tasks = row.task.iter().cloned().collect();
    row.started = facts.started;
    row.outcome.clone_from(&facts.outcome);
    row.state = match facts.outcome.as_deref() {
        Some("started") | None => State::Interrupted,
        _ => State::Ended,
    };
    let samples = log.samples()?;
    let attempt = |sample: &SampleSummary| {
        let member = sample.member();
        let has_events = log.has(&member);
        let store = EventStore::Converted {
            dir: dir.clone(),
            file: file.clone(),
            format: Format::Inspect,
            member: Some(member),
        };
        let mut attempt = Attempt::new(attempt_row(sample, row, has_events), Some(store));
        attempt.events = attempt.events.filter(|_| has_events);
        attempt
    };
    Ok(samples.iter().take(MAX_SAMPLES).map(attempt).collect())
}

fn attempt_row(sample: &SampleSummary, run: &RunRow, has_events: bool) -> AttemptRow {
    let (score, usage) = (sample.score(), sample.usage());
    let name = sample.name();
    AttemptRow {
        id: format!("{name},{}", sample.epoch),
        task: run.task.clone(),
        problem: Some(one_line(&name, EXCERPT)),
        repeat: Some(sample.epoch.saturating_sub(1)),
        title: one_line(&sample.task(), EXCERPT),
        state: State::Ended,
        result: match (&sample.error, score) {
            (Some(_), _) => AttemptResult::Invalid,
            (None, Some(score)) => AttemptResult::of_score(score),
            (None, None) => AttemptResult::Ungraded,
        },
        score: score.filter(|_| sample.error.is_none()),
        outcome: match (&sample.error, &sample.limit) {
            (Some(_), _) => Some("error".to_owned()),
            (None, Some(limit)) => Some(one_line(limit, 40)),
            (None, None) => Some("submitted".to_owned()),
        },
        cause: sample.error.as_deref().map(|error| one_line(error, EXCERPT)).or_else(|| {
            let why = "this sample is stored in parts, which is not supported";
            (!has_events).then(|| why.to_owned())
        }),
        answer: sample.answer().map(|answer| one_line(&answer, EXCERPT)),
        expected: Some(one_line(&sample.expected(), EXCERPT)),
        tokens: Some(TokenCount { input: usage.input, output: usage.output }),
        wall_ms: sample.total_time.map(|seconds| (seconds.max(0.0) * 1000.0) as u64),
        started: Some(sample.started()).filter(|at| *at > 0),
        has_events,
        ..AttemptRow::default()
    }
}
