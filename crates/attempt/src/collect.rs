//! Collects what a model left in its sandbox. Sandboxes are hostile: sizes and times are bounded.

use std::{fs, io, iter, path::Path, time::Duration};

use agent::tools::ToolSet;
use problems::{
    AnswerLocation, Task,
    swe::{DIFF_FILE, DiffForm},
};
use sandbox::{
    CaptureBuffer, Captured, CopyReport, Error, OutputCap, Process, Sandbox, Status, Streams,
};
use tokio::io::AsyncReadExt;

use crate::{
    EventLog,
    sandboxes::{PATIENCE, within},
};

/// The largest answer, in bytes; the rest is cut off.
pub(crate) const MAX_ANSWER: u64 = 1 << 20;

/// The largest patch, in bytes.
const MAX_PATCH: u64 = 16 << 20;

/// The time limit for listing the changes of a repository.
const DIFF: Duration = Duration::from_secs(300);

/// The part of a command's output that is kept. A log of tests that lacks its middle changes verdicts, so it is large.
const OUTPUT_CAP: OutputCap = OutputCap { head: 8 << 20, tail: 8 << 20 };

/// The answer: the file the model left, the change of its repository, or what it submitted where files are frozen.
/// Empty where there is none.
pub(crate) async fn answer<S: Sandbox>(
    sandbox: &S,
    task: &Task,
    tools: ToolSet,
    events: &EventLog,
) -> Result<String, Error> {
    match task.answer_location() {
        AnswerLocation::File(_) if tools == ToolSet::WithoutFiles => {
            let submitted = events.submitted_answer().unwrap_or_default();
            Ok(problems::clean_answer(submitted.as_bytes()))
        }
        AnswerLocation::File(name) => {
            let path = task.prompts.output_dir.join(name);
            let bytes = read(sandbox, &path, MAX_ANSWER).await?;
            Ok(problems::clean_answer(&bytes))
        }
        AnswerLocation::Diff => {
            match String::from_utf8(patch(sandbox, task, DiffForm::Text).await?) {
                Ok(patch) => Ok(patch),
                Err(_) => {
                    let ascii = patch(sandbox, task, DiffForm::Ascii).await?;
                    Ok(String::from_utf8_lossy(&ascii).into_owned())
                }
            }
        }
    }
}

/// The change of a repository. A model may have broken it: then there is no patch, which is an answer as well.
async fn patch<S: Sandbox>(sandbox: &S, task: &Task, form: DiffForm) -> Result<Vec<u8>, Error> {
    command(sandbox, &task.diff_command(form), DIFF).await?;
    read(sandbox, Path::new(DIFF_FILE), MAX_PATCH).await
}

/// Reads a file of a sandbox up to `max` bytes. Empty where there is no file at this path.
async fn read<S: Sandbox>(sandbox: &S, path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    let reading = async {
        let mut bytes = Vec::new();
        let file = sandbox.read_file(path).await?;
        let read = file.take(max).read_to_end(&mut bytes).await;
        read.map_err(Error::io(format!("reading {}", path.display())))?;
        Ok(bytes)
    };
    match within(PATIENCE, "reading a file", reading).await {
        Err(error) if error.is_usage() => Ok(Vec::new()),
        read => read,
    }
}

/// Runs a command outside the model's shell, so that nothing defined there can change it. Returns its standard output and
/// its exit status.
pub(crate) async fn command<S: Sandbox>(
    sandbox: &S,
    command: &str,
    timeout: Duration,
) -> Result<(Captured, Status), Error> {
    let process = Process { timeout: Some(timeout), ..Process::new(["bash", "-c", command]) };
    let buffer = CaptureBuffer::new(OUTPUT_CAP);
    let streams = Streams::Pipes {
        stdin: None,
        stdout: buffer.writer(),
        stderr: Box::new(tokio::io::sink()),
    };
    let exit = sandbox.process(&process, streams);
    let exit = within(timeout.saturating_add(PATIENCE), "running a command", exit).await?;
    Ok((buffer.take(), exit.status))
}

/// The files a model left, copied to the host.
#[derive(Debug, Default)]
pub struct Collected {
    /// What was copied and what was not.
    pub report: CopyReport,
    /// Why nothing was copied.
    pub error: Option<Error>,
}

