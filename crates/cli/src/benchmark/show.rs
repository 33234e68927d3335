//! How a benchmark goes on and what it comes to, for people and for programs: a bar, plain lines or JSON on
//! standard error, a table or one object on standard output.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use benchmark::{End, Finished, Group, News, Progress, Tally};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use results::{Folder, Key};
use serde_json::{Value, json};
use trajectory::Outcome;

use super::args::BenchmarkArgs;
use crate::{
    console::sanitize,
    exit::Exit,
    output::{self, OutputError},
    settings::Settings,
};

/// Between two plain lines.
const EVERY: Duration = Duration::from_secs(10);

/// So many failures are told one by one.
const TOLD: usize = 20;

/// What the user wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    progress: How,
    result: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Whatever suits standard error.
    Suited,
    Json,
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Table,
    Json,
}

impl Told {
    /// What the arguments say.
    pub(crate) fn of(args: &BenchmarkArgs) -> Self {
        let progress = match (args.json_progress, args.quiet) {
            (true, _) => How::Json,
            (false, true) => How::Nothing,
            (false, false) => How::Suited,
        };
        Self { progress, result: if args.json { Form::Json } else { Form::Table } }
    }

    /// Something the user should know, in the form the rest is told in.
    pub(crate) fn note(self, text: &str) {
        match self.progress {
            How::Json => {
                // A closed standard error is no reason to fail.
                let _ = writeln!(io::stderr(), "{}", json!({"event": "note", "text": text}));
            }
            How::Suited | How::Nothing => output::note(text),
        }
    }

    /// Whether people may be reading along.
    pub(crate) fn is_for_people(self) -> bool {
        self.progress == How::Suited
    }
}

/// Shows how it goes on.
pub(crate) struct Shown {
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
    /// What was finished before this process began.
    before: usize,
    last: Option<Instant>,
    told: usize,
}

impl Shown {
    /// What the user wants, and suits standard error.
    pub(crate) fn new(told: Told, settings: &Settings) -> Self {
        let how = match told.progress {
            How::Json => Sink::Json,
            How::Nothing => Sink::Nothing,
            How::Suited if settings.watches_stderr() => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                if let Ok(style) =
                    ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {wide_msg}")
                {
                    bar.set_style(style.progress_chars("=> "));
                }
                bar.enable_steady_tick(Duration::from_millis(500));
                Sink::Bar(bar)
            }
            How::Suited => Sink::Lines,
        };
        Self { how, began: Instant::now(), state: Mutex::default() }
    }

    /// A line for people, above the bar where there is one.
    fn say(&self, text: &str) {
        match &self.how {
            Sink::Bar(bar) => bar.suspend(|| output::note(text)),
            Sink::Lines => output::note(text),
            Sink::Json | Sink::Nothing => {}
        }
    }

    /// A failure. A server that is down would fill the screen.
    fn complain(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.told += 1;
        let told = state.told;
        drop(state);
        match told {
            ..=TOLD => self.say(text),
            _ if told == TOLD + 1 => self.say("further failures are counted, not told"),
            _ => {}
        }
    }

    fn figures(&self, tally: &Tally) -> Figures {
        let before = self.state.lock().unwrap_or_else(PoisonError::into_inner).before;
        Figures::of(tally, before, self.began.elapsed())
    }

    fn go_on(&self, tally: &Tally) {
        match &self.how {
            Sink::Bar(bar) => {
                bar.set_length(tally.asked() as u64);
                bar.set_position(tally.finished() as u64);
                bar.set_message(self.figures(tally).words(tally));
            }
            Sink::Lines if self.is_due(tally) => {
                let figures = self.figures(tally).words(tally);
                output::note(&format!("{}/{} {figures}", tally.finished(), tally.asked()));
            }
            _ => {}
        }
    }

    fn is_due(&self, tally: &Tally) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let due = state.last.is_none_or(|last| last.elapsed() >= EVERY)
            || tally.finished() == tally.asked();
        if due {
            state.last = Some(Instant::now());
        }
        due
    }
}

