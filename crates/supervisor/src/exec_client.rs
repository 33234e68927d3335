//! The client's side of a running program: forwards its streams.

use std::{io, time::Duration};

use sandbox::{Exit, Input, Network, Output, Process, Status, Streams, TerminalSize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::{Mutex, Semaphore, watch},
};

use crate::{
    Error, Name,
    client::{Connection, broken},
    frame::{self, Frame, Kind, MAX_DATA, WINDOW, invalid},
    message::{Exec, ExecStreams, Exited, Response},
};

/// What a program gets that writes to a closed pipe.
const SIGPIPE: i32 = 13;

/// The request for a program with these streams.
pub(crate) fn request(name: &Name, process: &Process, streams: &Streams) -> Exec {
    Exec {
        name: name.clone(),
        argv: process.argv.clone(),
        env: process.env.clone(),
        workdir: process.workdir.as_deref().map(Into::into),
        timeout: process.timeout,
        streams: match streams {
            Streams::Pipes { stdin: None, .. } => ExecStreams::Output,
            Streams::Pipes { stdin: Some(_), .. } => ExecStreams::InputOutput,
            Streams::Terminal { size, .. } => ExecStreams::Terminal(*size.borrow()),
        },
    }
}

/// Forwards the streams of a program until it has ended.
pub(crate) async fn run(connection: Connection, streams: Streams) -> Result<Exited, Error> {
    let Connection { reader, writer } = connection;
    let writer = Mutex::new(writer);
    let window = Semaphore::new(WINDOW);
    let (input, size, outputs) = match streams {
        Streams::Pipes { stdin, stdout, stderr } => (stdin, None, (stdout, Some(stderr))),
        Streams::Terminal { input, output, size } => (Some(input), Some(size), (output, None)),
    };
    let receiving = receive(reader, outputs, &window);
    let sending = async {
        // A broken connection is noticed by the receiving side, which knows whether the program has ended.
        let _ = tokio::join!(send_input(input, &writer, &window), send_size(size, &writer));
        std::future::pending().await
    };
    tokio::select! {
        ended = receiving => ended,
        never = sending => never,
    }
}

/// Sends input, as much as the other side has room for.
async fn send_input(
    input: Option<Input>,
    writer: &Mutex<OwnedWriteHalf>,
    window: &Semaphore,
) -> io::Result<()> {
    let Some(mut input) = input else { return Ok(()) };
    let mut buffer = vec![0u8; MAX_DATA];
    loop {
        let room = window.acquire_many(MAX_DATA as u32).await.map_err(io::Error::other)?;
        // Input that cannot be read ends here: the program sees its end.
        let read = input.read(&mut buffer).await.unwrap_or(0);
        let unused = MAX_DATA - read;
        room.forget();
        window.add_permits(unused);
        let frame = Frame { kind: Kind::Input, bytes: buffer[..read].to_vec() };
        frame::write(&mut *writer.lock().await, &frame).await?;
        if read == 0 {
            return Ok(());
        }
    }
}

async fn send_size(
    size: Option<watch::Receiver<TerminalSize>>,
    writer: &Mutex<OwnedWriteHalf>,
) -> io::Result<()> {
    let Some(mut size) = size else { return Ok(()) };
    while size.changed().await.is_ok() {
        let now = *size.borrow_and_update();
        frame::write(&mut *writer.lock().await, &Frame::resize(now)).await?;
    }
    Ok(())
}

async fn receive(
    mut reader: OwnedReadHalf,
    (mut stdout, mut stderr): (Output, Option<Output>),
    window: &Semaphore,
) -> Result<Exited, Error> {
    loop {
        let frame = frame::read(&mut reader).await.map_err(broken)?.ok_or(Error::Ended)?;
        let to = match (frame.kind, &mut stderr) {
            (Kind::Output, _) => &mut stdout,
            (Kind::Errors, Some(stderr)) => stderr,
            (Kind::Consumed, _) => {
                let bytes = frame.count().map_err(broken)? as usize;
                if window.available_permits() + bytes > WINDOW {
                    return Err(broken(invalid("more input was consumed than sent")));
                }
                window.add_permits(bytes);
                continue;
            }
            _ => match frame.parse().map_err(broken)? {
                Response::Exited(exited) => return Ok(exited),
                Response::Failed(failure) => return Err(failure.into()),
                other => return Err(broken(invalid(format!("the unexpected answer {other:?}")))),
            },
        };
        match write(to, &frame.bytes).await {
            Ok(()) => {}
            // As if the program itself had written there. It is killed when the connection closes.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                let status = Status::Signaled(SIGPIPE);
                let exit = Exit { status, cause: None, duration: Duration::ZERO };
                return Ok(Exited { exit, refused: Vec::new(), network: Network::None });
            }
            Err(source) => {
                return Err(Error::Io { what: "forwarding the program's output".into(), source });
            }
        }
    }
}

async fn write(to: &mut Output, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}
