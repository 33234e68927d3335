//! The line to a container's first process: it counts, it kills, and it dies when this end is gone.
//!
//! The script on the other side uses builtins alone, so it works when the sandbox can start nothing more.

use std::{pin::Pin, time::Duration};

use bollard::{
    Docker, container::AttachContainerResults, query_parameters::AttachContainerOptions,
};
use futures_util::StreamExt;
use sandbox::Error;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::{exec::Mark, failure::during, names};

const SCRIPT: &str = include_str!("scripts/keeper.sh");
/// How long an answer may take on a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often limits were run into since the container started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) oom: u64,
    pub(crate) pids: u64,
}

/// What carries a command's output to us after the command itself has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relay {
    /// The image's `tee` survives its reader.
    Tee,
    /// It does not; a background process that writes may die some time after its command.
    None,
}

/// What the image has for us.
pub(crate) struct Programs {
    pub(crate) relay: Relay,
    /// Where its bash is; a specification may change `PATH`.
    pub(crate) bash: String,
}

/// The line to a container's first process.
pub(crate) struct Keeper {
    input: Pin<Box<dyn AsyncWrite + Send>>,
    lines: Lines,
}

impl Keeper {
    /// Connects to a container that has not started yet, so that nothing is missed.
    pub(crate) async fn attach(docker: &Docker, container: &str) -> Result<Self, Error> {
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            ..Default::default()
        };
        let attached = docker.attach_container(container, Some(options)).await;
        let AttachContainerResults { output, input } =
            attached.map_err(during("connecting to a container"))?;
        Ok(Self { input, lines: Lines { output, held: Vec::new() } })
    }

    /// Hands the started container its script and waits until it serves.
    pub(crate) async fn ready(&mut self) -> Result<Programs, Error> {
        self.send(SCRIPT).await?;
        let line = self.lines.starting_with("ready ").await?;
        let (relay, bash) = line.split_once(' ').unwrap_or((&line, "bash"));
        let relay = if relay == "tee" { Relay::Tee } else { Relay::None };
        Ok(Programs { relay, bash: bash.to_owned() })
    }

    /// How often limits were run into.
    pub(crate) async fn count(&mut self) -> Result<Counters, Error> {
        let answer = self.ask("count").await?;
        let numbers = answer.split_once(' ').and_then(|(oom, pids)| {
            Some(Counters { oom: oom.parse().ok()?, pids: pids.parse().ok()? })
        });
        numbers.ok_or_else(|| Error::Gone(format!("its first process answered `{answer}`")))
    }

    /// The time by which processes' ages are told.
    pub(crate) async fn clock(&mut self) -> Result<u64, Error> {
        let answer = self.ask("clock").await?;
        answer.parse().map_err(|_| Error::Gone(format!("its first process answered `{answer}`")))
    }

    /// Asks everything a command started to end.
    pub(crate) async fn terminate(&mut self, mark: &Mark) -> Result<(), Error> {
        self.ask(&format!("term {} {}", mark.name, mark.after)).await.map(drop)
    }

    /// Kills everything a command started.
    pub(crate) async fn kill(&mut self, mark: &Mark) -> Result<(), Error> {
        match self.ask(&format!("kill {} {}", mark.name, mark.after)).await?.as_str() {
            "0" => Ok(()),
            left => Err(Error::Gone(format!("{left} processes could not be killed"))),
        }
    }

    async fn ask(&mut self, question: &str) -> Result<String, Error> {
        // Others inside can write to the same stream; only answers that know the tag count.
        let tag = names::unique();
        // A caller that went away may have left half a question, which a line end finishes.
        self.send(&format!("\n{tag} {question}\n")).await?;
        self.lines.starting_with(&format!("{tag} ")).await
    }

    async fn send(&mut self, text: &str) -> Result<(), Error> {
        let sent = async {
            self.input.write_all(text.as_bytes()).await?;
            self.input.flush().await
        };
        sent.await.map_err(|e| Error::Gone(format!("its first process does not listen: {e}")))
    }
}

struct Lines {
    output: Pin<
        Box<
            dyn futures_util::Stream<
                    Item = Result<bollard::container::LogOutput, bollard::errors::Error>,
                > + Send,
        >,
    >,
    held: Vec<u8>,
}

impl Lines {
    /// The rest of the next line that starts like this; other lines are not for us.
    async fn starting_with(&mut self, start: &str) -> Result<String, Error> {
        let search = async {
            loop {
                while let Some(end) = self.held.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = self.held.drain(..=end).collect();
                    let line = String::from_utf8_lossy(&line).into_owned();
                    if let Some(rest) = line.trim_end().strip_prefix(start) {
                        return Ok(rest.to_owned());
                    }
                }
                match self.output.next().await {
                    Some(Ok(piece)) if self.held.len() < 1 << 20 => {
                        self.held.extend_from_slice(piece.as_ref());
                    }
                    // A line without an end is noise somebody makes.
                    Some(Ok(_)) => self.held.clear(),
                    Some(Err(e)) => return Err(during("listening to a container")(e)),
                    None => return Err(Error::Gone("its first process has ended".into())),
                }
            }
        };
        let late = |_| Error::Gone("its first process does not answer".into());
        tokio::time::timeout(PATIENCE, search).await.map_err(late)?
    }
}
