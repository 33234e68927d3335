//! Progress of long operations on standard error: a bar on a terminal, plain lines elsewhere.

use std::{io, io::IsTerminal, time::Duration};

use image::{Progress, Stage};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{output, sanitize};

const BYTES: &str = "{prefix:>12} {bar:32} {bytes}/{total_bytes} {bytes_per_sec} {wide_msg}";
const STEPS: &str = "{prefix:>12} {bar:32} {pos}/{len} {elapsed} {wide_msg}";
const UNKNOWN: &str = "{prefix:>12} {spinner} {bytes} {elapsed} {wide_msg}";
const UNCOUNTED: &str = "{prefix:>12} {spinner} {elapsed} {wide_msg}";

/// Shows progress.
pub(crate) enum ProgressView {
    /// A bar that is redrawn.
    Bar(ProgressBar),
    /// One line per stage and message.
    Lines,
}

impl ProgressView {
    /// Chooses the view that suits standard error.
    pub(crate) fn on_stderr() -> Self {
        if !io::stderr().is_terminal() {
            return Self::Lines;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self::Bar(bar)
    }

    /// Starts a stage that is counted in bytes.
    pub(crate) fn bytes(&self, title: &str, total: u64) {
        match self {
            Self::Bar(bar) => start(bar, title, BYTES, Some(total)),
            Self::Lines => output::note(&format!("{title} {}", HumanBytes(total))),
        }
    }

    /// Starts a stage that is counted in items. It is shown only as a bar.
    pub(crate) fn items(&self, title: &str, total: u64) {
        if let Self::Bar(bar) = self {
            start(bar, title, STEPS, Some(total));
        }
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl Drop for ProgressView {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Progress for ProgressView {
    fn stage(&self, stage: Stage, total: Option<u64>) {
        match self {
            Self::Bar(bar) => {
                let template = match (stage, total) {
                    (Stage::Building | Stage::Removing, Some(_)) => STEPS,
                    (Stage::Resolving | Stage::Building, _) => UNCOUNTED,
                    (_, Some(_)) => BYTES,
                    (_, None) => UNKNOWN,
                };
                start(bar, &stage.to_string(), template, total);
            }
            Self::Lines => match (stage, total) {
                // It is quick as a rule, and the end is reported.
                (Stage::Removing, _) => {}
                (Stage::Building | Stage::Resolving, _) | (_, None) => {
                    output::note(&stage.to_string());
                }
                (_, Some(bytes)) => output::note(&format!("{stage} {}", HumanBytes(bytes))),
            },
        }
    }

    fn advance(&self, by: u64) {
        if let Self::Bar(bar) = self {
            bar.inc(by);
            // The total may have been an estimate.
            if bar.length().is_some_and(|length| length < bar.position()) {
                bar.set_length(bar.position());
            }
        }
    }

    fn message(&self, text: &str) {
        match self {
            Self::Bar(bar) => bar.set_message(sanitize(text).into_owned()),
            Self::Lines => output::note(text),
        }
    }

    fn warning(&self, text: &str) {
        match self {
            Self::Bar(bar) => bar.suspend(|| output::note(text)),
            Self::Lines => output::note(text),
        }
    }
}

fn start(bar: &ProgressBar, title: &str, template: &str, total: Option<u64>) {
    bar.set_position(0);
    match total {
        Some(total) => bar.set_length(total),
        None => bar.unset_length(),
    }
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(sanitize(title).into_owned());
    bar.set_message("");
}
