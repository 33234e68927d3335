//! Exit codes: which end of a command, and which error, means which.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | success; for `sandbox run`, the command exited with 0 |
//! | *any* | for `sandbox run`, `exec` and `shell`, the command's exit code; 128 + N if signal N ended it |
//! | 1 | for `replay --sandbox`, a result differs; for `perf serve --assert`, a target is missed |
//! | 2 | invalid input |
//! | 3 | for `run`, the model ended without submitting |
//! | 4 | the machine or a service failed |
//! | 124 | the command reached its time limit |
//! | 130, 143 | cancelled with Ctrl-C, ended by SIGTERM |
//! | 137 | the command reached its memory limit |

use benchmark::{RunEnd, RunOutcome};
pub(crate) use startup::{Exit, UsageError, describe};
use trajectory::Outcome;

use crate::{
    console::output::{self, OutputError},
    remedy::remedy,
    settings::SettingsError,
};

/// The exit code of `run`, for the outcome of its episode.
pub(crate) fn of_run(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Submitted => Exit::Done,
        Outcome::Cancelled => Exit::Cancelled(2),
        Outcome::Infrastructure { .. } => Exit::Infrastructure,
        _ => Exit::NotSubmitted,
    }
}

/// The exit code of `benchmark`. `broken` are the tasks that could not be loaded.
pub(crate) fn of_benchmark(outcome: &RunOutcome, broken: &[String]) -> Exit {
    let summary = &outcome.summary;
    match outcome.end {
        RunEnd::Failed { .. } => Exit::Infrastructure,
        RunEnd::Cancelled => Exit::Cancelled(2),
        RunEnd::Complete if summary.num_errors + outcome.unfinished > 0 => Exit::Infrastructure,
        RunEnd::Complete if !broken.is_empty() => Exit::Usage,
        RunEnd::Complete if summary.ungraded > 0 => Exit::Infrastructure,
        RunEnd::Complete => Exit::Done,
    }
}

/// The exit code for an error.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<OutputError>() {
            return if error.is_broken_pipe() { Exit::Done } else { Exit::Infrastructure };
        }
        let usage = cause.is::<UsageError>()
            || matches!(cause.downcast_ref(), Some(SettingsError::NoHome))
            || cause.downcast_ref().is_some_and(sandbox::Error::is_usage)
            || is_usage_of_named(cause)
            || cause.downcast_ref().is_some_and(image::Error::is_usage)
            || cause.downcast_ref().is_some_and(catalogue::Error::is_usage)
            || cause.downcast_ref().is_some_and(benchmark::Error::is_usage)
            || cause.downcast_ref().is_some_and(curriculum::PrepareError::is_usage)
            || cause.downcast_ref().is_some_and(curriculum::SynthesizeError::is_usage)
            || matches!(cause.downcast_ref(), Some(model::Error::Settings(_)))
            || cause.is::<report::ReadError>()
            || cause.is::<problems::TaskError>()
            || cause.is::<sandbox::SpecError>();
        if usage {
            return Exit::Usage;
        }
    }
    Exit::Infrastructure
}

#[cfg(target_os = "linux")]
fn is_usage_of_named(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(supervisor::Error::is_usage)
}

#[cfg(not(target_os = "linux"))]
fn is_usage_of_named(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}

/// Prints an error with its remedy in one line; returns how to end.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    let exit = of(error);
    if exit != Exit::Done {
        output::note(&format!("error: {}{}", describe(error), remedy(error)));
    }
    exit
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
        assert_eq!(of(&UsageError("no".into()).into()), Exit::Usage);
        assert_eq!(of(&anyhow::anyhow!("?")), Exit::Infrastructure);
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
}
