//! A session over two byte streams, one message per line: the protocol's transport over standard input and output.

use std::{io, sync::Arc, time::Duration};

use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerResult},
    service::{QuitReason, ServerInitializeError, serve_server_with_ct},
    transport::Transport,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Incoming, MAX_MESSAGE, Malformed, SandboxSource, Session,
    handler::Handler,
    parse::parse,
    pending::{Full, Pending},
};

/// Lines that wait for the client.
const QUEUE: usize = 8;
/// How long the client may take to read the last lines.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Why a session could not be served to its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client's first request failed.
    #[error("the client could not start the session: {0}")]
    Start(String),
    /// The server itself failed.
    #[error("the session failed: {0}")]
    Failed(String),
}

/// Serves a session until the input ends or `stop` is cancelled, and then ends it: when this returns, its sandbox is gone.
/// Calls that run when the input ends may finish within a few seconds.
///
/// # Errors
/// If the client did not start a session, or the server failed.
pub async fn serve_lines<P: SandboxSource>(
    session: Arc<Session<P>>,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let (outgoing, lines) = mpsc::channel(QUEUE);
    let pending = Pending::new();
    let mut writing = tokio::spawn(write_lines(output, lines, pending.clone()));
    let transport = Lines::new(input, outgoing, pending);
    let serving = async {
        // A token of its own: the service cancels it whenever it ends.
        let service = stop.child_token();
        match serve_server_with_ct(Handler(Arc::clone(&session)), transport, service).await {
            Ok(running) => match running.waiting().await {
                Ok(QuitReason::JoinError(error)) | Err(error) => {
                    Err(ServeError::Failed(error.to_string()))
                }
                Ok(_) => Ok(()),
            },
            // Nothing was sent, or no more.
            Err(
                ServerInitializeError::ConnectionClosed(_)
                | ServerInitializeError::Cancelled
                | ServerInitializeError::TransportError { .. },
            ) => Ok(()),
            Err(ServerInitializeError::InitializeFailed(error)) => {
                Err(ServeError::Start(error.message.into_owned()))
            }
            Err(error) => Err(ServeError::Start(error.to_string())),
        }
    };
    // Running calls end at once when it is stopped; the service waits for them.
    let ending = async {
        stop.cancelled().await;
        session.interrupt();
        std::future::pending().await
    };
    let served = tokio::select! {
        served = serving => served,
        never = ending => never,
    };
    session.end().await;
    // The last answers, unless nobody reads them.
    if timeout(LAST_ANSWERS, &mut writing).await.is_err() {
        writing.abort();
    }
    served
}

/// A line to write.
struct Outgoing {
    line: Vec<u8>,
    /// The request that it answers.
    answers: Option<RequestId>,
}

/// Writes lines in a task of its own: what reads and what answers may be interrupted anywhere, but no line.
async fn write_lines<W: AsyncWrite + Unpin>(
    mut output: W,
    mut lines: mpsc::Receiver<Outgoing>,
    pending: Pending<()>,
) {
    while let Some(Outgoing { line, answers }) = lines.recv().await {
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if let Err(error) = written.await {
            tracing::debug!("the client does not read any more: {error}");
            return;
        }
        // Once it is written: answers that wait for the client count.
        if let Some(id) = answers {
            pending.remove(&id);
        }
    }
}

fn line_of(message: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Lines as messages. Reading may be interrupted at every wait, so what is not finished is kept here.
struct Lines<R> {
    input: BufReader<R>,
    /// The line so far.
    line: Vec<u8>,
    /// The rest of the line is skipped, because it is too long.
    skipping: bool,
    /// An answer of ours that is not yet on its way.
    owed: Option<Vec<u8>>,
    outgoing: mpsc::Sender<Outgoing>,
    pending: Pending<()>,
    /// The session was started; before, only requests are passed on.
    started: bool,
}

/// A line that was read.
enum Line {
    Whole,
    TooLong,
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(input: R, outgoing: mpsc::Sender<Outgoing>, pending: Pending<()>) -> Self {
        Self {
            input: BufReader::with_capacity(64 << 10, input),
            line: Vec::new(),
            skipping: false,
            owed: None,
            outgoing,
            pending,
            started: false,
        }
    }

    /// Reads one line. What was consumed is in `line`.
    async fn read(&mut self) -> io::Result<Line> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(Line::End);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            let fits = !self.skipping && self.line.len() + part.len() <= MAX_MESSAGE;
            if fits {
                self.line.extend_from_slice(part);
            } else {
                self.skipping = true;
                self.line = Vec::new();
            }
            let consumed = part.len() + usize::from(end.is_some());
            self.input.consume(consumed);
            if end.is_some() {
                let skipped = std::mem::take(&mut self.skipping);
                return Ok(if skipped { Line::TooLong } else { Line::Whole });
            }
        }
    }

    /// The next message; `None` when there will be none. Lines that are not messages are answered here.
    async fn next(&mut self) -> io::Result<Option<ClientJsonRpcMessage>> {
        loop {
            if self.owed.is_some() {
                let Ok(place) = self.outgoing.reserve().await else { return Ok(None) };
                if let Some(line) = self.owed.take() {
                    place.send(Outgoing { line, answers: None });
                }
            }
            // A client that does not read its answers is not listened to.
            self.pending.free().await;
            let (outgoing, reading) = (self.outgoing.clone(), self.read());
            let line = tokio::select! {
                line = reading => line?,
                () = outgoing.closed() => return Ok(None),
            };
            let incoming = match line {
                Line::End => return Ok(None),
                Line::TooLong => Err(Malformed::too_long()),
                // Not kept for the next line: one that was long must not cost memory forever.
                Line::Whole => match std::mem::take(&mut self.line).trim_ascii() {
                    [] => continue,
                    line => parse(line),
                },
            };
            match incoming.and_then(|incoming| self.accept(incoming)) {
                Ok(Some(message)) => return Ok(Some(message)),
                Ok(None) => {}
                Err(malformed) => self.owed = Some(line_of(&malformed.reply())?),
            }
        }
    }

    /// Passes a message on, unless it has to be answered or ignored here.
    fn accept(&self, incoming: Incoming) -> Result<Option<ClientJsonRpcMessage>, Malformed> {
        let id = incoming.id();
        let message = match incoming {
            Incoming::Request(message) => *message,
            Incoming::Other(message) => {
                self.pending.cancel(&message);
                return Ok(self.started.then_some(*message));
            }
        };
        let why = match self.pending.add(&message, ()) {
            Ok(()) => return Ok(Some(message)),
            Err(Full::DuplicateId) => "a request with this id is under way",
            Err(Full::Requests) => "too many requests are under way",
        };
        Err(Malformed::refused(id, why))
    }
}

impl<R> Transport<RoleServer> for Lines<R>
where
    R: AsyncRead + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answers = match &message {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        self.started |= matches!(
            &message,
            ServerJsonRpcMessage::Response(response)
                if matches!(response.result, ServerResult::InitializeResult(_))
        );
        let outgoing = self.outgoing.clone();
        async move {
            let line = line_of(&message)?;
            let sent = outgoing.send(Outgoing { line, answers }).await;
            sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.next().await.unwrap_or_else(|error| {
            tracing::debug!("the client's stream failed: {error}");
            None
        })
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}
