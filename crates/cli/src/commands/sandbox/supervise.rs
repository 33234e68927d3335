//! The supervisor of named sandboxes as a program: this one, executed again in the background; and how commands find it.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use sandbox_native::{NativeOptions, NativeRuntime};
use startup::{Program, Signals};
use supervisor::{Claim, Error, Launcher, Lost, Name, Options, Supervisor, announce};

use crate::{console::output, settings::Settings};

/// The hidden argument that makes this program a supervisor. The stage, the data directory and the directory for the state
/// of sandboxes follow.
const SUPERVISOR: &str = "__supervisor";
/// The first stage: leaves the caller's session, starts the second stage and ends. The second stage is then neither a
/// child of the caller nor able to get a terminal.
const DETACH: &str = "detach";
/// The second stage: serves.
const SERVE: &str = "serve";

/// Threads for clients. They mostly wait.
const THREADS: usize = 2;

/// Serves named sandboxes and returns the exit code, if this process was started for that. To be called before any thread
/// exists.
pub(crate) fn become_supervisor() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    if args.next().as_deref() != Some(OsStr::new(SUPERVISOR)) {
        return None;
    }
    let mut next = || args.next().unwrap_or_default();
    let (stage, home, state) = (next(), next(), next());
    let done = match stage == DETACH {
        true => detach(&home, &state),
        false => serve(Path::new(&home), Path::new(&state)),
    };
    // The client that waits gets the reason. Once the supervisor serves there is none, and nothing to report.
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            announce(Err(&error));
            ExitCode::FAILURE
        }
    })
}

/// This program in a stage, in the environment of the spawner.
fn stage(stage: &str, home: &OsStr, state: &OsStr) -> Launcher {
    let spawner = startup::launcher();
    let args = [OsString::from(SUPERVISOR), stage.into(), home.to_owned(), state.to_owned()];
    Launcher { program: spawner.program, args: args.into(), env: spawner.env }
}

/// How long cancelled copies may take to remove what they have written, when the supervisor ends.
const LONGEST_REMOVAL: Duration = Duration::from_secs(30);

fn detach(home: &OsStr, state: &OsStr) -> Result<(), Error> {
    let what = "putting the supervisor into the background";
    let failed = |source: io::Error| Error::Io { what: what.into(), source };
    sandbox_native::inherit_only_stdio().map_err(failed)?;
    rustix::process::setsid().map_err(io::Error::from).map_err(failed)?;
    let Launcher { program, args, env } = stage(SERVE, home, state);
    #[expect(clippy::disallowed_methods, reason = "this program starts itself again")]
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(env);
    std::os::unix::process::CommandExt::arg0(&mut command, "llm-in-sandbox");
    command.spawn().map(drop).map_err(failed)
}

fn serve(home: &Path, state: &Path) -> Result<(), Error> {
    let claim = Claim::new(state)?;
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|source| Error::Io { what: "starting threads".into(), source })?;
    let served = threads.block_on(async {
        let mut signals = Signals::listen()
            .map_err(|source| Error::Io { what: "listening to signals".into(), source })?;
        let options = NativeOptions {
            home: home.to_owned(),
            state: state.to_owned(),
            launcher: startup::launcher(),
        };
        let runtime = NativeRuntime::start(options).await?;
        let stop = async {
            signals.cancelled().await;
        };
        let options = Options::default();
        let served = supervisor::serve(runtime, claim, options, || announce(Ok(())), stop).await;
        sandbox::archive::until_removed(LONGEST_REMOVAL).await;
        served
    });
    Program::shut_down(threads);
    served
}

/// The running supervisor; started if there is none.
pub(super) async fn connect_or_start(settings: &Settings) -> anyhow::Result<Supervisor> {
    let state = settings.state()?.path;
    // One that was started when another directory was chosen: names are unique on this machine.
    if settings.states()?.iter().any(|other| *other != state)
        && let Some(found) = connect(settings).await?
    {
        return Ok(found);
    }
    let launcher = stage(DETACH, settings.home()?.as_os_str(), state.as_os_str());
    let found = Supervisor::connect_or_start(&state, &launcher).await?;
    report_lost(&found.lost);
    Ok(found.supervisor)
}

/// The running supervisor, if there is one.
pub(super) async fn connect(settings: &Settings) -> anyhow::Result<Option<Supervisor>> {
    for state in settings.states()? {
        let found = Supervisor::connect(&state).await?;
        report_lost(&found.lost);
        if found.supervisor.is_some() {
            return Ok(found.supervisor);
        }
    }
    Ok(None)
}

/// The running supervisor, for an operation on this sandbox.
pub(super) async fn supervisor_of(name: &Name, settings: &Settings) -> anyhow::Result<Supervisor> {
    let found = connect(settings).await?;
    found.ok_or_else(|| Error::Unknown(name.clone()).into())
}

/// Reports sandboxes that are gone because their supervisor was killed.
fn report_lost(lost: &[Lost]) {
    if !lost.is_empty() {
        let names: Vec<_> = lost.iter().map(|sandbox| sandbox.name.as_str()).collect();
        output::note(&format!(
            "lost: {}; the process that owned these sandboxes was killed, or the machine restarted",
            names.join(", ")
        ));
    }
}
