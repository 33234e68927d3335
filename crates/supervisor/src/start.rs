//! Starting a supervisor, and its word that it has started.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    path::PathBuf,
    process::Stdio,
};

use serde::{Deserialize, Serialize};
use tokio::{io::AsyncReadExt, process::Command, time::timeout};

use crate::{
    Error,
    directory::{Directory, PATIENCE},
    error::Failure,
};

/// Longest accepted word of a supervisor that starts, in bytes.
const MAX_ANSWER: u64 = 64 << 10;

/// How to start a supervisor: a program that puts a supervisor into the background and ends. The supervisor inherits its
/// standard output, calls [`Claim::new`](crate::Claim::new), then [`serve`](crate::serve), and [`announce`]s the result.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
}

impl Launcher {
    /// A program without arguments, in an empty environment.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new() }
    }

    /// Starts a supervisor and waits until it can be reached.
    pub(crate) async fn launch(&self, directory: &Directory) -> Result<(), Error> {
        let mut child = Command::new(&self.program)
            .args(&self.args)
            // Its name in listings of processes.
            .arg0("llm-in-sandbox")
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::io(format!("starting {}", self.program.display())))?;
        let answer = async {
            let mut bytes = Vec::new();
            if let Some(stdout) = child.stdout.take() {
                stdout.take(MAX_ANSWER).read_to_end(&mut bytes).await?;
            }
            child.wait().await?;
            io::Result::Ok(bytes)
        };
        let answer = timeout(PATIENCE, answer).await;
        let answer = answer.map_err(|_| Error::Silent { log: directory.log_path() })?;
        let answer = answer.map_err(Error::io("starting the supervisor"))?;
        match serde_json::from_slice(&answer) {
            Ok(Answer::Started) => Ok(()),
            Ok(Answer::Failed(failure)) => Err(failure.into()),
            Ok(Answer::NotStarted(reason)) => Err(Error::NotStarted { reason }),
            Err(_) => {
                let reason =
                    format!("it ended without a word; see {}", directory.log_path().display());
                Err(Error::NotStarted { reason })
            }
        }
    }
}

/// What a supervisor says once, over its standard output.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Started,
    Failed(Failure),
    NotStarted(String),
}

/// Tells the client that started this supervisor whether it can be reached, and lets go of the client's pipe: standard
/// output is `/dev/null` afterwards.
pub fn announce(started: Result<(), &Error>) {
    let answer = match started {
        Ok(()) => Answer::Started,
        Err(Error::Sandbox(error)) => Answer::Failed(error.into()),
        Err(error) => Answer::NotStarted(error_text::chain(error)),
    };
    let mut stdout = io::stdout();
    // The client may be gone.
    let _ = serde_json::to_writer(&mut stdout, &answer).map(|()| stdout.flush());
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}
