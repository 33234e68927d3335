//! Building the base image from this machine's own package sources with `mmdebstrap`.
//!
//! The recipe is data. This is the only part of the crate that runs a program, whose output is unpacked like any other
//! layer.

use std::{
    collections::VecDeque,
    fs, io,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    digest::Digest,
    draft::{Cache, Saved},
    error::Error,
    lock::Workspace,
    name::Name,
    progress::{Progress, Stage},
    store::Store,
};

const BUILDER: &str = "mmdebstrap";
const INSTALL: &str = "apt-get install mmdebstrap";
/// Lines of the builder's output that an error repeats.
const ERROR_LINES: usize = 12;

const UNPRIVILEGED: &str = "; run it as root, or let root give you subordinate ids: \
    apt-get install uidmap, then usermod --add-subuids and --add-subgids";
/// The number of steps that the builder usually reports.
const STEPS: u64 = 14;

/// The content of an image to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Package names, on top of the smallest system that can install packages.
    pub packages: Vec<String>,
    /// The release to install; this machine's own by default.
    pub suite: Option<String>,
    /// APT source files; this machine's own if empty.
    pub sources: Vec<PathBuf>,
    /// The environment variables of the image.
    pub env: Vec<(String, String)>,
}

/// The packages of the base image: a shell, tools to inspect files and to build programs, and Python with the usual
/// scientific packages.
const BASE_PACKAGES: &str = "\
    bash coreutils findutils grep sed gawk diffutils patch file less procps psmisc \
    tar gzip bzip2 xz-utils zip unzip jq ripgrep tree bc \
    ca-certificates curl wget git openssh-client netcat-openbsd \
    build-essential cmake pkg-config \
    python3 python3-dev python3-pip python3-venv python-is-python3 \
    python3-numpy python3-scipy python3-sympy python3-matplotlib python3-pandas python3-networkx \
    python3-sklearn python3-requests python3-bs4 python3-lxml python3-yaml python3-pil python3-openpyxl \
    python3-pytest python3-tqdm";

/// Chemistry, biology, video and documents.
const SCIENCE_PACKAGES: &str = "python3-rdkit python3-biopython ffmpeg python3-pypdf";

