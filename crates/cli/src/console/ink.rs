//! Text with its looks, gathered until somebody takes it. All that is shown passes through here, and here
//! it is made harmless: the only control sequences are those of this file.

use super::sanitize;
use crate::settings::Color;

/// What a text looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// As it is.
    Normal,
    /// What the model thinks.
    Thinking,
    /// What matters less.
    Dim,
    /// Our own headings and marks.
    Mark,
    /// It went well.
    Good,
    /// Worth a look.
    Warning,
    /// It failed.
    Bad,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Normal => "",
            Self::Thinking => "\x1b[2;3m",
            Self::Dim => "\x1b[2m",
            Self::Mark => "\x1b[1;36m",
            Self::Good => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

const PLAIN_AGAIN: &str = "\x1b[0m";
const START_OF_LINE: &str = "\r";
const ERASE_TO_END: &str = "\x1b[K";

/// Gathers what will be shown.
#[derive(Debug)]
pub(super) struct Ink {
    color: Color,
    text: String,
    bottom: Bottom,
}

/// What stands on the line of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bottom {
    /// What was put there, or nothing.
    Text,
    /// A line that makes way for the next text.
    Passing,
}

impl Ink {
    /// With colours or without.
    pub(super) fn new(color: Color) -> Self {
        Self { color, text: String::new(), bottom: Bottom::Text }
    }

    /// Adds text. Its looks end with it, so that a program stopped here leaves a sane terminal.
    pub(super) fn put(&mut self, style: Style, text: &str) {
        self.clear();
        let colored =
            self.color == Color::OnTerminals && style != Style::Normal && !text.is_empty();
        if colored {
            self.text.push_str(style.code());
        }
        self.text.push_str(&sanitize(text));
        if colored {
            self.text.push_str(PLAIN_AGAIN);
        }
    }

    /// Adds text and ends the line.
    pub(super) fn line(&mut self, style: Style, text: &str) {
        self.put(style, text);
        self.text.push('\n');
    }

    /// Shows a line until something else is shown. To be used at the start of a line only.
    pub(super) fn pass(&mut self, style: Style, text: &str) {
        self.bottom = Bottom::Text;
        self.text.push_str(START_OF_LINE);
        self.put(style, text);
        self.text.push_str(ERASE_TO_END);
        self.bottom = Bottom::Passing;
    }

    /// Takes a passing line away.
    pub(super) fn clear(&mut self) {
        if self.bottom == Bottom::Passing {
            self.text.push_str(START_OF_LINE);
            self.text.push_str(ERASE_TO_END);
            self.bottom = Bottom::Text;
        }
    }

    /// What was gathered since the last time.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
impl Ink {
    /// What was gathered in colour, without our own control sequences. A return alone is none of them.
    pub(super) fn strip(text: &str) -> String {
        use Style::{Bad, Dim, Good, Mark, Thinking, Warning};
        let passing = [format!("{START_OF_LINE}{ERASE_TO_END}"), format!("\r{}", Dim.code())];
        let styles = [Thinking, Dim, Mark, Good, Warning, Bad].map(|style| style.code().to_owned());
        let ends = [PLAIN_AGAIN, ERASE_TO_END].map(str::to_owned);
        let ours = passing.into_iter().chain(styles).chain(ends);
        ours.fold(text.to_owned(), |text, code| text.replace(&code, ""))
    }
}
