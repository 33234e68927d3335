//! Progress and results of a benchmark: a bar, plain lines or JSON on standard error, a table or one JSON object on
//! standard output.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use attempt::Retrying;
use benchmark::{Progress, ProgressEvent, RunEnd, RunOutcome, Tally, TaskTally};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use results::{AttemptKey, ResultsDir};
use serde_json::{Value, json};
use trajectory::Outcome;

use super::args::BenchmarkArgs;
use crate::{
    console::{
        counted,
        output::{self, OutputError},
        sanitize,
    },
    settings::Settings,
};

/// Minimum time between two plain lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// Failures that are shown one by one.
const MAX_SHOWN: usize = 20;

/// What is shown, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputMode {
    progress: How,
    result: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// A bar on a terminal, else plain lines.
    Text,
    Json,
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Table,
    Json,
}

impl Default for OutputMode {
    /// Text for people.
    fn default() -> Self {
        Self { progress: How::Text, result: Form::Table }
    }
}

impl OutputMode {
    /// As the arguments say.
    pub(crate) fn of(args: &BenchmarkArgs) -> Self {
        let progress = match (args.json_progress, args.quiet) {
            (true, _) => How::Json,
            (false, true) => How::Nothing,
            (false, false) => How::Text,
        };
        Self { progress, result: if args.json { Form::Json } else { Form::Table } }
    }

    /// Shows a note in the form of the progress.
    pub(crate) fn note(self, text: &str) {
        match self.progress {
            How::Json => {
                output::note_json(&json!({"event": "note", "text": text}));
            }
            How::Text | How::Nothing => output::note(text),
        }
    }

    /// Shows an event: as an object, as text, or not at all.
    pub(crate) fn event(self, object: &Value, text: &str) {
        match self.progress {
            How::Json => {
                output::note_json(object);
            }
            How::Text => output::note(text),
            How::Nothing => {}
        }
    }

    /// Whether progress is shown as text.
    pub(crate) fn is_for_people(self) -> bool {
        self.progress == How::Text
    }
}

/// Shows progress.
pub(crate) struct ProgressView {
    how: Sink,
    began: Instant,
    state: Mutex<State>,
}

enum Sink {
    Bar(ProgressBar),
    Lines,
    Json,
    Nothing,
}

#[derive(Default)]
struct State {
    /// Attempts finished before this process started.
    before: usize,
    last: Option<Instant>,
    reported: usize,
}

impl ProgressView {
    /// What the user wants, and suits standard error.
    pub(crate) fn new(mode: OutputMode, settings: &Settings) -> Self {
        let how = match mode.progress {
            How::Json => Sink::Json,
            How::Nothing => Sink::Nothing,
            How::Text if settings.stderr_is_interactive() => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                if let Ok(style) =
                    ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {wide_msg}")
                {
                    bar.set_style(style.progress_chars("=> "));
                }
                bar.enable_steady_tick(Duration::from_millis(500));
                Sink::Bar(bar)
            }
            How::Text => Sink::Lines,
        };
        Self { how, began: Instant::now(), state: Mutex::default() }
    }

    /// Shows a line, above the bar if there is one.
    fn show_line(&self, text: &str) {
        match &self.how {
            Sink::Bar(bar) => bar.suspend(|| output::note(text)),
            Sink::Lines => output::note(text),
            Sink::Json | Sink::Nothing => {}
        }
    }

    /// Shows a failure; further ones are only counted, since a server that is down would fill the screen.
    fn show_failure(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.reported += 1;
        let reported = state.reported;
        drop(state);
        match reported {
            ..=MAX_SHOWN => self.show_line(text),
            _ if reported == MAX_SHOWN + 1 => {
                self.show_line("further failures are counted but not shown")
            }
            _ => {}
        }
    }

    fn figures(&self, tally: &Tally) -> Figures {
        let before = self.state.lock().unwrap_or_else(PoisonError::into_inner).before;
        Figures::of(tally, before, self.began.elapsed())
    }

    fn update(&self, tally: &Tally) {
        match &self.how {
            Sink::Bar(bar) => {
                bar.set_length(tally.planned() as u64);
                bar.set_position(tally.finished() as u64);
                bar.set_message(self.figures(tally).text(tally));
            }
            Sink::Lines if self.is_due(tally) => {
                let figures = self.figures(tally).text(tally);
                output::note(&format!("{}/{} {figures}", tally.finished(), tally.planned()));
            }
            _ => {}
        }
    }

    fn is_due(&self, tally: &Tally) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let due = state.last.is_none_or(|last| last.elapsed() >= INTERVAL)
            || tally.finished() == tally.planned();
        if due {
            state.last = Some(Instant::now());
        }
        due
    }
}

