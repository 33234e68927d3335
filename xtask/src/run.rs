//! Runs programs: echoes the command line, names it in errors. Knows no particular program.

use std::{
    cell::RefCell,
    ffi::OsStr,
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// How the programs of a step that runs beside others are run, and what they have printed.
struct Beside {
    niceness: u8,
    temporary: PathBuf,
    text: String,
}

/// Seconds for a program of a step beside others, of which nothing is seen before it ends.
const LONGEST: &str = "1800";

thread_local! {
    static BESIDE: RefCell<Option<Beside>> = const { RefCell::new(None) };
}

/// Does the work with programs of [`run`] at this niceness and with this directory for temporary files, and returns all
/// they printed: for steps beside others, whose output must not mix with theirs. Standard input is not passed on.
pub(crate) fn beside<T>(niceness: u8, temporary: &Path, work: impl FnOnce() -> T) -> (T, String) {
    BESIDE.set(Some(Beside { niceness, temporary: temporary.to_owned(), text: String::new() }));
    let result = work();
    let text = BESIDE.take().map(|beside| beside.text).unwrap_or_default();
    (result, text)
}

/// Prints a line, in a step beside others with its programs' output.
pub(crate) fn note(line: &str) {
    BESIDE.with_borrow_mut(|beside| match beside {
        None => eprintln!("{line}"),
        Some(Beside { text, .. }) => {
            text.push_str(line);
            text.push('\n');
        }
    });
}

/// Runs a program with our own streams, in a step beside others with collected ones. Any exit status but success is an
/// error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    note(&format!("$ {line}"));
    let beside = BESIDE.with_borrow(|beside| beside.as_ref().map(|beside| nice(beside, command)));
    let status = match beside {
        None => command.status(),
        Some(mut command) => command.output().map(|output| {
            for stream in [output.stdout, output.stderr] {
                note(String::from_utf8_lossy(&stream).trim_end());
            }
            output.status
        }),
    }
    .with_context(|| format!("cannot start `{line}`"))?;
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

/// The same program, started through `nice`, and killed where it hangs.
fn nice(beside: &Beside, command: &Command) -> Command {
    let mut nice = Command::new("timeout");
    nice.args(["--kill-after=10", LONGEST, "nice", "-n", &beside.niceness.to_string()])
        .arg(command.get_program())
        .args(command.get_args())
        .env("TMPDIR", &beside.temporary);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        nice.current_dir(dir);
    }
    nice.stdin(Stdio::null());
    nice
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_beside_others_print_into_the_result() {
        let (result, text) = beside(1, Path::new("/"), || {
            note("first");
            run(Command::new("sh")
                .args(["-c", "echo out; echo err >&2; nice; echo $TMPDIR; exit 3"]))
        });
        assert!(result.unwrap_err().to_string().contains("exit status: 3"));
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines, ["out", "1", "/", "err"], "{text}");
        assert!(text.starts_with("first\n$ sh -c"), "{text}");
    }
}
