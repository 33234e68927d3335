//! The status line: what the episode waits for, since when, and its usage. The caller draws it.

use std::time::{Duration, Instant};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{
    format::{UsageTotals, clock, count, money, one_line, token_counts},
    sanitize,
};

/// Minimum time between two drawings.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
const SPINNER: [&str; 8] = ["⣾", "⣽", "⣻", "⢿", "⡿", "⣟", "⣯", "⣷"];
/// Columns left free: a full line would wrap and could not be erased, and Ctrl-C prints two characters.
const MARGIN: usize = 3;
/// Characters shown of a tool's name.
const MAX_NAME: usize = 40;

/// What an episode waits for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum WaitingFor {
    /// Nothing to show.
    Nothing,
    /// The model's first token.
    Model,
    /// The model, which writes a call of this tool.
    Call(String),
    /// The next request, at this time.
    Retry(Instant),
    /// A tool.
    Tool(String),
}

/// The status line.
#[derive(Debug)]
pub(super) struct Status {
    waits: WaitingFor,
    since: Instant,
    drawn: Option<Instant>,
    frame: usize,
}

impl Status {
    /// Waits for nothing.
    pub(super) fn new(now: Instant) -> Self {
        Self { waits: WaitingFor::Nothing, since: now, drawn: None, frame: 0 }
    }

    /// Sets what the episode waits for.
    pub(super) fn wait(&mut self, waits: WaitingFor, now: Instant) {
        (self.waits, self.since) = (waits, now);
    }

    /// Waits for nothing any more.
    pub(super) fn stop(&mut self) {
        self.waits = WaitingFor::Nothing;
    }

    /// Whether there is something to show.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits != WaitingFor::Nothing
    }

    /// Whether it was drawn less than [`INTERVAL`] ago.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.drawn.is_some_and(|drawn| now.saturating_duration_since(drawn) < INTERVAL)
    }

    /// Formats the line, at most `columns` wide.
    pub(super) fn draw(
        &mut self,
        turn: &str,
        totals: &UsageTotals,
        begun: Instant,
        now: Instant,
        columns: usize,
    ) -> String {
        self.drawn = Some(now);
        self.frame = (self.frame + 1) % SPINNER.len();
        let mut parts = vec![turn.to_owned(), clock(now.saturating_duration_since(begun))];
        if totals.usage.total() > 0 {
            parts.push(token_counts(&totals.usage));
        }
        parts.extend(totals.cost.map(money));
        if totals.context > 0 {
            parts.push(format!("context {}", count(totals.context)));
        }
        let first = format!("{} {}", SPINNER[self.frame], self.text(now));
        fit(&first, &parts, columns.saturating_sub(MARGIN))
    }

    fn text(&self, now: Instant) -> String {
        let name = |name: &str| one_line(name, MAX_NAME);
        let waited = clock(now.saturating_duration_since(self.since));
        match &self.waits {
            WaitingFor::Nothing => String::new(),
            WaitingFor::Model => format!("model {waited}"),
            WaitingFor::Call(tool) => format!("model writes {} {waited}", name(tool)),
            WaitingFor::Tool(tool) => format!("{} {waited}", name(tool)),
            WaitingFor::Retry(until) if *until > now => {
                // Rounded up, as in a countdown.
                let left = until.saturating_duration_since(now) + Duration::from_millis(999);
                format!("retrying in {}", clock(left))
            }
            WaitingFor::Retry(until) => {
                format!("model {}", clock(now.saturating_duration_since(*until)))
            }
        }
    }
}

/// As much as fits into `columns`: the first part is cut, the others are shown whole or not at all, since half a
/// number is wrong.
fn fit(first: &str, parts: &[String], columns: usize) -> String {
    let mut left = columns;
    let mut shown = String::new();
    for c in sanitize(first).chars() {
        let width = c.width().unwrap_or(0);
        if width > left {
            return shown;
        }
        left -= width;
        shown.push(c);
    }
    for part in parts {
        let part = format!(" · {part}");
        if part.width() > left {
            break;
        }
        left -= part.width();
        shown.push_str(&part);
    }
    shown
}

#[cfg(test)]
mod tests {
    use trajectory::Usage;

    use super::*;

    #[test]
    fn the_line_shows_what_is_awaited_and_the_usage() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut totals = UsageTotals::default();
        let mut status = Status::new(begun);
        status.wait(WaitingFor::Model, begun);
        assert_eq!(
            status.draw("turn 1/9", &totals, begun, at(3), 80),
            "⣽ model 3 s · turn 1/9 · 3 s"
        );
        totals.add(Usage { input: 1200, output: 34, ..Usage::default() }, Some(0.5));
        status.wait(WaitingFor::Tool("execute_bash".into()), at(60));
        let line = status.draw("turn 1/9", &totals, begun, at(65), 100);
        assert_eq!(
            line,
            "⣻ execute_bash 5 s · turn 1/9 · 1:05 · 1.2k in, 34 out · $0.5000 · context 1.2k"
        );
        let line = status.draw("turn 1/9", &totals, begun, at(65), 45);
        assert_eq!(line, "⢿ execute_bash 5 s · turn 1/9 · 1:05");
        assert_eq!(status.draw("turn 1/9", &totals, begun, at(65), 12), "⡿ execute");
        assert_eq!(status.draw("turn 1/9", &totals, begun, at(65), 0), "");
        status.wait(WaitingFor::Retry(at(70)), at(66));
        assert!(status.draw("", &totals, begun, at(66), 80).contains("retrying in 4 s"));
        assert!(status.draw("", &totals, begun, at(72), 80).contains("model 2 s"));
    }

    #[test]
    fn the_line_is_one_line_whatever_the_name_of_a_tool() {
        let now = Instant::now();
        let mut status = Status::new(now);
        status.wait(WaitingFor::Call("日本\n\x1b[2J\u{202e}語".into()), now);
        let line = status.draw("", &UsageTotals::default(), now, now, 21);
        assert_eq!(line, "⣽ model writes 日");
        let line = status.draw("", &UsageTotals::default(), now, now, 80);
        assert!(line.contains("日本 \\x1b[2J\\u{202e}語"), "{line:?}");
    }
}