impl Progress for ProgressView {
    fn on_event(&self, event: &ProgressEvent<'_>) {
        if let Sink::Json = self.how {
            output::note_json(&self.object(event));
            return;
        }
        match event {
            ProgressEvent::Started { tally, due } => {
                self.state.lock().unwrap_or_else(PoisonError::into_inner).before = tally.finished();
                self.show_line(&match tally.finished() {
                    0 => format!("{} to run or grade", counted(*due, "attempt")),
                    finished => {
                        format!("{} finished; {due} to run or grade", counted(finished, "attempt"))
                    }
                });
                if let Sink::Bar(_) = self.how {
                    self.update(tally);
                }
            }
            ProgressEvent::Finished { attempt, tally } => {
                if let Outcome::Infrastructure { cause, .. } = &attempt.outcome {
                    self.show_failure(&format!("{}: failed: {cause}", name(&attempt.key)));
                }
                self.update(tally);
            }
            ProgressEvent::Retrying { key, retrying: Retrying { tries, wait, cause } } => self
                .show_failure(&format!(
                    "{}: try {tries} failed, retrying in {:#}: {cause}",
                    name(key),
                    HumanDuration(*wait)
                )),
            ProgressEvent::Ungraded { key, cause } => {
                self.show_failure(&format!("{}: not graded: {cause}", name(key)));
            }
            ProgressEvent::Warning(text) => self.show_failure(text),
        }
    }
}

impl ProgressView {
    /// The same as JSON.
    fn object(&self, event: &ProgressEvent<'_>) -> Value {
        match event {
            ProgressEvent::Started { tally, due } => {
                self.state.lock().unwrap_or_else(PoisonError::into_inner).before = tally.finished();
                json!({"event": "begun", "asked": tally.planned(), "finished": tally.finished(), "due": due})
            }
            ProgressEvent::Finished { attempt, tally } => {
                let figures = self.figures(tally);
                json!({
                    "event": "finished",
                    "task": attempt.key.task,
                    "mode": attempt.key.mode,
                    "id": attempt.key.id,
                    "repeat": attempt.key.repeat,
                    "outcome": attempt.outcome.name(),
                    "score": attempt.score,
                    "asked": tally.planned(),
                    "done": tally.finished(),
                    "groups": tally.groups.iter().map(group).collect::<Vec<_>>(),
                    "infrastructure": tally.infrastructure(),
                    "ungraded": tally.ungraded(),
                    "tokens": tally.usage().total(),
                    "per_minute": figures.per_minute,
                    "seconds_left": figures.left.map(|left| left.as_secs_f64()),
                })
            }
            ProgressEvent::Retrying { key, retrying: Retrying { tries, wait, cause } } => json!({
                "event": "retried", "key": key, "tries": tries, "wait_s": wait.as_secs_f64(), "cause": cause,
            }),
            ProgressEvent::Ungraded { key, cause } => {
                json!({"event": "ungraded", "key": key, "cause": cause})
            }
            ProgressEvent::Warning(text) => json!({"event": "note", "text": text}),
        }
    }
}

impl Drop for ProgressView {
    fn drop(&mut self) {
        if let Sink::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}

/// Speed and remaining time.
struct Figures {
    per_minute: f64,
    left: Option<Duration>,
}

impl Figures {
    fn of(tally: &Tally, before: usize, elapsed: Duration) -> Self {
        let made = tally.finished().saturating_sub(before) as f64;
        let per_second = made / elapsed.as_secs_f64().max(0.001);
        let rest = tally.planned().saturating_sub(tally.finished()) as f64;
        let left =
            (made > 0.0).then(|| Duration::try_from_secs_f64(rest / per_second).ok()).flatten();
        Self { per_minute: per_second * 60.0, left }
    }