impl Progress for Shown {
    fn tell(&self, news: &News<'_>) {
        if let Sink::Json = self.how {
            // A closed standard error is no reason to fail.
            let _ = writeln!(io::stderr(), "{}", self.object(news));
            return;
        }
        match news {
            News::Begun { tally, due } => {
                self.state.lock().unwrap_or_else(PoisonError::into_inner).before = tally.finished();
                self.say(&match tally.finished() {
                    0 => format!("to be made or graded: {due}"),
                    finished => format!("finished: {finished}; to be made or graded: {due}"),
                });
                if let Sink::Bar(_) = self.how {
                    self.go_on(tally);
                }
            }
            News::Finished { attempt, tally } => {
                if let Outcome::Infrastructure { cause } = &attempt.outcome {
                    self.complain(&format!("{}: failed: {cause}", name(&attempt.key)));
                }
                self.go_on(tally);
            }
            News::Retried { key, tries, wait, cause } => self.complain(&format!(
                "{}: try {tries} failed, again in {:#}: {cause}",
                name(key),
                HumanDuration(*wait)
            )),
            News::Ungraded { key, cause } => {
                self.complain(&format!("{}: not graded: {cause}", name(key)));
            }
            News::Note(text) => self.complain(text),
        }
    }
}

impl Shown {
    /// The same for programs.
    fn object(&self, news: &News<'_>) -> Value {
        match news {
            News::Begun { tally, due } => {
                self.state.lock().unwrap_or_else(PoisonError::into_inner).before = tally.finished();
                json!({"event": "begun", "asked": tally.asked(), "finished": tally.finished(), "due": due})
            }
            News::Finished { attempt, tally } => {
                let figures = self.figures(tally);
                json!({
                    "event": "finished",
                    "task": attempt.key.task,
                    "mode": attempt.key.mode,
                    "id": attempt.key.id,
                    "repeat": attempt.key.repeat,
                    "outcome": attempt.outcome.name(),
                    "score": attempt.score,
                    "asked": tally.asked(),
                    "done": tally.finished(),
                    "groups": tally.groups.iter().map(group).collect::<Vec<_>>(),
                    "infrastructure": tally.infrastructure(),
                    "ungraded": tally.ungraded(),
                    "tokens": tally.usage().total(),
                    "per_minute": figures.per_minute,
                    "seconds_left": figures.left.map(|left| left.as_secs_f64()),
                })
            }
            News::Retried { key, tries, wait, cause } => json!({
                "event": "retried", "key": key, "tries": tries, "wait_s": wait.as_secs_f64(), "cause": cause,
            }),
            News::Ungraded { key, cause } => {
                json!({"event": "ungraded", "key": key, "cause": cause})
            }
            News::Note(text) => json!({"event": "note", "text": text}),
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Sink::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}

/// How fast it goes.
struct Figures {
    per_minute: f64,
    left: Option<Duration>,
}

impl Figures {
    fn of(tally: &Tally, before: usize, elapsed: Duration) -> Self {
        let made = tally.finished().saturating_sub(before) as f64;
        let per_second = made / elapsed.as_secs_f64().max(0.001);
        let rest = tally.asked().saturating_sub(tally.finished()) as f64;
        let left =
            (made > 0.0).then(|| Duration::try_from_secs_f64(rest / per_second).ok()).flatten();
        Self { per_minute: per_second * 60.0, left }
    }

    fn words(&self, tally: &Tally) -> String {
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
        parts.retain(|part| !part.is_empty());
        parts.join(" · ")
    }
}

fn group(group: &Group) -> Value {
    let Group { task, mode, finished, mean_score, .. } = group;
    json!({"task": task, "mode": mode, "finished": finished, "mean_score": mean_score})
}

fn score(group: &Group) -> String {
    format!("{} {} {:.3}", group.task, group.mode, group.mean_score)
}

fn name(key: &Key) -> String {
    format!("{} {} {} #{}", key.task, key.mode, key.id, key.repeat)
}

/// A count of tokens in few characters.
fn short(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{}k", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// Tells what came of it.
pub(crate) fn tell(
    finished: &Finished,
    folder: &Folder,
    told: Told,
    judge: Judged,
) -> Result<(), OutputError> {
    let summary = &finished.summary;
    let dir = folder.path().display();
    let shown = match told.result {
        Form::Json => output::print_json(&object(finished, folder)),
        Form::Table => output::print(&table(&summary.groups)),
    };
    match &finished.end {
        End::Broken { cause } => told.note(&format!("error: the run was ended: {cause}")),
        End::Stopped => told.note("the run was stopped"),
        End::Complete => {}
    }
    if summary.missing > 0 || summary.num_errors > 0 {
        told.note(&format!(
            "{} attempts are missing and {} failed; they are made with: llm-in-sandbox benchmark --resume {dir}",
            summary.missing, summary.num_errors
        ));
    }
    match judge {
        _ if summary.ungraded == 0 => {}
        Judged::ByNobody => told.note(&format!(
            "{} answers are not graded, because no judge is named; grade them with: llm-in-sandbox benchmark \
             --resume {dir} --judge-model NAME --judge-base-url URL",
            summary.ungraded
        )),
        Judged::AsWanted => told.note(&format!(
            "{} answers could not be graded; grade them with the same command once more",
            summary.ungraded
        )),
    }
    if told.progress == How::Suited {
        told.note(&format!("results are in {dir}; explain them with: llm-in-sandbox report {dir}"));
    }
    match shown {
        // Nobody listens any more; how the run ended still matters.
        Err(error) if !error.is_broken_pipe() => Err(error),
        _ => Ok(()),
    }
}

/// Whether a judge is wanted and there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    ByNobody,
    AsWanted,
}

/// How the program ends.
pub(crate) fn exit(finished: &Finished, broken: &[String]) -> Exit {
    let summary = &finished.summary;
    match finished.end {
        End::Broken { .. } => Exit::Infrastructure,
        End::Stopped => Exit::Cancelled(2),
        End::Complete if summary.num_errors + summary.missing > 0 => Exit::Infrastructure,
        End::Complete if !broken.is_empty() => Exit::Usage,
        End::Complete if summary.ungraded > 0 => Exit::Infrastructure,
        End::Complete => Exit::Done,
    }
}

fn object(finished: &Finished, folder: &Folder) -> Value {
    let end = match &finished.end {
        End::Complete => json!("complete"),
        End::Stopped => json!("stopped"),
        End::Broken { cause } => json!({ "broken": cause }),
    };
    let mut object = serde_json::to_value(&finished.summary).unwrap_or_default();
    object["end"] = end;
    object["directory"] = folder.path().to_string_lossy().into();
    object
}

fn table(tally: &Tally) -> String {
    let heads =
        ["TASK", "MODE", "SCORE", "ATTEMPTS", "FAILED", "UNGRADED", "TURNS", "TOKENS", "COST"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for group in &tally.groups {
        let per = |sum: f64| sum / group.finished.max(1) as f64;
        rows.push(vec![
            sanitize(&group.task).into_owned(),
            group.mode.to_string(),
            match group.finished {
                0 => "-".into(),
                _ => format!("{:.4}", group.mean_score),
            },
            format!("{}/{}", group.finished, group.asked),
            group.infrastructure.to_string(),
            group.ungraded.to_string(),
            format!("{:.1}", per(group.turns as f64)),
            format!("{:.0}", per(group.tokens.total() as f64)),
            group.cost.map_or("-".into(), |cost| format!("${cost:.4}")),
        ]);
    }
    output::table(&rows)
}