impl Collected {
    /// Whether the sandbox or the host failed over files that may exist. A model can turn its output directory into
    /// something that cannot be copied (removed, not a directory, too large): that is not a failure of ours.
    pub fn are_lost(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let Some(error) = &self.error else { return false };
        if matches!(error, Error::Path { .. }) {
            return false;
        }
        let causes = iter::successors(Some(error as &dyn std::error::Error), |e| e.source());
        let mut kinds = causes.filter_map(|cause| cause.downcast_ref().map(io::Error::kind));
        let is_of_the_host = |kind| {
            matches!(kind, PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
        };
        error.is_gone() || kinds.any(is_of_the_host)
    }
}

/// Copies a directory of a sandbox to `to` on the host, in place of what is there: whole or not at all.
pub async fn collect_directory<S: Sandbox>(sandbox: &S, from: &Path, to: &Path) -> Collected {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let partial = to.with_file_name(format!(".{name}.partial"));
    remove(&partial);
    let copied = match sandbox.copy_out(from, &partial).await {
        Ok(report) => replace(&partial, from, to).map(|()| report),
        Err(error) => Err(error),
    };
    match copied {
        Ok(report) => Collected { report, error: None },
        Err(error) => {
            remove(&partial);
            Collected { report: CopyReport::default(), error: Some(error) }
        }
    }
}

/// Removes what is there: files of an earlier collection as a rule, but a run directory of a stranger may have anything in
/// their place. Of a link, only the link is removed.
fn remove(path: &Path) {
    let _ = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    };
}

/// Moves what was copied in place. A model may have replaced its output directory by a file.
fn replace(partial: &Path, from: &Path, to: &Path) -> Result<(), Error> {
    remove(to);
    let moved = match partial.is_dir() {
        true => fs::rename(partial, to),
        false => fs::create_dir(to)
            .and_then(|()| fs::rename(partial, to.join(from.file_name().unwrap_or_default()))),
    };
    moved.map_err(Error::io(format!("writing {}", to.display())))
}

/// The answer in a collected file, as graders read it; none where there is no such file.
pub fn answer_of(path: &Path) -> Option<String> {
    use io::Read;
    // A link may have been collected; an answer is a file.
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(MAX_ANSWER).read_to_end(&mut bytes).ok()?;
    Some(problems::clean_answer(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_place_of_the_files_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("victim")).unwrap();
        fs::write(at("victim/kept"), "kept").unwrap();
        let places: [fn(&Path, &Path); 4] = [
            |to, victim| std::os::unix::fs::symlink(victim, to).unwrap(),
            |to, victim| std::os::unix::fs::symlink(victim.join("kept"), to).unwrap(),
            |to, _| fs::write(to, "a file").unwrap(),
            |to, victim| {
                fs::create_dir(to).unwrap();
                std::os::unix::fs::symlink(victim, to.join("link")).unwrap();
            },
        ];
        for (number, place) in places.into_iter().enumerate() {
            place(&at("files"), &at("victim"));
            fs::create_dir(at("partial")).unwrap();
            fs::write(at("partial/answer.txt"), "42").unwrap();
            replace(&at("partial"), Path::new("/output"), &at("files")).unwrap();
            assert_eq!(fs::read_to_string(at("victim/kept")).unwrap(), "kept", "{number}");
            let files = fs::symlink_metadata(at("files")).unwrap();
            assert!(files.is_dir() && at("files/answer.txt").is_file(), "{number}");
            assert!(!at("files/link").exists() && !at("victim/answer.txt").exists(), "{number}");
            fs::remove_dir_all(at("files")).unwrap();
        }
    }

    #[test]
    fn answers_are_files_and_read_as_graders_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answer.txt");
        assert_eq!(answer_of(&path), None);
        fs::write(&path, b"\x1b[1m7\xff\x1b[0m\r\n").unwrap();
        assert_eq!(answer_of(&path).unwrap(), "7\u{fffd}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        assert_eq!(answer_of(&link), None);
    }

    #[test]
    fn only_failures_of_the_sandbox_or_the_host_lose_files() {
        let lost =
            |error: Error| Collected { error: Some(error), ..Collected::default() }.are_lost();
        let io = |kind: io::ErrorKind| Error::Io { what: "copying".into(), source: kind.into() };
        assert!(lost(Error::Gone("killed".into())));
        assert!(lost(io(io::ErrorKind::StorageFull)));
        assert!(!lost(io(io::ErrorKind::NotFound)));
        assert!(!Collected::default().are_lost());
    }
}
