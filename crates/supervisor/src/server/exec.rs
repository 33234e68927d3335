//! The supervisor's side of a running program.
//!
//! Output waits for the client to take it: at most a few frames are on their way. Input is limited by the client, which
//! sends no more than was consumed and a window; so the connection is always read, and a client that goes away is noticed
//! at once, whatever the program does.

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use sandbox::{Network, Output, Process, RefusedConnections, Runtime, Sandbox, Streams};
use tokio::{
    io::AsyncWrite,
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::{Notify, mpsc, watch},
};
use tokio_util::sync::PollSender;

use super::Server;
use crate::{
    chunks::{Chunk, Chunks, Source},
    frame::{self, Frame, Kind, MAX_DATA, WINDOW, invalid},
    message::{Exec, ExecStreams, Exited, Response},
};

/// Frames of output that wait for the client.
const QUEUE: usize = 4;

/// Runs a program for a client. It is killed if the client goes away.
pub(super) async fn run<R: Runtime>(
    server: &Server<R>,
    request: Exec,
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
) -> io::Result<()> {
    let network = match server.registry.begin(&request.name) {
        Ok(running) => running.entry.traits.network.clone(),
        // The error is reported below.
        Err(_) => Network::None,
    };
    let (frames, queue) = mpsc::channel(QUEUE);
    let consumed = Arc::new(Consumed::default());
    let sending = tokio::spawn(send(writer, queue, Arc::clone(&consumed)));
    let (input, chunks) = mpsc::unbounded_channel();
    let counter = Arc::clone(&consumed);
    let chunks = Chunks::new(Source::Credited(chunks), move |n| counter.add(n));
    let output = |kind| -> Output { Box::new(FrameWriter::new(kind, frames.clone())) };
    let (size, sizes) = watch::channel(match request.streams {
        ExecStreams::Terminal(size) => size,
        _ => sandbox::TerminalSize { rows: 24, cols: 80 },
    });
    let streams = match request.streams {
        ExecStreams::Terminal(_) => {
            Streams::Terminal { input: Box::new(chunks), output: output(Kind::Output), size: sizes }
        }
        ExecStreams::Output => Streams::Pipes {
            stdin: None,
            stdout: output(Kind::Output),
            stderr: output(Kind::Errors),
        },
        ExecStreams::InputOutput => Streams::Pipes {
            stdin: Some(Box::new(chunks)),
            stdout: output(Kind::Output),
            stderr: output(Kind::Errors),
        },
    };
    let process = Process {
        argv: request.argv,
        env: request.env,
        workdir: request.workdir.map(PathBuf::from),
        timeout: request.timeout,
    };
    let running = server.with(&request.name, async |sandbox| {
        process.validate()?;
        let before = sandbox.refused_connections();
        let exit = sandbox.process(&process, streams).await?;
        Ok((exit, refused_since(&before, sandbox.refused_connections())))
    });
    let ended = tokio::select! {
        ended = running => ended,
        gone = receive(reader, input, size, &consumed) => {
            sending.abort();
            return gone;
        }
    };
    let response = ended.map_or_else(Response::Failed, |(exit, refused)| {
        Response::Exited(Exited { exit, refused, network })
    });
    // After the output: it goes through the same queue. Where sending has failed, its error says more.
    let _ = frames.send(Frame::message(&response)?).await;
    drop(frames);
    sending.await.map_err(io::Error::other)?
}

/// Most hosts that are reported.
const MAX_REFUSED: usize = 100;

/// The connections that were refused since then.
fn refused_since(
    before: &[RefusedConnections],
    now: Vec<RefusedConnections>,
) -> Vec<RefusedConnections> {
    let new = now.into_iter().map(|mut one| {
        let same = |then: &&RefusedConnections| {
            (&then.host, then.port, then.reason) == (&one.host, one.port, one.reason)
        };
        one.count -= before.iter().find(same).map_or(0, |then| then.count.min(one.count));
        one
    });
    new.filter(|one| one.count > 0).take(MAX_REFUSED).collect()
}

/// Bytes of input that the program has consumed.
#[derive(Default)]
struct Consumed {
    total: AtomicU64,
    more: Notify,
}

impl Consumed {
    fn add(&self, bytes: usize) {
        self.total.fetch_add(bytes as u64, Ordering::Relaxed);
        self.more.notify_one();
    }

    fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

/// Sends what is queued, and how much input was consumed.
async fn send(
    mut writer: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Frame>,
    consumed: Arc<Consumed>,
) -> io::Result<()> {
    let mut reported = 0;
    loop {
        tokio::select! {
            frame = queue.recv() => match frame {
                Some(frame) => {
                    let last = frame.kind == Kind::Message;
                    frame::write(&mut writer, &frame).await?;
                    if last {
                        return Ok(());
                    }
                }
                None => return Ok(()),
            },
            () = consumed.more.notified() => {
                let total = consumed.total();
                // At most a window.
                let news = u32::try_from(total - reported).unwrap_or(u32::MAX);
                reported = total;
                if news > 0 {
                    frame::write(&mut writer, &Frame::consumed(news)).await?;
                }
            }
        }
    }
}

/// Receives input and sizes of the terminal; completes when the client goes away.
async fn receive(
    mut reader: OwnedReadHalf,
    input: mpsc::UnboundedSender<Chunk>,
    size: watch::Sender<sandbox::TerminalSize>,
    consumed: &Consumed,
) -> io::Result<()> {
    let mut input = Some(input);
    let mut received = 0u64;
    while let Some(frame) = frame::read(&mut reader).await? {
        match frame.kind {
            Kind::Input if frame.bytes.is_empty() => input = None,
            Kind::Input => {
                received += frame.bytes.len() as u64;
                if received - consumed.total() > WINDOW as u64 {
                    return Err(invalid("more input than there is room for"));
                }
                // The program may have closed its input.
                let _ = input.as_ref().map(|input| input.send(Ok(frame.bytes)));
            }
            Kind::Resize => {
                size.send_replace(frame.size()?);
            }
            other => return Err(invalid(format!("an unexpected frame of the kind {other:?}"))),
        }
    }
    Ok(())
}

/// Writes a stream as frames.
struct FrameWriter {
    kind: Kind,
    queue: PollSender<Frame>,
}

impl FrameWriter {
    fn new(kind: Kind, queue: mpsc::Sender<Frame>) -> Self {
        Self { kind, queue: PollSender::new(queue) }
    }
}

impl AsyncWrite for FrameWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(self.queue.poll_reserve(context)).map_err(closed)?;
        let part = &bytes[..bytes.len().min(MAX_DATA)];
        let frame = Frame { kind: self.kind, bytes: part.to_vec() };
        self.queue.send_item(frame).map_err(closed)?;
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
