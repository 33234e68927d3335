//! The connection to the keeper, the script that is a container's first process: it reads counters, kills processes, and
//! exits when the connection is closed.
//!
//! The script uses builtins only, so it works even when the container can start no more processes.

use std::{pin::Pin, time::Duration};

use bollard::{
    Docker, container::AttachContainerResults, query_parameters::AttachContainerOptions,
};
use futures_util::StreamExt;
use sandbox::Error;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::{exec::Mark, failure::during, names};

const SCRIPT: &str = include_str!("scripts/keeper.sh");
/// How long a reply may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often limits were reached since the container started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) oom: u64,
    pub(crate) pids: u64,
}

/// What forwards output after its command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relay {
    /// The image's `tee`, which survives the end of its reader.
    Tee,
    /// Nothing: a background process that writes may be killed by SIGPIPE after its command has ended.
    None,
}

/// Programs of the image that this runtime uses.
pub(crate) struct Programs {
    pub(crate) relay: Relay,
    /// Path of its bash: a specification may change `PATH`.
    pub(crate) bash: String,
    /// Path of its `nice`, with which commands yield to this runtime's own processes.
    pub(crate) nice: Option<String>,
}

/// Whether a path means itself in a script.
fn is_plain(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b))
}

/// The connection to a container's first process.
pub(crate) struct Keeper {
    input: Pin<Box<dyn AsyncWrite + Send>>,
    lines: Lines,
}

impl Keeper {
    /// Connects to a container before it starts, so that no output is missed.
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

    /// Sends the script to the started container and waits until it is ready.
    pub(crate) async fn ready(&mut self) -> Result<Programs, Error> {
        self.send(SCRIPT).await?;
        let line = self.lines.starting_with("ready ").await?;
        let mut words = line.split(' ');
        let relay = if words.next() == Some("tee") { Relay::Tee } else { Relay::None };
        let bash = words.next().unwrap_or("bash").to_owned();
        let nice = words.next().filter(|path| is_plain(path)).map(str::to_owned);
        Ok(Programs { relay, bash, nice })
    }

    /// Reads how often limits were reached.
    pub(crate) async fn count(&mut self) -> Result<Counters, Error> {
        let answer = self.ask("count").await?;
        let numbers = answer.split_once(' ').and_then(|(oom, pids)| {
            Some(Counters { oom: oom.parse().ok()?, pids: pids.parse().ok()? })
        });
        numbers.ok_or_else(|| Error::Gone(format!("its first process answered `{answer}`")))
    }

    /// Reads the clock that start times of processes refer to.
    pub(crate) async fn clock(&mut self) -> Result<u64, Error> {
        let answer = self.ask("clock").await?;
        answer.parse().map_err(|_| Error::Gone(format!("its first process answered `{answer}`")))
    }

    /// Sends SIGTERM to everything a command started.
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

    /// Kills every process but this first one.
    pub(crate) async fn kill_all(&mut self) -> Result<(), Error> {
        self.ask("all").await.map(drop)
    }

    /// Ends the first process, and with it all others.
    pub(crate) async fn end(&mut self) {
        // It may have ended already.
        let _ = self.input.shutdown().await;
    }

    async fn ask(&mut self, question: &str) -> Result<String, Error> {
        // Other processes may write to the same stream; a reply is recognised by its tag.
        let tag = names::unique();
        // A cancelled caller may have sent half a request, which the first line end completes.
        self.send(&format!("\n{tag} {question}\n")).await?;
        self.lines.starting_with(&format!("{tag} ")).await
    }

    async fn send(&mut self, text: &str) -> Result<(), Error> {
        let sent = async {
            self.input.write_all(text.as_bytes()).await?;
            self.input.flush().await
        };
        sent.await.map_err(|e| Error::Gone(format!("its first process does not read: {e}")))
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
    /// Reads the next line with this prefix and returns the rest of it; ignores other lines.
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
                    // Such a long line is not a reply.
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
