//! Progress of a build on standard error: the running step with its last line of output on a terminal, every line
//! elsewhere.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Write},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use image::{Progress, Stage};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use startup::sanitize;
use tokio::io::AsyncWrite;

use super::output;

const RUNNING: &str = "{prefix} {spinner} {elapsed} {wide_msg}";
/// Lines that an error repeats.
const ERROR_LINES: usize = 8;
/// Longer lines are split, in bytes.
const MAX_LINE: usize = 4096;

/// Shows the steps of a build.
pub(crate) struct BuildView {
    bar: Option<ProgressBar>,
    steps: usize,
    last: Mutex<VecDeque<String>>,
}

impl BuildView {
    /// A view of this many steps.
    pub(crate) fn new(steps: usize) -> Arc<Self> {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template(RUNNING) {
                bar.set_style(style);
            }
            bar
        });
        Arc::new(Self { bar, steps, last: Mutex::default() })
    }

    /// A step begins, and will take about this long.
    pub(crate) fn begin(&self, number: usize, what: &str, expected: Option<Duration>) {
        self.last().clear();
        let expected = expected.map(|time| format!(" ({})", about(time))).unwrap_or_default();
        self.note(&format!("{}: {what}{expected}", self.place(number)));
        if let Some(bar) = &self.bar {
            bar.set_prefix(self.place(number));
            bar.set_message("");
            bar.reset();
            bar.enable_steady_tick(Duration::from_millis(120));
        }
    }

    /// A step ended; says how.
    pub(crate) fn end(&self, number: usize, how: &str) {
        self.clear();
        output::note(&format!("{}: {how}", self.place(number)));
    }

    /// Removes what is redrawn.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.disable_steady_tick();
            bar.finish_and_clear();
        }
    }

    /// The last lines of output of the step, for an error.
    pub(crate) fn last_lines(&self) -> String {
        Vec::from_iter(self.last().iter().cloned()).join("; ")
    }

    /// A writer for a stream of the step's program.
    pub(crate) fn writer(self: &Arc<Self>) -> sandbox::Output {
        Box::new(Lines { view: Arc::clone(self), partial: Vec::new() })
    }

    fn place(&self, number: usize) -> String {
        format!("step {number} of {}", self.steps)
    }

    fn line(&self, text: &str) {
        let text = sanitize(text.trim());
        if text.is_empty() {
            return;
        }
        match &self.bar {
            Some(bar) => bar.set_message(text.replace('\t', " ")),
            // A closed standard error is ignored.
            None => {
                let _ = writeln!(io::stderr(), "  {text}");
            }
        }
        let mut last = self.last();
        last.push_back(text.into_owned());
        if last.len() > ERROR_LINES {
            last.pop_front();
        }
    }

    fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(text)),
            None => output::note(text),
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BuildView {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The builder of the base image reports its steps.
impl Progress for BuildView {
    fn stage(&self, _: Stage, _: Option<u64>) {}

    fn advance(&self, _: u64) {}

    fn message(&self, text: &str) {
        self.line(text);
    }

    fn warning(&self, text: &str) {
        self.note(text);
    }
}

/// A rough time, as text.
pub(crate) fn about(time: Duration) -> String {
    match time.as_secs_f64().round() as u64 {
        0..=1 => "about a second".into(),
        seconds @ 2..=99 => format!("about {seconds} s"),
        seconds => format!("about {} min", (seconds + 30) / 60),
    }
}

/// A measured time, as text.
pub(crate) fn took(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 9.95 => format!("{seconds:.1} s"),
        seconds if seconds < 119.5 => format!("{seconds:.0} s"),
        seconds => format!("{} min {} s", seconds as u64 / 60, seconds as u64 % 60),
    }
}

/// Splits what is written into lines; a progress bar that returns to the start of its line counts as several.
struct Lines {
    view: Arc<BuildView>,
    partial: Vec<u8>,
}

impl Lines {
    fn flush(&mut self) {
        let line = std::mem::take(&mut self.partial);
        self.view.line(&String::from_utf8_lossy(&line));
    }
}

impl AsyncWrite for Lines {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        for &byte in bytes {
            match byte {
                b'\n' | b'\r' => self.flush(),
                byte => self.partial.push(byte),
            }
            if self.partial.len() >= MAX_LINE {
                self.flush();
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn an_error_repeats_the_last_lines_without_control_characters() {
        let view = BuildView::new(1);
        let mut writer = view.writer();
        for i in 0..20 {
            writer.write_all(format!("line {i}\n").as_bytes()).await.unwrap();
        }
        writer.write_all(b"10%\r20%\r\nE: \x1b[31mbro").await.unwrap();
        writer.write_all(b"ke").await.unwrap();
        drop(writer);
        let last = view.last_lines();
        assert!(
            last.starts_with("line 15; ") && last.ends_with("10%; 20%; E: \\x1b[31mbroke"),
            "{last}"
        );
        assert_eq!(last.split("; ").count(), ERROR_LINES);
    }

    #[test]
    fn times_are_rough() {
        let texts = [0, 1, 40, 99, 100, 200, 330].map(|s| about(Duration::from_secs(s)));
        assert_eq!(texts[1..4], ["about a second", "about 40 s", "about 99 s"].map(String::from));
        assert_eq!(texts[4..], ["about 2 min", "about 3 min", "about 6 min"].map(String::from));
        let texts = [0.04, 9.97, 97.2, 119.6, 876.3].map(|s| took(Duration::from_secs_f64(s)));
        assert_eq!(texts, ["0.0 s", "10 s", "97 s", "1 min 59 s", "14 min 36 s"]);
    }
}
