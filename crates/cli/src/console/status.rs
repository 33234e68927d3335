//! The line at the bottom: what the episode waits for, since when, and what it has used up.
//!
//! Draws nothing by itself: it answers what to draw, and when it is time to.

use std::time::{Duration, Instant};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{
    figures::{Tally, both_ways, clock, count, money, one_line},
    sanitize,
};

/// No more often than this is the line drawn.
pub(super) const BEAT: Duration = Duration::from_millis(100);
const SPINNER: [&str; 8] = ["⣾", "⣽", "⣻", "⢿", "⡿", "⣟", "⣯", "⣷"];
/// Columns left free: a full line would wrap and could not be taken back, and a key such as Ctrl-C shows
/// two characters.
const ROOM: usize = 3;
/// Characters of a tool's name.
const NAME: usize = 40;

/// What an episode waits for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Waits {
    /// Nothing worth showing.
    Nothing,
    /// The model, which has not begun to speak.
    Model,
    /// The model, which is writing a call of this tool.
    Call(String),
    /// The next attempt to reach the model.
    Retry(Instant),
    /// A tool.
    Tool(String),
}

/// The line at the bottom.
#[derive(Debug)]
pub(super) struct Status {
    waits: Waits,
    since: Instant,
    drawn: Option<Instant>,
    beat: usize,
}

impl Status {
    /// Nothing to wait for yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { waits: Waits::Nothing, since: now, drawn: None, beat: 0 }
    }

    /// From now on the episode waits for this.
    pub(super) fn wait(&mut self, waits: Waits, now: Instant) {
        (self.waits, self.since) = (waits, now);
    }

    /// The episode waits for nothing any more.
    pub(super) fn stop(&mut self) {
        self.waits = Waits::Nothing;
    }

    /// Whether there is something to show.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits != Waits::Nothing
    }

    /// Whether it was drawn less than a beat ago.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.drawn.is_some_and(|drawn| now.saturating_duration_since(drawn) < BEAT)
    }

    /// The next picture of the line, no wider than this many columns.
    pub(super) fn draw(
        &mut self,
        turn: &str,
        tally: &Tally,
        begun: Instant,
        now: Instant,
        columns: usize,
    ) -> String {
        self.drawn = Some(now);
        self.beat = (self.beat + 1) % SPINNER.len();
        let mut parts = vec![turn.to_owned(), clock(now.saturating_duration_since(begun))];
        if tally.usage.total() > 0 {
            parts.push(both_ways(&tally.usage));
        }
        parts.extend(tally.cost.map(money));
        if tally.context > 0 {
            parts.push(format!("context {}", count(tally.context)));
        }
        let first = format!("{} {}", SPINNER[self.beat], self.words(now));
        fit(&first, &parts, columns.saturating_sub(ROOM))
    }

    fn words(&self, now: Instant) -> String {
        let name = |name: &str| one_line(name, NAME);
        let waited = clock(now.saturating_duration_since(self.since));
        match &self.waits {
            Waits::Nothing => String::new(),
            Waits::Model => format!("model {waited}"),
            Waits::Call(tool) => format!("model writes {} {waited}", name(tool)),
            Waits::Tool(tool) => format!("{} {waited}", name(tool)),
            Waits::Retry(until) if *until > now => {
                // Rounded up, as countdowns are.
                let left = until.saturating_duration_since(now) + Duration::from_millis(999);
                format!("model, again in {}", clock(left))
            }
            Waits::Retry(until) => {
                format!("model {}", clock(now.saturating_duration_since(*until)))
            }
        }
    }
}

/// As much as fits into so many columns: the first part cut where it must be, the others whole or not at
/// all, for half a figure is a wrong one.
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
    fn the_line_says_what_is_waited_for_and_what_is_used_up() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut tally = Tally::default();
        let mut status = Status::new(begun);
        status.wait(Waits::Model, begun);
        assert_eq!(
            status.draw("turn 1/9", &tally, begun, at(3), 80),
            "⣽ model 3 s · turn 1/9 · 3 s"
        );
        tally.add(Usage { input: 1200, output: 34, ..Usage::default() }, Some(0.5));
        status.wait(Waits::Tool("execute_bash".into()), at(60));
        let line = status.draw("turn 1/9", &tally, begun, at(65), 100);
        assert_eq!(
            line,
            "⣻ execute_bash 5 s · turn 1/9 · 1:05 · 1.2k in, 34 out · $0.5000 · context 1.2k"
        );
        let line = status.draw("turn 1/9", &tally, begun, at(65), 45);
        assert_eq!(line, "⢿ execute_bash 5 s · turn 1/9 · 1:05");
        assert_eq!(status.draw("turn 1/9", &tally, begun, at(65), 12), "⡿ execute");
        assert_eq!(status.draw("turn 1/9", &tally, begun, at(65), 0), "");
        status.wait(Waits::Retry(at(70)), at(66));
        assert!(status.draw("", &tally, begun, at(66), 80).contains("model, again in 4 s"));
        assert!(status.draw("", &tally, begun, at(72), 80).contains("model 2 s"));
    }

    #[test]
    fn the_line_is_one_line_however_a_tool_is_called() {
        let now = Instant::now();
        let mut status = Status::new(now);
        status.wait(Waits::Call("日本\n\x1b[2J\u{202e}語".into()), now);
        let line = status.draw("", &Tally::default(), now, now, 21);
        assert_eq!(line, "⣽ model writes 日");
        let line = status.draw("", &Tally::default(), now, now, 80);
        assert!(line.contains("日本 \\x1b[2J\\u{202e}語"), "{line:?}");
    }
}
