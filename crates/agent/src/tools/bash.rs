//! `execute_bash`: runs a command in the sandbox's shell, and writes its exit status and output as an observation.
//!
//! Output that is too long is truncated (see `truncate.rs`), and saved as raw bytes to a file inside the sandbox.

use std::{
    borrow::Cow,
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use sandbox::{Captured, Cause, Error, ExecOutput, OutputCap, Sandbox, ShellCommand, Status};

use super::{
    Observation, Tools, model_error,
    sanitize::{looks_binary, sanitize},
    truncate::{Cut, Truncated, truncate},
};

/// How much of each stream is captured. What is between head and tail is only counted.
const CAP: OutputCap = OutputCap { head: 8 << 20, tail: 8 << 20 };

/// Runs a command.
pub(crate) async fn execute<S: Sandbox>(
    tools: &Tools,
    command: &str,
    number: u32,
    sandbox: &S,
) -> Result<Observation, Error> {
    if command.trim().is_empty() {
        return Ok(Observation::error("The command is empty: nothing was run."));
    }
    let request = ShellCommand { script: command.into(), timeout: tools.timeout, cap: CAP };
    let output = match sandbox.shell(&request).await {
        Ok(output) => output,
        Err(error) if error.is_usage() => return Ok(Observation::error(error.chain())),
        Err(error) => return Err(error),
    };
    let mut text = ending(&output, tools.timeout);
    let code = output.status.code();
    let silent = output.stdout.total == 0 && output.stderr.total == 0;
    for (name, captured) in [("stdout", output.stdout), ("stderr", output.stderr)] {
        if captured.total > 0 {
            let file = tools.spill.join(format!("{number}.{name}.txt"));
            text.push_str(&section(name, captured, tools.shown, &file, sandbox).await?);
        }
    }
    if silent {
        text.push_str("(no output)\n");
    }
    text.truncate(text.trim_end_matches('\n').len());
    Ok(Observation { exit_code: Some(code), ..Observation::text(text) })
}

/// The lines about how the command ended.
///
/// Without times: the same command has to give the same text again, or the response cache would never hit.
fn ending(output: &ExecOutput, timeout: Duration) -> String {
    let mut text = match output.status {
        Status::Exited(code) => format!("[exit code {code}]\n"),
        Status::Signaled(signal) => format!("[killed by signal {signal}{}]\n", name_of(signal)),
        Status::TimedOut => {
            format!(
                "[timed out: killed after {} s, with all it had started]\n",
                timeout.as_secs_f64()
            )
        }
    };
    let cause = match output.cause {
        Some(Cause::Oom) => {
            "[out of memory: the computer's memory limit was reached and the kernel killed a process; \
             work on the data in smaller parts]\n"
        }
        Some(Cause::Pids) => {
            "[too many processes: the computer's limit was reached; start fewer at once]\n"
        }
        Some(Cause::Disk) => {
            "[disk full: the computer's limit was reached; delete what is not needed any more]\n"
        }
        Some(Cause::Timeout) | None => "",
    };
    text.push_str(cause);
    if output.shell_lost {
        text.push_str(
            "[the shell was lost: a fresh one without your variables and functions goes on]\n",
        );
    } else if output.status == Status::TimedOut {
        text.push_str(
            "[the shell goes on; its directory, variables and functions are those from before the command]\n",
        );
    }
    text
}

/// The heading of a stream and its sanitized, truncated text.
async fn section<S: Sandbox>(
    name: &str,
    captured: Captured,
    shown: usize,
    file: &Path,
    sandbox: &S,
) -> Result<String, Error> {
    let (total, lost) = (captured.total, captured.omitted());
    let raw = captured_bytes(captured);
    let text = sanitize(&String::from_utf8_lossy(&raw));
    let binary = if looks_binary(&raw) {
        ": not text; bytes that are not UTF-8 appear as \u{fffd}"
    } else {
        ""
    };
    let mut section = format!("[{name}{binary}]\n");
    match truncate(&text, shown) {
        Truncated::Whole(whole) => section.push_str(whole),
        Truncated::Cut(cut) => {
            let spilled = spill(file, &raw, sandbox).await?;
            section.push_str(cut.head);
            end_line(&mut section);
            section.push_str(&marker(&cut, &spilled, (lost > 0).then_some(total)));
            section.push_str(" ...]\n");
            section.push_str(cut.tail);
        }
    }
    end_line(&mut section);
    Ok(section)
}

fn end_line(text: &mut String) {
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

/// The captured bytes of a stream, with a line where some are missing.
fn captured_bytes(captured: Captured) -> Vec<u8> {
    let lost = captured.omitted();
    let Captured { head: mut bytes, tail, .. } = captured;
    if lost > 0 {
        bytes.extend_from_slice(format!("\n[... {lost} bytes were not kept ...]\n").as_bytes());
    }
    bytes.extend_from_slice(&tail);
    bytes
}

/// The file that long output was saved to, or why it was not saved.
type Spilled = Result<PathBuf, String>;

async fn spill<S: Sandbox>(file: &Path, raw: &[u8], sandbox: &S) -> Result<Spilled, Error> {
    match sandbox.write_file(file, raw).await {
        Ok(()) => Ok(Ok(file.to_owned())),
        Err(error) if error.is_gone() => Err(error),
        // The command has run: the model gets its result, and the reason why the file is missing.
        Err(error) => Ok(Err(model_error(&error).unwrap_or_else(|| error.to_string()))),
    }
}

/// What is left out, and how to see it. `total` is the size of a stream that was not captured in full.
fn marker(cut: &Cut<'_>, spilled: &Spilled, total: Option<u64>) -> String {
    let (first, last) = (cut.first_line(), cut.last_line());
    let bytes = cut.between.len();
    let mut text = match (cut.inside_a_line(), first == last) {
        (true, true) => format!("[... {bytes} bytes inside line {first} are left out"),
        (true, false) => format!("[... {bytes} bytes from line {first} to {last} are left out"),
        (false, _) => format!("[... lines {first}-{last} ({bytes} bytes) are left out"),
    };
    if let Some(total) = total {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            ", and of all {total} bytes only the first {} and the last {} were kept",
            CAP.head, CAP.tail
        );
    }
    let all = if total.is_some() { "the kept part" } else { "all" };
    let _ = match spilled {
        Err(why) => write!(text, "; they could not be kept in a file: {why}"),
        Ok(file) => {
            let file = shell_quoted(file);
            match cut.inside_a_line() {
                true => write!(
                    text,
                    "; {all} is in {file}, parts are read with: tail -c +{} {file} | head -c 4000",
                    cut.head.len() + 1
                ),
                false => write!(
                    text,
                    "; {all} is in {file}, parts are read with: sed -n '{first},{}p' {file}",
                    last.min(first + 99)
                ),
            }
        }
    };
    text
}

/// A path as one shell word.
fn shell_quoted(path: &Path) -> Cow<'_, str> {
    let text = path.to_string_lossy();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+,@%:=".contains(&b);
    if text.bytes().all(plain) {
        return text;
    }
    Cow::Owned(format!("'{}'", text.replace('\'', "'\\''")))
}

