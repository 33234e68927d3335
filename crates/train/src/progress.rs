//! The progress display of a run: a bar on a terminal, otherwise a line per step, or JSON lines for programs.

use std::{
    io::{self, IsTerminal, Write},
    sync::Mutex,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};
use startup::{escape_hidden, note, sanitize};
use training::{Metrics, Observer, RunEvent};

/// The metrics in a line, and their labels.
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

/// The display of a run.
pub(crate) enum Progress {
    /// A bar, and the text of the last step.
    Bar(ProgressBar, Mutex<String>),
    /// A line per event.
    Lines,
    /// A JSON object per event, on standard output.
    Json,
}

impl Progress {
    /// A bar if standard error is a terminal, else lines.
    pub(crate) fn for_stderr() -> Self {
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

impl Observer for Progress {
    fn on_event(&self, event: RunEvent<'_>) {
        match self {
            Self::Json => print(&object(event)),
            Self::Lines => {
                if let Some(line) = line(event) {
                    note(&line);
                }
            }
            Self::Bar(bar, last) => draw(bar, last, event),
        }
    }
}

fn draw(bar: &ProgressBar, last: &Mutex<String>, event: RunEvent<'_>) {
    let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match event {
        RunEvent::Started { step, steps, .. } => {
            bar.set_length(steps);
            bar.set_position(step);
        }
        RunEvent::Rollout { done, all, what } => {
            bar.set_message(format!("{last} | {} {done}/{all}", sanitize(what)))
        }
        RunEvent::Step { step, metrics, .. } => {
            bar.set_position(step);
            *last = short(metrics);
            bar.set_message(last.clone());
        }
        _ => {}
    }
    if let RunEvent::Started { .. } | RunEvent::Validated { .. } | RunEvent::Note(_) = event
        && let Some(line) = line(event)
    {
        bar.suspend(|| note(&line));
    }
}

/// The line of an event; `None` for frequent ones.
fn line(event: RunEvent<'_>) -> Option<String> {
    match event {
        RunEvent::Started { step: 0, steps, what } => Some(format!("{steps} steps, {what}")),
        RunEvent::Started { step, steps, what } if step >= steps => {
            Some(format!("nothing is left to do: {step} of {steps} steps are complete, {what}"))
        }
        RunEvent::Started { step, steps, what } => {
            Some(format!("resuming after step {step} of {steps}, {what}"))
        }
        RunEvent::Validated { step, set: Some(set), metrics } => {
            Some(format!("step {step}: validation set {set}: {}", measured(metrics)))
        }
        RunEvent::Step { step, steps, metrics } => {
            Some(format!("step {step}/{steps}: {}", short(metrics)))
        }
        RunEvent::Saved { step } => Some(format!("saved after step {step}")),
        RunEvent::Note(text) => Some(text.to_owned()),
        _ => None,
    }
}

/// The result of a validation set.
fn measured(metrics: &Metrics) -> String {
    let error = metrics.get("success_se").map_or_else(String::new, |se| format!(" ± {se:.3}"));
    let value = |name: &str| metrics.get(name).unwrap_or(0.0);
    let failed = match (value("episodes_left"), value("problems_left")) {
        (0.0, _) => String::new(),
        (failed, problems) => {
            let problems = match problems {
                0.0 => String::new(),
                problems => format!(", and {problems} problems have no other"),
            };
            format!(", {failed} of them without a score: the infrastructure failed{problems}")
        }
    };
    format!(
        "success {:.3}{error}, score {:.3}, turns {:.2}, tokens {:.0}, {} episodes{failed}",
        value("success"),
        value("raw_reward_mean"),
        value("turns_mean"),
        value("response_tokens_mean"),
        value("episodes"),
    )
}

fn short(metrics: &Metrics) -> String {
    let shown = SHOWN.iter().filter_map(|(name, label)| {
        let number = metrics.get(name).filter(|number| number.is_finite())?;
        Some(format!("{label} {}", digits(number)))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// About three significant digits.
fn digits(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 || number == 0.0 => format!("{number:.0}"),
        size if size >= 0.001 => format!("{number:.3}"),
        _ => format!("{number:.2e}"),
    }
}

fn object(event: RunEvent<'_>) -> Value {
    match event {
        RunEvent::Started { step, steps, what } => {
            json!({"event": "begun", "step": step, "steps": steps, "what": what})
        }
        RunEvent::Rollout { done, all, what } => {
            json!({"event": "playing", "done": done, "all": all, "what": what})
        }
        RunEvent::Validated { step, set, metrics } => {
            json!({"event": "validated", "step": step, "set": set, "figures": figures(metrics)})
        }
        RunEvent::Step { step, steps, metrics } => {
            json!({"event": "step", "step": step, "steps": steps, "figures": figures(metrics)})
        }
        RunEvent::Saved { step } => json!({"event": "saved", "step": step}),
        RunEvent::Note(text) => json!({"event": "note", "text": text}),
        _ => json!({"event": "other"}),
    }
}

fn figures(metrics: &Metrics) -> Map<String, Value> {
    metrics.iter().map(|(name, number)| (name.to_owned(), json!(number))).collect()
}

/// Prints a JSON line, with hidden characters escaped. A closed standard output must not stop training.
pub(crate) fn print(value: &Value) {
    let _ = writeln!(io::stdout().lock(), "{}", escape_hidden(&value.to_string()));
}

impl Drop for Progress {
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
    fn a_line_has_the_main_metrics() {
        let mut metrics = Metrics::default();
        metrics.add("loss", 0.012345);
        metrics.add("reward_mean", 0.5);
        metrics.add("entropy", f64::NAN);
        metrics.add("grad_norm", 1e-7);
        let line = line(RunEvent::Step { step: 3, steps: 9, metrics: &metrics }).unwrap();
        assert_eq!(line, "step 3/9: loss 0.012, reward 0.500, gradient 1.00e-7");
        assert!(super::line(RunEvent::Rollout { done: 1, all: 2, what: "x" }).is_none());
    }

    #[test]
    fn events_become_json_objects() {
        let mut metrics = Metrics::default();
        metrics.add("loss", f64::NAN);
        let step = object(RunEvent::Step { step: 1, steps: 2, metrics: &metrics });
        assert_eq!(
            step,
            json!({"event": "step", "step": 1, "steps": 2, "figures": {"loss": null}})
        );
    }
}