/// Documentation that is not needed in a sandbox; licences stay.
const LEFT_OUT: [&str; 5] = [
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*/LC_MESSAGES/*.mo",
];

impl Recipe {
    /// The base image for sandboxes of models.
    pub fn base() -> Self {
        Self {
            env: vec![
                ("LANG".into(), "C.UTF-8".into()),
                // The whole sandbox is disposable: `pip install` needs no virtual environment.
                ("PIP_BREAK_SYSTEM_PACKAGES".into(), "1".into()),
                ("PIP_ROOT_USER_ACTION".into(), "ignore".into()),
            ],
            ..Self::minimal(BASE_PACKAGES.split_whitespace())
        }
    }

    /// The packages of the image `science`, which is built on the base image: what the domains of the benchmarks use
    /// besides.
    pub fn science_packages() -> Vec<String> {
        SCIENCE_PACKAGES.split_whitespace().map(str::to_owned).collect()
    }

    /// The smallest system plus these packages.
    pub fn minimal<P: Into<String>>(packages: impl IntoIterator<Item = P>) -> Self {
        let packages = packages.into_iter().map(Into::into).collect();
        Self {
            packages,
            suite: None,
            sources: Vec::new(),
            env: vec![("LANG".into(), "C.UTF-8".into())],
        }
    }

    /// The release to install.
    fn suite(&self) -> Result<String, BuildError> {
        match &self.suite {
            Some(suite) => Ok(suite.clone()),
            None => {
                let text =
                    fs::read_to_string(OS_RELEASE).map_err(|_| BuildError::NoSuite(OS_RELEASE))?;
                codename(&text).ok_or(BuildError::NoSuite(OS_RELEASE))
            }
        }
    }

    /// The recipe as a step of the build cache: what is installed, not where it comes from.
    fn step(&self) -> Result<String, BuildError> {
        let suite = self.suite()?;
        Ok(serde_json::json!({
            "builder": BUILDER, "suite": suite, "packages": self.packages, "left_out": LEFT_OUT,
        })
        .to_string())
    }
}

/// Why an image could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The builder is not installed.
    #[error("the program {BUILDER} is not installed; run `{INSTALL}` as root")]
    NoBuilder,
    /// The release of this machine is unknown.
    #[error("{0} does not name the release to install; give a suite and its sources")]
    NoSuite(&'static str),
    /// The machine has no usable package sources.
    #[error("no package sources for {0} are configured in {1}; give a sources file")]
    NoSources(String, &'static str),
    /// An invalid name of a package or suite.
    #[error("`{0}` is not the name of a package or a release")]
    BadName(String),
    /// The builder could not be run.
    #[error("cannot run {BUILDER}")]
    Run(#[source] io::Error),
    /// The builder failed.
    #[error("{BUILDER} ended with {status}: {stderr}{hint}")]
    Failed {
        /// How it ended.
        status: std::process::ExitStatus,
        /// Its last lines.
        stderr: String,
        /// What an unprivileged user may lack.
        hint: &'static str,
    },
}

const OS_RELEASE: &str = "/etc/os-release";
const APT: &str = "/etc/apt";

/// What is known about a recipe before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecipeState {
    /// Whether the build cache has its layer.
    pub cached: bool,
    /// How long it took when it was last built.
    pub last_duration: Option<Duration>,
}

impl Store {
    /// Looks up a recipe in the build cache.
    pub fn recipe_state(&self, name: &str, recipe: &Recipe) -> Result<RecipeState, Error> {
        let fail = |source| Error::Build { name: name.to_owned(), source };
        let step = recipe.step().map_err(fail)?;
        let mut draft = self.empty_draft(recipe.env.clone())?;
        let last_duration = draft.last_duration(&step);
        Ok(RecipeState { cached: draft.recall(&step)?.is_some(), last_duration })
    }

    /// Builds an image from a recipe, or takes its layer from the build cache, and stores it under a name.
    #[tracing::instrument(level = "debug", skip(self, recipe, progress))]
    pub fn build(
        &self,
        name: &str,
        recipe: &Recipe,
        cache: Cache,
        progress: &dyn Progress,
    ) -> Result<Saved, Error> {
        Name::new(name)?;
        let fail = |source| Error::Build { name: name.to_owned(), source };
        let step = recipe.step().map_err(fail)?;
        let mut draft = self.empty_draft(recipe.env.clone())?;
        if cache == Cache::Ignore || draft.recall(&step)?.is_none() {
            let begun = Instant::now();
            let layer = self.run_builder(draft.workspace(), recipe, progress, &fail)?;
            draft.finish_step(&step, layer, begun)?;
        }
        draft.save(name)
    }

    fn run_builder(
        &self,
        workspace: &Workspace,
        recipe: &Recipe,
        progress: &dyn Progress,
        fail: &dyn Fn(BuildError) -> Error,
    ) -> Result<Digest, Error> {
        let mut command = command(recipe).map_err(fail)?;
        progress.stage(Stage::Building, Some(STEPS));
        let mut child = Running(command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => fail(BuildError::NoBuilder),
            _ => fail(BuildError::Run(error)),
        })?);
        let (Some(out), Some(err)) = (child.0.stdout.take(), child.0.stderr.take()) else {
            return Err(fail(BuildError::Run(io::ErrorKind::BrokenPipe.into())));
        };
        let (layer, stderr) = std::thread::scope(|scope| {
            let listener = scope.spawn(|| read_steps(err, progress));
            let layer = self.unpack_layer(workspace, out);
            if layer.is_err() {
                // It would block on a pipe that is no longer read; on SIGTERM it cleans up.
                child.terminate();
            }
            (layer, listener.join().unwrap_or_default())
        });
        let status = child.0.wait().map_err(|error| fail(BuildError::Run(error)))?;
        // If unpacking failed, that is the cause; if the builder failed, its output is incomplete.
        let layer = match layer {
            Ok(_) if !status.success() => {
                let hint = if rustix::process::geteuid().is_root() { "" } else { UNPRIVILEGED };
                return Err(fail(BuildError::Failed { status, stderr, hint }));
            }
            other => other?,
        };
        self.store_layer(workspace, layer)
    }
}

/// The builder's process, terminated when dropped.
struct Running(Child);

impl Running {
    fn terminate(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            self.terminate();
            let _ = self.0.wait();
        }
    }
}

fn command(recipe: &Recipe) -> Result<Command, BuildError> {
    let suite = recipe.suite()?;
    for word in recipe.packages.iter().chain([&suite]) {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"+-.:=~/_".contains(&b);
        if word.is_empty() || word.starts_with(['-', '/', '.']) || !word.bytes().all(plain) {
            return Err(BuildError::BadName(word.chars().take(80).collect()));
        }
    }
    let sources = match &recipe.sources[..] {
        [] => host_sources(Path::new(APT), &suite),
        given => given.to_vec(),
    };
    if sources.is_empty() {
        return Err(BuildError::NoSources(suite, APT));
    }
    let mut command = builder();
    command.args(["--format=tar", "--variant=minbase", "--aptopt=Acquire::Languages \"none\""]);
    command.args(LEFT_OUT.iter().map(|option| format!("--dpkgopt={option}")));
    if !recipe.packages.is_empty() {
        command.arg(format!("--include={}", recipe.packages.join(",")));
    }
    command.arg(suite).arg("-").args(sources);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// The builder's command. As root, the builder mounts parts of this machine: in a mount namespace of its own these
/// mounts end with it, even if it is killed.
fn builder() -> Command {
    let installed =
        ["/usr/bin/unshare", "/usr/bin/mmdebstrap"].iter().all(|at| Path::new(at).exists());
    if rustix::process::geteuid().is_root() && installed {
        let mut command = Command::new("unshare");
        command.args(["--mount", BUILDER]);
        return command;
    }
    Command::new(BUILDER)
}

fn codename(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}

/// The APT source files of this machine that mention the release.
fn host_sources(apt: &Path, suite: &str) -> Vec<PathBuf> {
    let mut files = vec![apt.join("sources.list")];
    let parts = fs::read_dir(apt.join("sources.list.d")).into_iter().flatten().flatten();
    files.extend(parts.map(|entry| entry.path()).filter(|path| {
        path.extension().is_some_and(|extension| extension == "list" || extension == "sources")
    }));
    files.retain(|path| fs::read_to_string(path).is_ok_and(|text| mentions(&text, suite)));
    files.sort();
    files
}

fn mentions(text: &str, suite: &str) -> bool {
    let active = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    active.flat_map(str::split_whitespace).any(|word| word == suite)
}

/// Reports the builder's steps and returns its last lines, for an error.
fn read_steps(err: impl Read, progress: &dyn Progress) -> String {
    let mut last = VecDeque::new();
    let mut reader = BufReader::new(err);
    let mut line = Vec::new();
    // Bounded: a line may have no end.
    while matches!(reader.by_ref().take(4096).read_until(b'\n', &mut line), Ok(got) if got > 0) {
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        line.clear();
        if let Some(step) = text.strip_prefix("I: ") {
            progress.advance(1);
            progress.message(step.trim_end_matches('.'));
        }
        if !text.is_empty() {
            last.push_back(text);
        }
        if last.len() > ERROR_LINES {
            last.pop_front();
        }
    }
    Vec::from(last).join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_the_system_description() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n").as_deref(), Some("bookworm"));
        assert_eq!(codename("VERSION_CODENAME=\"noble\"").as_deref(), Some("noble"));
        assert_eq!(codename("ID=arch\nVERSION_CODENAME=\n"), None);
    }

    #[test]
    fn only_sources_of_the_release_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let parts = dir.path().join("sources.list.d");
        fs::create_dir(&parts).unwrap();
        fs::write(dir.path().join("sources.list"), "# deb http://x bookworm main\n").unwrap();
        fs::write(parts.join("a.sources"), "Types: deb\nSuites: bookworm bookworm-updates\n")
            .unwrap();
        fs::write(parts.join("b.list"), "deb http://x/ nodistro main\n").unwrap();
        fs::write(parts.join("c.list.off"), "deb http://x/ bookworm main\n").unwrap();
        assert_eq!(host_sources(dir.path(), "bookworm"), [parts.join("a.sources")]);
        assert!(host_sources(dir.path(), "trixie").is_empty());
    }

    #[test]
    fn names_that_would_be_options_are_refused() {
        for bad in ["", "--mode=chrootless", "a b", "a,b", "/etc/passwd", "$(x)"] {
            let recipe = Recipe { suite: Some("bookworm".into()), ..Recipe::minimal([bad]) };
            assert!(matches!(command(&recipe), Err(BuildError::BadName(_))), "{bad}");
        }
        assert!(Recipe::base().packages.iter().any(|name| name == "python3-numpy"));
    }

    #[test]
    fn the_builders_steps_and_last_lines_are_read() {
        let said = format!("I: step one...\nnoise\n{}\nE: it broke\n", "x".repeat(10_000));
        let last = read_steps(said.as_bytes(), &crate::Silent);
        assert!(last.ends_with("E: it broke") && last.starts_with("I: step one"), "{last}");
        let many = "line\n".repeat(100);
        assert_eq!(
            read_steps(many.as_bytes(), &crate::Silent).matches("line").count(),
            ERROR_LINES
        );
    }
}
