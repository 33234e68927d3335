//! Exit codes, and errors as one line of text.

use std::process::ExitCode;

use clap::error::ErrorKind;

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// The command in the sandbox exited with this code.
    Command(i32),
    /// A repeated episode gave different results.
    Differs,
    /// The user's input is invalid.
    Usage,
    /// The model ended without submitting.
    NotSubmitted,
    /// The machine or a service failed.
    Infrastructure,
    /// The command ran into its time limit.
    TimedOut,
    /// A signal with this number cancelled the program.
    Cancelled(i32),
    /// The command ran into its memory limit.
    OutOfMemory,
}

impl Exit {
    /// The code the caller sees.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            // As the kernel would truncate it.
            Self::Command(code) => (code & 0xff) as u8,
            Self::Differs => 1,
            Self::Usage => 2,
            Self::NotSubmitted => 3,
            Self::Infrastructure => 4,
            Self::TimedOut => 124,
            Self::Cancelled(signal) => (128 + signal) as u8,
            Self::OutOfMemory => 137,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The user's input is invalid; the text says what to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The whole chain of causes in one line.
pub fn describe(error: &anyhow::Error) -> String {
    error_text::one_line(&**error)
}

/// The same, with every cause's text shortened by `clean` first.
pub fn describe_with(error: &anyhow::Error, clean: impl Fn(&str) -> &str) -> String {
    error_text::one_line_with(&**error, clean)
}

/// Prints help and versions as they are, and errors of arguments as one line.
pub fn argument_error(error: &clap::Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // The reader may have closed the pipe.
            let _ = error.print();
            Exit::Done
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::Usage
        }
        _ => {
            crate::note(&format!("error: {}", one_line(&error.to_string())));
            Exit::Usage
        }
    }
}

/// The message and its tips, without the usage block.
fn one_line(text: &str) -> String {
    let message = text.split("\n\nUsage:").next().unwrap_or(text);
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    let message = message
        .strip_prefix("error: ")
        .unwrap_or(message)
        .replace("\n\n", "\n")
        .replace("\n  tip:", "; tip:");
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{message}; see --help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_fit_into_a_byte() {
        assert_eq!(Exit::Command(-1).code(), 255);
        assert_eq!(Exit::Cancelled(2).code(), 130);
    }

    #[test]
    fn a_chain_is_one_line_without_repetition() {
        let inner = std::io::Error::other("no\n  space");
        let error = anyhow::Error::new(inner).context("writing: no space").context("outer");
        assert_eq!(describe(&error), "outer: writing: no space");
    }

    #[test]
    fn errors_of_arguments_fit_on_a_line() {
        let text = "error: unexpected argument '--x' found\n\n  tip: try '--y'\n  tip: or '--z'\n\nUsage: a [b]\n\nFor \
                    more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "unexpected argument '--x' found; tip: try '--y'; tip: or '--z'; see --help"
        );
    }
}
