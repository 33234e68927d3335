//! Numbers, times and shortened texts for people.

use std::{borrow::Cow, time::Duration};

use trajectory::Usage;

/// Characters shown of one line.
const MAX_LINE: usize = 400;

/// Usage of an episode so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsageTotals {
    /// Tokens of all calls.
    pub(super) usage: Usage,
    /// Tokens of the current conversation.
    pub(super) context: u64,
    /// US dollars, if the price is known.
    pub(super) cost: Option<f64>,
}

impl UsageTotals {
    /// Adds one request.
    pub(super) fn add(&mut self, usage: Usage, cost: Option<f64>) {
        self.usage += usage;
        self.context = usage.total();
        if let Some(cost) = cost {
            self.cost = Some(self.cost.unwrap_or(0.0) + cost);
        }
    }
}

/// Such as `12.3k in, 480 out`; with `~` for estimates.
pub(super) fn token_counts(usage: &Usage) -> String {
    let about = if usage.estimated { "~" } else { "" };
    format!("{about}{} in, {about}{} out", count(usage.input), count(usage.output))
}

/// Such as `480`, `12.3k` or `1.2M`.
pub(super) fn count(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        1000..999_950 => format!("{:.1}k", number as f64 / 1e3),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

/// Such as `$0.0123`: the fewer dollars, the more digits.
pub(super) fn money(dollars: f64) -> String {
    let digits = if dollars < 1.0 { 4 } else { 2 };
    format!("${dollars:.digits$}")
}

/// Such as `0.3 s`, `12 s`, `1:05` or `1:02:05`.
pub(super) fn time(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        clock(time)
    }
}

/// The same, rounded down.
pub(super) fn time_at_most(duration: Duration) -> String {
    time(Duration::from_millis(millis(duration) / 100 * 100))
}

/// The same, rounded up.
pub(super) fn time_at_least(duration: Duration) -> String {
    let up =
        |unit: u64| Duration::from_millis(millis(duration).div_ceil(unit).saturating_mul(unit));
    match up(100) {
        tenths if tenths < Duration::from_secs(10) => time(tenths),
        _ => clock(up(1000)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// The same in whole seconds, for a running clock.
pub(super) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, minutes) => format!("{minutes}:{rest:02}"),
        (hours, minutes) => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

/// Such as `1 line`, `2 lines`.
pub(super) fn lines(number: usize) -> String {
    counted(number, "line")
}

/// Such as `1 turn`, `2 turns`.
pub(crate) fn counted(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// The text on one line, cut after `max` characters.
pub(super) fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let gap = if line.is_empty() { "" } else { " " };
        for c in gap.chars().chain(word.chars()) {
            if length == max {
                line.push('…');
                return line;
            }
            line.push(c);
            length += 1;
        }
    }
    line
}

/// A part of a shortened text.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// A line, itself shortened if it is long.
    Line(Cow<'a, str>),
    /// This many lines are omitted.
    Hidden(usize),
}

/// The first and last lines of a text. A single line is not replaced by a mark.
pub(super) fn head_and_tail(text: &str, head: usize, tail: usize) -> Vec<Part<'_>> {
    let all: Vec<&str> = text.lines().collect();
    let hidden = all.len().saturating_sub(head + tail);
    let (first, last) = if hidden < 2 { (all.len(), all.len()) } else { (head, head + hidden) };
    let mut parts: Vec<Part<'_>> = shown(&all[..first]).collect();
    if first < last {
        parts.push(Part::Hidden(hidden));
    }
    parts.extend(shown(&all[last..]));
    parts
}

fn shown<'a>(lines: &[&'a str]) -> impl Iterator<Item = Part<'a>> {
    lines.iter().copied().map(shortened).map(Part::Line)
}

fn shortened(line: &str) -> Cow<'_, str> {
    match line.char_indices().nth(MAX_LINE) {
        None => Cow::Borrowed(line),
        Some((end, _)) => {
            let more = line[end..].chars().count();
            Cow::Owned(format!("{}… ({} more)", &line[..end], counted(more, "character")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let counts = [(0, "0"), (999, "999"), (1000, "1.0k"), (65_536, "65.5k"), (999_999, "1.0M")];
        for (number, shown) in counts {
            assert_eq!(count(number), shown);
        }
        assert_eq!(money(0.012_34), "$0.0123");
        assert_eq!(money(12.345), "$12.35");
        let seconds = [(0, "0 s"), (59, "59 s"), (65, "1:05"), (3725, "1:02:05")];
        for (number, shown) in seconds {
            assert_eq!(clock(Duration::from_secs(number)), shown);
        }
        assert_eq!(time(Duration::from_millis(349)), "0.3 s");
        for (millis, at_most, at_least) in [
            (0, "0.0 s", "0.0 s"),
            (349, "0.3 s", "0.4 s"),
            (400, "0.4 s", "0.4 s"),
            (9_999, "9.9 s", "10 s"),
            (12_001, "12 s", "13 s"),
            (59_999, "59 s", "1:00"),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(
                (time_at_most(duration).as_str(), time_at_least(duration).as_str()),
                (at_most, at_least)
            );
        }
        assert_eq!(time(Duration::from_secs(12)), "12 s");
        let usage = Usage { input: 1500, output: 7, estimated: true, ..Usage::default() };
        assert_eq!(token_counts(&usage), "~1.5k in, ~7 out");
    }

    #[test]
    fn the_middle_of_a_long_text_is_counted() {
        let text: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let line = |text: &'static str| Part::Line(Cow::Borrowed(text));
        assert_eq!(
            head_and_tail(&text, 2, 1),
            [line("1"), line("2"), Part::Hidden(17), line("20")]
        );
        assert_eq!(head_and_tail("1\n2\n3\n4", 2, 1).len(), 4);
        assert!(head_and_tail("", 2, 1).is_empty());
        let long = "é".repeat(MAX_LINE + 3);
        let cut = format!("{}… (3 characters more)", "é".repeat(MAX_LINE));
        assert_eq!(head_and_tail(&long, 1, 1), [Part::Line(cut.into())]);
    }

    #[test]
    fn a_text_becomes_one_line() {
        assert_eq!(one_line(" a\n\tb  c ", 10), "a b c");
        assert_eq!(one_line("ab cd", 3), "ab …");
        assert_eq!(one_line("abc", 3), "abc");
    }
}
