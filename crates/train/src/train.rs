//! The commands `rl` and `sft`: a configuration is read, sandboxes and threads are made, and the run goes on to its end
//! or until somebody stops it.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use sandbox_native::{Launcher, NativeOptions, NativeRuntime};
use training::{Ending, LONGEST, Mode, Outside, RlConfig, SftConfig, TrainError};

use crate::{
    SPAWNER,
    args::TrainArgs,
    environment,
    exit::{Exit, Usage, note},
    show::Show,
    stop::{self, Signalled},
};

/// Helper processes get this long to remove their traces after the last sandbox is gone.
const HELPERS: Duration = Duration::from_secs(2);

/// Reinforcement learning.
pub(crate) fn rl(args: &TrainArgs) -> anyhow::Result<Exit> {
    let mut config =
        RlConfig::parse(&read(&args.config)?, &args.set).with_context(|| shown(&args.config))?;
    config.model = environment::model(&config.model)?;
    let sandboxes = match config.rollout.mode {
        Mode::Sandbox => Sandboxes::Needed,
        Mode::Llm => Sandboxes::Welcome,
    };
    run(args, sandboxes, |outside| training::rl(&config, outside))
}

/// Supervised learning.
pub(crate) fn sft(args: &TrainArgs) -> anyhow::Result<Exit> {
    let mut config =
        SftConfig::parse(&read(&args.config)?, &args.set).with_context(|| shown(&args.config))?;
    config.model = environment::model(&config.model)?;
    let sandboxes = match config.data.demonstrations.is_empty() {
        true => Sandboxes::Welcome,
        false => Sandboxes::Needed,
    };
    run(args, sandboxes, |outside| training::sft(&config, outside))
}

/// Whether a run can do without sandboxes.
#[derive(Clone, Copy)]
enum Sandboxes {
    /// It cannot.
    Needed,
    /// Graders of some tasks run commands; where they cannot, they say so.
    Welcome,
}

fn run(
    args: &TrainArgs,
    sandboxes: Sandboxes,
    train: impl FnOnce(&Outside<'_, NativeRuntime>) -> Result<Ending, TrainError>,
) -> anyhow::Result<Exit> {
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let threads = threads.context("cannot start threads")?;
    let runtime = match (sandboxes, threads.block_on(start())) {
        (Sandboxes::Needed, started) => Some(started.context("sandboxes cannot be made")?),
        (Sandboxes::Welcome, Ok(runtime)) => Some(runtime),
        (Sandboxes::Welcome, Err(error)) => {
            note(&format!("no sandboxes can be made for graders that run commands: {error:#}"));
            None
        }
    };
    let runtime = runtime.map(Arc::new);
    let (watch, signalled): (_, Signalled) = {
        let _within = threads.enter();
        stop::listen().context("cannot listen to signals")?
    };
    let show = if args.json { Show::Json } else { Show::for_people() };
    let outside = Outside { runtime, tokio: threads.handle(), watcher: &show, watch };
    let ended = train(&outside);
    drop(outside);
    drop(show);
    threads.shutdown_background();
    await_helpers();
    Ok(match ended? {
        Ending::Complete => Exit::Done,
        Ending::Stopped(step) => {
            note(&format!("stopped after step {step}; start it again to go on"));
            Exit::Stopped(signalled.number())
        }
    })
}

async fn start() -> anyhow::Result<NativeRuntime> {
    let link = PathBuf::from("/proc/self/exe");
    let program = if link.exists() { link } else { std::env::current_exe().unwrap_or(link) };
    let launcher = Launcher { program, args: vec![SPAWNER.into()] };
    Ok(NativeRuntime::start(NativeOptions { home: environment::home()?, launcher }).await?)
}

/// Waits, not for ever, until the processes we started are gone, and with them every trace of ours.
fn await_helpers() {
    let deadline = Instant::now() + HELPERS;
    // An error means that there is nobody to wait for.
    while let Ok(ended) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
        if ended.is_none() {
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The text of a configuration; a file that is too long is read no further than needed to say so.
fn read(path: &Path) -> Result<String, Usage> {
    let read = |file: fs::File| {
        let mut text = String::new();
        file.take(LONGEST as u64 + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = fs::File::open(path).and_then(read);
    text.map_err(|error| Usage(format!("{}: {error}", shown(path))))
}

fn shown(path: &Path) -> String {
    format!("cannot use {}", path.display())
}