    fn text(&self, tally: &Tally) -> String {
        let scores = tally.groups.iter().filter(|group| group.finished > 0);
        let scores: Vec<String> = scores.map(score).collect();
        let digits = if self.per_minute < 10.0 { 1 } else { 0 };
        let mut parts = vec![scores.join(", "), format!("{:.*}/min", digits, self.per_minute)];
        if let Some(left) = self.left.filter(|left| !left.is_zero()) {
            parts.push(format!("{:#} left", HumanDuration(left)));
        }
        if tally.infrastructure() > 0 {
            parts.push(format!("{} failed", tally.infrastructure()));
        }
        parts.push(format!("{} tokens", short(tally.usage().total())));
        if let Some(cost) = tally.cost().filter(|cost| *cost > 0.0) {
            let all = cost * tally.planned() as f64 / tally.finished().max(1) as f64;
            parts.push(format!("${cost:.2} of about ${all:.2}"));
        }
        parts.retain(|part| !part.is_empty());
        parts.join(" · ")
    }
}

fn group(group: &TaskTally) -> Value {
    let TaskTally { task, mode, finished, mean_score, .. } = group;
    json!({"task": task, "mode": mode, "finished": finished, "mean_score": mean_score})
}

fn score(group: &TaskTally) -> String {
    let score = group.mean_score.map_or_else(|| "-".to_owned(), |score| format!("{score:.3}"));
    format!("{} {} {score}", group.task, group.mode)
}

fn name(key: &AttemptKey) -> String {
    format!("{} {} {} #{}", key.task, key.mode, key.id, key.repeat)
}

/// A number of tokens in few characters.
pub(crate) fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{}k", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// Prints the results and notes about what is missing.
pub(crate) fn print_results(
    outcome: &RunOutcome,
    results: &ResultsDir,
    mode: OutputMode,
    judge: JudgeState,
) -> Result<(), OutputError> {
    let summary = &outcome.summary;
    let dir = output::shell_quoted(&results.path().display().to_string());
    let shown = match mode.result {
        Form::Json => output::print_json(&object(outcome, results)),
        Form::Table => output::print(&table(&summary.groups)),
    };
    match &outcome.end {
        RunEnd::Failed { cause } => mode.note(&format!("error: the run was aborted: {cause}")),
        RunEnd::Cancelled => mode.note("the run was stopped"),
        RunEnd::Complete => {}
    }
    if summary.missing > 0 || summary.num_errors > 0 {
        mode.note(&format!(
            "{} attempts are missing and {} failed; run them with: llm-in-sandbox benchmark --resume {dir}",
            summary.missing, summary.num_errors
        ));
    }
    match judge {
        _ if summary.ungraded == 0 => {}
        JudgeState::Missing => mode.note(&format!(
            "{} without a grade, because there is no judge; grade with: llm-in-sandbox benchmark --resume {dir} \
             --judge-model NAME --judge-base-url URL",
            counted(summary.ungraded, "answer")
        )),
        JudgeState::Needed | JudgeState::NotNeeded => mode.note(&format!(
            "{} could not be graded; run the same command again",
            counted(summary.ungraded, "answer")
        )),
    }
    if mode.progress == How::Text {
        mode.note(&format!(
            "results are in {dir}; summarize them with: llm-in-sandbox report {dir}"
        ));
    }
    match shown {
        // The reader closed the pipe; the exit code still matters.
        Err(error) if !error.is_broken_pipe() => Err(error),
        _ => Ok(()),
    }
}

/// Whether a judge is available if one is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JudgeState {
    /// No task needs one.
    NotNeeded,
    /// A task needs one, and there is one.
    Needed,
    /// A task needs one, and there is none.
    Missing,
}

fn object(outcome: &RunOutcome, results: &ResultsDir) -> Value {
    let end = match &outcome.end {
        RunEnd::Complete => json!("complete"),
        RunEnd::Cancelled => json!("stopped"),
        RunEnd::Failed { cause } => json!({ "broken": cause }),
    };
    let mut object = serde_json::to_value(&outcome.summary).unwrap_or_default();
    object["end"] = end;
    object["directory"] = results.path().to_string_lossy().into();
    object
}

fn table(tally: &Tally) -> String {
    let heads = [
        "TASK",
        "MODE",
        "SCORE",
        "ATTEMPTS",
        "FAILED",
        "UNGRADED",
        "TURNS/ATTEMPT",
        "TOKENS/ATTEMPT",
        "COST",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for group in &tally.groups {
        let per = |sum: f64, digits: usize| match group.finished {
            0 => "-".to_owned(),
            finished => format!("{:.digits$}", sum / finished as f64),
        };
        rows.push(vec![
            sanitize(&group.task).into_owned(),
            group.mode.to_string(),
            group.mean_score.map_or("-".into(), |score| format!("{score:.4}")),
            format!("{}/{}", group.finished, group.planned),
            group.infrastructure.to_string(),
            group.ungraded.to_string(),
            per(group.turns as f64, 1),
            per(group.tokens.total() as f64, 0),
            group.cost.map_or("-".into(), |cost| format!("${cost:.4}")),
        ]);
    }
    output::table(&rows)
}
