//! Buffered text with styles. Everything shown passes through here and is sanitized: the only control sequences are
//! those of this file.

use super::sanitize;
use crate::settings::Color;

/// The style of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Unstyled.
    Normal,
    /// Reasoning.
    Thinking,
    /// Less important.
    Dim,
    /// Headings and marks.
    Mark,
    /// Success.
    Good,
    /// Warning.
    Warning,
    /// Failure.
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

const RESET: &str = "\x1b[0m";
const START_OF_LINE: &str = "\r";
const ERASE_TO_END: &str = "\x1b[K";

/// Collects text to show.
#[derive(Debug)]
pub(super) struct StyledBuffer {
    color: Color,
    text: String,
    bottom: Bottom,
}

/// What is on the line of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bottom {
    /// Text, or nothing.
    Text,
    /// The status line, which the next text replaces.
    Status,
}

impl StyledBuffer {
    /// An empty buffer.
    pub(super) fn new(color: Color) -> Self {
        Self { color, text: String::new(), bottom: Bottom::Text }
    }

    /// Adds text. Its style ends with it, so that a stopped program leaves a usable terminal.
    pub(super) fn put(&mut self, style: Style, text: &str) {
        self.clear();
        let colored =
            self.color == Color::OnTerminals && style != Style::Normal && !text.is_empty();
        if colored {
            self.text.push_str(style.code());
        }
        self.text.push_str(&sanitize(text));
        if colored {
            self.text.push_str(RESET);
        }
    }

    /// Adds text and ends the line.
    pub(super) fn line(&mut self, style: Style, text: &str) {
        self.put(style, text);
        self.text.push('\n');
    }

    /// Shows the status line until something else is shown. Only at the start of a line.
    pub(super) fn status(&mut self, style: Style, text: &str) {
        self.bottom = Bottom::Text;
        self.text.push_str(START_OF_LINE);
        self.put(style, text);
        self.text.push_str(ERASE_TO_END);
        self.bottom = Bottom::Status;
    }

    /// Removes the status line.
    pub(super) fn clear(&mut self) {
        if self.bottom == Bottom::Status {
            self.text.push_str(START_OF_LINE);
            self.text.push_str(ERASE_TO_END);
            self.bottom = Bottom::Text;
        }
    }

    /// Takes the text since the last call.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
impl StyledBuffer {
    /// The text without the control sequences of this file. A lone carriage return is not one of them.
    pub(super) fn strip(text: &str) -> String {
        use Style::{Bad, Dim, Good, Mark, Thinking, Warning};
        let status = [format!("{START_OF_LINE}{ERASE_TO_END}"), format!("\r{}", Dim.code())];
        let styles = [Thinking, Dim, Mark, Good, Warning, Bad].map(|style| style.code().to_owned());
        let ends = [RESET, ERASE_TO_END].map(str::to_owned);
        let ours = status.into_iter().chain(styles).chain(ends);
        ours.fold(text.to_owned(), |text, code| text.replace(&code, ""))
    }
}