fn name_of(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        25 => " (SIGXFSZ)",
        31 => " (SIGSYS: a forbidden system call)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(status: Status, cause: Option<Cause>) -> ExecOutput {
        let (stdout, stderr) = (Captured::default(), Captured::default());
        let duration = Duration::from_secs(1);
        ExecOutput { stdout, stderr, status, cause, duration, shell_lost: false }
    }

    #[test]
    fn every_exit_status_is_reported() {
        let limit = Duration::from_millis(1500);
        let text = |status, cause| ending(&output(status, cause), limit);
        assert_eq!(text(Status::Exited(3), None), "[exit code 3]\n");
        assert_eq!(text(Status::Signaled(11), None), "[killed by signal 11 (SIGSEGV)]\n");
        assert_eq!(text(Status::Signaled(42), None), "[killed by signal 42]\n");
        let timed_out = text(Status::TimedOut, Some(Cause::Timeout));
        assert!(timed_out.contains("killed after 1.5 s"), "{timed_out}");
        assert!(timed_out.contains("from before the command"), "{timed_out}");
        for (cause, word) in [
            (Cause::Oom, "out of memory"),
            (Cause::Pids, "too many processes"),
            (Cause::Disk, "disk full"),
        ] {
            let text = text(Status::Exited(1), Some(cause));
            assert!(text.starts_with("[exit code 1]\n[") && text.contains(word), "{text}");
        }
        let lost =
            ExecOutput { shell_lost: true, ..output(Status::TimedOut, Some(Cause::Timeout)) };
        let lost = ending(&lost, limit);
        assert!(lost.contains("a fresh one") && !lost.contains("goes on; its"), "{lost}");
    }

    #[test]
    fn missing_bytes_are_marked() {
        let captured = Captured { head: b"start".into(), tail: b"end".into(), total: 100 };
        assert_eq!(captured_bytes(captured), b"start\n[... 92 bytes were not kept ...]\nend");
        let captured = Captured { head: b"start".into(), tail: b"end".into(), total: 8 };
        assert_eq!(captured_bytes(captured), b"startend");
    }

    #[test]
    fn the_marker_shows_how_to_read_the_rest() {
        let cut = Cut { head: "a\nb\n", between: "c\nd\n", tail: "e\n" };
        assert_eq!(
            marker(&cut, &Ok("/tmp/it's/1.txt".into()), None),
            "[... lines 3-4 (4 bytes) are left out; all is in '/tmp/it'\\''s/1.txt', \
             parts are read with: sed -n '3,4p' '/tmp/it'\\''s/1.txt'"
        );
        let cut = Cut { head: "abc", between: "defg", tail: "hi" };
        assert_eq!(
            marker(&cut, &Ok("/tmp/1.txt".into()), None),
            "[... 4 bytes inside line 1 are left out; all is in /tmp/1.txt, \
             parts are read with: tail -c +4 /tmp/1.txt | head -c 4000"
        );
        assert_eq!(
            marker(&cut, &Err("the disk is full".into()), Some(20_000_000)),
            "[... 4 bytes inside line 1 are left out, and of all 20000000 bytes only the first 8388608 \
             and the last 8388608 were kept; they could not be kept in a file: the disk is full"
        );
    }
}
