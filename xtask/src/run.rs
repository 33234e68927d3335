//! Runs programs: echoes the command line, names it in errors. Knows no particular program.

use std::{
    ffi::OsStr,
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};

/// Runs a program with our own streams. Any exit status but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    eprintln!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs a program and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` ended with {}: {}", output.status, errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program with its standard output in a file. Any exit status but success is an error.
pub(crate) fn run_into(file: &Path, command: &mut Command) -> Result<()> {
    let to = File::create(file).with_context(|| format!("creating {}", file.display()))?;
    run(command.stdout(to))
}

/// Runs a program with the lowest priority and returns all it printed, with its command line: for steps beside others,
/// whose output must not mix with theirs. The text is returned with the error as well.
pub(crate) fn run_beside(command: &Command) -> (String, Result<()>) {
    let line = command_line(command);
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        nice.current_dir(dir);
    }
    let mut text = format!("$ {line}\n");
    let output = match nice.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return (text, Err(error).context(format!("cannot start `nice {line}`"))),
    };
    for stream in [output.stdout, output.stderr] {
        text.push_str(&String::from_utf8_lossy(&stream));
    }
    let result = match output.status.success() {
        true => Ok(()),
        false => Err(anyhow!("`{line}` ended with {}", output.status)),
    };
    (text, result)
}

/// Whether a program can be started and succeeds. Prints nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
