//! Logging to standard error, off by default.

use std::{
    ffi::OsStr,
    io::{self, Write},
};

use clap::{ArgAction, Args, ValueEnum};
use tracing_subscriber::{EnvFilter, fmt};

use crate::{json_log::Json, note, sanitize};

/// The variable with a filter such as `lis_agent=debug,warn`; it wins over `-v`.
pub const LOG_VARIABLE: &str = "LLM_IN_SANDBOX_LOG";

/// The options that turn logging on.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LogArgs {
    /// Log to standard error: -v progress, -vv details [else: the filter in $LLM_IN_SANDBOX_LOG; default: off]
    #[arg(long, short, global = true, action = ArgAction::Count, display_order = 1000)]
    pub verbose: u8,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text for each event.
    #[default]
    Text,
    /// One JSON object in a line for each event.
    Json,
}

impl LogArgs {
    /// The same options as arguments for another program.
    pub fn to_args(self) -> impl Iterator<Item = &'static str> {
        std::iter::repeat_n("-v", usize::from(self.verbose))
    }

    /// The filter of `-v`: our crates at the level, others only with warnings.
    fn filter(self) -> Option<String> {
        let level = match self.verbose {
            0 => return None,
            1 => "info",
            2 => "debug",
            _ => "trace",
        };
        Some(format!("warn,{}", OURS.map(|target| format!("{target}={level}")).join(",")))
    }
}

/// Prefixes of our crates' targets.
const OURS: [&str; 2] = ["lis_", "llm_in_sandbox"];

/// Installs the logger where it is asked for. Returns whether anything is logged.
pub(crate) fn init(args: &LogArgs, variable: Option<&OsStr>, format: LogFormat) -> bool {
    let variable = variable.map(|value| value.to_string_lossy().into_owned());
    let Some(text) = variable.filter(|text| !text.is_empty()).or_else(|| args.filter()) else {
        return false;
    };
    let filter = EnvFilter::try_new(&text).unwrap_or_else(|error| {
        note(&format!("{LOG_VARIABLE}: {error}; only warnings are logged"));
        EnvFilter::new("warn")
    });
    // A logger that is installed already, as in tests, stays.
    let writer = || Sanitized(io::stderr());
    let log = fmt().with_env_filter(filter).with_writer(writer).with_ansi(false);
    match format {
        LogFormat::Text => log.try_init().is_ok(),
        LogFormat::Json => log.event_format(Json).try_init().is_ok(),
    }
}

/// Makes visible what is hidden in a line of the log, which may quote servers and commands.
struct Sanitized<W>(W);

impl<W: Write> Write for Sanitized<W> {
    /// The logger writes whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(sanitize(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logging_is_off_by_default() {
        assert!(!init(&LogArgs::default(), None, LogFormat::Text));
        assert!(!init(&LogArgs::default(), Some(OsStr::new("")), LogFormat::Json));
    }

    #[test]
    fn lines_show_what_they_hide() {
        let mut log = Sanitized(Vec::new());
        log.write_all("WARN \u{9b}2J\u{202e}\x1b[0m é\n".as_bytes()).unwrap();
        assert_eq!(log.0, "WARN \\u{9b}2J\\u{202e}\\x1b[0m é\n".as_bytes());
    }

    #[test]
    fn flags_become_a_filter_that_parses() {
        for (verbose, level) in [(1, "info"), (2, "debug"), (9, "trace")] {
            let filter = LogArgs { verbose }.filter().unwrap();
            assert!(filter.contains(&format!("lis_={level}")), "{filter}");
            EnvFilter::try_new(&filter).unwrap();
        }
    }
}
