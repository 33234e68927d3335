//! Runs a program apart from the shell and forwards its streams.

use std::{
    sync::Arc,
    time::{Duration, Instant as Clock},
};

use bollard::{container::LogOutput, exec::ResizeExecOptions};
use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use sandbox::{Cause, Error, Exit, Input, Output, Process, Status, Streams, TerminalSize};
use tokio::{
    io::AsyncWriteExt,
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    daemon::Transport,
    exec::{Console, Poll, Running, StopOnDrop, status},
    failure::{during, is_reset},
    sandbox_impl::Inner,
};

/// If a program has ended but its output stays open, the output counts as complete after this long without a byte.
const QUIET: Duration = Duration::from_millis(300);
/// Looks the program up and executes it.
const SCRIPT: &str = r#"{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null; cd -- "$1" || exit 126; shift; exec -- "$@""#;
/// The same in a terminal, whose size is set before the program starts.
const TERMINAL_SCRIPT: &str = r#"{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null; stty rows "$1" cols "$2" 2>/dev/null; cd -- "$3" || exit 126; shift 3; exec -- "$@""#;

/// Runs a program.
pub(crate) async fn run(
    inner: &Arc<Inner>,
    process: &Process,
    streams: Streams,
) -> Result<Exit, Error> {
    let workdir = process.workdir.as_deref().unwrap_or(&inner.spec.workdir);
    let workdir = crate::config::utf8(workdir)?.to_owned();
    let (console, script, mut words) = match &streams {
        Streams::Pipes { .. } => (Console::Pipes, SCRIPT, vec![workdir]),
        Streams::Terminal { size, .. } => {
            let TerminalSize { rows, cols } = *size.borrow();
            let words = vec![rows.to_string(), cols.to_string(), workdir];
            (Console::Terminal, TERMINAL_SCRIPT, words)
        }
    };
    let counted = inner.begin_command().await?;
    let mut argv = inner.command(["-c", script, "bash"]);
    argv.append(&mut words);
    argv.extend(process.argv.iter().cloned());
    let start = inner.start(argv, &process.env, console);
    let Running { mark, exec, output, input } =
        inner.within("a program to start", inner.patience(), start).await?;
    let mut guard = StopOnDrop::new(inner, mark.clone());
    let (stdin, out, err, size) = match streams {
        Streams::Pipes { stdin, stdout, stderr } => (stdin, stdout, Some(stderr), None),
        Streams::Terminal { input, output, size } => (Some(input), output, None, Some(size)),
    };
    let _feeding = AbortOnDrop(tokio::spawn(feed(stdin, input)));
    let _sizing =
        size.map(|size| AbortOnDrop(tokio::spawn(resize(Arc::clone(inner), exec.clone(), size))));

    let mut flow = Flow { out, err, pending: None };
    let deadline = process.timeout.and_then(deadline_after);
    let mut output = output;
    let end = flow.follow(inner, &exec, &mut output, deadline).await?;
    let status = match end {
        End::Ended => status(inner.exit_code(&exec).await?),
        End::TimedOut => {
            inner.stop(&mark).await?;
            Status::TimedOut
        }
        // Its output is not read any more: as if killed by SIGPIPE.
        End::Unread => {
            inner.stop(&mark).await?;
            Status::Signaled(13)
        }
    };
    guard.disarm();
    flow.finish().await;
    let cause = match status {
        Status::TimedOut => Some(Cause::Timeout),
        _ if status.success() => None,
        _ => inner.cause(status, counted.as_ref()).await?,
    };
    Ok(Exit { status, cause, duration: Clock::now() - mark.started })
}

/// The end of a time limit; none where it lies beyond what a clock can show.
pub(crate) fn deadline_after(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}

/// Waits for a deadline, without one forever.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

enum End {
    Ended,
    TimedOut,
    Unread,
}

/// Output on its way to the caller.
struct Flow {
    out: Output,
    err: Option<Output>,
    /// Output that was read but not yet written.
    pending: Option<(Target, Bytes)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Target {
    Out,
    Err,
}

type Pieces = std::pin::Pin<
    Box<dyn futures_util::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>,
>;

impl Flow {
    /// Forwards output until the program has ended or its time limit is reached.
    async fn follow(
        &mut self,
        inner: &Inner,
        exec: &str,
        output: &mut Pieces,
        deadline: Option<Instant>,
    ) -> Result<End, Error> {
        let mut poll = Poll::new();
        let mut next = poll.next();
        let mut ended = None;
        loop {
            tokio::select! {
                written = write_some(&mut self.out, &mut self.err, &mut self.pending), if self.pending.is_some() => {
                    if written.is_err() {
                        return Ok(End::Unread);
                    }
                }
                piece = output.next(), if self.pending.is_none() => {
                    let piece = match piece {
                        None => return Ok(End::Ended),
                        // The program has ended without reading its input. Over a network, the end of its output may be
                        // lost with it.
                        Some(Err(error)) if is_reset(&error) && inner.daemon.transport == Transport::Socket => {
                            return Ok(End::Ended);
                        }
                        Some(piece) => piece.map_err(during("reading a program's output"))?,
                    };
                    let target = match piece {
                        LogOutput::StdErr { .. } if self.err.is_some() => Target::Err,
                        _ => Target::Out,
                    };
                    self.pending = Some((target, piece.into_bytes()));
                    if ended.is_some() {
                        next = Instant::now() + QUIET;
                    }
                }
                () = until(deadline) => return Ok(End::TimedOut),
                () = sleep_until(next), if self.pending.is_none() => {
                    if ended.is_some() {
                        return Ok(End::Ended);
                    }
                    ended = inner.ended(exec).await?;
                    next = if ended.is_some() { Instant::now() + QUIET } else { poll.next() };
                }
            }
        }
    }

    async fn finish(mut self) {
        let _ = self.out.flush().await;
        if let Some(err) = &mut self.err {
            let _ = err.flush().await;
        }
    }
}

/// Writes part of the pending output, so that waiting for a slow reader can be cancelled.
async fn write_some(
    out: &mut Output,
    err: &mut Option<Output>,
    pending: &mut Option<(Target, Bytes)>,
) -> std::io::Result<()> {
    let Some((target, bytes)) = pending else { return Ok(()) };
    let writer = match (*target, err) {
        (Target::Err, Some(err)) => err,
        _ => out,
    };
    if bytes.has_remaining() {
        let written = writer.write(bytes).await?;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        bytes.advance(written);
    }
    if !bytes.has_remaining() {
        writer.flush().await?;
        *pending = None;
    }
    Ok(())
}

async fn feed(
    stdin: Option<Input>,
    mut input: std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>,
) {
    if let Some(mut stdin) = stdin {
        // A program need not read all of its input.
        let _ = tokio::io::copy(&mut stdin, &mut input).await;
    }
    let _ = input.shutdown().await;
    // Dropping it early would close the stream in both directions.
    std::future::pending::<()>().await;
}

async fn resize(inner: Arc<Inner>, exec: String, mut size: watch::Receiver<TerminalSize>) {
    while size.changed().await.is_ok() {
        let TerminalSize { rows, cols } = *size.borrow_and_update();
        let options = ResizeExecOptions { height: rows, width: cols };
        // Fails for a program that has just ended.
        let _ = inner.docker.resize_exec(&exec, options).await;
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_beyond_all_clocks_is_none() {
        assert!(deadline_after(Duration::from_secs(1)).is_some());
        assert!(deadline_after(Duration::MAX).is_none());
    }
}
