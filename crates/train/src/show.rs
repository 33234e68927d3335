//! Shows how a run goes on: a bar on a terminal, a line for each step elsewhere, JSON lines for programs.

use std::{
    io::{self, IsTerminal, Write},
    sync::Mutex,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};
use training::{Figures, News, Watcher};

use crate::exit::note;

/// The figures that fit into a line, and how they are called there.
const SHOWN: [(&str, &str); 9] = [
    ("loss", "loss"),
    ("reward_mean", "reward"),
    ("success", "success"),
    ("turns_mean", "turns"),
    ("response_tokens_mean", "tokens"),
    ("valid_call_rate", "valid"),
    ("entropy", "entropy"),
    ("grad_norm", "gradient"),
    ("validation/success", "held-out success"),
];

/// Shows a run.
pub(crate) enum Show {
    /// Drawn over and over.
    Bar(ProgressBar, Mutex<String>),
    /// A line for each thing worth telling.
    Lines,
    /// An object for each, on standard output.
    Json,
}

impl Show {
    /// What suits standard error.
    pub(crate) fn for_people() -> Self {
        if !io::stderr().is_terminal() {
            return Self::Lines;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:24} step {pos}/{len} {elapsed} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Bar(bar, Mutex::default())
    }
}

impl Watcher for Show {
    fn hear(&self, news: News<'_>) {
        match self {
            Self::Json => print(&object(news)),
            Self::Lines => {
                if let Some(line) = line(news) {
                    note(&line);
                }
            }
            Self::Bar(bar, last) => draw(bar, last, news),
        }
    }
}

fn draw(bar: &ProgressBar, last: &Mutex<String>, news: News<'_>) {
    let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match news {
        News::Begun { step, steps, .. } => {
            bar.set_length(steps);
            bar.set_position(step);
        }
        News::Playing { done, all, what } => {
            bar.set_message(format!("{last} | {what} {done}/{all}"))
        }
        News::Step { step, figures, .. } => {
            bar.set_position(step);
            *last = short(figures);
            bar.set_message(last.clone());
        }
        _ => {}
    }
    if let News::Begun { .. } | News::Note(_) = news
        && let Some(line) = line(news)
    {
        bar.suspend(|| note(&line));
    }
}

/// A line for people; none for what comes too often.
fn line(news: News<'_>) -> Option<String> {
    match news {
        News::Begun { step: 0, steps, what } => Some(format!("{steps} steps, {what}")),
        News::Begun { step, steps, what } if step >= steps => {
            Some(format!("nothing is left to do: {step} steps of {steps} are made, {what}"))
        }
        News::Begun { step, steps, what } => {
            Some(format!("going on after step {step} of {steps}, {what}"))
        }
        News::Step { step, steps, figures } => {
            Some(format!("step {step}/{steps}: {}", short(figures)))
        }
        News::Saved { step } => Some(format!("saved after step {step}")),
        News::Note(text) => Some(text.to_owned()),
        _ => None,
    }
}

fn short(figures: &Figures) -> String {
    let shown = SHOWN.iter().filter_map(|(name, word)| {
        let number = figures.get(name).filter(|number| number.is_finite())?;
        Some(format!("{word} {}", digits(number)))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Three digits or so.
fn digits(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 || number == 0.0 => format!("{number:.0}"),
        size if size >= 0.001 => format!("{number:.3}"),
        _ => format!("{number:.2e}"),
    }
}

fn object(news: News<'_>) -> Value {
    match news {
        News::Begun { step, steps, what } => {
            json!({"event": "begun", "step": step, "steps": steps, "what": what})
        }
        News::Playing { done, all, what } => {
            json!({"event": "playing", "done": done, "all": all, "what": what})
        }
        News::Step { step, steps, figures } => {
            let finite = figures.iter().map(|(name, number)| (name.to_owned(), json!(number)));
            let figures: Map<String, Value> = finite.collect();
            json!({"event": "step", "step": step, "steps": steps, "figures": figures})
        }
        News::Saved { step } => json!({"event": "saved", "step": step}),
        News::Note(text) => json!({"event": "note", "text": text}),
        _ => json!({"event": "other"}),
    }
}

/// Writes a line of JSON. A reader that went away is no reason to stop training.
pub(crate) fn print(value: &Value) {
    let _ = writeln!(io::stdout().lock(), "{value}");
}

impl Drop for Show {
    fn drop(&mut self) {
        if let Self::Bar(bar, _) = self {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hold_what_matters() {
        let mut figures = Figures::default();
        figures.add("loss", 0.012345);
        figures.add("reward_mean", 0.5);
        figures.add("entropy", f64::NAN);
        figures.add("grad_norm", 1e-7);
        let line = line(News::Step { step: 3, steps: 9, figures: &figures }).unwrap();
        assert_eq!(line, "step 3/9: loss 0.012, reward 0.500, gradient 1.00e-7");
        assert!(super::line(News::Playing { done: 1, all: 2, what: "x" }).is_none());
    }

    #[test]
    fn programs_get_objects() {
        let mut figures = Figures::default();
        figures.add("loss", f64::NAN);
        let step = object(News::Step { step: 1, steps: 2, figures: &figures });
        assert_eq!(
            step,
            json!({"event": "step", "step": 1, "steps": 2, "figures": {"loss": null}})
        );
    }
}
