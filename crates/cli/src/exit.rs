//! How this program ends: one enum, one code each, and which error means which.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; for `sandbox run`, the command exited with 0 |
//! | *any* | for `sandbox run` and `sandbox shell`, the command's own code; 128 + N when signal N ended it |
//! | 1 | for `replay --sandbox`, something came out differently |
//! | 2 | usage or bad input |
//! | 3 | for `run`, the model ended without submitting |
//! | 4 | the machine or a service failed |
//! | 124 | the command ran past its time |
//! | 130, 143 | cancelled with Ctrl-C, ended by SIGTERM |
//! | 137 | the command ran into its memory limit |

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::{
    output::{self, OutputError},
    settings::SettingsError,
};

/// The input is at fault, in words for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// How this program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is done.
    Done,
    /// The command in the sandbox ended with this code.
    Command(i32),
    /// A repeated episode came out differently.
    Differs,
    /// The input is at fault.
    Usage,
    /// The model ended without submitting.
    NotSubmitted,
    /// The machine or a service is at fault.
    Infrastructure,
    /// The command ran past its time.
    TimedOut,
    /// A signal cancelled us.
    Cancelled(i32),
    /// The command ran into its memory limit.
    OutOfMemory,
}

impl Exit {
    /// The code the caller sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            // What the kernel would keep of it.
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

/// What an error means for the caller.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<OutputError>() {
            return if error.is_broken_pipe() { Exit::Done } else { Exit::Infrastructure };
        }
        let usage = cause.is::<Usage>()
            || matches!(cause.downcast_ref(), Some(SettingsError::NoHome))
            || cause.downcast_ref().is_some_and(sandbox::Error::is_usage)
            || cause.downcast_ref().is_some_and(image::Error::is_usage)
            || cause.downcast_ref().is_some_and(catalogue::Error::is_usage)
            || cause.downcast_ref().is_some_and(benchmark::Error::is_usage)
            || cause.downcast_ref().is_some_and(curriculum::PrepareError::is_usage)
            || cause.downcast_ref().is_some_and(curriculum::SynthesizeError::is_usage)
            || matches!(cause.downcast_ref(), Some(model::Error::Settings(_)))
            || cause.is::<sandbox::SpecError>();
        if usage {
            return Exit::Usage;
        }
    }
    Exit::Infrastructure
}

/// The whole chain of causes in one line.
pub(crate) fn line(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let part = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        // Some libraries repeat their source in their own words.
        if !parts.last().is_some_and(|last| last.ends_with(&part)) {
            parts.push(part);
        }
    }
    parts.join(": ")
}

/// Tells the user about an error, in one line; answers how to end.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    let exit = of(error);
    if exit != Exit::Done {
        output::note(&format!("error: {}{}", line(error), remedy(error)));
    }
    exit
}

/// Advice for troubles any part may meet and none can name the remedy for.
fn remedy(error: &anyhow::Error) -> &'static str {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    let full = kinds.map(std::io::Error::kind).any(|kind| kind == std::io::ErrorKind::StorageFull);
    match full && !error.chain().any(|cause| cause.is::<SettingsError>()) {
        true => "; free some space, or name a larger place in LLM_IN_SANDBOX_HOME",
        false => "",
    }
}

/// Shows help and versions as they are, and what is wrong with arguments in one line.
pub(crate) fn refuse_arguments(error: &clap::Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has seen enough help is fine.
            let _ = error.print();
            Exit::Done
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::Usage
        }
        _ => {
            output::note(&format!("error: {}", one_line(&error.to_string())));
            Exit::Usage
        }
    }
}

/// The complaint and its tips, without the block on usage.
fn one_line(text: &str) -> String {
    let said = text.split("\n\nUsage:").next().unwrap_or(text);
    let said = said.split("\n\nFor more information").next().unwrap_or(said);
    let said = said
        .strip_prefix("error: ")
        .unwrap_or(said)
        .replace("\n\n", "\n")
        .replace("\n  tip:", "; tip:");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{said}; --help shows what is possible")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_become_codes() {
        let spec = sandbox::Spec { workdir: "x".into(), ..sandbox::Spec::default() };
        let bad = anyhow::Error::new(sandbox::Error::from(spec.validate().unwrap_err()));
        assert_eq!(of(&bad.context("while trying")), Exit::Usage);
        let gone = sandbox::Error::Gone("killed".into());
        assert_eq!(of(&gone.into()), Exit::Infrastructure);
        assert_eq!(of(&Usage("no".into()).into()), Exit::Usage);
        assert_eq!(of(&anyhow::anyhow!("?")), Exit::Infrastructure);
        assert_eq!(Exit::Command(-1).code(), 255);
        assert_eq!(Exit::Cancelled(2).code(), 130);
    }

    #[test]
    fn every_code_is_documented() {
        let page = include_str!("../../../docs/cli.md");
        let cancelled = Exit::Cancelled(2);
        for exit in [
            Exit::Done,
            Exit::Differs,
            Exit::Usage,
            Exit::NotSubmitted,
            Exit::Infrastructure,
            Exit::TimedOut,
            cancelled,
            Exit::OutOfMemory,
        ] {
            assert!(page.contains(&format!("\n| {} | ", exit.code())), "{exit:?}");
        }
    }

    #[test]
    fn a_chain_is_one_line_and_says_things_once() {
        let inner = std::io::Error::other("no\n  space");
        let error = anyhow::Error::new(inner).context("writing: no space").context("outer");
        assert_eq!(line(&error), "outer: writing: no space");
        let full = anyhow::Error::new(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert!(remedy(&full).contains("LLM_IN_SANDBOX_HOME"));
    }

    #[test]
    fn complaints_about_arguments_fit_on_a_line() {
        let text = "error: unexpected argument '--x' found\n\n  tip: try '--y'\n  tip: or '--z'\n\nUsage: a [b]\n\nFor \
                    more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "unexpected argument '--x' found; tip: try '--y'; tip: or '--z'; --help shows what is possible"
        );
    }
}
