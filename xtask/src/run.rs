//! Starting programs: echoed first, errors named. Knows no particular program.

use std::{
    ffi::OsStr,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// Runs a program to its end with our own streams; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = spelled(command);
    eprintln!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs a program quietly and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = spelled(command);
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` ended with {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program can be started and succeeds, without a word.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn spelled(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
